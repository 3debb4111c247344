"""Jobs after they were placed: list, show, why, cancel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NotFound
from rainbow.jobs import ENDED, JobState, Task, TaskState, advance, job_state
from rainbow.scheduling import never_started
from rainbow.service.access import Caller, not_for
from rainbow.service.submits import ledger
from rainbow.service.submits.jobspecs import reading
from rainbow.store import clusters, events, jobs, tasks
from rainbow.store.jobs import LIVE, Filter, JobRecord

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service


def listing(service: Service, who: Caller, chosen: Filter) -> list[dict[str, Any]]:
    """List jobs of the clusters that exist for the caller, the newest first."""
    with service.store.read() as connection:
        return [_job(record) for record in jobs.listing(connection, chosen)]


def visible_job(connection: sa.Connection, who: Caller, job_id: str) -> JobRecord:
    """Return a job that exists for this caller, else NotFound."""
    record = jobs.get(connection, job_id)
    if record is None or not who.sees(record.cluster_id):
        raise NotFound(f"there is no job {job_id}")
    return record


def own_job(connection: sa.Connection, who: Caller, job_id: str) -> JobRecord:
    """Return a job the caller may change; Forbidden for those who may only see it."""
    record = visible_job(connection, who, job_id)
    if not who.speaks_for(record.cluster_id, record.requestor):
        raise not_for(record.requestor)
    return record


def show(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Show a job with its tasks."""
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        found = tasks.of_job(connection, job_id)
    return {**_job(record), "tasks": [_task(task) for task in found]}


def why(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Show the whole decision: match, selection steps, and why it waits."""
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        decision = ledger.whole(connection, job_id)
    decision = {key: value for key, value in decision.items() if key not in ("given", "digests")}
    decision = only_for(service, who, record.cluster, decision)
    waiting = record.wait if record.state in LIVE else None
    return {"id": job_id, "cluster": record.cluster, "state": record.state, "decision": decision, "wait": waiting}


def replay(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Take a job's decision again from the ledger; say whether the same comes of it."""
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        found = ledger.replay(service, connection, record)
    return only_for(service, who, record.cluster, found)


def only_for(service: Service, who: Caller, cluster: str, decision: dict[str, Any]) -> dict[str, Any]:
    """Return what of a decision that chose this cluster its reader may see."""
    if who.admin:
        return decision
    seen = {name for name, entry in service.catalogue.items() if who.sees(entry.id)}
    return only_about(seen | {cluster}, decision)


def only_about(seen: Collection[str], decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decision without the clusters that do not exist for its reader.

    >>> only_about({"oak"}, {"refusals": [{"cluster": "elm"}], "steps": [{"survivors": ["elm", "oak"]}]})
    {'refusals': [], 'steps': [{'survivors': ['oak']}]}
    """
    return {key: _PARTS.get(key, _as_it_is)(seen, value) for key, value in decision.items()}


def _as_it_is(_: Collection[str], value: Any) -> Any:
    return value


def _of_clusters(seen: Collection[str], listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in listed if entry["cluster"] in seen]


def _names(seen: Collection[str], names: list[str]) -> list[str]:
    return [name for name in names if name in seen]


def _name(seen: Collection[str], name: str) -> str:
    return name if name in seen else ""


def _by_name(seen: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in seen}


def _each(seen: Collection[str], parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [only_about(seen, part) for part in parts]


# what in a decision is about clusters, and how those are left out
_PARTS: dict[str, Callable[[Collection[str], Any], Any]] = {
    "candidates": _of_clusters,
    "refusals": _of_clusters,
    "undecided": _of_clusters,
    "selection": only_about,
    "replayed": only_about,
    "graphs_changed_since": _names,
    "again": only_about,
    "clusters": _names,
    "moves": _each,
    "cluster": _name,
    "from": _name,
    "to": _name,
    "steps": _each,
    "survivors": _names,
    "values": _by_name,
    "dropped": _by_name,
    "ranks": _by_name,
    "drops": _by_name,
    "barred": _by_name,
}


def cancel(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """End a job: what has not started is canceled, what runs is told to stop."""
    now = service.clock()
    with service.store.write() as connection:
        record = own_job(connection, who, job_id)
        if record.state not in LIVE:
            raise Conflict(f"job {job_id} has ended: {record.state}")
        end(connection, job_id, now)
    service.tell(record.cluster_id)
    return show(service, who, job_id)


def end(connection: sa.Connection, job_id: str, now: float, why: str = "") -> None:
    """Cancel a job's tasks that have not started, tell the others to stop; `why` is what people are told."""
    jobs.change(connection, job_id, canceled_at=now)
    tasks.save_all(connection, list(_told_to_end(tasks.of_job(connection, job_id), now, why)), now)
    settle(connection, job_id, now)


def _told_to_end(found: Iterable[Task], now: float, why: str) -> Iterator[Task]:
    for task in found:
        if task.state in (TaskState.WAITING, TaskState.ASSIGNED):
            yield advance(task, TaskState.CANCELED, placement={}, ended_at=now, detail=why)
        elif task.state not in ENDED and task.state is not TaskState.STOPPING:
            yield advance(task, TaskState.STOPPING, detail=why or "canceled")


def _cancel_dependents(connection: sa.Connection, job_id: str, now: float) -> None:
    """Cancel what waits for a task of the job that ended badly."""
    read = reading(connection, job_id)
    if not read.depends:
        return
    asked = read.tasks
    found = {task.index: task for task in tasks.of_job(connection, job_id)}
    for index, name in never_started(asked, {index: task.state for index, task in found.items()}).items():
        detail = f"depends on {name}, which did not complete"
        tasks.save(connection, advance(found[index], TaskState.CANCELED, ended_at=now, detail=detail), now)


def settle(connection: sa.Connection, job_id: str, now: float) -> None:
    """Bring a job's state up to date with its tasks; its end is an event of the cluster's free nodes."""
    record = jobs.get(connection, job_id)
    if record is None or record.state not in LIVE:
        return
    _cancel_dependents(connection, job_id, now)
    state = job_state(tasks.states_of(connection, job_id))
    if state is not record.state:
        events.add(connection, now, record.cluster_id, "job", job=job_id, state=str(state), cluster=record.cluster)
    if state in LIVE:
        jobs.change(connection, job_id, state=state)
        return
    clock = clusters.tick(connection, record.cluster_id)
    jobs.change(connection, job_id, state=state, ended_at=now, ended_clock=clock, wait=None)


def _job(record: JobRecord) -> dict[str, Any]:
    hidden = ("cluster_id", "accepted_clock", "ended_clock", "awaits")
    written = {key: value for key, value in asdict(record).items() if key not in hidden}
    return {**written, "wait": written["wait"] if record.state is not JobState.COMPLETED else None}


def _task(task: Task) -> dict[str, Any]:
    written = asdict(task)
    written.pop("job")
    return written
