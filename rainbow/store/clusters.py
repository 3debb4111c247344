"""Clusters, their subsystems, settings and summaries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import sqlalchemy as sa

from rainbow.graph.delta import apply_delta, size_of
from rainbow.store import credentials
from rainbow.store.accounts.tables import former_clusters
from rainbow.store.engine import pending_of
from rainbow.store.schema import Plain, clusters, deltas, documents, events, subsystems, summaries

ALL, OWN = "all", "own"  # whose jobs a token that names requestors sees


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """What is stored of a cluster, without its graph."""

    id: str
    name: str
    levels: str
    worker_type: str
    created_at: float
    policy: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 1
    clock: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)
    draining_at: float | None = None
    drained_at: float | None = None  # takes nothing new until it is reinstated
    epoch: int = 1  # of its jobs, tasks and workers: see schema.py
    moves: int = 0  # how often jobs came from or went to another cluster
    visibility: str = ALL  # whose jobs a token that names requestors sees


_COLUMNS = [clusters.c[column.name] for column in fields(ClusterRecord)]
# what every submit and step asks is put together once: that costs more than carrying it out
_BY_NAME = sa.select(*_COLUMNS).where(clusters.c.name == sa.bindparam("wanted"))
_FIND = Plain(_BY_NAME)
_LOCKED = _BY_NAME.with_for_update(key_share=True, skip_locked=True)
_GET = Plain(sa.select(*_COLUMNS).where(clusters.c.id == sa.bindparam("wanted")))
_NEW_EPOCH = Plain(
    clusters.update()
    .where(clusters.c.id == sa.bindparam("wanted"))
    .values(epoch=clusters.c.epoch + sa.literal_column("1"))
)
_NOW = sa.func.coalesce(sa.select(sa.func.max(events.c.number)).scalar_subquery(), 0)
_PLANNED = sa.select(clusters.c.id, *(clusters.c[name] for name in ("name", "policy", "drained_at", "epoch"))).where(
    clusters.c.id.in_(sa.bindparam("wanted", expanding=True))
)
_LIMITS = sa.select(clusters.c.limits).where(clusters.c.id == sa.bindparam("wanted"))


def add(connection: sa.Connection, record: ClusterRecord, document: Any) -> None:
    """Store a new cluster with its graph."""
    connection.execute(clusters.insert().values(**asdict(record)))
    _note_clusters(connection)
    connection.execute(documents.insert().values(cluster_id=record.id, document=document))


def find(connection: sa.Connection, name: str) -> ClusterRecord | None:
    """Return the cluster of this name."""
    return next((ClusterRecord(*row) for row in _FIND.found(connection, {"wanted": name})), None)


def lock(connection: sa.Connection, name: str) -> ClusterRecord | None:
    """Return the cluster of this name, which nobody else changes until the transaction ends; None if one does."""
    row = connection.execute(_LOCKED, {"wanted": name}).one_or_none()
    return ClusterRecord(**row._mapping) if row else None


def get(connection: sa.Connection, cluster_id: str) -> ClusterRecord | None:
    """Return the cluster of this id."""
    return next((ClusterRecord(*row) for row in _GET.found(connection, {"wanted": cluster_id})), None)


def every(connection: sa.Connection) -> list[ClusterRecord]:
    """Return all clusters by name."""
    rows = connection.execute(sa.select(*_COLUMNS).order_by(clusters.c.name))
    return [ClusterRecord(**row._mapping) for row in rows]


class Planned(NamedTuple):
    """What a reader of waits knows of a cluster."""

    name: str
    policy: str
    drained_at: float | None
    epoch: int


def planned(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, Planned]:
    """Return {id: how it is planned} of those of these clusters that exist."""
    rows = connection.execute(_PLANNED, {"wanted": sorted(cluster_ids)}) if cluster_ids else ()
    return {row[0]: Planned(*row[1:]) for row in rows}


def policies(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return {id: (policy, settings)} of those that exist."""
    query = sa.select(clusters.c.id, clusters.c.policy, clusters.c.settings).where(clusters.c.id.in_(cluster_ids))
    return {row.id: (row.policy, row.settings) for row in connection.execute(query)}


def revisions(connection: sa.Connection, ids: Collection[str] | None = None) -> dict[str, tuple[str, int]]:
    """Return {name: (id, revision)} of these clusters, None: of all."""
    query = sa.select(clusters.c.name, clusters.c.id, clusters.c.revision)
    rows = connection.execute(query if ids is None else query.where(clusters.c.id.in_(sorted(ids))))
    return {row.name: (row.id, row.revision) for row in rows}


