"""Graphs from Flux's R (RFC 20, version 1), as `flux resource R` and `flux job info ID R` print it.

Nodes are named by the host list and ranked as R says. Where `scheduling` holds a graph, that graph is the cluster.
"""

from __future__ import annotations

from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.conversion import read_cluster, write_jgf
from rainbow.graph.document import LIMITS, Limits
from rainbow.graph.formats import read_ranks
from rainbow.graph.sources.node_list import Node, decode, lay_out, numbered


def read_flux_r(text: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Turn a resource set into a document: cluster > node > what R_lite lists for it."""
    document = decode(text)
    if "execution" not in document and "scheduling" not in document:
        raise GraphError("this is no RFC 20 resource set: there is no execution", pointer="")
    ranks = read_ranks(document, limits)
    if ranks is None:
        return write_jgf(read_cluster(document, limits=limits))
    nodes = []
    for rank in ranks:
        parts = tuple(part for kind, ids in rank.kinds.items() for part in numbered(kind, ids))
        properties = tuple(sorted(rank.properties))
        nodes.append(Node(rank.host, parts, rank.pointer, properties, rank.rank, id=f"rank{rank.rank}"))
    return lay_out(nodes, limits)
