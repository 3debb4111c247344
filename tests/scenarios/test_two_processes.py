"""Several processes on one PostgreSQL: servers without a scheduler, schedulers without a server."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from rainbow.client import Client
from rainbow.errors import Unavailable
from rainbow.scheduling import check_plan
from rainbow.service import Service, Settings
from rainbow.service.agents.liveness import store_signs
from rainbow.service.core import sessions
from rainbow.service.core.pg_notify import PgNotify
from rainbow.service.core.pubsub import offers_to_all, work_for
from rainbow.service.core.service import Outlook
from rainbow.service.scheduler.step import step
from rainbow.state_machine import job_of
from rainbow.store import open_store, postgresql
from tests.conftest import ADMIN, REGISTRATION, Api, Clock, grid, jobspec
from tests.scenarios.test_end_to_end import ROOT, until
from tests.service.agents.test_polls import Asked
from tests.service.placement.test_choose_by_time import alive, forecast, submit, wide
from tests.support.ports import free_port
from tests.support.postgres import Postgres

LONG = pytest.param(
    int(os.environ.get("RAINBOW_FAULT_ROUNDS", "50")), marks=[pytest.mark.soak, pytest.mark.timeout(3_000)]
)
SPEC = {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": [{"command": ["true"], "resources": "w"}]}


def register(url: str, graph: Any) -> Any:
    """Register oak."""
    return Client(url, REGISTRATION).register_cluster("oak", graph)


class Processes:
    """`rainbow` processes on one database."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder, self.database = folder, database
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        options = {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "RAINBOW_DATABASE": self.database}
        keys = {"RAINBOW_REGISTRATION_SECRET": REGISTRATION, "RAINBOW_ADMIN_TOKEN": ADMIN}
        command = [sys.executable, "-m", "rainbow", *arguments]
        with (self.folder / f"{len(self.running)}-{arguments[0]}.log").open("wb") as log:
            made = subprocess.Popen(
                command, env={**os.environ, **options, **keys, **more}, stdout=log, stderr=log, cwd=self.folder
            )
        self.running.append(made)
        return made

    def serve(self) -> str:
        port = free_port()
        self.start("serve", "--port", str(port), "--no-scheduler")
        url = f"http://127.0.0.1:{port}"
        until(Client(url, tries=1).ready)
        return url

    def end(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@pytest.fixture
def processes(tmp_path: Path, postgres_server: Postgres) -> Iterator[Processes]:
    made = Processes(tmp_path, postgres_server.new_database())
    yield made
    made.end()


def test_jobs_run_through_any_server_and_go_on_when_a_scheduler_dies_or_stands_still(processes: Processes) -> None:
    urls = [processes.serve(), processes.serve()]
    schedulers = [processes.start("scheduler"), processes.start("scheduler")]
    oak = register(urls[0], grid(8, 2))
    there = [Client(url, oak["token"]) for url in urls]
    for url in urls:
        processes.start("agent", "--cluster", "oak", "--url", url, RAINBOW_SECRET=oak["secret"])
    jobs = [there[k % 2].submit(SPEC)["id"] for k in range(8)]
    until(lambda: len(list(there[0].all_jobs(state="COMPLETED"))) == 8)
    schedulers[0].send_signal(signal.SIGSTOP)  # wherever it is in its step
    jobs += [there[k % 2].submit(SPEC)["id"] for k in range(8)]
    until(lambda: len(list(there[1].all_jobs(state="COMPLETED"))) == 16, seconds=90)
    schedulers[0].send_signal(signal.SIGCONT)
    schedulers[1].kill()
    jobs += [there[k % 2].submit(SPEC)["id"] for k in range(8)]
    until(lambda: len(list(there[1].all_jobs(state="COMPLETED"))) == 24)
    assert sorted(job["id"] for job in there[0].all_jobs()) == sorted(jobs)
    assert {task["attempt"] for job in jobs for task in there[0].job(job)["tasks"]} == {1}


@pytest.mark.parametrize("rounds", [2, LONG])
def test_schedulers_paused_and_woken_at_random_start_nothing_twice(processes: Processes, rounds: int) -> None:
    """Whoever is stopped in the middle of a step carries nothing out once another has planned the same cluster."""
    url, chance = processes.serve(), random.Random(rounds)
    schedulers = [processes.start("scheduler") for _ in range(3)]
    oak = register(url, grid(2, 2))
    there = Client(url, oak["token"])
    processes.start("agent", "--cluster", "oak", "--url", url, RAINBOW_SECRET=oak["secret"])
    jobs = []
    for _ in range(rounds):
        paused = chance.choice(schedulers)
        jobs += [there.submit(SPEC)["id"] for _ in range(4)]
        time.sleep(chance.uniform(0, 0.2))
        paused.send_signal(signal.SIGSTOP)
        jobs += [there.submit(SPEC)["id"] for _ in range(4)]
        time.sleep(chance.uniform(0, 2))
        paused.send_signal(signal.SIGCONT)
    until(lambda: len(list(there.all_jobs(state="COMPLETED"))) == len(jobs), seconds=180)
    states: dict[str, list[str]] = {}
    for event in there.stream(0, follow=False):
        if event["event"] == "task":
            states.setdefault(event["data"]["task"], []).append(event["data"]["state"])
    assert len(states) == len(jobs)
    # assigned once, accepted once: two plans carried out at a time would show here
    assert {tuple(state for state in each if state != "RUNNING") for each in states.values()} == {
        ("ASSIGNED", "ACCEPTED", "COMPLETED")
    }


# ── in this process, so that each moment can be chosen ──


@pytest.fixture
def pair(database: str, clock: Clock) -> Iterator[list[Service]]:
    settings = Settings(secret=REGISTRATION, admin=ADMIN)
    made = [Service(open_store(database), settings, clock) for _ in range(2)]
    yield made
    for each in made:
        each.close()


def test_what_one_process_registers_and_changes_the_other_uses_at_once(pair: list[Service]) -> None:
    here, there = map(Api, pair)
    oak = here.register("oak")
    assert there.good("POST", "/v1/jobs", jobspec(), oak.token)["cluster"] == "oak"
    here.good("PUT", "/v1/clusters/oak/graph", grid(5, 1), oak.secret)
    assert there.good("GET", "/v1/clusters/oak", None, oak.token)["totals"]["node"] == 5
    there.good("PUT", "/v1/clusters/oak/graph", grid(6, 1), oak.secret)
    here.service.refresh()
    assert here.good("POST", "/v1/match", jobspec(6), oak.token)["candidates"]
    there.good("DELETE", "/v1/clusters/oak?drain=true", None, oak.secret)
    here.service.refresh()
    assert here.good("GET", "/v1/clusters", None, ADMIN)["clusters"] == []


def test_signs_of_life_come_to_any_process(pair: list[Service], clock: Clock) -> None:
    here, there = map(Api, pair)
    oak = here.register("oak")
    there.good("POST", "/v1/jobs", jobspec(), oak.token)
    oak.say("heartbeat")
    assert step(there.service, "oak")
    clock.now += here.service.settings.lease + 1
    there.good("POST", "/v1/clusters/oak/heartbeat", {"agent": "a"}, oak.secret)
    step(here.service, "oak")
    [worker, _] = here.good("GET", "/v1/clusters/oak/workers", None, oak.secret)["workers"]
    assert worker["state"] == "READY"


def test_news_comes_to_the_other_process(pair: list[Service]) -> None:
    if not pair[0].store.many_processes:
        pytest.skip("one process serves a SQLite file")
    peers = [PgNotify(each) for each in pair]
    for each in peers:
        each.start()
    here, there = map(Api, pair)
    oak = here.register("oak")
    until(lambda: "oak" in there.service.catalogue, seconds=10)
    elm = here.register("elm")
    until(lambda: "elm" in there.service.catalogue, seconds=10)
    quiet = there.service.news.pause([offers_to_all(there.service.catalogue["elm"].id)], 0)
    here.good("PUT", "/v1/clusters/oak/graph", grid(3, 2), oak.secret)
    until(lambda: there.service.catalogue["oak"].revision == 2, seconds=10)
    assert not there.service.news.is_over(quiet)  # a graph wakes the agents of its own cluster
    version = there.service.news.version()
    here.good("POST", "/v1/jobs", jobspec(), oak.token)
    assert there.service.news.wait("", version, 10) > version
    here.good("DELETE", "/v1/clusters/elm", None, elm.secret)
    until(lambda: "elm" not in there.service.catalogue, seconds=10)
    for each in peers:
        each.stop()


def test_jobs_sent_to_two_servers_in_turns_spread_evenly_over_equal_clusters(pair: list[Service]) -> None:
    if not pair[0].store.many_processes:
        pytest.skip("one process serves a SQLite file")
    peers, (here, there) = [PgNotify(each) for each in pair], map(Api, pair)
    for each in peers:
        each.start()
    four = [here.register(name, grid(1, 8)) for name in ("ash", "elm", "fir", "oak")]
    for cluster in four:
        alive(cluster)
    forecast(here)
    until(lambda: here.service.news.heard and there.service.news.heard and len(there.service.catalogue) == 4)
    counts: Counter[str] = Counter()
    for turn in range(12):
        api, other = (here, there) if turn % 2 == 0 else (there, here)
        counts[submit(api, four, wide(8))["cluster"]] += 1
        until(lambda other=other, turn=turn: booked(other.service) > turn)
    assert set(counts.values()) == {3}
    for each in peers:
        each.stop()


def booked(service: Service) -> int:
    return sum(map(len, service.state(Outlook)._booked.values()))


def test_a_token_revoked_at_one_server_ends_in_sessions_of_the_other(pair: list[Service]) -> None:
    here, there = pair
    if not here.store.many_processes:
        pytest.skip("one process serves a SQLite file")
    oak = Api(here).register("oak")
    minted = Api(here).good("POST", "/v1/tokens", {"clusters": ["oak"]}, oak.secret)
    made = sessions.begin(there, [minted["token"]])
    assert sessions.find(there, made.cookie) == made
    Api(here).good("DELETE", f"/v1/tokens/{minted['id']}", None, oak.secret)
    assert sessions.find(there, made.cookie) is None


def test_a_poll_from_memory_hears_of_what_another_process_assigns(pair: list[Service]) -> None:
    here, there = pair
    if not here.store.many_processes:
        pytest.skip("one process serves a SQLite file")
    peers = [PgNotify(each, partial(store_signs, each)) for each in pair]
    for each in peers:
        each.start()
    oak = Api(here).register("oak", grid(1, 1))
    oak.say("heartbeat")
    until(lambda: here.news.heard and "oak" in there.catalogue, seconds=10)
    request = Asked(here, oak)
    assert [request.poll()[1]["tasks"] for _ in range(3)] == [[]] * 3
    assert request.seen == 1
    Api(there).good("POST", "/v1/jobs", jobspec(), oak.token)
    assert step(there, "oak")
    assert len(request.poll(wait=10)[1]["tasks"]) == 1
    for each in peers:
        each.stop()
    request.loop.close()


def test_writer_that_has_stopped_in_a_pipeline_is_cut_off(
    pair: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = pair
    if not here.store.many_processes:
        pytest.skip("SQLite has no pipeline")
    monkeypatch.setattr(postgresql, "IDLE", 0.5)
    with psycopg.connect(here.store.engine.url.set(drivername="postgresql").render_as_string(False)) as stopped:
        stopped.pgconn.enter_pipeline_mode()
        stopped.pgconn.send_query_params(b"BEGIN", None)
        stopped.pgconn.send_query_params(b"SELECT pg_advisory_xact_lock(%d)" % postgresql.WRITERS, None)
        stopped.pgconn.flush()
        written = threading.Thread(target=here.store.together, args=[lambda _: None])
        until(lambda: held(here), seconds=10)
        written.start()
        PgNotify(here)._look()
        written.join(1)
        assert written.is_alive()
        PgNotify(here)._look()
        written.join(20)
        assert not written.is_alive()
        stopped.close()


ADVISORY = """
    SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def held(service: Service) -> bool:
    with service.store.look() as connection:
        return bool(connection.exec_driver_sql(ADVISORY).scalar())


def test_work_of_a_server_that_told_nobody_is_looked_for(pair: list[Service]) -> None:
    here, there = pair
    oak = Api(here).register("oak", grid(1, 1))
    oak.say("heartbeat")
    there.refresh()
    Api(there).good("POST", "/v1/jobs", jobspec(), oak.token)
    woken: list[bool] = []
    with here.news.listening([work_for(here.catalogue["oak"].id)], lambda: woken.append(True)):
        PgNotify(here)._look_for_offers()
        assert not woken
        assert step(there, "oak")
        PgNotify(here)._look_for_offers()
        assert woken


def test_cluster_is_stepped_by_one_process_at_a_time(pair: list[Service]) -> None:
    here, there = pair
    if not here.store.many_processes:
        assert here.turns.scheduling()
        assert not there.turns.scheduling()
        here.turns.close()
        assert there.turns.scheduling()
        return
    with here.turns.of("oak") as mine, there.turns.of("oak") as yours, there.turns.of("elm") as other:
        assert (mine is None, yours is None, other is None) == (False, True, False)
    with there.turns.of("oak") as yours:
        assert yours is not None


def test_scheduler_that_was_paused_writes_nothing_of_what_it_planned(
    pair: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder stands still between plan and write; the other steps; what the holder then writes must fail."""
    here, there = pair
    if not here.store.many_processes:
        pytest.skip("one process steps the clusters of a SQLite file")
    monkeypatch.setattr("rainbow.store.step_lock.PAUSED", 1)
    api = Api(here)
    oak = api.register("oak", grid(1, 1))
    there.refresh()
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    oak.say("heartbeat")
    steps: list[Any] = []

    def pause(*arguments: Any) -> Any:
        monkeypatch.undo()
        time.sleep(3)  # the server has cut the holder off by now
        steps.append(step(there, "oak"))
        return check_plan(*arguments)

    monkeypatch.setattr("rainbow.service.scheduler.step.check_plan", pause)
    with pytest.raises(Unavailable):
        step(here, "oak")
    assert steps == [True]
    [task] = api.good("GET", f"/v1/jobs/{job}", None, oak.token)["tasks"]
    assert (task["state"], task["attempt"]) == ("ASSIGNED", 1)


def test_many_writers_of_two_processes_lose_nothing_and_double_nothing(pair: list[Service]) -> None:
    apis = [Api(each) for each in pair]
    oak = apis[0].register("oak", grid(4, 4))
    ids: list[str] = []

    def submit(api: Api) -> None:
        ids.extend(api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"] for _ in range(8))

    threads = [threading.Thread(target=submit, args=(apis[k % 2],)) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pair[0].store.read() as connection:
        stored = connection.execute(sa.text("SELECT id FROM jobs")).scalars().all()
    assert len(ids) == 128
    assert sorted(stored) == sorted(ids)


def test_space_that_a_task_left_for_other_space_is_held_on_its_vertex_by_the_next(pair: list[Service]) -> None:
    """Another process reads all three changes at once, and compares itself with the store."""
    here, there = map(Api, pair)
    oak = here.register("oak", grid(2, 1))
    here.good("PATCH", "/v1/clusters/oak/scheduler", {"limits": {"max_retries": 1}}, oak.secret)
    oak.say("heartbeat")
    here.good("POST", "/v1/jobs", jobspec(), oak.token)
    [first] = oak.take()
    here.good("POST", "/v1/jobs", jobspec(), oak.token)
    [second] = oak.take()
    assert there.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)["figures"]["idle"] == 0
    here.good("POST", f"/v1/jobs/{job_of(first['id'])}:suspend", None, oak.token)
    oak.end(first, exit_code=1)
    third = here.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    assert [offer["id"] for offer in oak.take()] == [f"{third}-0"]
    oak.end(second)
    here.good("POST", f"/v1/jobs/{job_of(first['id'])}:resume", None, oak.token)
    assert [offer["id"] for offer in oak.take()] == [first["id"]]
    assert there.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)["figures"]["idle"] == 0
