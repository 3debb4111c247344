"""Jobs, tasks and workers: their states, the moves that tasks make, and those that people may order of a worker.

A job is one jobspec. A task is one entry of its `tasks` over all its slots; the tasks of one gang start
together or not at all. All three are frozen values: a change is a new value made by `advance`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from rainbow.errors import Conflict


class TaskState(StrEnum):
    """The state of a task."""

    WAITING = "WAITING"  # in its cluster's queue
    ASSIGNED = "ASSIGNED"  # an order is written and its space booked; no agent has it yet
    ACCEPTED = "ACCEPTED"  # the agent has it
    RUNNING = "RUNNING"  # the agent says it runs
    SUSPENDED = "SUSPENDED"  # stopped for a while, in place
    STOPPING = "STOPPING"  # told to stop; its space stays booked until the agent confirms
    COMPLETED = "COMPLETED"  # ended with exit code 0
    FAILED = "FAILED"  # ended with another exit code, or could not be started
    TIMED_OUT = "TIMED_OUT"  # ran longer than its limit
    CANCELED = "CANCELED"  # ended because somebody asked for it


class Hold(StrEnum):
    """The state requested of a task that an agent has, beside its job's own suspension."""

    NONE = ""  # let it run
    POLICY = "policy"  # the policy wants it held
    SITE = "site"  # somebody at its site holds it, and lets it continue
    UNABLE = "unable"  # its executor cannot hold it: nobody need ask again
    WITHDRAW = "withdraw"  # its site should give it back if it has not begun


REQUEUED = "requeued"  # of why it waits: it had begun, and is in its site's queue again


class JobState(StrEnum):
    """The state of a job, derived from its tasks once a cluster has it."""

    UNPLACED = "UNPLACED"  # some cluster matches, and none has taken it yet
    WAITING = "WAITING"  # no task has started
    RUNNING = "RUNNING"  # some task has started, not all have ended
    COMPLETED = "COMPLETED"  # every task completed
    FAILED = "FAILED"  # every task ended, at least one badly
    CANCELED = "CANCELED"  # every task ended, at least one canceled, none badly


class WorkerState(StrEnum):
    """Whether a worker may be given tasks."""

    NEW = "NEW"  # registered, not yet seen by its agent
    READY = "READY"  # may be given tasks
    DRAINING = "DRAINING"  # ends what it has, takes nothing new
    QUARANTINED = "QUARANTINED"  # its tasks keep failing; released after a while
    OFFLINE = "OFFLINE"  # an operator took it away
    LOST = "LOST"  # its heartbeats stopped


T = TaskState
ENDED = frozenset({T.COMPLETED, T.FAILED, T.TIMED_OUT, T.CANCELED})
BOOKED = frozenset({T.ASSIGNED, T.ACCEPTED, T.RUNNING, T.SUSPENDED, T.STOPPING})  # its space is taken

# ACCEPTED is reached again where a site puts a job back into its queue.
# WAITING is reached again by a retry, a lost worker or agent, or a stop ordered by a policy.
TASK_MOVES: dict[TaskState, frozenset[TaskState]] = {
    T.WAITING: frozenset({T.ASSIGNED, T.CANCELED}),
    T.ASSIGNED: frozenset({T.ACCEPTED, T.WAITING, T.CANCELED}),
    T.ACCEPTED: frozenset({T.RUNNING, T.WAITING, T.STOPPING, *ENDED}),
    T.RUNNING: frozenset({T.SUSPENDED, T.ACCEPTED, T.WAITING, T.STOPPING, *ENDED}),
    T.SUSPENDED: frozenset({T.RUNNING, T.ACCEPTED, T.WAITING, T.STOPPING, *ENDED}),
    T.STOPPING: frozenset({T.WAITING, *ENDED}),
    T.COMPLETED: frozenset(),
    T.FAILED: frozenset({T.WAITING}),
    T.TIMED_OUT: frozenset({T.WAITING}),
    T.CANCELED: frozenset(),
}

W = WorkerState
WORKER_MOVES: dict[WorkerState, frozenset[WorkerState]] = {
    W.NEW: frozenset({W.READY, W.OFFLINE, W.LOST}),
    W.READY: frozenset({W.DRAINING, W.QUARANTINED, W.OFFLINE, W.LOST}),
    W.DRAINING: frozenset({W.READY, W.OFFLINE, W.LOST}),
    W.QUARANTINED: frozenset({W.READY, W.OFFLINE, W.LOST}),
    W.OFFLINE: frozenset({W.READY}),
    W.LOST: frozenset({W.READY, W.QUARANTINED, W.OFFLINE}),
}


def task_id(job: str, index: int) -> str:
    """Return the id of a job's task.

    >>> task_id("7f3a", 2), job_of("7f3a-2"), index_of("7f3a-2")
    ('7f3a-2', '7f3a', 2)
    """
    return f"{job}-{index}"


def job_of(task: str) -> str:
    """Return the id of the job that a task is of."""
    return task.rpartition("-")[0]


def index_of(task: str) -> int:
    """Return the place of a task among its job's."""
    return int(task.rpartition("-")[2])


