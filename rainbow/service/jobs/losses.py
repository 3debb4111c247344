"""Workers on which tasks keep getting lost, with their agent or with what watched them.

A worker where tasks are lost `quarantine_after_lost` times, and none ends as it should between, gets none for a
while. That is more than one task may be lost (see transitions.py): a worker is not put away for a single one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from rainbow.state_machine import Task, WorkerState
from rainbow.store import workers

if TYPE_CHECKING:
    import sqlalchemy as sa


def note(
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
