"""Changes of a registered cluster's graphs: replaced, patched, subsystems attached and removed.

Each verb compiles first, which may take long, and then writes if the cluster's graphs are still those it built on. If
another caller has changed them meanwhile, it begins again, a few times; submits and steps continue with the earlier
form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rainbow.errors import Conflict, NotFound, PreconditionFailed, RequestError
from rainbow.graph import read_cluster, write_jgf
from rainbow.graph.delta import apply_delta, size_of
from rainbow.matching import cluster_totals, prepare, stated_units
from rainbow.service.clusters.registration import check_name, check_size
from rainbow.service.core.access import Caller, own_cluster
from rainbow.service.core.keyed_call import KeyedCall
from rainbow.service.core.memory import ByCluster, picture
from rainbow.service.core.service import entry_of, keep_summary
from rainbow.state_machine import BOOKED, TaskState
from rainbow.store import clusters, events, tasks, workers
from rainbow.transitions import TakenBack, transition

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.service.core.service import Service
    from rainbow.store.clusters import ClusterRecord


Revisions = Collection[str] | None  # (ETags) one of which the caller has read; None: any
T = TypeVar("T")
TRIES = 4  # of a change that others overtake
MOST_BESIDE = 1_000  # vertices and edges that are kept beside a document; with more it is stored whole


class GraphSize(NamedTuple):
    """What a directed document in JSON Graph Format holds at a revision, and how much of that is beside it."""

    revision: int
    vertices: int
    edges: int
    beside: int = 0


@picture("graph-sizes", most="one for a cluster", true="used for the revision that it was counted of")
class GraphSizes(ByCluster[GraphSize]):
    """Of the documents that were read last to be changed: one of these is changed without reading it again."""


class _Overtaken(Conflict):
    """Another client has changed the cluster's graphs."""


def put_graph(
    service: Service, who: Caller, name: str, document: Any, expected: Revisions = None, *, drain: bool = False
) -> dict[str, Any]:
    """Replace the dominant graph; the subsystems are attached to the new one.

    PreconditionFailed if it is at another revision by now. Conflict if tasks hold a worker that the new graph lacks,
    unless `drain`: then what runs there ends there, and what has not begun waits again.
    """

    def change() -> dict[str, Any]:
        record = _found(service, who, name, expected)
        keep = partial(clusters.replace_document, document=document)
        return _put(service, record, _compiled(service, record, document), drain, keep)

    return _as_often_as_needed(change)


def patch_graph(
    service: Service,
    who: Caller,
    name: str,
    body: Any,
    expected: Revisions = None,
    call: KeyedCall | None = None,
    *,
    drain: bool = False,
) -> dict[str, Any]:
    """Change the dominant graph by {"changes": [...]} (graph/delta.py): all of them, or none."""
    if not isinstance(body, Mapping) or "changes" not in body:
        raise RequestError("the body is {changes: [...]}", pointer="/changes")

    own = call or KeyedCall(service)

    def change() -> dict[str, Any]:
        if (earlier := own.look()) is not None:
            return earlier
        if revised := _revise(service, _found(service, who, name, expected), body["changes"], drain, own):
            return revised
        record, document = _read(service, who, name, expected)
        return _change(service, record, document, body["changes"], drain, own)

    return _as_often_as_needed(change)


def _change(
    service: Service, record: ClusterRecord, document: Any, changes: Any, drain: bool, call: KeyedCall
) -> dict[str, Any]:
    """Read a graph as it is after changes; they are stored beside its document, until these are many."""
    is_kept = _is_jgf(document)
    before = document if is_kept else write_jgf(service.entry(record).cluster)
    changed = apply_delta(before, changes)
    with service.store.read() as connection:
        beside = clusters.size_beside(connection, record.id) + size_of(changes)
    keep = partial(clusters.add_delta, changes=changes)
    if not is_kept or beside > MOST_BESIDE:
        keep, beside = partial(clusters.replace_document, document=changed), 0
    cluster = _changed(service, record, before, changed, changes)
    answer = _put(service, record, cluster, drain, keep, call)
    _note_size(service, record, changed, answer["revision"], beside)
    return answer


