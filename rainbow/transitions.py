"""Transitions of a task at each event: its next state, its times and its texts, decided in one place.

    Assigned, Accepted, Started, Ended                  the way of every task
    Pending, AtSite, Output, Placed, Suspended, Resumed, Unable what its agent says meanwhile
    StopOrdered, CancelOrdered, WithdrawalOrdered       what a policy, a limit or a person wants
    TakenBack, Lost                                     not offered any more; its worker, agent or keeper is gone

Which moves are legal is the table of state_machine.py. An event that is no news to a task leaves it as it is.

A lost task waits 1 s, then 2 s, 4 s, ... for its next attempt, and has failed after `max_lost` losses, with its
history: a task that ends whatever watches it would run forever, and take its neighbours with it each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rainbow.errors import Conflict
from rainbow.state_machine import ENDED, REQUEUED, Hold, Task, TaskState, advance

T = TaskState
LOST = "lost"  # the cause of what ends or is stopped with its worker, agent or keeper
CANCELED = "canceled"  # the cause of what is stopped because a person wants this task no more, and its job still
FINAL = frozenset({LOST, "node", "preempted"})  # causes of a failure after which nothing is tried again
RESULTS = {"timed_out": T.TIMED_OUT, "stopped": T.CANCELED, "canceled": T.CANCELED}
FIRST, LONGEST = 1.0, 300.0  # seconds between the first loss and the next attempt, and at most
MOST_LOSSES = 20  # losses that a task remembers
STARTS = 5  # so often in a row an instance of a service may end soon
EARLY_END = 60.0  # seconds after its start, within which the end of an instance is soon
LONGEST_DETAIL = 1_000


@dataclass(frozen=True, slots=True)
class Assigned:
    """An order of the policy: this space is booked for it."""

    placement: Mapping[str, Mapping[str, int]]
    held: Mapping[str, Any] | None = None
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Accepted:
    """An agent has it."""

    agent: str


@dataclass(frozen=True, slots=True)
class Pending:
    """Its agent says why it does not start yet."""

    code: str = ""
    text: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AtSite:
    """Its agent says how its site calls it, and where it is there."""

    number: str = ""
    partition: str = ""
    nodes: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """Record the ends of the task's outputs so far."""

    text: str
    errors: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """It runs."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A resource manager gave it this space instead."""

    placement: Mapping[str, Mapping[str, int]]
    held: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Suspended:
    """It is held in place; `site`: by a user of its site, in words."""

    site: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """It is held no longer."""


@dataclass(frozen=True, slots=True)
class Unable:
    """Record that its executor cannot suspend it: it runs on until its job's next suspension."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class WithdrawalOrdered:
    """Its site should give it back, if it has not begun there."""


@dataclass(frozen=True, slots=True)
class StopOrdered:
    """It must give its space back; `cause` LOST: it is gone with its worker; `preempted`: by whom and how."""

    why: str
    cause: str = ""
    preempted: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CancelOrdered:
    """It is not wanted any more; `alone`: it alone, and not its job."""

    why: str = ""
    alone: bool = False


@dataclass(frozen=True, slots=True)
class TakenBack:
    """It was offered, and no agent has begun it."""

    why: str


@dataclass(frozen=True, slots=True)
class Lost:
    """This attempt is lost. `max_lost` as of the cluster's limits; 0: any number. `once`: it must not start twice."""

    why: str
    max_lost: int
    canceled: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """Record the end that its agent reports; the rest follows from the server's own state."""

    result: str = "exited"  # failed: to start; timed_out, stopped, canceled, lost
    exit_code: int | None = None
    output: str = ""
    errors: str = ""
    detail: str = ""
    cause: str = ""
    canceled: bool = False  # somebody has asked for that
    service: bool = False  # an instance of a service: it starts again
    max_lost: int = 0
    once: bool = False  # its job must not start twice

    @property
    def good(self) -> bool:
        """Return whether it ended as it should."""
        return self.result == "exited" and self.exit_code == 0


Event = (
    Assigned
    | Accepted
    | Pending
    | AtSite
    | Output
    | Started
    | Placed
    | Suspended
    | Resumed
    | Unable
    | StopOrdered
    | CancelOrdered
    | WithdrawalOrdered
    | TakenBack
    | Lost
    | Ended
)


def transition(task: Task, event: Event, now: float) -> Task:
    """Return a task after an event; Conflict if its state does not allow that.

    >>> task = transition(Task("t", "j", 0, 0, "a"), Assigned({"n0": {"core": 1}}), 1.0)
    >>> task = transition(transition(task, Accepted("ann"), 2.0), Started(), 3.0)
    >>> str(task.state), str(transition(task, Ended(exit_code=0), 4.0).state)
    ('RUNNING', 'COMPLETED')
    >>> task = transition(task, Lost("lost contact with the agent", max_lost=5), 10.0)
    >>> str(task.state), task.not_before
    ('WAITING', 11.0)
    """
    return _RULES[type(event)](task, event, now)


