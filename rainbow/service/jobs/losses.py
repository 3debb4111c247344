"""Attempts that were lost: with a worker, an agent, or what watched them. They are counted, and begin again later.

A task that ends whatever watches it would run for ever, and take its neighbours with it each time. So a lost task
waits 1 s, then 2 s, 4 s, ..., and has failed after `max_lost` losses, with its history; a worker where tasks are lost
`quarantine_after_lost` times, and none ends as it should between, gets none for a while. That is more than one task
may be lost: a worker is not put away for a single one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from rainbow.state_machine import Task, TaskState, WorkerState, advance
from rainbow.store import workers

if TYPE_CHECKING:
    import sqlalchemy as sa


FIRST = 1.0  # seconds before the second attempt
LONGEST = 300.0
TOLD = 20  # losses that a task remembers
CAUSE = "lost"


def lost(task: Task, why: str, now: float, most: int) -> Task:
    """Return a task one of whose attempts was lost: it waits for its next, or has failed.

    >>> task = lost(Task("t", "j", 0, 0, "a", state=TaskState.RUNNING, attempt=1), "worker n1 was lost", 10.0, 2)
    >>> task.state, task.not_before
    (<TaskState.WAITING: 'WAITING'>, 11.0)
    >>> again = advance(advance(task, TaskState.ASSIGNED), TaskState.ACCEPTED)
    >>> lost(again, "its agent was lost", 20.0, 2).detail
    'lost 2 times, the limit is 2: attempt 1: worker n1 was lost; attempt 2: its agent was lost'
    """
    history = [*task.losses, {"attempt": task.attempt, "at": now, "why": why}]
    if 0 < most <= len(history):
        told = "; ".join(f"attempt {one['attempt']}: {one['why']}" for one in history)
        detail = f"lost {len(history)} times, the limit is {most}: {told}"[:1_000]
        return advance(task, TaskState.FAILED, losses=history, detail=detail, cause=CAUSE, ended_at=now)
    after = now + pause(len(history))
    return advance(task, TaskState.WAITING, losses=history[-TOLD:], detail=why, not_before=after)


def with_worker(name: str) -> str:
    """Say that a task was lost with a worker."""
    return f"lost contact with worker {name}"


def is_with_worker(detail: str) -> bool:
    """Tell whether a task is stopped because its worker was lost."""
    return detail.startswith("worker ") and detail.endswith(" was lost")


def pause(losses: int) -> float:
    """Return how many seconds a task waits after so many losses.

    >>> [pause(n) for n in (1, 2, 3, 30)]
    [1.0, 2.0, 4.0, 300.0]
    """
    return float(min(FIRST * 2 ** min(losses - 1, 30), LONGEST)) if losses > 0 else 0.0


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
