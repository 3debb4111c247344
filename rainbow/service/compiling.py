"""From the store to clusters that can be matched: from what they are in short where that is stored, else from graphs.

The stored graphs are the truth. A summary is of one revision of them and one format; without one the graphs are
read and it is stored, so that the next start need not. What a summary leaves out, the vertices, is read from the
graphs when somebody looks at them: who matches does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from rainbow.errors import RainbowError, Unavailable
from rainbow.graph import Cluster, read_cluster
from rainbow.matching import prepare
from rainbow.matching.summary import FORMAT, restored, summarise
from rainbow.store import clusters, summaries

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph.outline import Outline
    from rainbow.store import Store
    from rainbow.store.clusters import ClusterRecord

log = structlog.get_logger("rainbow")


def compile_all(store: Store, backend: str) -> dict[str, tuple[ClusterRecord, Cluster]]:
    """Return {name: (record, cluster)} of all clusters that can be compiled."""
    with store.read() as connection:
        records, known = clusters.every(connection), summaries.get(connection, FORMAT)
        found = {record.name: (record, _made(store, connection, record, known, backend)) for record in records}
    made = {name: (record, cluster) for name, (record, cluster) in found.items() if cluster}
    new = [(record, cluster) for record, cluster in made.values() if record.id not in known]
    if any(not cluster.subsystems for _, cluster in new):
        with store.write() as connection:
            for record, cluster in new:
                keep_summary(connection, record.id, record.revision, cluster)
    return made


def compile_one(store: Store, connection: sa.Connection, record: ClusterRecord, backend: str) -> Cluster | None:
    """Return one cluster; None, and a line in the log, if its graphs cannot be read any more."""
    return _made(store, connection, record, summaries.get(connection, FORMAT, record.id), backend)


def keep_summary(connection: sa.Connection, cluster_id: str, revision: int, cluster: Cluster) -> None:
    """Store what a cluster is in short, if it can be said."""
    now = clusters.get(connection, cluster_id)
    content = summarise(cluster)
    if content and now and now.revision == revision:
        summaries.put(connection, cluster_id, revision, FORMAT, content)


def _made(
    store: Store, connection: sa.Connection, record: ClusterRecord, known: Mapping[str, bytes], backend: str
) -> Cluster | None:
    try:
        if record.id not in known:
            return prepare(_read(connection, record), backend)
        content = known[record.id]
        made = restored(content, record.name, record.levels, record.worker_type, lambda: _outline(store, record))
        return prepare(made, backend)
    except RainbowError as fault:  # it was accepted once: one bad graph must not keep the others away
        log.error("cluster-not-compiled", cluster=record.name, fault=str(fault))
        return None


def _read(connection: sa.Connection, record: ClusterRecord) -> Cluster:
    document, hung = clusters.document(connection, record.id), clusters.graphs_of(connection, record.id)
    cluster = read_cluster(document, record.name, record.levels, record.worker_type)
    for name, subsystem in hung.items():
        cluster = cluster.with_subsystem(name, subsystem)
    return cluster


def _outline(store: Store, record: ClusterRecord) -> Outline:
    """Read the outline of a revision; Unavailable if that has just been replaced."""
    with store.read() as connection:
        now = clusters.get(connection, record.id)
        if now is None or now.revision != record.revision:
            raise Unavailable(f"the graphs of {record.name} are being changed; try again", retry_after=1)
        return _read(connection, record).outline
