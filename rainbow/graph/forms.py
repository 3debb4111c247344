"""The accepted forms of a graph document, and which of them a document is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx

from rainbow.errors import GraphError
from rainbow.graph.document import Document
from rainbow.graph.jgf import read_jgf
from rainbow.graph.limits import Limits
from rainbow.graph.nodelink import read_networkx, read_node_link
from rainbow.graph.resource_set import read_resource_set


def read_document(document: Any, limits: Limits) -> Document:
    """Turn a document of any accepted form into plain form; GraphError if it is in none of them."""
    if isinstance(document, nx.Graph):
        return read_networkx(document, limits)
    if not isinstance(document, Mapping):
        raise GraphError("a graph document must be a mapping", pointer="")
    if "execution" in document or "scheduling" in document:
        return read_resource_set(document, limits)
    # node-link JSON has a `graph` too: attributes of the graph, and none of its nodes
    if isinstance(document.get("nodes"), (list, tuple)) and not _holds_nodes(document.get("graph")):
        return read_node_link(document, limits)
    if "graph" in document:
        return read_jgf(document, "", limits)
    raise GraphError(
        "this is none of JSON Graph Format (graph.nodes), node-link JSON (nodes, links) and an RFC 20"
        " resource set (execution.R_lite)",
        pointer="",
    )


def _holds_nodes(graph: Any) -> bool:
    return isinstance(graph, Mapping) and "nodes" in graph
