"""NetworkX: a DiGraph handed over in Python, or its node-link JSON.

The attributes of a vertex stand flat beside its id, or together under `metadata`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import networkx as nx

from rainbow.errors import GraphError
from rainbow.graph.document import (
    Document,
    Edge,
    Vertex,
    directed,
    edge,
    edges,
    given,
    identity,
    mapping,
    name_of,
    sequence,
    text,
)
from rainbow.graph.limits import Limits


def read_node_link(document: Mapping[str, Any], limits: Limits) -> Document:
    """Turn {"nodes": [{"id": ...}], "links": [...]} (or "edges") into plain form."""
    key = "links" if document.get("links") is not None else "edges"
    nodes = sequence(document["nodes"], "/nodes", "the nodes")
    directed(document, "")
    limits.check("vertices", len(nodes), "/nodes")
    graph = document.get("graph")
    name = name_of(document, "") or (name_of(graph, "/graph") if isinstance(graph, Mapping) else "")
    return Document(name, list(_vertices(nodes)), "/nodes", edges(document.get(key), f"/{key}", limits), f"/{key}")


def read_networkx(graph: nx.Graph[Any], limits: Limits) -> Document:
    """Turn a NetworkX DiGraph into plain form; pointers are those of its node-link JSON."""
    if not graph.is_directed():
        raise GraphError("the graph must be directed", pointer="/directed")
    limits.check("vertices", graph.number_of_nodes(), "/nodes")
    limits.check("edges", graph.number_of_edges(), "/edges")
    nodes = [{**fields, "id": vertex} for vertex, fields in graph.nodes(data=True)]
    return Document(name_of(graph.graph, "/graph"), list(_vertices(nodes)), "/nodes", list(_links(graph)), "/edges")


def _links(graph: nx.Graph[Any]) -> Iterator[Edge]:
    for place, (source, target, fields) in enumerate(graph.edges(data=True)):
        yield edge({**fields, "source": source, "target": target}, f"/edges/{place}", place)


def _vertices(nodes: Any) -> Iterator[Vertex]:
    for place, node in enumerate(nodes):
        at = f"/nodes/{place}"
        vertex = identity(mapping(node, at, "a node").get("id"), f"{at}/id")
        together = node.get("metadata") is not None
        metadata = node["metadata"] if together else {key: value for key, value in node.items() if key != "id"}
        fields = f"{at}/metadata" if together else at
        yield Vertex(vertex, _label(node, at), mapping(metadata, fields, "metadata"), at, fields)


def _label(node: Mapping[str, Any], pointer: str) -> str:
    key = "label" if given(node, "label", None) else "name"
    return text(given(node, key, ""), f"{pointer}/{key}", f"the {key} of a node")
