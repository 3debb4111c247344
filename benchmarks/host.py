"""The host around a policy: steps of many clusters that are quiet, and a large bag of tasks from end to end."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rainbow.service import Service, Settings
from rainbow.service.agents.protocol import accept, heartbeat, receive, record_events
from rainbow.service.clusters.registration import register
from rainbow.service.core.access import Caller
from rainbow.service.placement.batch import submit
from rainbow.service.placement.submission import Submission
from rainbow.service.scheduler.step import step
from rainbow.store import open_store

WHO = Caller(registers=True, admin=True)


def hosting() -> None:
    """Print how steps grow with clusters, and how a bag's cost grows with its tasks."""
    print(f"{'clusters':>10}{'quiet steps/s':>15}")
    for clusters in (10, 100, 1_000):
        with server() as service:
            for k in range(clusters):
                _register(service, f"c{k}", 4)
            print(f"{clusters:>10}{_steps(service, clusters):>15.0f}")
    print(f"{'tasks':>10}{'workers':>10}{'submit s':>10}{'steps s':>10}{'agent s':>10}{'us a task':>11}")
    for tasks in (1_000, 10_000, 100_000):
        with server() as service:
            _register(service, "oak", 200)
            _bag(service, tasks, 200)


@contextmanager
def server() -> Iterator[Service]:
    """Give a service over a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(open_store(str(Path(folder) / "rainbow.db")), Settings())
        yield service
        service.close()


def _register(service: Service, name: str, nodes: int) -> None:
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node", "count": nodes}}
    graph = {"nodes": {key: {"metadata": data} for key, data in vertices.items()}}
    register(service, WHO, {"name": name, "graph": {"graph": {**graph, "edges": [{"source": "c", "target": "n"}]}}})
    heartbeat(service, WHO, name, "a", None, [])


def _steps(service: Service, clusters: int) -> float:
    names = list(service.catalogue)[:100]
    for name in names:
        step(service, name)  # the first reads everything there is
    began = time.thread_time()
    for name in names:
        step(service, name)
    return min(clusters, len(names)) / (time.thread_time() - began)


def _bag(service: Service, tasks: int, workers: int) -> None:
    spec: dict[str, Any] = {"resources": {"w": {"type": "node", "replicas": 1}}}
    spec["tasks"] = [{"command": ["true"], "resources": "w", "replicas": tasks}]
    began = time.thread_time()
    submit(service, WHO, Submission(jobspec=spec))
    times = {"submit": time.thread_time() - began, "steps": 0.0, "agent": 0.0}
    ended = 0
    while ended < tasks:
        began = time.thread_time()
        step(service, "oak")
        stepped = time.thread_time()
        ended += _run(service)
        times["steps"] += stepped - began
        times["agent"] += time.thread_time() - stepped
    spent = "".join(f"{seconds:>10.2f}" for seconds in times.values())
    print(f"{tasks:>10}{workers:>10}{spent}{sum(times.values()) / tasks * 1e6:>11.0f}")


def _run(service: Service) -> int:
    """Take what is offered and end it; return how much that was."""
    offers = receive(service, WHO, "oak", "a", 1_000, 0.0)["tasks"]
    accept(service, WHO, "oak", "a", [{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers])
    ended = {"event": "ended", "result": "exited", "exit_code": 0}
    events = [{"task": offer["id"], "attempt": offer["attempt"], **ended} for offer in offers]
    record_events(service, WHO, "oak", "a", events)
    return len(offers)
