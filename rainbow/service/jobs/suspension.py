"""Jobs suspended and resumed by their owners, and tasks as their agents report them.

    asked      jobs.suspended_at (its owner), tasks.hold (the policy)
    carried    the agent is told, holds the processes, and says so: RUNNING and SUSPENDED

A suspended task keeps its space, and its time limit does not advance. Waiting tasks of a suspended job do not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict
from rainbow.service.core.access import Caller
from rainbow.service.jobs.lifecycle import own_job, show
from rainbow.state_machine import Hold, Task, TaskState, advance
from rainbow.store import events, jobs, tasks
from rainbow.store.jobs import PENDING

if TYPE_CHECKING:
    from rainbow.service.core.service import Service


T = TaskState


def suspend(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Hold a job: what runs is stopped in place, what waits does not start. Said twice it is the same."""
    return _hold(service, who, job_id, "suspended")


def resume(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Let a job go on that was suspended; what its policy holds stays held. Said twice it is the same."""
    return _hold(service, who, job_id, "resumed")


def _hold(service: Service, who: Caller, job_id: str, verb: str) -> dict[str, Any]:
    now, held = service.clock(), verb == "suspended"
    with service.store.write() as connection:
        record = own_job(connection, who, job_id)
        if record.state not in PENDING:
            raise Conflict(f"job {job_id} already ended: {record.state}")
        if held is (record.suspended_at is None):
            jobs.change(connection, job_id, suspended_at=now if held else None)
            tasks.ask_again(connection, job_id)
            events.add(connection, now, record.cluster_id, "job", job=job_id, state=verb, cluster=record.cluster)
    service.tell(record.cluster_id)
    return show(service, who, job_id)


def still_pending(task: Task, event: Mapping[str, Any], now: float) -> Task:
    """Return a task that has not started, with what its agent says of why; `since` stays while the code does."""
    if task.state is not T.ACCEPTED:
        return task
    told = {
        "code": event.get("code") or "pending",
        "text": event.get("text") or "",
        "facts": event.get("facts") or {},
    }
    before = task.pending or {}
    since = before["since"] if before.get("code") == told["code"] else now
    return replace(task, pending={**told, "since": since})


def after(task: Task, event: str, detail: str, now: float) -> Task:
    """Return a task after an event that does not end it; one that is no news changes nothing."""
    if event == "started" and task.state is T.ACCEPTED:
        return advance(task, T.RUNNING, started_at=now)
    if event == "suspended" and task.state is T.RUNNING:
        return advance(task, T.SUSPENDED, suspended_at=now)
    if event == "resumed" and task.state is T.SUSPENDED:
        gone = now - (task.suspended_at or now)
        return advance(task, T.RUNNING, suspended_at=None, paused=task.paused + gone)
    if event == "unable" and task.state is T.RUNNING:
        # it goes on, and nobody asks again before somebody suspends its job anew
        return replace(task, hold=Hold.UNABLE, detail=detail or "its executor cannot suspend")
    return task
