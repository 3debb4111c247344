"""JSON Graph Format: version 2 with `nodes` as a mapping by id, version 1 with `nodes` as a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.document import (
    Document,
    Vertex,
    directed,
    edges,
    given,
    identity,
    mapping,
    name_of,
    sequence,
    step,
    text,
)
from rainbow.graph.limits import Limits


def read_jgf(document: Mapping[str, Any], pointer: str, limits: Limits) -> Document:
    """Turn {"graph": {"nodes": ..., "edges": [...]}} into plain form."""
    at = f"{pointer}/graph"
    graph = mapping(document["graph"], at, "graph")
    nodes = graph.get("nodes")
    if not isinstance(nodes, (Mapping, list, tuple)):
        raise GraphError("the nodes must be a mapping by id (JGF 2) or a list (JGF 1)", pointer=f"{at}/nodes")
    directed(graph, at)
    limits.check("vertices", len(nodes), f"{at}/nodes")
    read = _by_id(nodes, f"{at}/nodes") if isinstance(nodes, Mapping) else _listed(nodes, f"{at}/nodes")
    name = name_of(document, pointer) or name_of(graph, at)
    return Document(name, list(read), f"{at}/nodes", edges(graph.get("edges"), f"{at}/edges", limits), f"{at}/edges")


def _by_id(nodes: Mapping[Any, Any], pointer: str) -> Iterator[Vertex]:
    for key, node in nodes.items():
        vertex = identity(key, pointer)
        yield _vertex(vertex, node, step(pointer, vertex))


def _listed(nodes: Any, pointer: str) -> Iterator[Vertex]:
    for place, node in enumerate(sequence(nodes, pointer, "the nodes")):
        at = f"{pointer}/{place}"
        yield _vertex(identity(mapping(node, at, "a node").get("id"), f"{at}/id"), node, at)


def _vertex(vertex: str, node: Any, pointer: str) -> Vertex:
    node = mapping(node, pointer, "a node")
    label = text(given(node, "label", ""), f"{pointer}/label", "the label of a node")
    fields = f"{pointer}/metadata"
    return Vertex(vertex, label, mapping(given(node, "metadata", {}), fields, "metadata"), pointer, fields)