def _revise(
    service: Service, record: ClusterRecord, changes: Any, drain: bool, call: KeyedCall
) -> dict[str, Any] | None:
    """Store changes beside a document of known size; None if the document is to be read."""
    size, entry = service.state(GraphSizes).get(record.id), service.catalogue.get(record.name)
    if size is None or entry is None or entry.id != record.id:
        return None
    if not size.revision == entry.revision == record.revision or size.beside > MOST_BESIDE:
        return None
    revision = entry.cluster.revision(changes, size.vertices, size.edges)
    if revision is None:
        return None
    cluster = entry.cluster.revised(revision)
    answer = _put(service, record, cluster, drain, partial(clusters.add_delta, changes=changes), call)
    vertices = size.vertices + len(cluster.outline.ids) - len(entry.cluster.outline.ids)
    stored = size.beside + size_of(changes)
    service.state(GraphSizes)[record.id] = GraphSize(answer["revision"], vertices, revision.edges, stored)
    return answer


def _note_size(service: Service, record: ClusterRecord, document: Any, revision: int, beside: int) -> None:
    """Note how much a document holds if all its vertices are those of its cluster."""
    graph, entry = document["graph"], service.catalogue.get(record.name)
    if entry is None or (entry.id, entry.revision) != (record.id, revision) or graph.get("directed") is False:
        return
    if len(graph["nodes"]) == len(entry.cluster.outline.ids):
        size = GraphSize(revision, len(graph["nodes"]), len(graph["edges"]), beside)
        service.state(GraphSizes)[record.id] = size


def _changed(service: Service, record: ClusterRecord, document: Any, changed: Any, changes: Any) -> Cluster:
    """Return the compiled cluster of a document after changes; what they do not touch is not read again."""
    entry, graph = service.entry(record), document["graph"]
    revision = None
    if entry.revision == record.revision and graph.get("directed") is not False:
        revision = entry.cluster.revision(changes, len(graph["nodes"]), len(graph.get("edges") or ()))
    return entry.cluster.revised(revision) if revision else _compiled(service, record, changed)


def _as_often_as_needed(change: Callable[[], T]) -> T:
    """Make a change; again if another client has changed the same cluster's graphs while it was made ready."""
    for _ in range(TRIES - 1):
        with suppress(_Overtaken):
            return change()
    return change()


def _is_jgf(document: Any) -> bool:
    return (
        isinstance(document, Mapping) and isinstance(document.get("graph"), Mapping) and "nodes" in document["graph"]
    )


def _read(service: Service, who: Caller, name: str, expected: Revisions) -> tuple[ClusterRecord, Any]:
    with service.store.read() as connection:
        record = _checked(own_cluster(connection, who, name), expected)
        return record, clusters.document(connection, record.id)


def _found(service: Service, who: Caller, name: str, expected: Revisions) -> ClusterRecord:
    with service.store.read() as connection:
        return _checked(own_cluster(connection, who, name), expected)


def _checked(record: ClusterRecord, expected: Revisions) -> ClusterRecord:
    if expected is not None and str(record.revision) not in expected:
        raise PreconditionFailed(
            f"graph of {record.name} has changed: it is now at revision {record.revision}; fetch it and try again"
        )
    return record


def _compiled(service: Service, record: ClusterRecord, document: Any) -> Cluster:
    with service.store.read() as connection:
        hung = clusters.graphs_of(connection, record.id)
    cluster = check_size(service, read_cluster(document, record.name, record.levels, record.worker_type))
    for subsystem, graph in hung.items():
        cluster = cluster.with_subsystem(subsystem, graph)
    return cluster


