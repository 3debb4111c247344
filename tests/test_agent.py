"""The agent against a real server: what it starts, what it reports, and what it does when things go wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Agent, Ended, Executor, Result, Run, RunId, open_executor
from rainbow.agent.local import LocalExecutor
from rainbow.agent.messages import batch, run_of, stale_runs
from rainbow.api import create_app
from rainbow.client import Client, Problem, wire
from rainbow.errors import Unavailable
from tests.conftest import REGISTRATION, grid, jobspec
from tests.live import Script, agent_of, http, rainbow_at, service_at, url_of

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@dataclass
class Site:
    """A server with one cluster, and a user of it."""

    url: str
    user: Client
    secret: str

    def submit(self, *command: str, **system: Any) -> str:
        return self.user.submit(jobspec(command=list(command), **system))["id"]

    def end(self, job_id: str, seconds: float = 30) -> dict[str, Any]:
        return self.user.wait(job_id, timeout=seconds, every=0.05)

    def task(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.user.job(job_id)["tasks"][0]
        return found

    def until(self, job_id: str, state: str, seconds: float = 20) -> None:
        until(lambda: self.task(job_id)["state"] == state, seconds)


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def register(url: str) -> Site:
    with Client(url, REGISTRATION) as registering:
        told = registering.register_cluster("oak", grid(4, 8))
    return Site(url, Client(url, told["token"], timeout=5), told["secret"])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with rainbow_at(tmp_path) as url:
        found = register(url)
        yield found
        found.user.close()


def test_a_job_completes_and_its_output_is_seen(site: Site) -> None:
    with agent_of(site.url, "oak", site.secret):
        ended = site.end(site.submit("sh", "-c", 'echo "$1 on $RAINBOW_WORKER"', "sh", "naïve; touch x"))
    task = ended["tasks"][0]
    assert (ended["state"], task["exit_code"]) == ("COMPLETED", 0)
    assert task["output"] == f"naïve; touch x on {next(iter(task['placement']))}\n"


def test_ends_of_every_kind_are_reported(site: Site) -> None:
    with agent_of(site.url, "oak", site.secret):
        failing = site.submit("sh", "-c", "exit 9")
        missing = site.submit("no-such-program")
        slow = site.submit("sleep", "60", duration=1)
        lost = site.submit("true", cwd="/no/such/place")
        assert [site.end(failing)["state"], site.task(failing)["exit_code"]] == ["FAILED", 9]
        assert [site.end(missing)["state"], site.task(missing)["exit_code"]] == ["FAILED", None]
        assert site.task(missing)["detail"] == "cannot start 'no-such-program': No such file or directory"
        assert "/no/such/place" in site.end(lost)["tasks"][0]["detail"]
        assert site.end(slow)["tasks"][0]["state"] == "TIMED_OUT"


def test_cancel_ends_what_runs(site: Site) -> None:
    with agent_of(site.url, "oak", site.secret) as agent:
        job = site.submit("sleep", "60")
        site.until(job, "RUNNING")
        site.user.cancel(job)
        assert site.end(job, 10)["state"] == "CANCELED"
        assert agent._executor.running() == []


class Watched(LocalExecutor):
    """The local executor, remembering how much ran at once and what was started."""

    def __init__(self) -> None:
        super().__init__(PATH)
        self.most = 0
        self.started: list[RunId] = []

    def start(self, run: Run) -> None:
        super().start(run)
        self.started.append(run.id)
        self.most = max(self.most, len(self.running()))


def test_no_more_run_at_once_than_allowed(site: Site) -> None:
    jobs = [site.submit("sleep", "0.2") for _ in range(7)]
    watched = Watched()
    with agent_of(site.url, "oak", site.secret, watched, max_tasks=2):
        assert {site.end(job)["state"] for job in jobs} == {"COMPLETED"}
    assert watched.most == 2


def test_a_full_agent_still_hears_of_stops(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rainbow.agent.loop.FULL_BEAT", 0.3)
    with agent_of(site.url, "oak", site.secret, max_tasks=1):
        job = site.submit("sleep", "60")
        site.until(job, "RUNNING")
        site.user.cancel(job)
        assert site.end(job, 10)["state"] == "CANCELED"


def test_two_agents_of_a_cluster_run_every_task_once(site: Site) -> None:
    one, two = Watched(), Watched()
    with agent_of(site.url, "oak", site.secret, one), agent_of(site.url, "oak", site.secret, two):
        jobs = [site.submit("true") for _ in range(30)]
        assert {site.end(job)["state"] for job in jobs} == {"COMPLETED"}
    assert sorted(one.started + two.started) == sorted((f"{job}-0", 1) for job in jobs)


def test_200_tasks_at_once_all_complete(site: Site) -> None:
    with agent_of(site.url, "oak", site.secret, max_tasks=200):
        jobs = [site.submit("true") for _ in range(200)]
        assert {site.end(job, 60)["state"] for job in jobs} == {"COMPLETED"}


def test_a_stopped_agent_gives_its_tasks_back(site: Site, tmp_path: Path) -> None:
    with agent_of(site.url, "oak", site.secret):
        job = site.submit(
            "sh", "-c", 'echo >> "$1"; test $(wc -l < "$1") -gt 1 || sleep 60', "sh", str(tmp_path / "n")
        )
        site.until(job, "RUNNING")
    assert site.task(job)["state"] in ("WAITING", "ASSIGNED")
    with agent_of(site.url, "oak", site.secret):
        assert site.end(job)["state"] == "COMPLETED"
    assert site.task(job)["attempt"] >= 2


def test_tasks_go_on_while_the_server_is_away_and_are_reported_later(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with service_at(tmp_path) as service:
        app = create_app(service)
        with http(app) as port:
            site = register(url_of(port))
            secret = site.secret
            running = agent_of(site.url, "oak", secret)
            agent = running.__enter__()
            job = site.submit("sh", "-c", 'sleep 1; echo told late; touch "$1"', "sh", str(done))
            site.until(job, "RUNNING")
        try:
            until(done.exists)
            time.sleep(0.5)
            assert agent._journal.has_news, "the end could not be told yet"
            with http(app, port):
                ended = site.end(job)
                assert (ended["state"], ended["tasks"][0]["output"]) == ("COMPLETED", "told late\n")
                assert site.task(job)["attempt"] == 1
                running.__exit__(None, None, None)
        finally:
            agent.stop()
            site.user.close()


def test_a_task_that_is_no_longer_ours_is_stopped_and_not_reported(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with service_at(tmp_path, lease=2.0, tick=0.1) as service:
        app = create_app(service)
        with http(app) as port:
            site = register(url_of(port))
            running = agent_of(site.url, "oak", site.secret)
            agent = running.__enter__()
            job = site.submit("sh", "-c", 'echo >> "$1"; test $(wc -l < "$1") -gt 1 || sleep 60', "sh", str(starts))
            site.until(job, "RUNNING")
        time.sleep(3.5)  # the lease runs out, and the task waits again
        with http(app, port):
            assert site.end(job)["state"] == "COMPLETED"
            assert site.task(job)["attempt"] > 1
            assert len(starts.read_text().splitlines()) == 2, "started once by each of two attempts"
            until(lambda: agent._executor.running() == [])
            running.__exit__(None, None, None)
        site.user.close()


@pytest.mark.parametrize("secret", ["rbs_wrong", REGISTRATION])
def test_a_secret_that_is_not_the_clusters_ends_the_agent(site: Site, secret: str) -> None:
    with Client(site.url, secret, tries=1) as client:
        agent = Agent(client, "oak", open_executor("local", PATH), wait=1, say=lambda _: None)
        with pytest.raises(Problem) as caught:
            agent.run()
    assert caught.value.status in (401, 403, 404)


def test_an_agent_without_a_server_goes_on_trying(tmp_path: Path) -> None:
    with http(Script([])) as port:
        pass
    said: list[str] = []
    with Client(url_of(port), "rbs_1", tries=1) as client:
        agent = Agent(client, "oak", open_executor("local", PATH), say=said.append)
        thread = threading.Thread(target=agent.run)
        thread.start()
        time.sleep(1.5)
        assert thread.is_alive()
        agent.stop()
        thread.join(5)
    assert not thread.is_alive()
    assert sum("cannot be reached" in line for line in said) == 1


class Broken:
    """An executor that cannot start anything."""

    def start(self, run: Run) -> None:
        raise RuntimeError("no machine")

    def poll(self) -> Sequence[Ended]:
        return []

    def begun(self) -> Sequence[RunId]:
        return []

    def stop(self, run: RunId) -> None:
        raise AssertionError("nothing runs")

    def running(self) -> Sequence[RunId]:
        return []

    def close(self) -> None:
        pass


def test_a_fault_of_the_executor_is_one_tasks_end(site: Site) -> None:
    broken: Executor = Broken()
    with agent_of(site.url, "oak", site.secret, broken):
        task = site.end(site.submit("true"))["tasks"][0]
    assert (task["state"], task["detail"]) == ("FAILED", "the executor failed: no machine")


# ── without a server: a client that answers what it is told to ──────────────────────────────────────────────


class Told:
    """Stands where the client stands; keeps the events it was told."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.events_told: list[list[wire.Event]] = []
        self.refuse: Callable[[list[wire.Event]], Exception | None] = lambda events: None

    def receive(self, *_: Any, **__: Any) -> Any:
        time.sleep(0.05)
        return self.answers.get("receive", {"tasks": [], "stop": [], "lease": 60.0})

    def accept(self, name: str, agent: str, tasks: Any, *, seq: int) -> Any:
        return self.answers.get("accept", {"accepted": [], "refused": []})

    def events(self, name: str, agent: str, events: list[wire.Event], *, seq: int) -> Any:
        self.events_told.append(events)
        fault = self.refuse(events)
        if fault:
            raise fault
        return {"recorded": [event["task"] for event in events], "stale": []}

    def heartbeat(self, *_: Any, **__: Any) -> Any:
        return {"stop": [], "stale": [], "lease": 60.0}