def extent(connection: sa.Connection) -> tuple[int, int]:
    """Return how many clusters there are, and the sum of their revisions: it changes with any of their graphs."""
    count, revisions_ = connection.execute(sa.select(sa.func.count(), sa.func.sum(clusters.c.revision))).one()
    return int(count), int(revisions_ or 0)


def confining(connection: sa.Connection, cluster_ids: Collection[str]) -> set[str]:
    """Return those of these clusters that show a requestor's token its own jobs only."""
    query = sa.select(clusters.c.id).where(clusters.c.id.in_(sorted(cluster_ids)), clusters.c.visibility == OWN)
    return set(connection.execute(query).scalars())


def set_visibility(connection: sa.Connection, cluster_id: str, visibility: str) -> None:
    """Store whose jobs a token that names requestors sees."""
    _change(connection, cluster_id, visibility=visibility)
    credentials.note_rights(connection)


def names(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, str]:
    """Return {id: name} of those that exist."""
    rows = connection.execute(sa.select(clusters.c.id, clusters.c.name).where(clusters.c.id.in_(cluster_ids)))
    return {row.id: row.name for row in rows}


def drain(connection: sa.Connection, cluster_id: str, now: float) -> None:
    """Note that a cluster takes no more jobs and goes when its last has ended."""
    _change(connection, cluster_id, draining_at=now)
    new_revision(connection, cluster_id)  # so that every process sees it


def set_drained(connection: sa.Connection, cluster_id: str, at: float | None) -> None:
    """Note since when a cluster takes nothing new; None: it does."""
    _change(connection, cluster_id, drained_at=at)
    new_revision(connection, cluster_id)  # so that every process sees it


def remove(connection: sa.Connection, cluster_id: str) -> None:
    """Remove a cluster with its graphs, state, workers and credentials."""
    credentials.lose(connection, cluster_id)
    named = sa.select(clusters.c.id, clusters.c.name).where(clusters.c.id == cluster_id)
    connection.execute(former_clusters.insert().from_select(["id", "name"], named))
    connection.execute(clusters.delete().where(clusters.c.id == cluster_id))
    _note_clusters(connection)
    credentials.remove_useless(connection)


def _note_clusters(connection: sa.Connection) -> None:
    """Note that there are more clusters, or fewer."""
    if (pending := pending_of(connection)) is not None:
        pending.changes_clusters = True


def document(connection: sa.Connection, cluster_id: str) -> Any:
    """Return the cluster's graph as it was given, with the changes that are kept beside it."""
    query = sa.select(documents.c.document).where(documents.c.cluster_id == cluster_id)
    result, changes = connection.execute(query).scalar_one(), changes_beside(connection, cluster_id)
    return apply_delta(result, changes) if changes else result


def changes_beside(connection: sa.Connection, cluster_id: str) -> list[Any]:
    """Return the changes of the cluster's graph that are kept beside it, the oldest first."""
    query = sa.select(deltas.c.changes).where(deltas.c.cluster_id == cluster_id).order_by(deltas.c.revision)
    return [change for changes in connection.execute(query).scalars() for change in changes]


def size_beside(connection: sa.Connection, cluster_id: str) -> int:
    """Return how many vertices and edges are named beside the cluster's graph."""
    return size_of(changes_beside(connection, cluster_id))


def replace_document(connection: sa.Connection, cluster_id: str, document: Any) -> int:
    """Store another graph for the cluster and return the new revision."""
    connection.execute(documents.update().where(documents.c.cluster_id == cluster_id).values(document=document))
    connection.execute(deltas.delete().where(deltas.c.cluster_id == cluster_id))
    return new_revision(connection, cluster_id)


def add_delta(connection: sa.Connection, cluster_id: str, changes: Sequence[Any]) -> int:
    """Store changes beside the cluster's graph, behind those that are there, and return the new revision."""
    revision = new_revision(connection, cluster_id)
    connection.execute(deltas.insert().values(cluster_id=cluster_id, revision=revision, changes=list(changes)))
    return revision


def new_revision(connection: sa.Connection, cluster_id: str) -> int:
    """Count one more change of the cluster's graphs and return the revision."""
    return _count(connection, cluster_id, clusters.c.revision)


def tick(connection: sa.Connection, cluster_id: str) -> int:
    """Count one more event of the cluster's free nodes and return the clock."""
    return _count(connection, cluster_id, clusters.c.clock, noted=_NOW)


