"""The certificate of a task's start: shown, and in a line of `why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.certificate.document import Stored, names_of, written
from rainbow.errors import NotFound
from rainbow.matching import settled
from rainbow.scheduling.gangs import gangs
from rainbow.service.jobs.jobspecs import reading
from rainbow.service.jobs.lifecycle import visible_job
from rainbow.state_machine import Task
from rainbow.store import clusters, tasks
from rainbow.store.workers import ELSEWHERE, certificate_of
from rainbow.text import some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.store.jobs import JobRecord


def certificate(service: Service, who: Caller, job_id: str, index: int | None = None) -> dict[str, Any]:
    """Return the rows that prove a task's start, of the first task that has some; NotFound where there are none."""
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        task, stored = _first(connection, job_id, index)
        if task is None or not isinstance(stored, Stored):
            raise NotFound(f"no certificate: {_without(service, connection, record, task, stored)}")
        request = reading(connection, job_id).request
    if stored.certificate is None:
        return {"version": 1, "graph": stored.graph, "sha256": stored.sha256, "count": stored.rows}
    gang = next(gang for gang in gangs(request) if gang.number == task.gang)
    entry = service.catalogue.get(record.cluster)
    proved = settled(gang.request, entry.cluster, service.settings.backend) if entry is not None else gang.request
    names = names_of(proved.variants[stored.certificate.variant])
    return {**written(stored.certificate), "requests": names}


def verified(service: Service, connection: sa.Connection, record: JobRecord) -> dict[str, Any] | None:
    """Say of a job that has started whether that was verified: `text`, `rows`, `slots`, `ms`, `graph`."""
    task, stored = _first(connection, record.id, None)
    if task is None:
        return None
    if not isinstance(stored, Stored):
        return {"text": f"no, {_without(service, connection, record, task, stored)}"}
    cluster = clusters.get(connection, record.cluster_id)
    changed = cluster is not None and stored.graph is not None and cluster.revision != stored.graph
    at = f"verified at revision {stored.graph}, " if changed else ""
    text = f"{at}{some(stored.slots, 'slot')} in {some(stored.rows, 'row')}, {stored.milliseconds:g} ms"
    text += "" if changed or stored.graph is None else f", graph revision {stored.graph}"
    numbers = {"rows": stored.rows, "slots": stored.slots, "ms": stored.milliseconds, "graph": stored.graph}
    return {"text": text, **numbers}


MOST_LOOKED_AT = 100  # tasks among which one that has started is looked for


def _first(connection: sa.Connection, job_id: str, index: int | None) -> tuple[Task | None, Stored | bytes | None]:
    """Return a task that has started and what is kept of that: of this index, or the first that has a certificate."""
    page = tasks.page(connection, job_id, index or 0, MOST_LOOKED_AT if index is None else 1)
    begun = [task for task in page if task.assigned_at is not None]
    result: tuple[Task | None, Stored | bytes | None] = (None, None)
    gang = None
    for task in begun:
        if task.gang == gang:
            continue
        gang, stored = task.gang, certificate_of(connection, task)
        if isinstance(stored, Stored):
            return task, stored
        result = (task, stored) if result[0] is None else result
    return result


def _without(
    service: Service,
    connection: sa.Connection,
    record: JobRecord,
    task: Task | None,
    stored: bytes | Stored | None,
) -> str:
    """Say why a start has no certificate."""
    cluster = clusters.get(connection, record.cluster_id)
    entry = service.catalogue.get(record.cluster)
    if task is None:
        return "no task of it has started"
    if cluster is not None and cluster.policy == "delegate":
        return f"placed by {record.cluster}"
    if stored == ELSEWHERE:
        return f"placed by the site of {record.cluster}"
    if entry is not None and entry.cluster.levels == "strict":
        return "levels are strict"
    return "started before certificates" if task.held else "it holds amounts of no vertices in particular"
