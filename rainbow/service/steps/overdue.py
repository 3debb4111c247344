"""Tasks that run too long: the agent ends them; if it does not, the server tells it to, after an allowance.

A task may run as long as its jobspec says (`duration`), else as long as its cluster lets it (`task_minutes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from rainbow.jobs import Task, TaskState, advance, ran_for
from rainbow.service.submits.admission import check_limits
from rainbow.service.submits.jobspecs import reading
from rainbow.store import clusters, tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Request
    from rainbow.service.service import Service
    from rainbow.service.steps.mirror import Mirror

PAUSE = 1.0  # seconds before a task that was to be stopped is looked at again
WHY = "ran longer than it may"


def may_run(request: Request, limits: Mapping[str, int]) -> float:
    """Return how many seconds a task may run, 0: for ever."""
    return request.duration or 60.0 * limits["task_minutes"]


def is_overdue(connection: sa.Connection, task: Task, limits: Mapping[str, int], now: float) -> bool:
    """Tell whether a task runs longer than it may, and than the allowance."""
    seconds = may_run(reading(connection, task.job).request, limits)
    return seconds > 0 and ran_for(task, now) > seconds + limits["allowance_seconds"]


def stop_the_overdue(service: Service, mirror: Mirror) -> bool:
    """Tell agents to stop what runs too long; tell whether there was any."""
    now, deadlines = service.clock(), mirror.deadlines
    found = set()
    while deadlines and deadlines[0][0] < now:
        found.add(heappop(deadlines)[1])
    running = [name for name in found if name in mirror.booked and mirror.booked[name].state is TaskState.RUNNING]
    if running:
        _stop(service, mirror, running, now)
        for name in running:
            heappush(deadlines, (now + PAUSE, name))
    return bool(running)


def _stop(service: Service, mirror: Mirror, names: list[str], now: float) -> None:
    with service.store.write() as connection:
        limits = check_limits(clusters.limits(connection, mirror.entry.id))
        found = tasks.get(connection, mirror.entry.id, names).values()
        late = [t for t in found if t.state is TaskState.RUNNING and is_overdue(connection, t, limits, now)]
        tasks.save_all(connection, [advance(task, TaskState.STOPPING, detail=WHY) for task in late], now)
    service.tell(mirror.entry.id)