def note(connection: sa.Connection, cluster_id: str) -> None:
    """Note that the cluster's state, or what is booked on it, changes without an event of its own.

    `noted` is the newest event of that moment, so that who has read up to it or before reads the cluster again.
    """
    _change(connection, cluster_id, noted=_NOW)


def new_epoch(connection: sa.Connection, cluster_id: str) -> None:
    """Let what changes from now on be told from what changed before."""
    _NEW_EPOCH(connection, {"wanted": cluster_id})


def count_move(connection: sa.Connection, *cluster_ids: str) -> None:
    """Note that a job has moved between these clusters."""
    for cluster_id in cluster_ids:
        _change(connection, cluster_id, moves=clusters.c.moves + 1, noted=_NOW)


def set_policy(connection: sa.Connection, cluster_id: str, policy: str, settings: Mapping[str, Any]) -> None:
    """Store the policy and its settings; what another policy remembered is forgotten."""
    stored = sa.case((clusters.c.policy == policy, clusters.c.memory), else_=sa.literal({}, clusters.c.memory.type))
    _change(connection, cluster_id, policy=policy, settings=dict(settings), memory=stored)


def set_limits(connection: sa.Connection, cluster_id: str, limits: Mapping[str, int]) -> None:
    """Store the cluster's limits."""
    _change(connection, cluster_id, limits=dict(limits))


def limits(connection: sa.Connection, cluster_id: str) -> Mapping[str, int]:
    """Return the cluster's limits."""
    result: Mapping[str, int] = connection.execute(_LIMITS, {"wanted": cluster_id}).scalar_one()
    return result


def set_memory(connection: sa.Connection, cluster_id: str, memory: Mapping[str, Any]) -> None:
    """Store what the policy wants to remember until its next plan."""
    _change(connection, cluster_id, memory=dict(memory))


def graphs_of(connection: sa.Connection, cluster_id: str) -> dict[str, Any]:
    """Return {name: graph as given} of the cluster's subsystems, by name."""
    query = sa.select(subsystems.c.name, subsystems.c.document).where(subsystems.c.cluster_id == cluster_id)
    return {row.name: row.document for row in connection.execute(query.order_by(subsystems.c.name))}


def put_subsystem(connection: sa.Connection, cluster_id: str, name: str, document: Any) -> None:
    """Store a subsystem's graph in place of the one it had."""
    remove_subsystem(connection, cluster_id, name)
    connection.execute(subsystems.insert().values(cluster_id=cluster_id, name=name, document=document))


def remove_subsystem(connection: sa.Connection, cluster_id: str, name: str) -> bool:
    """Remove a subsystem; return whether it was there."""
    result = connection.execute(
        subsystems.delete().where(subsystems.c.cluster_id == cluster_id, subsystems.c.name == name)
    )
    return bool(result.rowcount)


def _change(connection: sa.Connection, cluster_id: str, **values: Any) -> None:
    connection.execute(clusters.update().where(clusters.c.id == cluster_id).values(**values))


def _count(connection: sa.Connection, cluster_id: str, column: sa.Column[int], **more: Any) -> int:
    _change(connection, cluster_id, **{column.name: column + 1}, **more)
    return connection.execute(sa.select(column).where(clusters.c.id == cluster_id)).scalar_one()


_OF_NOW = sa.and_(clusters.c.id == summaries.c.cluster_id, clusters.c.revision == summaries.c.revision)


def put_summary(connection: sa.Connection, cluster_id: str, revision: int, layout: int, content: bytes) -> None:
    """Store what a cluster is in short at a revision of its graphs."""
    connection.execute(summaries.delete().where(summaries.c.cluster_id == cluster_id))
    values = {"cluster_id": cluster_id, "revision": revision, "layout": layout, "content": content}
    connection.execute(summaries.insert(), values)


def get_summaries(
    connection: sa.Connection, layouts: Sequence[int], cluster_id: str | None = None
) -> dict[str, bytes]:
    """Return {cluster id: content} of one cluster or all: those of these layouts that are not out of date."""
    query = sa.select(summaries.c.cluster_id, summaries.c.content).join(clusters, _OF_NOW)
    query = query.where(summaries.c.layout.in_(layouts))
    rows = connection.execute(query if cluster_id is None else query.where(summaries.c.cluster_id == cluster_id))
    return {row.cluster_id: row.content for row in rows}
