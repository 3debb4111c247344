"""JGF (nodes a mapping or a list), NetworkX node-link JSON and NetworkX graphs → Draft.

All are the same thing in other clothes: vertices with attributes, flat or under `metadata`, and edges whose
`relation` (or `metadata.subsystem`) tells what they mean. Only containment is kept as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import networkx as nx

from rainbow.errors import GraphError
from rainbow.graph.draft import Draft, DraftEdge, DraftVertex, Limits, escape, mapping, name_of, within


def from_json(document: Mapping[str, Any], limits: Limits) -> Draft:
    """Read JGF or node-link JSON."""
    inner = document.get("graph")
    wrapped = isinstance(inner, Mapping) and "nodes" in inner
    body, at = (mapping(inner, "graph", "/graph"), "/graph") if wrapped else (document, "")
    nodes = body["nodes"]
    if not isinstance(nodes, (Mapping, list)):
        raise GraphError("nodes must be a mapping or a list", pointer=f"{at}/nodes")
    within(len(nodes), limits.vertices, "vertices", f"{at}/nodes")
    key = "links" if "links" in body else "edges"
    edges = body.get(key) or []
    if not isinstance(edges, list):
        raise GraphError(f"{key} must be a list", pointer=f"{at}/{key}")
    within(len(edges), limits.edges, "edges", f"{at}/{key}")
    name = document.get("name") or ""
    return Draft(
        list(_vertices(nodes, f"{at}/nodes")),
        [_edge(edge, f"{at}/{key}/{k}") for k, edge in enumerate(edges)],
        name if isinstance(name, str) else "",
    )


def from_networkx(graph: nx.Graph[Any], limits: Limits) -> Draft:
    """Read a NetworkX DiGraph whose vertices carry the same attributes, flat or under `metadata`."""
    if not graph.is_directed():
        raise GraphError("a cluster is a directed graph: edges lead from what contains to what is contained")
    within(graph.number_of_nodes(), limits.vertices, "vertices", "/nodes")
    within(graph.number_of_edges(), limits.edges, "edges", "/edges")
    nodes = [{**data, "id": vertex} for vertex, data in graph.nodes(data=True)]
    edges = [{**data, "source": a, "target": b} for a, b, data in graph.edges(data=True)]
    name = str(graph.graph.get("name") or "")
    return Draft(list(_vertices(nodes, "/nodes")), [_edge(e, f"/edges/{k}") for k, e in enumerate(edges)], name)


def _vertices(nodes: Mapping[str, Any] | list[Any], at: str) -> Iterator[DraftVertex]:
    if isinstance(nodes, Mapping):
        for key, value in nodes.items():
            pointer = f"{at}/{escape(key)}"
            yield _vertex(name_of(key, pointer), mapping(value, "a vertex", pointer), pointer)
        return
    for k, value in enumerate(nodes):
        record = mapping(value, "a vertex", f"{at}/{k}")
        if "id" not in record:
            raise GraphError("a vertex needs an id", pointer=f"{at}/{k}")
        yield _vertex(name_of(record["id"], f"{at}/{k}/id"), record, f"{at}/{k}")


def _vertex(vertex: str, record: Mapping[str, Any], pointer: str) -> DraftVertex:
    label = record.get("label")
    label = label if isinstance(label, str) else ""
    if "metadata" in record:
        return DraftVertex(
            vertex, mapping(record["metadata"], "metadata", f"{pointer}/metadata"), label, f"{pointer}/metadata"
        )
    return DraftVertex(vertex, {k: v for k, v in record.items() if k not in ("id", "label")}, label, pointer)


def _edge(value: Any, pointer: str) -> DraftEdge:
    record = mapping(value, "an edge", pointer)
    for end in ("source", "target"):
        if end not in record:
            raise GraphError(f"an edge needs a {end}", pointer=pointer)
    source, target = (name_of(record[end], f"{pointer}/{end}") for end in ("source", "target"))
    return DraftEdge(source, target, _contains(record), pointer)


def _contains(record: Mapping[str, Any]) -> bool:
    """Tell whether an edge means containment: by `relation`, `subsystem`, or Flux's metadata of old and new."""
    metadata = record.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    named = metadata.get("name")
    named = named.get("containment") if isinstance(named, Mapping) else None
    relation = record.get("relation") or metadata.get("relation") or named or "contains"
    subsystem = record.get("subsystem") or metadata.get("subsystem") or "containment"
    return bool(relation == "contains" and subsystem == "containment")
