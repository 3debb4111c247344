"""What a person may change of a job after its submit: limit, nodes, priority, name, and whether it is held.

nodes       only while no agent has accepted a task of it, and only fewer
limit       a shorter one always; a longer one only while nothing was accepted
priority    a lower one always; a higher one for who has the cluster's secret

What was changed, by whom and when, stays with the job under `changes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, Forbidden, ValueRefused
from rainbow.service.core.access import Caller
from rainbow.service.jobs.jobspecs import reading_of
from rainbow.service.jobs.lifecycle import own_job
from rainbow.service.jobs.verbs import VERBS
from rainbow.state_machine import ENDED, TaskState
from rainbow.store import clusters, events, jobs, tasks
from rainbow.store.jobs import PENDING, JobRecord

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service

WAITS = frozenset({TaskState.WAITING, TaskState.ASSIGNED})
MOST_CHANGES = 100  # that a job remembers


def update(service: Service, who: Caller, job_id: str, asked: Mapping[str, Any], by: str | None) -> None:
    """Change a job, all that is asked or nothing; Conflict where it has gone too far for that."""
    now = service.clock()
    with service.store.write() as connection:
        record = own_job(connection, who, job_id)
        if record.state not in PENDING:
            raise Conflict(f"job {job_id} already ended: {record.state}")
        begun = not set(tasks.states_of(connection, job_id)) - ENDED <= WAITS
        overrides = dict(record.overrides or {})
        old: dict[str, Any] = {}
        if "time_limit" in asked:
            old["time_limit"], overrides["duration"] = _limit(connection, record, asked["time_limit"], begun)
        if "nodes" in asked:
            old["nodes"], overrides["nodes"] = _nodes(connection, record, asked["nodes"], begun)
        if "priority" in asked:
            old["priority"] = _priority(who, record, asked["priority"])
        if "name" in asked:
            old["name"] = record.name
        changed = {key: [old[key], asked[key]] for key in old if old[key] != asked[key]}
        if changed:
            entry = {"at": now, "by": by or "", "changed": changed}
            overrides["changes"] = [*overrides.get("changes", []), entry][-MOST_CHANGES:]
            columns = {key: asked[key] for key in ("priority", "name") if key in changed}
            jobs.change(connection, job_id, overrides=overrides, **columns)
            if record.cluster_id and changed.keys() & {"time_limit", "nodes"}:
                clusters.count_move(connection, record.cluster_id)  # all who plan read its jobs again
            facts = {"job": job_id, "state": "changed", "cluster": record.cluster, "changed": sorted(changed)}
            events.add(connection, now, record.cluster_id, "job", **facts)
        if asked.get("held") is not None:
            VERBS["hold" if asked["held"] else "release"](connection, record, None, now)
    service.tell(record.cluster_id)


def _limit(connection: sa.Connection, record: JobRecord, limit: float, begun: bool) -> tuple[float, float]:
    """Return the old limit and the new, in seconds; 0 is none."""
    before = reading_of(connection, record).request.duration
    if begun and (not limit or (before and limit > before)):
        raise Conflict(f"job {record.id} runs: only its limit may be lowered")
    _check_site(connection, record, "limit")
    return before, float(limit)


def _nodes(connection: sa.Connection, record: JobRecord, nodes: int, begun: bool) -> tuple[int, int]:
    """Return how many nodes the job has asked for, and asks for now."""
    if begun:
        raise Conflict(f"job {record.id} runs: only its limit may be lowered")
    outermost = [variant[0] for variant in reading_of(connection, record).request.variants if len(variant) == 1]
    counts = {one.count.min for one in outermost if one.type == "node"}
    if len(counts) != 1 or len(outermost) != len(reading_of(connection, record).request.variants):
        raise ValueRefused("/nodes: the job asks for no number of nodes", pointer="/nodes")
    before = counts.pop()
    if nodes > before:
        give = "1" if before <= 2 else f"1 to {before - 1}"
        raise ValueRefused(f"/nodes: the job asks for {before}; give {give}", pointer="/nodes")
    return before, nodes


def _priority(who: Caller, record: JobRecord, priority: int) -> int:
    owns = who.admin or (record.cluster_id and who.owns(record.cluster_id))
    if priority > record.priority and not owns:
        raise Forbidden(f"job {record.id} has priority {record.priority}; only the cluster's owner may raise it")
    return record.priority


def _check_site(connection: sa.Connection, record: JobRecord, what: str) -> None:
    """Refuse to change what a site has taken over: it decides there."""
    booked = tasks.some_of(connection, record.id, (TaskState.ACCEPTED, TaskState.RUNNING, TaskState.SUSPENDED), 1)
    if booked and booked[0].site and booked[0].site.get("number"):
        number = booked[0].site["number"]
        raise Conflict(f"{record.cluster} has taken job {record.id} over as {number}: change its {what} there")
