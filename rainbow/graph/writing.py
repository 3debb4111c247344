"""Writing a cluster as a document."""

from __future__ import annotations

from typing import Any

from rainbow.graph.cluster import Cluster
from rainbow.graph.document import CONTAINS


def write_jgf(cluster: Cluster) -> dict[str, Any]:
    """Return the dominant graph in JSON Graph Format 2; `read_cluster` makes the same cluster of it.

    Templates are written out. Levels, worker types and subsystems are no part of the format.
    """
    nodes = {
        vertex: {"label": fields["name"], "metadata": dict(fields["metadata"])}
        for vertex, fields in cluster.graph.nodes(data=True)
    }
    edges = [{"source": u, "target": v, "relation": CONTAINS} for u, v in cluster.graph.edges]
    return {"name": cluster.name, "graph": {"directed": True, "nodes": nodes, "edges": edges}}