def pause(losses: int) -> float:
    """Return how many seconds a task waits after its losses.

    >>> [pause(n) for n in (1, 2, 3, 30)]
    [1.0, 2.0, 4.0, 300.0]
    """
    return float(min(FIRST * 2 ** min(losses - 1, 30), LONGEST)) if losses > 0 else 0.0


# ── one rule for each event ──


def _assigned(task: Task, event: Assigned, now: float) -> Task:
    placement = {worker: dict(amounts) for worker, amounts in event.placement.items()}
    held = None if event.held is None else {worker: list(paths) for worker, paths in event.held.items()}
    options = {"placement": placement, "held": held, "slots": event.slots}
    return advance(task, T.ASSIGNED, **options, agent="", assigned_at=now, detail="", preempted=None, site=None)


def _accepted(task: Task, event: Accepted, now: float) -> Task:
    if task.state is not T.ASSIGNED:
        raise Conflict(f"task {task.id} is {task.state}, and not assigned", task=task.id)
    return advance(task, T.ACCEPTED, agent=event.agent)


def _pending(task: Task, event: Pending, now: float) -> Task:
    """Keep why it does not start; `since` stays while the code does. A site may have put it back into its queue."""
    if task.state in (T.RUNNING, T.SUSPENDED) and event.facts.get(REQUEUED):
        task = advance(task, T.ACCEPTED, started_at=None, suspended_at=None, paused=0.0, hold=Hold.NONE, detail="")
    if task.state is not T.ACCEPTED:
        return task
    answer = {"code": event.code or "pending", "text": event.text, "facts": event.facts}
    before = task.pending or {}
    since = before["since"] if before.get("code") == answer["code"] else now
    return replace(task, pending={**answer, "since": since})


def _at_site(task: Task, event: AtSite, now: float) -> Task:
    said = {"number": event.number, "partition": event.partition, "nodes": event.nodes, "detail": event.detail}
    return replace(task, site={key: value for key, value in said.items() if value} or None)


def _output(task: Task, event: Output, now: float) -> Task:
    return replace(task, output=event.text, errors=event.errors)


def _started(task: Task, event: Started, now: float) -> Task:
    if task.state is T.SUSPENDED and task.hold == Hold.SITE:  # its site had let it continue while its agent was away
        return _resumed(task, Resumed(), now)
    return advance(task, T.RUNNING, started_at=now, hold=Hold.NONE) if task.state is T.ACCEPTED else task


def _placed(task: Task, event: Placed, now: float) -> Task:
    if task.state not in (T.ACCEPTED, T.RUNNING, T.SUSPENDED):
        return task
    placement = {worker: dict(amounts) for worker, amounts in event.placement.items()}
    return replace(task, placement=placement, held={worker: list(paths) for worker, paths in event.held.items()})


def _suspended(task: Task, event: Suspended, now: float) -> Task:
    if task.state is not T.RUNNING:
        return task
    site = {"hold": Hold.SITE, "detail": event.site} if event.site else {}
    return advance(task, T.SUSPENDED, suspended_at=now, **site)


def _resumed(task: Task, event: Resumed, now: float) -> Task:
    if task.state is not T.SUSPENDED:
        return task
    gone = now - (task.suspended_at or now)
    freed = {"hold": Hold.NONE, "detail": ""} if task.hold == Hold.SITE else {}
    return advance(task, T.RUNNING, suspended_at=None, paused=task.paused + gone, **freed)


def _unable(task: Task, event: Unable, now: float) -> Task:
    if task.state is not T.RUNNING:
        return task
    return replace(task, hold=Hold.UNABLE, detail=event.detail or "its executor cannot suspend")


def _withdrawal_ordered(task: Task, event: WithdrawalOrdered, now: float) -> Task:
    return replace(task, hold=Hold.WITHDRAW) if task.state is T.ACCEPTED else task


def _stop_ordered(task: Task, event: StopOrdered, now: float) -> Task:
    if task.state is T.ASSIGNED:  # nobody has it: there is nothing to stop, and nobody would confirm that
        return advance(task, T.WAITING, detail=event.why, preempted=_by(event))
    if task.state in (T.WAITING, T.STOPPING) or task.state in ENDED:
        return task
    return advance(task, T.STOPPING, detail=event.why, cause=event.cause, preempted=_by(event))


