"""Services: an instance that ends is started again, unless it keeps ending soon after its start."""

from __future__ import annotations

from rainbow.jobs import Task, TaskState, advance

STARTS = 5  # so often in a row an instance may end soon
SOON = 60.0  # seconds


def again(task: Task, now: float, how: str) -> Task | None:
    """Return an instance that has ended as it waits for its next start; None if it has ended soon too often."""
    lasted = task.started_at is not None and now - task.started_at >= SOON
    left = STARTS if lasted else task.retries_left - 1
    if left < 0:
        return None
    return advance(task, TaskState.WAITING, retries_left=left, detail=f"{how}; an instance of a service starts again")
