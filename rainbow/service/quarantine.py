"""Workers whose tasks keep failing to start: no new ones for a while, then they are tried again.

Only what could not be started counts, one after the other on the same worker: a program that ends badly is its
own fault. Off until a cluster's limits say after how many (`quarantine_after`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from rainbow.jobs import Task, WorkerState
from rainbow.service.admission import check_limits
from rainbow.store import clusters, workers

if TYPE_CHECKING:
    from rainbow.service.desk import Desk
    from rainbow.service.service import Entry, Service
    from rainbow.store.workers import WorkerRecord


def note(desk: Desk, task: Task, *, started: bool, now: float) -> None:
    """Count a task's end for the workers it held; put those away that have failed too often."""
    connection, cluster_id, after = desk.connection, desk.cluster_id, desk.limits["quarantine_after"]
    held = [name for name in task.placement if name]
    known = workers.of_cluster(connection, cluster_id)
    failures = {name: 0 if started else known[name].failures + 1 for name in held if name in known}
    workers.count_failures(connection, cluster_id, failures)
    flaky = [n for n, times in failures.items() if times >= after and known[n].state is WorkerState.READY]
    workers.move(connection, cluster_id, flaky, WorkerState.QUARANTINED, now)
    workers.count_failures(connection, cluster_id, dict.fromkeys(flaky, 0))


def release(service: Service, entry: Entry, known: Mapping[str, WorkerRecord], up: Collection[str]) -> None:
    """Let workers go whose time is over; those nobody speaks for are lost."""
    away = {name: worker for name, worker in known.items() if worker.state is WorkerState.QUARANTINED}
    if not away:
        return
    with service.store.read() as connection:
        minutes = check_limits(clusters.limits(connection, entry.id))["quarantine_minutes"]
    now = service.clock()
    over = [name for name, worker in away.items() if now - worker.since >= minutes * 60]
    if over:
        with service.store.write() as connection:
            workers.move(connection, entry.id, [n for n in over if n in up], WorkerState.READY, now)
            workers.move(connection, entry.id, [n for n in over if n not in up], WorkerState.LOST, now)
