"""The server's half of the agent's protocol: docs/reference-agent.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.errors import RequestError
from rainbow.jobs import ENDED, Task, TaskState, advance
from rainbow.scheduling import processes
from rainbow.service.access import Caller
from rainbow.service.jobspecs import reading
from rainbow.service.presence import beat, greet
from rainbow.service.showing import settle
from rainbow.service.telling import one_of_few
from rainbow.store import clusters, jobs, tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service
    from rainbow.store.clusters import ClusterRecord

T = TaskState
HELD = (T.ACCEPTED, T.RUNNING, T.SUSPENDED, T.STOPPING)
RESULTS = {"timed_out": T.TIMED_OUT, "failed": T.FAILED}


def receive(service: Service, who: Caller, name: str, agent: str, most: int, seconds: float) -> dict[str, Any]:
    """Offer the tasks that are assigned and accepted by nobody; wait for some if there are none."""
    record = greet(service, who, name, agent)
    found = _offered(service, record, agent, most)
    if found or seconds <= 0 or service.ending:
        return found or _nothing(service)
    # an agent that finds all places taken asks again later, and keeps nobody's thread
    with one_of_few(service, record.id, service.settings.limits.waiting):
        return _await(service, record, agent, most, seconds)


def _offered(service: Service, record: ClusterRecord, agent: str, most: int) -> dict[str, Any] | None:
    with service.store.read() as connection:
        offers = _offers(connection, record, min(most, service.settings.limits.offers)) if most > 0 else []
        stops = _stops(connection, record.id, agent)
    return {"tasks": offers, "stop": stops, "lease": service.settings.lease} if offers or stops else None


def _nothing(service: Service) -> dict[str, Any]:
    return {"tasks": [], "stop": [], "lease": service.settings.lease}


def _await(service: Service, record: ClusterRecord, agent: str, most: int, seconds: float) -> dict[str, Any]:
    deadline = service.clock() + min(seconds, service.settings.limits.wait)
    while True:
        version = service.news.version(record.id)
        found = _offered(service, record, agent, most)
        left = deadline - service.clock()
        if found or left <= 0 or service.ending:
            return found or _nothing(service)
        service.news.wait(record.id, version, left)


def _offers(connection: sa.Connection, cluster: ClusterRecord, most: int) -> list[dict[str, Any]]:
    assigned = tasks.of_cluster(connection, cluster.id, [T.ASSIGNED])[:most]
    return [_offer(connection, task, cluster.worker_type) for task in assigned]


def _offer(connection: sa.Connection, task: Task, worker_type: str) -> dict[str, Any]:
    asked = reading(connection, task.job)
    request, spec = asked.request, asked.tasks[task.index].spec
    return {
        "id": task.id,
        "attempt": task.attempt,
        "job": task.job,
        "name": task.name,
        "command": list(spec.command),
        "cwd": request.cwd,
        "environment": {**request.environment, **spec.environment},
        "duration": request.duration,
        "processes": processes(spec, task.slots, task.placement, worker_type),
        "placement": task.placement,
    }


def _stops(connection: sa.Connection, cluster_id: str, agent: str) -> list[dict[str, Any]]:
    stopping = tasks.of_cluster(connection, cluster_id, [T.STOPPING])
    return [{"id": task.id, "attempt": task.attempt} for task in stopping if task.agent == agent]


def accept(
    service: Service, who: Caller, name: str, agent: str, wanted: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Give assigned tasks to an agent; what it has accepted before is accepted again."""
    record = greet(service, who, name, agent)
    accepted: list[str] = []
    refused: list[dict[str, str]] = []
    with service.store.write() as connection:
        for task, ref in _named(connection, record.id, wanted, "id"):
            reason = _accept(connection, record.id, agent, task, ref)
            if reason:
                refused.append({"id": str(ref["id"]), "reason": reason})
            else:
                accepted.append(ref["id"])
    service.tell(record.id)
    return {"accepted": accepted, "refused": refused}


