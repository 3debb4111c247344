"""Reading clusters: any accepted form → plain form → checked → a Cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.building import build
from rainbow.graph.cluster import WORKER_LEVEL_TYPES, WORKER_TYPE, Cluster
from rainbow.graph.forms import read_document
from rainbow.graph.hanging import hang_subsystem
from rainbow.graph.limits import LIMITS, Limits

__all__ = ["hang_subsystem", "read_cluster"]

LEVELS = ("any", "strict")


def read_cluster(
    document: Any,
    name: str = "",
    levels: str = "any",
    worker_type: str = WORKER_TYPE,
    worker_level_types: Collection[str] = WORKER_LEVEL_TYPES,
    limits: Limits = LIMITS,
) -> Cluster:
    """Read a cluster from JGF 1 or 2, node-link JSON, a networkx.DiGraph or an RFC 20 resource set.

    Without `name` the cluster is called as the document says, or else as its root. A vertex that several others
    contain counts once, under the first of them in the document's order of edges, so that the graph is a tree.
    A vertex whose metadata has `count: N` stands for N equal siblings (see graph/building.py).

    Raises GraphError with a JSON Pointer into the document, and LimitError for a graph larger than `limits`.

    >>> nodes = {"0": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node", "count": 2}}}
    >>> cluster = read_cluster({"graph": {"nodes": nodes, "edges": [{"source": "0", "target": "n"}]}}, "willow")
    >>> cluster.totals, list(cluster.workers)
    ({'cluster': 1, 'node': 2}, ['n0', 'n1'])
    """
    if levels not in LEVELS:
        raise GraphError(f"levels must be one of {', '.join(LEVELS)}")
    plain = read_document(document, limits)
    outline = build(plain, limits)
    called = name or plain.name or outline.fields[0].name
    return Cluster(called, outline, levels, worker_type, frozenset(worker_level_types))
