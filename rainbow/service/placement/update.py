"""What a person may change of a job after its submit: limit, size, requirements, cluster, priority, name, held.

limit                    a shorter one always; a longer one only while nothing was accepted
nodes, without, cluster  only while nothing of it has been given to an agent; fewer, less, and where its submit may go
priority                 a lower one always; a higher one for who has the cluster's secret

What was changed, by whom and when, stays with the job under `changes`. A job keeps its place and its id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, Forbidden, ValueRefused
from rainbow.service.core.access import Caller
from rainbow.service.jobs.jobspecs import Changeable, changeable, reading_of
from rainbow.service.jobs.lifecycle import own_job
from rainbow.service.jobs.verbs import VERBS
from rainbow.service.placement.failover import Verdicts, by_hand, is_movable
from rainbow.state_machine import ENDED, TaskState
from rainbow.store import clusters, events, jobs, tasks
from rainbow.store.jobs import PENDING, JobRecord

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service

UNACCEPTED = frozenset({TaskState.WAITING, TaskState.ASSIGNED})
MOST_CHANGES = 100  # that a job remembers


@dataclass(frozen=True, slots=True)
class Subject:
    """A job that is to be changed: as it is stored, and the states of those of its tasks that have not ended."""

    connection: sa.Connection
    who: Caller
    record: JobRecord
    states: frozenset[TaskState]

    @property
    def changeable(self) -> Changeable:
        """What may be changed of it while nothing has begun."""
        return changeable(reading_of(self.connection, self.record), self.record.overrides)


def update(service: Service, who: Caller, job_id: str, request: Mapping[str, Any], by: str | None) -> None:
    """Change a job, all that is asked or nothing; Conflict where it has gone too far for that."""
    now, verdicts = service.clock(), _matched(service, who, job_id, request)
    with service.store.write() as connection:
        record = own_job(connection, who, job_id)
        if record.state not in PENDING:
            raise Conflict(f"job {job_id} already ended: {record.state}")
        subject = Subject(connection, who, record, frozenset(tasks.states_of(connection, job_id)) - ENDED)
        old = {key: before(subject, request[key]) for key, before in BEFORE.items() if key in request}
        new = dict(request)
        if "without" in request:
            new["without"] = [*old["without"], request["without"]]
        changed = {key: [old[key], new[key]] for key in old if old[key] != new[key]}
        if changed:
            record = _stored(connection, record, changed, {"at": now, "by": by or "", "changed": changed})
        at = _moved(service, connection, record, new["cluster"], by, verdicts) if "cluster" in changed else ""
        if request.get("held") is not None:
            VERBS["hold" if request["held"] else "release"](connection, record, None, now)
    service.tell(record.cluster_id, *([at] if at else []))


def _stored(
    connection: sa.Connection, record: JobRecord, changed: Mapping[str, list[Any]], entry: Mapping[str, Any]
) -> JobRecord:
    """Store what is changed of a job, with the old values; return the job as it is then."""
    overrides, now = {**(record.overrides or {})}, entry["at"]
    overrides |= {OVERRIDES[key]: values[1] for key, values in changed.items() if key in OVERRIDES}
    overrides["changes"] = [*overrides.get("changes", []), entry][-MOST_CHANGES:]
    columns = {key: changed[key][1] for key in ("priority", "name") if key in changed}
    jobs.change(connection, record.id, overrides=overrides, **columns)
    if record.cluster_id and changed.keys() & OVERRIDES.keys():
        clusters.count_move(connection, record.cluster_id)  # all who plan read its jobs again
    facts = {"job": record.id, "state": "changed", "cluster": record.cluster, "changed": sorted(changed)}
    events.add(connection, now, record.cluster_id, "job", **facts)
    return replace(record, overrides=overrides, **columns)


# ── what it was before, where it may be changed ──


def _limit(job: Subject, limit: float) -> float:
    """Return the limit in seconds; 0 is none."""
    before = reading_of(job.connection, job.record).request.duration
    if not job.states <= UNACCEPTED and (not limit or (before and limit > before)):
        raise Conflict(f"job {job.record.id} runs: only its limit may be lowered")
    _check_site(job, "limit")
    return before


def _nodes(job: Subject, nodes: int) -> int:
    """Return how many nodes, or slots, the job asks for."""
    _check_nothing_begun(job)
    may = job.changeable
    if not may.kind:
        raise ValueRefused("/nodes: the job asks for no number of nodes above 1", pointer="/nodes")
    if nodes > may.count:
        give = "1" if may.count <= 2 else f"1 to {may.count - 1}"
        raise ValueRefused(f"/nodes: the job asks for {may.count}; give {give}", pointer="/nodes")
    return may.count


def _without(job: Subject, name: str) -> list[str]:
    """Return the names that the job has left out until now."""
    _check_nothing_begun(job)
    may = job.changeable.omissible
    if name not in may:
        give = f"give one of {', '.join(may)}" if may else "it asks for nothing that can be left out"
        raise ValueRefused(f"/without: the job does not ask for {name[:100]}; {give}", pointer="/without")
    return [*(job.record.overrides or {}).get("without", ())]


def _cluster(job: Subject, name: str) -> str:
    if name != job.record.cluster:
        _check_nothing_begun(job)
    return job.record.cluster


def _priority(job: Subject, priority: int) -> int:
    record, who = job.record, job.who
    owns = who.admin or (record.cluster_id and who.owns(record.cluster_id))
    if priority > record.priority and not owns:
        raise Forbidden(f"job {record.id} has priority {record.priority}; only the cluster's owner may raise it")
    return record.priority


def _name(job: Subject, _: str) -> str:
    return job.record.name


BEFORE: Mapping[str, Callable[[Subject, Any], Any]] = {
    "time_limit": _limit,
    "nodes": _nodes,
    "without": _without,
    "cluster": _cluster,
    "priority": _priority,
    "name": _name,
}
OVERRIDES = {"time_limit": "duration", "nodes": "nodes", "without": "without"}  # as they are kept with the job


def _check_nothing_begun(job: Subject) -> None:
    if not job.states <= {TaskState.WAITING}:
        does = "is starting" if job.states <= UNACCEPTED else "runs"
        raise Conflict(f"job {job.record.id} {does}: only its limit may be lowered")


def _check_site(job: Subject, what: str) -> None:
    """Refuse to change what a site has taken over: it decides there."""
    record, begun = job.record, (TaskState.ACCEPTED, TaskState.RUNNING, TaskState.SUSPENDED)
    booked = tasks.some_of(job.connection, record.id, begun, 1)
    if booked and booked[0].site and booked[0].site.get("number"):
        number = booked[0].site["number"]
        raise Conflict(f"{record.cluster} has taken job {record.id} over as {number}: change its {what} there")


# ── to another cluster ──


def _matched(service: Service, who: Caller, job_id: str, request: Mapping[str, Any]) -> Verdicts:
    """Return what the clusters say of a job that is to go to another one: no writer waits for that.

    ValueRefused where the one asked for is none of them.
    """
    verdicts: Verdicts = {}
    name = request.get("cluster")
    if name is None:
        return verdicts
    with service.store.read() as connection:
        record = own_job(connection, who, job_id)
        if not record.cluster_id:
            raise Conflict(f"job {job_id} has no cluster yet: the rules of selection decide where it goes")
        if record.cluster == name:
            return verdicts
        going = by_hand(service, connection, record, verdicts).going(record)
        entry = service.catalogue.get(name)
        verdict = next((one for one in going.verdicts if one.cluster == name), None)
        if entry is None or not who.sees(entry.id) or verdict is None:
            raise ValueRefused(f"/cluster: job {job_id} may go to no cluster {name[:100]}", pointer="/cluster")
        if not verdict.matched:
            why = f": {verdict.reason.text}" if verdict.reason else ""
            raise ValueRefused(f"/cluster: {name} does not match the job{why}", pointer="/cluster")
    return verdicts


def _moved(
    service: Service, connection: sa.Connection, record: JobRecord, name: str, by: str | None, verdicts: Verdicts
) -> str:
    """Move a job of which nothing has begun; return the id of the cluster that has it now."""
    if not is_movable(connection, record):
        raise Conflict(f"job {record.id} runs: only its limit may be lowered")
    elsewhere = by_hand(service, connection, record, verdicts)
    move = elsewhere.place(record, f"{by or 'its owner'} has moved it", {name})
    if move is None:
        raise Conflict(f"cluster {name} does not take job {record.id} now: its limits or the selection say no")
    return move.record.cluster_id
