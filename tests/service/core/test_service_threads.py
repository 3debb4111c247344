"""Threads of a server that end by an exception: started again, counted, logged, and not ready meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from rainbow.service.core.pg_notify import PgNotify
from rainbow.service.core.threads import Threads
from rainbow.service.scheduler.loop import Loop
from tests.conftest import ADMIN, Api, Cluster, jobspec


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def failures(api: Api, thread: str) -> float:
    text = api.call("GET", "/metrics", None, ADMIN).get_data(as_text=True)
    start = f'rainbow_thread_failures_total{{thread="{thread}"}} '
    return sum(float(line.removeprefix(start)) for line in text.splitlines() if line.startswith(start))


def readiness(api: Api) -> int:
    return int(api.call("GET", "/readyz").status_code)


class FailingOnce:
    """A clock that has no time at first."""

    def __init__(self) -> None:
        self.failed = False

    def __call__(self) -> float:
        if not self.failed:
            self.failed = True
            raise OverflowError("no time")
        return time.monotonic()


def test_scheduler_that_ends_by_an_exception_is_started_again(
    api: Api, oak: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = failures(api, "scheduler")
    oak.say("heartbeat")
    loop = Loop(api.service, FailingOnce())
    loop.start()
    until(lambda: readiness(api) == 503)
    answer = api.problem(503, "unavailable", "GET", "/readyz")
    assert ("scheduler" in answer["detail"], answer["outcome"]) == (True, "none")
    until(lambda: readiness(api) == 200)
    assert failures(api, "scheduler") == before + 1
    api.good("POST", "/v1/jobs", jobspec(), oak.token)
    until(lambda: bool(oak.say("receive", max=1)["tasks"]))
    loop.stop()
    assert "thread-failed" in capsys.readouterr().out


def test_thread_that_tells_other_servers_is_started_again(api: Api) -> None:
    """It is a thread of PostgreSQL's servers, and needs none to end by a fault."""
    calls: list[int] = []

    def each_second() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("a fault of ours")

    if not api.service.store.many_processes:
        pytest.skip("servers of one SQLite file have none")
    before = failures(api, "peers-look")
    notify = PgNotify(api.service, each_second)
    notify.start()
    until(lambda: readiness(api) == 503)
    until(lambda: len(calls) > 1 and readiness(api) == 200)
    assert failures(api, "peers-look") == before + 1
    notify.stop()


def test_thread_that_requests_do_not_need_is_started_again_and_the_server_stays_ready(api: Api) -> None:
    runs: list[int] = []

    def work() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise KeyError("a fault of ours")

    thread = api.service.state(Threads).make("forecaster", work)
    thread.start()
    until(lambda: len(runs) == 1)
    assert readiness(api) == 200
    thread.join(20)
    assert len(runs) == 2
