"""Tasks that run too long: the agent ends them; if it does not, the server tells it to, after an allowance.

A task may run as long as its jobspec says (`duration`), else as long as its cluster lets it (`task_minutes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rainbow.jobs import Task, TaskState, advance, ran_for
from rainbow.service.admission import check_limits
from rainbow.service.jobspecs import reading
from rainbow.store import clusters, tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Request
    from rainbow.service.service import Entry, Service

PAUSE = 1.0  # seconds between two looks at one cluster
WHY = "ran longer than it may"


def may_run(request: Request, limits: Mapping[str, int]) -> float:
    """Return how many seconds a task may run, 0: for ever."""
    return request.duration or 60.0 * limits["task_minutes"]


def is_overdue(connection: sa.Connection, task: Task, limits: Mapping[str, int], now: float) -> bool:
    """Tell whether a task runs longer than it may, and than the allowance."""
    seconds = may_run(reading(connection, task.job).request, limits)
    return seconds > 0 and ran_for(task, now) > seconds + limits["allowance_seconds"]


def stop_the_overdue(service: Service, entry: Entry) -> None:
    """Tell agents to stop what runs too long."""
    now = service.clock()
    if now - service.timed.get(entry.id, 0.0) < PAUSE:
        return
    service.timed[entry.id] = now
    with service.store.read() as connection:
        found = _overdue(connection, entry.id, now)
    if found:
        with service.store.write() as connection:
            late = [advance(task, TaskState.STOPPING, detail=WHY) for task in _overdue(connection, entry.id, now)]
            tasks.save_all(connection, late, now)
        service.tell(entry.id)


def _overdue(connection: sa.Connection, cluster_id: str, now: float) -> list[Task]:
    limits = check_limits(clusters.limits(connection, cluster_id))
    running = tasks.of_cluster(connection, cluster_id, [TaskState.RUNNING])
    return [task for task in running if is_overdue(connection, task, limits, now)]
