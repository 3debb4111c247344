"""What clusters are in short (matching/summary.py): made from their graphs, and of no use without them."""

from __future__ import annotations

import sqlalchemy as sa

from rainbow.store.schema import clusters, summaries

_OF_NOW = sa.and_(clusters.c.id == summaries.c.cluster_id, clusters.c.revision == summaries.c.revision)


def put(connection: sa.Connection, cluster_id: str, revision: int, layout: int, content: bytes) -> None:
    """Store what a cluster is in short at a revision of its graphs."""
    connection.execute(summaries.delete().where(summaries.c.cluster_id == cluster_id))
    values = {"cluster_id": cluster_id, "revision": revision, "layout": layout, "content": content}
    connection.execute(summaries.insert(), values)


def get(connection: sa.Connection, layout: int, cluster_id: str | None = None) -> dict[str, bytes]:
    """Return {cluster id: content} of one cluster or all: those of this layout that are not out of date."""
    query = sa.select(summaries.c.cluster_id, summaries.c.content).join(clusters, _OF_NOW)
    query = query.where(summaries.c.layout == layout)
    rows = connection.execute(query if cluster_id is None else query.where(summaries.c.cluster_id == cluster_id))
    return {row.cluster_id: row.content for row in rows}