def _accept(connection: sa.Connection, cluster_id: str, agent: str, task: Task | None, ref: Mapping[str, Any]) -> str:
    """Accept one task; return why not, or an empty text."""
    if task is None or task.attempt != ref["attempt"]:
        return "it is no longer offered"
    if task.state is T.ACCEPTED and task.agent == agent:
        return ""
    if task.state is not T.ASSIGNED:
        return f"it is {task.state}"
    tasks.save(connection, advance(task, T.ACCEPTED, agent=agent))
    job = jobs.get(connection, task.job)
    if job and job.accepted_clock is None:
        jobs.change(connection, job.id, accepted_clock=clusters.tick(connection, cluster_id))
    return ""


def record_events(
    service: Service, who: Caller, name: str, agent: str, events: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Store what happened to tasks, in order; what is no longer the agent's is stale."""
    record = greet(service, who, name, agent)
    recorded: list[str] = []
    stale: list[str] = []
    now = service.clock()
    with service.store.write() as connection:
        for task, event in _named(connection, record.id, events, "task"):
            fresh = (
                task is not None
                and task.attempt == event["attempt"]
                and _happened(service, connection, task, agent, event)
            )
            (recorded if fresh else stale).append(event["task"])
        for job_id in sorted({task_id.rpartition("-")[0] for task_id in recorded}):
            settle(connection, job_id, now)
    service.tell(record.id)
    return {"recorded": recorded, "stale": stale}


def _happened(service: Service, connection: sa.Connection, task: Task, agent: str, event: Mapping[str, Any]) -> bool:
    """Store one event; False if the task is not this agent's any more."""
    if task.agent != agent or task.state not in HELD:
        return task.agent == agent and task.state in ENDED and event["event"] == "ended"  # told before
    if event["event"] == "started":
        if task.state is T.ACCEPTED:
            tasks.save(connection, advance(task, T.RUNNING, started_at=service.clock()))
        return True
    tasks.save(connection, _ended(service, connection, task, event))
    return True


def _ended(service: Service, connection: sa.Connection, task: Task, event: Mapping[str, Any]) -> Task:
    now = service.clock()
    output = str(event.get("output") or "")[-service.settings.limits.output :]
    changes = {
        "exit_code": event.get("exit_code"),
        "output": output,
        "detail": str(event.get("detail") or "")[:1_000],
    }
    job = jobs.get(connection, task.job)
    canceled = job is not None and job.canceled_at is not None
    if event.get("result") == "stopped":
        if not canceled:  # stopped by the policy or with its agent: it runs again
            return advance(task, T.WAITING, detail=changes["detail"] or "stopped, waits again")
        return advance(task, T.CANCELED, ended_at=now, **changes)
    good = event.get("result", "exited") == "exited" and event.get("exit_code") == 0
    state = T.COMPLETED if good else RESULTS.get(str(event.get("result")), T.FAILED)
    ended = advance(task, state, ended_at=now, **changes)
    if not good and ended.retries_left > 0 and not canceled:
        return advance(ended, T.WAITING, detail=f"attempt {task.attempt} ended {state}")
    return ended


def heartbeat(
    service: Service,
    who: Caller,
    name: str,
    agent: str,
    up: Sequence[str] | None,
    running: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Renew an agent's lease; tell it what must stop and what is no longer its own."""
    record = beat(service, who, name, agent, up)
    with service.store.read() as connection:
        named = list(_named(connection, record.id, running, "id"))
        stops = _stops(connection, record.id, agent)
    stale = [
        ref["id"]
        for task, ref in named
        if task is None or task.attempt != ref["attempt"] or task.agent != agent or task.state not in HELD
    ]
    return {"stop": stops, "stale": stale, "lease": service.settings.lease}


def _named(
    connection: sa.Connection, cluster_id: str, references: Sequence[Mapping[str, Any]], key: str
) -> Iterator[tuple[Task | None, Mapping[str, Any]]]:
    """Yield each reference with the task it names, as it is when its turn comes."""
    for k, reference in enumerate(references):
        task_id = reference.get(key) if isinstance(reference, Mapping) else None
        if not isinstance(task_id, str) or not isinstance(reference.get("attempt"), int):
            raise RequestError(f"a task is named by {key} and attempt", pointer=f"/{k}")
        yield tasks.get(connection, cluster_id, [task_id]).get(task_id), reference
