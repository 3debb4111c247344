"""Workers whose tasks keep failing to start: no new ones for a while, then they are tried again.

Only what could not be started counts, one after the other on the same worker: a program that ends badly is its
own fault. Off until a cluster's limits say after how many (`quarantine_after`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rainbow.jobs import Task, WorkerState
from rainbow.store import workers

if TYPE_CHECKING:
    from rainbow.service.agents.desk import Desk
    from rainbow.service.service import Service
    from rainbow.service.steps.mirror import Mirror


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


def release(service: Service, mirror: Mirror, up: Collection[str]) -> bool:
    """Let workers go whose time is over; those nobody speaks for are lost. Tells whether there were any."""
    if not mirror.states[WorkerState.QUARANTINED]:
        return False
    now, most = service.clock(), mirror.limits["quarantine_minutes"] * 60
    away = (
        (name, worker.since) for name, worker in mirror.workers.items() if worker.state is WorkerState.QUARANTINED
    )
    over = [name for name, since in away if now - since >= most]
    if over:
        with service.store.write() as connection:
            workers.move(connection, mirror.entry.id, [n for n in over if n in up], WorkerState.READY, now)
            workers.move(connection, mirror.entry.id, [n for n in over if n not in up], WorkerState.LOST, now)
    return bool(over)
