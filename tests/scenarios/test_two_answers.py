"""The attack on two answers at one time: readers ask without a pause while tasks end and others start."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.waiting import SPEC
from rainbow.errors import TryLater
from rainbow.service import Service, Settings
from rainbow.service.agents.protocol import accept, heartbeat, receive, record_events
from rainbow.service.clusters.registration import register
from rainbow.service.core.access import Caller
from rainbow.service.placement.batch import Entry, submit_batch
from rainbow.service.placement.submission import Submission
from rainbow.service.queries.jobs import job_filter, listing, show, why_now
from rainbow.service.scheduler.step import step
from rainbow.store import open_store
from tests.conftest import LONG

WHO = Caller(registers=True, admin=True)
JOBS, READERS, SECONDS, RATE = (1_200, 20, 30.0, 10.0) if LONG else (80, 4, 1.5, 20.0)


class Readers:
    """Ask for the waits of jobs in threads of their own; note each answer by job and plan."""

    def __init__(self, service: Service, many: int) -> None:
        self.answers: dict[tuple[str, str, int], set[str]] = defaultdict(set)
        self.faults: list[BaseException] = []
        self.number = 0
        self._service, self._over, self._lock = service, threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._ask) for _ in range(many)]

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _ask(self) -> None:
        service, chosen = self._service, job_filter(WHO, {"state": "waiting"}, None, 20)
        while not self._over.is_set():
            try:
                result = listing(service, WHO, chosen)
                self._note({one["id"]: one["wait"] for one in result})
                for one in result[:3]:
                    self._note({one["id"]: show(service, WHO, one["id"])["wait"]})
                    self._note({one["id"]: why_now(service, WHO, one["id"])["wait"]})
            except TryLater:
                continue
            except BaseException as fault:
                self.faults.append(fault)
                return

    def _note(self, waits: dict[str, dict[str, Any] | None]) -> None:
        with self._lock:
            self.number += len(waits)
            for job, wait in waits.items():
                if wait is not None and wait["at"] is not None:
                    self.answers[job, wait["at"], wait["plan"]].add(repr(wait))


def work(service: Service) -> tuple[int, set[str]]:
    """End tasks at a rate while the cluster is stepped; return how many ended, and the jobs that have started."""
    running: list[dict[str, Any]] = []
    ended, started, until = 0, set[str](), time.monotonic() + SECONDS
    while time.monotonic() < until:
        step(service, "oak")
        offers = receive(service, WHO, "oak", "a", 1_000, 0.0)["tasks"]
        taken = [{"id": one["id"], "attempt": one["attempt"]} for one in offers]
        if taken:
            accept(service, WHO, "oak", "a", taken)
            assert started.isdisjoint(one["id"] for one in taken)
            started |= {one["id"] for one in taken}
            running += taken
        if running:
            one = running.pop(0)
            event = {
                "task": one["id"],
                "attempt": one["attempt"],
                "event": "ended",
                "result": "exited",
                "exit_code": 0,
            }
            record_events(service, WHO, "oak", "a", [event])
            ended += 1
        time.sleep(1 / RATE)
    return ended, started


@pytest.mark.parametrize("policy", ["load_based", "priority"])
def test_no_two_answers_of_one_plan_differ_while_tasks_end(tmp_path: Path, policy: str) -> None:
    service = Service(open_store(str(tmp_path / "rainbow.db")), Settings())
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node", "count": 10}, "k": {"type": "core", "count": 16}}
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    graph = {"nodes": {key: {"metadata": data} for key, data in vertices.items()}, "edges": edges}
    register(service, WHO, {"name": "oak", "graph": {"graph": graph}, "policy": {"name": policy}})
    heartbeat(service, WHO, "oak", "a", None, [])
    for _ in range(0, JOBS, 600):
        submit_batch(service, [Entry(WHO, Submission(jobspec=SPEC))] * min(JOBS, 600), None)
    with Readers(service, READERS) as readers:
        ended, started = work(service)
    service.close()
    assert readers.faults == []
    assert ended > SECONDS
    assert len(started) > ended
    assert readers.number > 100
    assert readers.answers
    assert [said for said in readers.answers.values() if len(said) > 1] == []
