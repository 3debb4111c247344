"""Quarantine: a worker whose tasks repeatedly fail to start gets no new ones for a while.

Only consecutive failures to start on the same worker count, not programs that end badly. Off until a cluster's limits
say after how many (`quarantine_after`). So does a worker where tasks are lost `quarantine_after_lost` times, and none
ends as it should between: that is more than one task may be lost, and a worker is not put away for a single one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from rainbow.state_machine import Task, WorkerState
from rainbow.store import workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.agents.unit_of_work import UnitOfWork
    from rainbow.service.core.service import Service
    from rainbow.service.live_state.mirror import Mirror


def count_start(desk: UnitOfWork, task: Task, *, started: bool, now: float) -> None:
    """Count a task's end for the workers it held; put those away that have failed too often."""
    connection, cluster_id, after = desk.connection, desk.cluster_id, desk.limits["quarantine_after"]
    held = [name for name in task.placement if name]
    known = workers.of_cluster(connection, cluster_id)
    failures = {name: 0 if started else known[name].failures + 1 for name in held if name in known}
    workers.count_failures(connection, cluster_id, failures)
    flaky = [n for n, times in failures.items() if times >= after and known[n].state is WorkerState.READY]
    workers.move(connection, cluster_id, flaky, WorkerState.QUARANTINED, now)
    workers.count_failures(connection, cluster_id, dict.fromkeys(flaky, 0))


def end_quarantine(service: Service, mirror: Mirror, up: Collection[str]) -> bool:
    """Let workers go whose time is over; those without an agent are lost. Tells whether there were any."""
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


def count_losses(
    connection: sa.Connection, cluster_id: str, found: Collection[Task], limits: Mapping[str, int], now: float
) -> None:
    """Count one loss for every worker that these tasks were lost on; put those away where tasks keep getting lost."""
    after = limits["quarantine_after_lost"]
    counts = workers.count_losses(connection, cluster_id, {name for task in found for name in task.placement if name})
    bad = [name for name, times in counts.items() if 0 < after <= times]
    if bad:
        known = workers.of_cluster(connection, cluster_id)
        away = [name for name in bad if known[name].state in (WorkerState.READY, WorkerState.LOST)]
        workers.move(connection, cluster_id, away, WorkerState.QUARANTINED, now)
        workers.forget_losses(connection, cluster_id, away)
