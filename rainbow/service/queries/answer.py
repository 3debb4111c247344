"""The answer to "why?" about a job in one line: where it is, and what it waits for or how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.state_machine import JobState, Task, TaskState
from rainbow.store import tasks
from rainbow.store.jobs import LIVE
from rainbow.text import some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.store.jobs import JobRecord

T = TaskState
BAD = {
    JobState.FAILED: (T.FAILED, T.TIMED_OUT),
    JobState.CANCELED: (T.CANCELED,),
}  # what ended so, by the job's state
VERBS = {T.FAILED: "failed", T.TIMED_OUT: "ran longer than its limit", T.CANCELED: "canceled"}
# reasons that lie with the job: they come before what its cluster is
ITS_OWN = {"dependency", "begin-time", "suspended", "canceled", "array-limit", "pending", "stopping", "not-accepted"}
# and with the cluster, where nothing starts
AWAY = {"drained", "step-failed", "no-agent", "no-worker-ready", "agent-silent"}
OVER = (T.COMPLETED, T.FAILED, T.TIMED_OUT, T.CANCELED)
LOOKED_AT = 100  # tasks among which the first that ended so is looked for


def answer_of(
    connection: sa.Connection, record: JobRecord, wait: Mapping[str, Any] | None, account: Mapping[str, Any] | None
) -> str:
    """Return the answer about a stored job; `wait`: why it waits by the numbers of now; `account`: its place."""
    counts = tasks.counts(connection, [record.id]).get(record.id, {})
    ended = tasks.some_of(connection, record.id, BAD.get(record.state, ()), LOOKED_AT) if record.state in BAD else []
    current = wait if record.state not in LIVE or counts.get(T.WAITING) or record.wait is None else None
    found = answer(record.state, record.cluster, current, counts, ended)
    found += _lost_before(tasks.some_of(connection, record.id, OVER, LOOKED_AT)) if record.state not in LIVE else ""
    turn = current and current.get("reason") not in ITS_OWN | AWAY
    return (
        f"{found}; {account['text']}"
        if turn and account and not account["text"].endswith("it comes first")
        else found
    )


def answer(
    state: JobState,
    cluster: str,
    wait: Mapping[str, Any] | None,
    counts: Mapping[TaskState, int],
    ended: Sequence[Task] = (),
) -> str:
    """Return where a job is and why; `ended`: tasks of a job that failed or was canceled.

    >>> answer(JobState.WAITING, "oak", {"text": "1 of 2 workers is busy"}, {T.WAITING: 1})
    'WAITING on oak: 1 of 2 workers is busy'
    >>> answer(JobState.RUNNING, "oak", {"text": "1 at a time"}, {T.WAITING: 2, T.RUNNING: 1, T.FAILED: 1})
    'RUNNING on oak: 1 of 4 tasks running, 1 ended, 2 waiting: 1 at a time'
    >>> answer(JobState.FAILED, "oak", None, {T.FAILED: 1}, [Task("a-0", "a", 0, 0, "task-0", T.FAILED, exit_code=4)])
    'FAILED on oak: task-0 ended with exit code 4'
    """
    where = f"{state} on {cluster}" if cluster else str(state)
    if state in BAD or state is JobState.COMPLETED:
        return ": ".join([where, *_ended(counts, ended)])
    counted = [] if wait and wait.get("reason") == "array-limit" else _progress(counts, state)
    said = (wait.get("text") or wait.get("reason") or "") if wait else ""
    return ": ".join(filter(None, [where, *counted, said]))


def _lost_before(ended: Sequence[Task]) -> str:
    """Say of the first task of a job that was lost before it ended, how often and why."""
    first = next((task for task in ended if task.losses and task.cause != "lost"), None)
    if first is None:
        return ""
    return (
        f"; {first.name} lost {some(len(first.losses), 'attempt')} before, the last because {first.losses[-1]['why']}"
    )


def _progress(counts: Mapping[TaskState, int], state: JobState) -> list[str]:
    whole, runs, waits = sum(counts.values()), counts.get(T.RUNNING, 0), counts.get(T.WAITING, 0)
    if state is not JobState.RUNNING or whole < 2:
        return []
    over = sum(counts.get(one, 0) for one in OVER)
    parts = [
        f"{runs} of {some(whole, 'task')} running",
        f"{over} ended" * bool(over),
        f"{waits} waiting" * bool(waits),
    ]
    return [", ".join(filter(None, parts))]


def _ended(counts: Mapping[TaskState, int], ended: Sequence[Task]) -> list[str]:
    if not ended:
        return []
    first = min(ended, key=lambda task: (task.ended_at or 0.0, task.index, task.id))
    kind = {task.state for task in ended}
    number, whole = sum(counts.get(state, 0) for state in kind), sum(counts.values())
    how = f"ended with exit code {first.exit_code}" if first.exit_code else VERBS[first.state]
    if first.detail and first.detail != how:
        how = f"{how}: {first.detail}"
    share = (
        []
        if whole == 1
        else [f"{number} of {some(whole, 'task')} {'canceled' if kind == {T.CANCELED} else 'failed'}"]
    )
    return [*share, f"{first.name} {how}"]
