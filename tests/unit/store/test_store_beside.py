"""Servers that write beside each other on one PostgreSQL: at once, and in an order that readers can follow."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from rainbow.service import Service, Settings
from rainbow.service.jobs import numbers
from rainbow.store import Store, cluster_states, clusters, events, open_store
from rainbow.store.cluster_states import StateBoard
from rainbow.store.engine import Contended, NeedsExclusiveWrite
from rainbow.store.schema import jobs
from tests.conftest import ADMIN, REGISTRATION, Api, Cluster, grid, jobspec
from tests.service.placement.test_booking import SELECTOR, all_at_once
from tests.support.postgres import Postgres

WRITERS, ROUNDS = 4, 30


@pytest.fixture
def pair(postgres_server: Postgres) -> Iterator[list[Store]]:
    url = postgres_server.new_database()
    stores = [open_store(url) for _ in range(2)]
    yield stores
    for store in stores:
        store.close()


def beside(store: Store, *parts: Callable[[sa.Connection], object]) -> list[BaseException | None]:
    return [work.fault for work in store.all_together(parts, beside=True)]


def test_two_servers_are_inside_a_write_at_once_and_one_that_is_alone_is_not_among_them(pair: list[Store]) -> None:
    both, inside, alone = threading.Barrier(2, timeout=20), [], threading.Event()

    def part(_: sa.Connection) -> None:
        inside.append(1)
        both.wait()
        alone.wait(0.2)
        inside.pop()

    def only(_: sa.Connection) -> None:
        assert not inside
        alone.set()

    works = [lambda: beside(pair[0], part), lambda: beside(pair[1], part)]
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    while len(inside) < 2:
        time.sleep(0.001)
    pair[0].together(only)
    for thread in threads:
        thread.join()


def test_no_reader_passes_an_event_that_is_stored_later(pair: list[Store]) -> None:
    """However long a transaction takes after its part, and in whatever order they commit."""
    done = threading.Event()
    seen: list[tuple[int, str]] = []

    def write(k: int) -> None:
        chance = random.Random(k)
        for n in range(ROUNDS):

            def part(connection: sa.Connection, text: str = f"{k}.{n}") -> None:
                events.add(connection, 0.0, "c", "job", told=text)
                time.sleep(chance.random() / 200)

            if chance.random() < 0.2:
                pair[k % 2].together(part)
            else:
                assert beside(pair[k % 2], part, part) == [None, None]

    def read() -> None:
        while True:
            last = done.is_set()
            upto = pair[0].event_horizon().number
            with pair[0].read() as connection:
                result = events.after(connection, seen[-1][0] if seen else 0, None, upto=upto)
            seen.extend((event.number, event.facts["told"]) for event in result)
            if last:
                return

    reader = threading.Thread(target=read)
    reader.start()
    all_at_once([lambda k=k: write(k) for k in range(WRITERS)])
    done.set()
    reader.join()
    with pair[1].read() as connection:
        stored = [(event.number, event.facts["told"]) for event in events.after(connection, 0, None, most=10_000)]
    assert seen == stored
    assert len({text for _, text in stored}) == WRITERS * ROUNDS


def test_event_is_read_once_all_before_it_are_stored(pair: list[Store]) -> None:
    """Numbers 1 and 2: the second is committed while the first is being stored."""
    numbered, leave = threading.Event(), threading.Event()

    def hold(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if statement.startswith("INSERT INTO events"):
            numbered.set()
            leave.wait(20)

    def part(connection: sa.Connection) -> None:
        events.add(connection, 0.0, "c", "job")

    sa.event.listen(pair[0].engine, "after_cursor_execute", hold)
    slow = threading.Thread(target=lambda: beside(pair[0], part))
    slow.start()
    assert numbered.wait(20)
    assert beside(pair[1], part) == [None]
    assert pair[1].event_horizon() == (0, False)
    with pair[1].read() as connection:
        assert [event.number for event in events.after(connection, 0, None)] == [2]
        assert (events.after(connection, 0, None, upto=0), events.last(connection, 0)) == ([], 0)
    leave.set()
    slow.join()
    assert pair[1].event_horizon() == (2, True)


def test_part_that_fails_leaves_no_event_and_the_others_theirs(pair: list[Store]) -> None:
    def part(connection: sa.Connection, *, fails: bool = False) -> None:
        events.add(connection, 0.0, "c", "job", fails=fails)
        if fails:
            raise NeedsExclusiveWrite

    faults = beside(pair[0], part, lambda connection: part(connection, fails=True), part)
    assert [type(fault) for fault in faults] == [type(None), NeedsExclusiveWrite, type(None)]
    with pair[1].read() as connection:
        assert [event.facts for event in events.after(connection, 0, None)] == [{"fails": False}] * 2


def test_part_that_is_overtaken_is_done_again_beside_the_other_server(pair: list[Store]) -> None:
    entered, leave, faults = threading.Event(), threading.Event(), [Contended()]

    def hold(_: sa.Connection) -> None:
        entered.set()
        assert leave.wait(20)

    def part(_: sa.Connection) -> str:
        if faults:
            raise faults.pop()
        return "done"

    holder = threading.Thread(target=lambda: beside(pair[0], hold))
    holder.start()
    assert entered.wait(20)
    assert [work.result for work in pair[1].all_in_order([part], beside=True)] == ["done"]
    leave.set()
    holder.join()


# ── submits ──


@pytest.fixture
def servers(postgres_server: Postgres) -> Iterator[list[Cluster]]:
    url = postgres_server.new_database()
    services = [Service(open_store(url), Settings(secret=REGISTRATION, admin=ADMIN)) for _ in range(2)]
    oak = Api(services[0]).register("oak", grid(60, 1))
    yield [oak, Cluster(Api(services[1]), oak.name, {"token": oak.token, "secret": oak.secret})]
    for service in services:
        service.close()


def test_submit_to_a_cluster_that_another_server_writes_to_waits_for_it(servers: list[Cluster]) -> None:
    entered, leave = threading.Event(), threading.Event()
    store = servers[0].api.service.store

    def hold(connection: sa.Connection) -> None:
        assert clusters.lock(connection, "oak")
        entered.set()
        leave.wait(20)

    holder = threading.Thread(target=lambda: beside(store, hold))
    holder.start()
    entered.wait(20)
    answers: list[int] = []
    submits = threading.Thread(target=lambda: answers.append(ask(servers[1], "first")))
    submits.start()
    submits.join(0.3)
    assert not answers
    leave.set()
    submits.join(20)
    holder.join()
    assert answers == [201]


def ask(cluster: Cluster, key: str) -> int:
    return int(cluster.api.call("POST", "/v1/jobs", jobspec(), cluster.token, Idempotency_Key=key).status_code)


def test_states_kept_in_memory_miss_no_booking_whose_event_is_stored_later(servers: list[Cluster]) -> None:
    here, there = (cluster.api.service for cluster in servers)
    numbered, leave, oak = threading.Event(), threading.Event(), here.catalogue["oak"].id

    def hold(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if statement.startswith("INSERT INTO events"):
            numbered.set()
            leave.wait(20)

    sa.event.listen(here.store.engine, "after_cursor_execute", hold)
    slow = threading.Thread(target=ask, args=[servers[0], "slow"])
    slow.start()
    assert numbered.wait(20)
    assert beside(there.store, lambda connection: events.add(connection, 0.0, "elm", "job")) == [None]
    board = StateBoard()
    board.advance(there.store, lambda: {oak: "oak"}, [oak])
    leave.set()
    slow.join()
    assert board.board is not None
    with there.store.read() as connection:
        result = cluster_states.changed(connection, board.board.event)
    assert result is not None
    assert oak in result


def test_one_key_sent_to_two_servers_at_once_makes_one_job(servers: list[Cluster]) -> None:
    codes: list[int] = []
    all_at_once([lambda k=k: codes.append(ask(servers[k % 2], f"key{k // 4}")) for k in range(32)])
    assert sorted(codes) == [200] * 24 + [201] * 8
    with servers[0].api.service.store.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM jobs").scalar() == 8


def test_node_that_another_server_books_between_choice_and_lock_is_not_booked_again(servers: list[Cluster]) -> None:
    servers[0].api.good("PUT", "/v1/clusters/oak/state", {"nodes_free": 1}, servers[0].secret)
    one = {"jobspec": jobspec(), "selector": SELECTOR}
    for server in servers:
        numbers.take(server.api.service, 1)  # a block each: the one in between need not write alone for its number
    codes: list[int] = []

    def submit(k: int) -> None:
        codes.append(servers[k].api.call("POST", "/v1/jobs", one, servers[k].token).status_code)

    def overtake(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if "FOR NO KEY UPDATE" in statement and not codes:
            submit(1)

    sa.event.listen(servers[0].api.service.store.engine, "before_cursor_execute", overtake)
    submit(0)
    assert codes == [201, 409]


def test_as_many_of_128_submits_to_two_servers_are_placed_as_nodes_are_free(servers: list[Cluster]) -> None:
    servers[0].api.good("PUT", "/v1/clusters/oak/state", {"nodes_free": 60}, servers[0].secret)
    one, codes = {"jobspec": jobspec(), "selector": SELECTOR}, Counter()

    def submit(k: int) -> None:
        codes[servers[k % 2].api.call("POST", "/v1/jobs", one, servers[k % 2].token).status_code] += 1

    all_at_once([lambda k=k: submit(k) for k in range(128)])
    assert codes == {201: 60, 409: 68}


def test_no_node_of_many_clusters_is_booked_twice_by_two_servers(servers: list[Cluster]) -> None:
    """So many that who is overtaken chooses again beside the other server."""
    here, there = (cluster.api for cluster in servers)
    made = [here.register(f"elm{k}", grid(5, 1), state={"nodes_free": 5}) for k in range(12)]
    there.service.refresh()
    one, codes, tokens = {"jobspec": jobspec(), "selector": SELECTOR}, Counter(), [each.token for each in made]

    def submit(k: int) -> None:
        codes[(here, there)[k % 2].call("POST", "/v1/jobs", one, *tokens).status_code] += 1

    all_at_once([lambda k=k: submit(k) for k in range(128)])
    assert codes == {201: 60, 409: 68}
    with here.service.store.read() as connection:
        placed = connection.execute(sa.select(jobs.c.cluster, sa.func.count()).group_by(jobs.c.cluster))
        assert {tuple(row) for row in placed} == {(each.name, 5) for each in made}


def test_jobs_that_may_not_run_beside_each_other_wait_in_one_line_wherever_they_are_sent(
    servers: list[Cluster],
) -> None:
    elm = servers[0].api.register("elm", grid(60, 1))
    servers[1].api.service.refresh()
    named = {"scheme": "string", "type": "inout", "value": "x", "scope": "user"}
    spec, tokens, codes = jobspec(1, dependencies=[named]), (servers[0].token, elm.token), Counter()

    def submit(k: int) -> None:
        body = {"jobspec": spec, "clusters": [{"name": ("oak", "elm")[k // 2 % 2]}], "requestor": "ann"}
        codes[servers[k % 2].api.call("POST", "/v1/jobs", body, *tokens).status_code] += 1

    all_at_once([lambda k=k: submit(k) for k in range(16)])
    assert codes == {201: 16}
    with servers[0].api.service.store.read() as connection:
        awaited = [row[0] or [] for row in connection.execute(sa.select(jobs.c.awaits))]
    assert sorted(map(len, awaited)) == list(range(16))