def _put(
    service: Service,
    record: ClusterRecord,
    cluster: Cluster,
    drain: bool,
    keep: Callable[[sa.Connection, str], int],
    call: KeyedCall | None = None,
) -> dict[str, Any]:
    """Let a cluster have another graph, that `keep` stores: it returns the revision."""
    cluster = prepare(check_size(service, cluster), service.settings.backend)
    more = cluster.more_workers
    amounts = {"totals": cluster_totals(cluster), "units": stated_units(cluster)}
    with service.changing:
        with service.store.write() as connection:
            now = _check_unchanged(connection, record)
            if more is None:
                _leave(connection, record, cluster, drain, service.clock())
                workers.keep_only(connection, record.id, [*cluster.workers], service.clock())
            else:
                workers.add(connection, record.id, more, service.clock())
            revision = keep(connection, record.id)
            keep_summary(connection, record.id, revision, cluster)
            events.add(connection, service.clock(), record.id, "graph", cluster=record.name, revision=revision)
            answer = (call or KeyedCall(service)).keep(
                connection, {"name": record.name, "revision": revision, **amounts}
            )
        service.put_entry(entry_of(replace(now, revision=revision), cluster))
    service.tell(record.id, changed=True)
    return answer


def _check_unchanged(connection: sa.Connection, record: ClusterRecord) -> ClusterRecord:
    """Return the cluster as it is stored; it may have been drained since it was read."""
    now = clusters.get(connection, record.id)
    if now is None or now.revision != record.revision:
        raise _Overtaken(f"graphs of {record.name} are being changed by another request; try again")
    return now


def _leave(connection: sa.Connection, record: ClusterRecord, cluster: Cluster, drain: bool, now: float) -> None:
    """Refuse a graph that lacks a worker with tasks on it, or (drain) give back what has not begun there."""
    held = tasks.of_cluster(connection, record.id, BOOKED)
    lost = sorted({w for task in held for w in task.placement if w and w not in cluster.workers})
    if lost and not drain:
        raise Conflict(
            f"worker {lost[0]} has tasks and is missing from the new graph; wait for them, cancel them, or repeat "
            "with drain=true",
            workers=lost,
        )
    offered = [task for task in held if task.state is TaskState.ASSIGNED and set(lost) & set(task.placement)]
    why = "its worker was taken away"
    tasks.save_all(connection, [transition(task, TakenBack(why), now) for task in offered], now)


def graph(service: Service, who: Caller, name: str) -> tuple[Any, int]:
    """Return the dominant graph as it was given, and its revision."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        return clusters.document(connection, record.id), record.revision


def put_subsystem(service: Service, who: Caller, name: str, called: str, document: Any) -> dict[str, Any]:
    """Hang a subsystem on a cluster, in place of an earlier one of that name."""
    check_name(called, "subsystem")

    def change() -> dict[str, Any]:
        record = _read(service, who, name, None)[0]
        cluster = check_size(service, service.entry(record).cluster.with_subsystem(called, document))
        cluster = prepare(cluster, service.settings.backend)
        with service.changing:
            with service.store.write() as connection:
                now = _check_unchanged(connection, record)
                clusters.put_subsystem(connection, record.id, called, document)
                revision = _count_change(service, connection, record)
            service.put_entry(entry_of(replace(now, revision=revision), cluster))
        service.tell(record.id, changed=True)
        return {"name": called, "revision": revision, "vertices": len(cluster.subsystems[called].graph)}

    return _as_often_as_needed(change)


def delete_subsystem(service: Service, who: Caller, name: str, called: str) -> None:
    """Take a subsystem and its edges away; nothing matches it afterwards."""
    with service.changing:
        record = _read(service, who, name, None)[0]
        with service.store.write() as connection:
            now = _check_unchanged(connection, record)
            if not clusters.remove_subsystem(connection, record.id, called):
                raise NotFound(f"cluster {name} has no subsystem {called}")
            cluster = service.entry(record).cluster.without_subsystem(called)
            revision = _count_change(service, connection, record)
        service.put_entry(entry_of(replace(now, revision=revision), cluster))
    service.tell(record.id, changed=True)


def _count_change(service: Service, connection: sa.Connection, record: ClusterRecord) -> int:
    """Count a change of the cluster's subsystems and return the revision."""
    revision = clusters.new_revision(connection, record.id)
    events.add(connection, service.clock(), record.id, "graph", cluster=record.name, revision=revision)
    return revision


def subsystem(service: Service, who: Caller, name: str, called: str) -> Any:
    """Return a subsystem's graph as it was given."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        documents = clusters.graphs_of(connection, record.id)
    if called not in documents:
        raise NotFound(f"cluster {name} has no subsystem {called}")
    return documents[called]
