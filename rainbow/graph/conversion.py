"""A graph's document → `Cluster`, and back.

A vertex with `count: N` in its metadata is a template: it stands for N equal siblings with everything below it.
Copy i of vertex "node" has id "node.i" and its name followed by i; what is below it keeps its name and takes over
the numbers in its id: core 3 of node 7 is "core.7.3". Ranks count on from the one given. `graph.graph["templates"]`
is {id in the document: ids of its copies}; metadata of copies is without count, name and paths, which are
each copy's own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.cluster import WORKER_LEVEL_TYPES, WORKER_TYPE, Cluster, mark_default
from rainbow.graph.document import LIMITS, Limits
from rainbow.graph.formats import read_document
from rainbow.graph.outline import as_document
from rainbow.graph.site import read_site
from rainbow.graph.validation import build

LEVELS = ("any", "strict")


def read_cluster(
    document: Any,
    name: str = "",
    levels: str = "any",
    worker_type: str = WORKER_TYPE,
    worker_level_types: Collection[str] = WORKER_LEVEL_TYPES,
    limits: Limits = LIMITS,
) -> Cluster:
    """Read a cluster from JGF 1 or 2, a networkx.DiGraph or its JSON forms, or an RFC 20 resource set.

    Without `name` the cluster is called as the document says, or else as its root. A vertex that several others
    contain counts once, under the first of them in the document's order of edges, so that the graph is a tree.
    A vertex whose metadata has `count: N` stands for N equal siblings (see graph/conversion.py).

    Raises GraphError with a JSON Pointer into the document, and LimitError for a graph larger than `limits`.

    >>> nodes = {"0": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node", "count": 2}}}
    >>> cluster = read_cluster({"graph": {"nodes": nodes, "edges": [{"source": "0", "target": "n"}]}}, "willow")
    >>> cluster.totals, list(cluster.workers)
    ({'cluster': 1, 'node': 2}, ['n0', 'n1'])
    """
    if levels not in LEVELS:
        raise GraphError(f"levels must be one of {', '.join(LEVELS)}")
    plain = read_document(document, limits)
    with plain.naming():
        outline = build(plain, limits)
    called = name or plain.name or outline.fields[0].name
    known = frozenset[str]().union(*(fields.properties for fields in outline.fields))
    site = read_site(plain.metadata, plain.metadata_at, known)
    mark_default(outline, site, worker_type)
    return Cluster(called, outline, levels, worker_type, frozenset(worker_level_types), site=site)


def write_jgf(cluster: Cluster) -> dict[str, Any]:
    """Return the dominant graph in JSON Graph Format 2; `read_cluster` makes the same cluster of it.

    Templates are written out. Levels, worker types and subsystems are no part of the format.
    """
    return {"name": cluster.name, "graph": as_document(cluster.outline)}
