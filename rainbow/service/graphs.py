"""The graphs of a registered cluster change: the dominant one is replaced, subsystems are hung on it and taken away.

Each verb compiles first and writes then, and holds `service.changing` throughout, so that two changes of one
cluster never build on the same earlier form; submits and steps go on with that form meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NotFound, PreconditionFailed
from rainbow.graph import read_cluster
from rainbow.jobs import BOOKED
from rainbow.matching import prepare
from rainbow.service.access import Caller, own_cluster
from rainbow.service.registering import check_name
from rainbow.service.service import Entry
from rainbow.store import clusters, tasks, workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.service.service import Service
    from rainbow.store.clusters import ClusterRecord


def put_graph(
    service: Service, who: Caller, name: str, document: Any, expected: Collection[str] | None = None
) -> dict[str, Any]:
    """Replace the dominant graph; the subsystems are hung on the new one.

    `expected` are the revisions (ETags) one of which the caller has read, None: any. PreconditionFailed if it is
    another by now, Conflict if tasks hold a worker that the new graph lacks.
    """
    with service.changing:
        with service.store.read() as connection:
            record = own_cluster(connection, who, name)
            stored = clusters.graphs_of(connection, record.id)
        if expected is not None and str(record.revision) not in expected:
            raise PreconditionFailed(f"the graph of {name} is at revision {record.revision}")
        cluster = read_cluster(document, name, record.levels, record.worker_type)
        for subsystem, hung in stored.items():
            cluster = cluster.with_subsystem(subsystem, hung)
        prepare(cluster, service.settings.backend)
        with service.store.write() as connection:
            _check_unused(connection, record, cluster)
            revision = clusters.replace_document(connection, record.id, document)
            workers.keep_only(connection, record.id, list(cluster.workers), service.clock())
        service.put_entry(Entry(record.id, revision, cluster))
    service.tell(record.id)
    return {"name": name, "revision": revision, "totals": dict(cluster.totals)}


def _check_unused(connection: sa.Connection, record: ClusterRecord, cluster: Cluster) -> None:
    """Refuse a graph that lacks a worker with tasks on it."""
    used = {worker for task in tasks.of_cluster(connection, record.id, BOOKED) for worker in task.placement}
    lost = sorted(worker for worker in used if worker and worker not in cluster.workers)
    if lost:
        raise Conflict(f"worker {lost[0]} has tasks and is not in the new graph", workers=lost)


def graph(service: Service, who: Caller, name: str) -> tuple[Any, int]:
    """Return the dominant graph as it was given, and its revision."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        return clusters.document(connection, record.id), record.revision


def put_subsystem(service: Service, who: Caller, name: str, called: str, document: Any) -> dict[str, Any]:
    """Hang a subsystem on a cluster, in place of an earlier one of that name."""
    check_name(called, "subsystem")
    with service.changing:
        with service.store.read() as connection:
            record = own_cluster(connection, who, name)
        cluster = prepare(service.entry(name).cluster.with_subsystem(called, document), service.settings.backend)
        with service.store.write() as connection:
            clusters.put_subsystem(connection, record.id, called, document)
            revision = clusters.new_revision(connection, record.id)
        service.put_entry(Entry(record.id, revision, cluster))
    service.tell(record.id)
    return {"name": called, "revision": revision, "vertices": len(cluster.subsystems[called].graph)}


def delete_subsystem(service: Service, who: Caller, name: str, called: str) -> None:
    """Take a subsystem and its edges away; nothing matches it afterwards."""
    with service.changing:
        with service.store.write() as connection:
            record = own_cluster(connection, who, name)
            if not clusters.remove_subsystem(connection, record.id, called):
                raise NotFound(f"cluster {name} has no subsystem {called}")
            revision = clusters.new_revision(connection, record.id)
        cluster = service.entry(name).cluster.without_subsystem(called)
        service.put_entry(Entry(record.id, revision, cluster))
    service.tell(record.id)


def subsystem(service: Service, who: Caller, name: str, called: str) -> Any:
    """Return a subsystem's graph as it was given."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        documents = clusters.graphs_of(connection, record.id)
    if called not in documents:
        raise NotFound(f"cluster {name} has no subsystem {called}")
    return documents[called]