def offer(task: str = "t", attempt: int = 1) -> wire.Offer:
    return {
        "id": task,
        "attempt": attempt,
        "job": "j",
        "name": "task-0",
        "command": ["true"],
        "cwd": "",
        "environment": {},
        "duration": 0.0,
        "processes": 1,
        "placement": {},
    }


def run_for(told: Told, seconds: float, executor: Executor) -> None:
    agent = Agent(told, "oak", executor, say=lambda _: None)  # type: ignore[arg-type]  # it has the agent's verbs
    thread = threading.Thread(target=agent.run)
    thread.start()
    time.sleep(seconds)
    agent.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_what_is_not_accepted_is_not_started() -> None:
    received = {"tasks": [offer("a"), offer("b")], "stop": [], "lease": 60.0}
    refused = {"accepted": ["b"], "refused": [{"id": "a", "reason": "it is ACCEPTED"}]}
    watched = Watched()
    run_for(Told(receive=received, accept=refused), 0.7, watched)
    assert {run[0] for run in watched.started} == {"b"}


def test_a_stop_for_what_does_not_run_here_is_confirmed() -> None:
    told = Told(receive={"tasks": [], "stop": [{"id": "t", "attempt": 3}], "lease": 60.0})
    run_for(told, 0.3, Watched())
    event = told.events_told[0][0]
    assert (event["task"], event["attempt"], event["event"], event["result"]) == ("t", 3, "ended", "stopped")


