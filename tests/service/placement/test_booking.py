"""nodes_free through the API: never booked twice, never lost, whatever comes between, on both kinds of store."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow.service import Service, Settings
from rainbow.service.scheduler.step import step
from rainbow.store import open_store
from tests.conftest import ADMIN, REGISTRATION, Api, Cluster, grid, jobspec
from tests.support.postgres import Postgres

NODES = 20
SELECTOR = {
    "name": "constraint",
    "options": {"priorities": [{"priority": 1, "steps": [{"filter": "nodes_free > 0"}]}]},
}
GRAPH = grid(NODES, 1)
numbers = itertools.count()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    url = str(tmp_path_factory.mktemp("booking") / "rainbow.db")
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").new_database()
    service = Service(open_store(url), Settings(secret=REGISTRATION, admin=ADMIN))
    yield Api(service)
    service.close()


@pytest.fixture
def cluster(api: Api) -> Cluster:
    return fresh(api)


def fresh(api: Api) -> Cluster:
    """A cluster of 20 free nodes, under a name that was never used."""
    made = api.register(f"c{next(numbers)}", GRAPH, state={"nodes_free": NODES})
    made.say("heartbeat", running=[])
    return made


def ask(cluster: Cluster, nodes: int) -> Any:
    """Submit a job of so many nodes; Flask's answer."""
    body = {"jobspec": jobspec(nodes), "selector": SELECTOR}
    return cluster.api.call("POST", "/v1/jobs", body, cluster.token)


def effective(cluster: Cluster) -> Any:
    answer = cluster.api.good("GET", f"/v1/clusters/{cluster.name}/state", None, cluster.secret)
    return answer["effective"]["nodes_free"]