def _by(event: StopOrdered) -> dict[str, Any] | None:
    return dict(event.preempted) if event.preempted else None


def _cancel_ordered(task: Task, event: CancelOrdered, now: float) -> Task:
    if task.state in (T.WAITING, T.ASSIGNED):
        return advance(task, T.CANCELED, placement={}, ended_at=now, detail=event.why)
    if task.state is T.STOPPING or task.state in ENDED:
        return replace(task, cause=CANCELED) if event.alone and task.state is T.STOPPING else task
    return advance(task, T.STOPPING, detail=event.why or "canceled", **({"cause": CANCELED} if event.alone else {}))


def _taken_back(task: Task, event: TakenBack, now: float) -> Task:
    return advance(task, T.WAITING, detail=event.why) if task.state is T.ASSIGNED else task


def _lost(task: Task, event: Lost, now: float) -> Task:
    if event.canceled or task.cause == CANCELED:
        return advance(task, T.CANCELED, placement={}, ended_at=now)
    if not task.agent:  # nobody has begun it
        return advance(task, T.WAITING, detail=event.why)
    if event.once:  # an agent has had it: it may have started
        detail = f"{event.why}; it may have run, and must not start twice (requeue: false)"
        return advance(task, T.FAILED, detail=detail, cause=LOST, ended_at=now)
    history = [*task.losses, {"attempt": task.attempt, "at": now, "why": event.why}]
    if 0 < event.max_lost <= len(history):
        text = "; ".join(f"attempt {one['attempt']}: {one['why']}" for one in history)
        detail = f"lost {len(history)} times, the limit is {event.max_lost}: {text}"[:LONGEST_DETAIL]
        return advance(task, T.FAILED, losses=history, detail=detail, cause=LOST, ended_at=now)
    after = now + pause(len(history))
    return advance(task, T.WAITING, losses=history[-MOST_LOSSES:], detail=event.why, not_before=after)


def _ended(task: Task, event: Ended, now: float) -> Task:
    if event.canceled or task.cause == CANCELED:
        return _lost(task, Lost("", 0, canceled=True), now) if event.result == LOST else _final(task, event, now)
    if event.result == LOST or (event.result == "stopped" and task.cause == LOST):
        why = event.detail or (task.detail if task.cause == LOST else "it was lost")
        return _lost(task, Lost(why, event.max_lost, once=event.once), now)
    if event.result == "stopped" and event.once and task.started_at is not None:
        return _lost(task, Lost(event.detail or task.detail or "stopped", 0, once=True), now)
    if event.result == "stopped":  # by the policy or with its agent: it runs again
        detail = task.detail if task.preempted else event.detail or "stopped and requeued"
        return advance(task, T.WAITING, detail=detail)
    if event.result == "canceled":  # what was canceled at its site stays so
        return _final(task, event, now)
    if event.service and (next_ := _instance(task, event, now)) is not None:
        return next_
    ended = _final(task, event, now)
    if event.good or ended.retries_left <= 0 or event.cause in FINAL:
        return ended
    return advance(ended, T.WAITING, detail=f"attempt {task.attempt} ended {ended.state}")


def _final(task: Task, event: Ended, now: float) -> Task:
    state = T.COMPLETED if event.good else RESULTS.get(event.result, T.FAILED)
    options: dict[str, Any] = {"exit_code": event.exit_code, "output": event.output, "errors": event.errors}
    if task.suspended_at is not None:
        options |= {"paused": task.paused + now - task.suspended_at, "suspended_at": None}
    return advance(task, state, ended_at=now, detail=event.detail, cause=event.cause, **options)


def _instance(task: Task, event: Ended, now: float) -> Task | None:
    """Return an instance of a service as it waits for its next start; None if it has ended soon too often."""
    lasted = task.started_at is not None and now - task.started_at >= EARLY_END
    remaining = STARTS if lasted else task.retries_left - 1
    if remaining < 0:
        return None
    how = event.detail or f"it ended with exit code {event.exit_code}"
    return advance(task, T.WAITING, retries_left=remaining, detail=f"{how}; an instance of a service starts again")


_RULES: Mapping[type, Callable[[Task, Any, float], Task]] = {
    Assigned: _assigned,
    Accepted: _accepted,
    Pending: _pending,
    AtSite: _at_site,
    Output: _output,
    Started: _started,
    Placed: _placed,
    Suspended: _suspended,
    Resumed: _resumed,
    Unable: _unable,
    WithdrawalOrdered: _withdrawal_ordered,
    StopOrdered: _stop_ordered,
    CancelOrdered: _cancel_ordered,
    TakenBack: _taken_back,
    Lost: _lost,
    Ended: _ended,
}