def test_an_event_the_server_refuses_does_not_keep_the_others() -> None:
    received = iter([{"tasks": [offer("a"), offer("bad"), offer("c")], "stop": [], "lease": 60.0}])
    told = Told(accept={"accepted": ["a", "bad", "c"], "refused": []})
    told.receive = lambda *_, **__: (
        next(received, None) or time.sleep(0.1) or {"tasks": [], "stop": [], "lease": 60.0}
    )  # type: ignore[method-assign]
    told.refuse = lambda events: Problem(400, {}) if any(e["task"] == "bad" for e in events) else None
    run_for(told, 1.0, Watched())
    good = [e["task"] for events in told.events_told if told.refuse(events) is None for e in events]
    assert sorted(good) == ["a", "a", "c", "c"]


def test_events_are_told_again_in_order_after_a_fault() -> None:
    received = iter([{"tasks": [offer("a")], "stop": [], "lease": 60.0}])
    told = Told(accept={"accepted": ["a"], "refused": []})
    told.receive = lambda *_, **__: (
        next(received, None) or time.sleep(0.1) or {"tasks": [], "stop": [], "lease": 60.0}
    )  # type: ignore[method-assign]
    told.refuse = lambda _: Unavailable() if len(told.events_told) == 1 else None
    run_for(told, 1.5, Watched())
    recorded = [event["event"] for events in told.events_told[1:] for event in events]
    assert told.events_told[0][0]["event"] == "started"
    assert recorded == ["started", "ended"]


def test_an_offer_becomes_a_run() -> None:
    given = {**offer("t", 2), "command": ["a", "b"], "environment": {"A": "1", "B": None}, "duration": 5.0}
    run = run_of(given)  # type: ignore[arg-type]  # the shape is that of an offer
    assert (run.id, run.command, run.environment, run.duration) == (("t", 2), ("a", "b"), {"A": "1", "B": None}, 5.0)


def test_a_batch_speaks_of_one_attempt_at_a_task() -> None:
    events: list[wire.Event] = [
        {"task": "a", "attempt": 1, "event": "ended"},
        {"task": "b", "attempt": 1, "event": "started"},
        {"task": "a", "attempt": 2, "event": "started"},
    ]
    assert batch(events, 50) == events[:2]
    assert batch(events, 1) == events[:1]
    assert batch([], 50) == []


def test_stale_runs_are_the_older_attempts() -> None:
    assert stale_runs(["a", "x"], [("a", 2), ("b", 1), ("a", 1)]) == [("a", 1)]


def test_stopped_is_a_result_of_the_protocol() -> None:
    assert {str(result) for result in Result} == {"exited", "timed_out", "stopped", "failed"}