def all_at_once(work: list[Any]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_200_submits_at_once_book_every_node_once(cluster: Cluster) -> None:
    answers: list[tuple[int, Any]] = []
    start = threading.Barrier(200)

    def submit(nodes: int) -> None:
        start.wait()
        answers.append((nodes, ask(cluster, nodes)))

    all_at_once([lambda nodes=1 + k % 3: submit(nodes) for k in range(200)])
    assert len(answers) == 200
    assert sum(nodes for nodes, answer in answers if answer.status_code == 201) == NODES
    refused = [(nodes, answer.get_json()) for nodes, answer in answers if answer.status_code != 201]
    assert {reported["status"] for _, reported in refused} == {409}
    for nodes, reported in refused:
        (why,) = reported["selection"]["drops"].values()
        needed, free = re.fullmatch(
            r"booking: job needs (1 node|\d nodes), but (none is|only 1 is|only \d are) free \(nodes_free\)", why
        ).groups()
        assert int(needed.split()[0]) == nodes > int(free.split()[1].replace("is", "0"))
    assert effective(cluster) == 0


def test_reports_between_submits_neither_double_nor_lose_a_booking(cluster: Cluster) -> None:
    """An agent takes jobs and reports truly while sixty submits come."""
    placed: list[int] = []
    held: dict[str, int] = {}
    over = threading.Event()

    def submit(nodes: int) -> None:
        if ask(cluster, nodes).status_code == 201:
            placed.append(nodes)

    def report() -> None:
        cluster.api.good(
            "PUT", f"/v1/clusters/{cluster.name}/state", {"nodes_free": NODES - sum(held.values())}, cluster.secret
        )

    def agent() -> None:
        while not over.is_set():
            for offer in cluster.take():
                held[offer["id"]] = len(offer["placement"])
            report()

    thread = threading.Thread(target=agent)
    thread.start()
    all_at_once([lambda nodes=1 + k % 3: submit(nodes) for k in range(60)])
    over.set()
    thread.join()
    assert sum(placed) == NODES - effective(cluster)
    assert sum(placed) <= NODES
    assert effective(cluster) == 0, "sixty wanted some: nothing can be left"


# ── any interleaving ────────────────────────────────────────────────────────────────────────────────────────

EVENTS = st.lists(
    st.tuples(st.sampled_from(["submit", "submit", "accept", "end", "report", "mention"]), st.integers(0, 8)),
    max_size=14,
)


class History:
    """What has happened to one cluster, kept beside the service and compared with it after every event."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.live: dict[str, int] = {}  # job → nodes
        self.offers: dict[str, dict[str, Any]] = {}  # job → the offer the agent has accepted

    @property
    def free(self) -> int:
        return NODES - sum(self.live.values())

    def submit(self, k: int) -> None:
        answer = ask(self.cluster, k + 1)
        assert answer.status_code == (201 if k + 1 <= self.free else 409)
        if answer.status_code == 201:
            self.live[answer.get_json()["id"]] = k + 1

    def accept(self, k: int) -> None:
        step(self.cluster.api.service, self.cluster.name)
        offers = self.cluster.say("receive", max=100)["tasks"]
        if offers:
            offer = offers[k % len(offers)]
            requirements = [{"id": offer["id"], "attempt": offer["attempt"]}]
            assert self.cluster.say("accept", tasks=requirements)["accepted"] == [offer["id"]]
            self.offers[offer["job"]] = offer

    def end(self, k: int) -> None:
        if not self.live:
            return
        job = sorted(self.live)[k % len(self.live)]
        if job in self.offers:
            self.cluster.end(self.offers.pop(job))
        else:
            self.cluster.api.good("DELETE", f"/v1/jobs/{job}", None, self.cluster.token)
        del self.live[job]

    def report(self, _: int) -> None:
        taken = sum(self.live[job] for job in self.offers)
        state = {"nodes_free": NODES - taken}
        self.cluster.api.good("PUT", f"/v1/clusters/{self.cluster.name}/state", state, self.cluster.secret)

    def mention(self, k: int) -> None:
        """Report something else: the nodes are as they were counted before."""
        self.cluster.api.good("PATCH", f"/v1/clusters/{self.cluster.name}/state", {"cost": k}, self.cluster.secret)


@pytest.mark.parametrize("free", [20, 20.0])
def test_report_of_something_else_loses_no_booking(cluster: Cluster, free: float) -> None:
    """Accepted since the nodes were counted, and since then only the price was reported."""
    where = f"/v1/clusters/{cluster.name}/state"
    cluster.api.good("PUT", where, {"nodes_free": free, "cost": 1}, cluster.secret)
    assert ask(cluster, 3).status_code == 201
    cluster.take()
    assert effective(cluster) == 17
    assert cluster.api.good("PATCH", where, {"cost": 2}, cluster.secret) == {"nodes_free": free, "cost": 2}
    assert effective(cluster) == 17
    cluster.api.good("PATCH", where, {"nodes_free": 17}, cluster.secret)
    assert effective(cluster) == 17
    cluster.api.good("PUT", where, {"cost": 3}, cluster.secret)
    answer = cluster.api.good("GET", where, None, cluster.secret)
    assert (answer["state"], answer["effective"]) == ({"cost": 3}, {"cost": 3})


def live_through(api: Api, events: list[tuple[str, int]]) -> None:
    history = History(fresh(api))
    for what, k in events:
        getattr(history, what)(k)
        assert effective(history.cluster) == history.free


@given(EVENTS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_effective_nodes_free_after_any_interleaving_is_what_no_live_job_holds(
    api: Api, events: list[tuple[str, int]]
) -> None:
    live_through(api, events)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@given(EVENTS)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_effective_nodes_free_after_any_interleaving_campaign(api: Api, events: list[tuple[str, int]]) -> None:
    live_through(api, events)


# ── several servers on one store ────────────────────────────────────────────────────────────────────────────


def test_200_submits_at_once_to_two_servers_book_every_node_once(postgres_server: Postgres) -> None:
    url = postgres_server.new_database()
    services = [Service(open_store(url), Settings(secret=REGISTRATION, admin=ADMIN)) for _ in range(2)]
    oak = fresh(Api(services[0]))
    servers = [oak, Cluster(Api(services[1]), oak.name, {"token": oak.token, "secret": oak.secret})]
    placed: list[int] = []
    start = threading.Barrier(200)

    def submit(k: int) -> None:
        start.wait()
        if ask(servers[k % 2], 1 + k % 3).status_code == 201:
            placed.append(1 + k % 3)

    all_at_once([lambda k=k: submit(k) for k in range(200)])
    assert sum(placed) == NODES
    assert effective(oak) == effective(servers[1]) == 0
    for service in services:
        service.close()