@dataclass(frozen=True, slots=True)
class Task:
    """One entry of a job's tasks. `placement` is {worker: {type: amount}} while its space is booked."""

    id: str
    job: str
    index: int  # its place among the job's tasks
    gang: int  # tasks of one job and gang start together
    name: str
    state: TaskState = TaskState.WAITING
    attempt: int = 0  # how many times it was started
    retries_left: int = 0
    placement: dict[str, dict[str, int]] = field(default_factory=dict)
    slots: int = 1  # how many of its slots the placement holds
    agent: str = ""  # the agent that accepted it
    exit_code: int | None = None
    output: str = ""  # the tail of what it wrote
    errors: str = ""  # the tail of its standard error, where that goes to a file of its own
    detail: str = ""  # why it is where it is, in words
    assigned_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    expected: float = 0.0  # seconds, as tasks of its name ran before; 0: unknown
    hold: str = ""  # see Hold
    suspended_at: float | None = None  # since when it is held in place
    paused: float = 0.0  # seconds it was, before
    losses: list[dict[str, Any]] = field(default_factory=list)  # attempts that were lost: attempt, at, why
    not_before: float | None = None  # a lost task waits until then
    cause: str = ""  # what made it end where that is known: memory, lost
    pending: dict[str, Any] | None = None  # why it does not start, as its agent says: code, text, facts, since
    held: dict[str, list[str]] | None = None  # which vertices of each worker, as paths; None: unknown
    account: str = ""  # of its job; empty: none
    preempted: dict[str, Any] | None = None  # by which job and how, until it starts again: by, qos, signal, grace
    site: dict[str, Any] | None = None  # how its site calls it: number, partition, nodes, detail


def advance(task: Task, to: TaskState, **changes: Any) -> Task:
    """Move a task along the table; Conflict if the table does not have the move.

    A task sent back to WAITING loses its placement and what it had reported; a retry (from FAILED or
    TIMED_OUT) uses one up, any other way back does not.

    >>> advance(Task("t", "j", 0, 0, "a"), TaskState.ASSIGNED, placement={"node0": {"core": 1}}).state
    <TaskState.ASSIGNED: 'ASSIGNED'>
    """
    if to not in TASK_MOVES[task.state]:
        raise Conflict(f"internal error: task {task.id} cannot change from {task.state} to {to}", task=task.id)
    if to is TaskState.WAITING:
        used = 1 if task.state in ENDED else 0
        changes = {**_FRESH, "retries_left": task.retries_left - used, **changes}
    if to is TaskState.ASSIGNED:
        changes = {"attempt": task.attempt + 1, "not_before": None, **changes}
    return replace(task, state=to, **{"pending": None, **changes})


class ForAgents(NamedTuple):
    """Work for a worker of a cluster ("": for any), or orders to an agent; neither: for any agent of the cluster."""

    cluster_id: str
    worker: str | None = None
    agent: str | None = None


def concerns(cluster_id: str, task: Task) -> list[ForAgents]:
    """Return for whom there may be something to do about a task.

    >>> concerns("oak", Task("j-0", "j", 0, 0, "t", TaskState.ASSIGNED, placement={"n7": {"core": 2}}))
    [ForAgents(cluster_id='oak', worker='n7', agent=None), ForAgents(cluster_id='oak', worker='', agent=None)]
    """
    if task.state is TaskState.ASSIGNED:
        anywhere = not task.placement or "" in task.placement
        return [ForAgents(cluster_id)] if anywhere else [ForAgents(cluster_id, one) for one in (*task.placement, "")]
    ordered = task.state is TaskState.STOPPING or _ORDERS.get(task.state) == task.hold
    return [ForAgents(cluster_id, agent=task.agent)] if task.agent and ordered else []


_ORDERS = {TaskState.RUNNING: Hold.POLICY, TaskState.SUSPENDED: Hold.NONE, TaskState.ACCEPTED: Hold.WITHDRAW}


def ran_for(task: Task, now: float) -> float:
    """Return how many seconds a task has run: while it is suspended its time stands still."""
    until = now if task.suspended_at is None else task.suspended_at
    return 0.0 if task.started_at is None else max(0.0, until - task.started_at - task.paused)


_FRESH: dict[str, Any] = {
    "placement": {},
    "agent": "",
    "exit_code": None,
    "assigned_at": None,
    "started_at": None,
    "ended_at": None,
    "hold": "",
    "suspended_at": None,
    "paused": 0.0,
    "not_before": None,
    "cause": "",
    "held": None,
}


def job_state(states: list[TaskState]) -> JobState:
    """Derive a job's state from those of its tasks.

    >>> job_state([TaskState.COMPLETED, TaskState.RUNNING])
    <JobState.RUNNING: 'RUNNING'>
    """
    if all(state in ENDED for state in states):
        if {TaskState.FAILED, TaskState.TIMED_OUT} & set(states):
            return JobState.FAILED
        return JobState.CANCELED if TaskState.CANCELED in states else JobState.COMPLETED
    unstarted = {TaskState.WAITING, TaskState.ASSIGNED, TaskState.ACCEPTED}
    return JobState.WAITING if set(states) <= unstarted else JobState.RUNNING
