"""A real server with one cluster and its user, and an executor that an agent is watched through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Run, RunId
from rainbow.agent.executors.local import LocalExecutor
from rainbow.client import Client
from tests.conftest import REGISTRATION, grid, jobspec
from tests.support.live import rainbow_at

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@dataclass
class Site:
    """A server with one cluster, and a user of it."""

    url: str
    user: Client
    secret: str

    @classmethod
    def registered(cls, url: str, graph: Any = None) -> Site:
        return register(url, graph)

    def limit(self, **limits: int) -> None:
        with Client(self.url, self.secret) as owner:
            owner.set_scheduler("oak", {"limits": limits})

    def submit(self, *command: str, **system: Any) -> str:
        return self.user.submit(jobspec(command=list(command), **system))["id"]

    def end(self, job_id: str, seconds: float = 30) -> dict[str, Any]:
        return self.user.wait(job_id, timeout=seconds, every=0.05)

    def task(self, job_id: str) -> dict[str, Any]:
        results: dict[str, Any] = self.user.job(job_id)["tasks"][0]
        return results

    def until(self, job_id: str, state: str, seconds: float = 20) -> None:
        until(lambda: self.task(job_id)["state"] == state, seconds)


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def register(url: str, graph: Any = None) -> Site:
    with Client(url, REGISTRATION) as registering:
        registration = registering.register_cluster("oak", graph or grid(4, 8))
    return Site(url, Client(url, registration["token"], timeout=5), registration["secret"])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with rainbow_at(tmp_path) as url:
        result = register(url)
        yield result
        result.user.close()


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
