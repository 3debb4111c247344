"""A long queue: what a step costs and writes while thousands wait, and whether every reader gets one answer.

The store is a file, as a server's; bytes are those that the process has given to the operating system to write.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.host import WHO, server
from benchmarks.timing import as_served, heading, row
from rainbow.service import Service
from rainbow.service.agents.protocol import accept, heartbeat, receive, record_events
from rainbow.service.clusters.registration import register
from rainbow.service.placement.batch import Entry, submit, submit_batch
from rainbow.service.placement.submission import Submission
from rainbow.service.queries.jobs import job_filter, listing, show, why_now
from rainbow.service.scheduler.step import step

POLICIES = ("load_based", "priority")
NODES, CORES, ASKED = 10, 16, 20
RUNS = 15
SPEC: dict[str, Any] = {
    "version": 1,
    "resources": {"w": {"type": "node", "count": 1}},
    "tasks": [{"command": ["true"], "resources": "w"}],
    "attributes": {"system": {"duration": 3600}},
}


def waiting() -> None:
    """Print what a step costs at 4,000 waiting jobs, what an ended task writes, and how many answers differ."""
    heading("a step at 4,000 waiting, CPU ms", "policy", "first step", "one ends", "after a submit", "submit us")
    for policy in POLICIES:
        with _queue(policy, 4_000) as queue, as_served():
            first = queue.first
            ended = median(queue.end_one()[0] for _ in range(RUNS))
            came = median(queue.submit_one() for _ in range(RUNS))
            row(policy, first * 1e3, ended * 1e3, came * 1e3, queue.submit * 1e6)
    print("promised: one ends 100 (priority) and 3 (load_based), after a submit 1.5 (load_based)")
    heading("kB written for an ended task", "policy", "1,200 waiting", "12,000 waiting", "ratio", "answers differ")
    for policy in POLICIES:
        few, differ = _written(policy, 1_200)
        many, _ = _written(policy, 12_000)
        row(policy, few, many, f"{many / few:.2f}", f"{differ} of {ASKED}")
    print("promised: 400 at most, a ratio of 1.3, and no answer that differs")


def _written(policy: str, jobs: int) -> tuple[float, int]:
    """Return the kB written for an ended task, and of how many jobs list, show and why do not say the same."""
    with _queue(policy, jobs) as queue:
        for _ in range(RUNS):  # what the first step has written goes to the database file meanwhile
            queue.end_one()
        before = _bytes()
        for _ in range(RUNS):
            queue.end_one()
        return (_bytes() - before) / RUNS / 1e3, queue.differing()


def _bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


class _Queue:
    """A cluster with a queue; an agent holds what runs."""

    def __init__(self, service: Service, jobs: int) -> None:
        self.service = service
        for _ in range(0, jobs, 1_000):
            submit_batch(service, [Entry(WHO, Submission(jobspec=SPEC))] * min(1_000, jobs), None)
        began = time.thread_time()
        self._step()
        self.first = time.thread_time() - began
        self.running = self._accept()
        self.submit = 0.0

    def _step(self) -> None:
        step(self.service, "oak")

    def _accept(self) -> list[dict[str, Any]]:
        offers = receive(self.service, WHO, "oak", "a", 1_000, 0.0)["tasks"]
        taken = [{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers]
        accept(self.service, WHO, "oak", "a", taken)
        started = [{"task": one["id"], "attempt": one["attempt"], "event": "started"} for one in taken]
        record_events(self.service, WHO, "oak", "a", started)
        return taken

    def end_one(self) -> tuple[float, int]:
        """End a task and start the next one; return the processor time of the step that does it."""
        one = self.running.pop(0)
        ended = {"event": "ended", "result": "exited", "exit_code": 0}
        record_events(self.service, WHO, "oak", "a", [{"task": one["id"], "attempt": one["attempt"], **ended}])
        began = time.thread_time()
        self._step()
        spent = time.thread_time() - began
        self.running += self._accept()
        return spent, len(self.running)

    def submit_one(self) -> float:
        """Submit one more job; return the processor time of the step after it."""
        began = time.thread_time()
        submit(self.service, WHO, Submission(jobspec=SPEC))
        middle = time.thread_time()
        self._step()
        self.submit = middle - began
        return time.thread_time() - middle

    def differing(self) -> int:
        """Count of some waiting jobs those of which list, show and why do not say the same."""
        chosen = job_filter(WHO, {"state": "waiting"}, None, ASKED)
        count = 0
        for one in listing(self.service, WHO, chosen):
            said = [
                one["wait"],
                show(self.service, WHO, one["id"])["wait"],
                why_now(self.service, WHO, one["id"])["wait"],
            ]
            words = [(wait["reason"], wait["text"], wait["facts"]) for wait in said]
            count += any(word != words[0] for word in words)
        return count


@contextmanager
def _queue(policy: str, jobs: int) -> Iterator[_Queue]:
    with server() as service:
        vertices = {
            "c": {"type": "cluster"},
            "n": {"type": "node", "count": NODES},
            "k": {"type": "core", "count": CORES},
        }
        graph = {
            "nodes": {key: {"metadata": data} for key, data in vertices.items()},
            "edges": [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}],
        }
        register(service, WHO, {"name": "oak", "graph": {"graph": graph}, "policy": {"name": policy}})
        heartbeat(service, WHO, "oak", "a", None, [])
        yield _Queue(service, jobs)
