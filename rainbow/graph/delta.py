"""Changes of a JGF document: add, remove, set, resize. All of a list are applied, or none.

    {"op": "add", "nodes": {id: {"metadata": ...}}, "edges": [{"source", "target", ...}]}
    {"op": "remove", "vertex": id}                       with everything it contains, and their edges
    {"op": "set", "vertex": id, "properties": ...}       in place of the properties it had
    {"op": "resize", "vertex": id, "size": n}

What the result means is not looked at here: `read_cluster` does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rainbow.errors import GraphError

Nodes = dict[str, dict[str, Any]]
Edges = list[dict[str, Any]]


def apply_delta(document: Any, changes: Any) -> dict[str, Any]:
    """Return the document after these changes; the one given stays as it is.

    >>> doc = {"graph": {"nodes": {"n": {"metadata": {"type": "node"}}}, "edges": []}}
    >>> apply_delta(doc, [{"op": "resize", "vertex": "n", "size": 2}])["graph"]["nodes"]["n"]["metadata"]["size"]
    2
    """
    if not isinstance(changes, Sequence) or isinstance(changes, str):
        raise GraphError("changes is a list", pointer="/changes")
    graph = document["graph"]
    nodes, edges = _nodes(graph["nodes"]), [dict(edge) for edge in graph.get("edges") or []]
    for k, change in enumerate(changes):
        nodes, edges = _apply(nodes, edges, change, f"/changes/{k}")
    return {**document, "graph": {**graph, "nodes": _as_before(graph["nodes"], nodes), "edges": edges}}


def _nodes(given: Any) -> Nodes:
    if isinstance(given, Mapping):
        return {str(key): dict(node) for key, node in given.items()}
    return {str(node["id"]): dict(node) for node in given}


def _as_before(given: Any, nodes: Nodes) -> Any:
    """JGF has its nodes as a mapping or as a list; a cluster keeps the form it was given in."""
    return nodes if isinstance(given, Mapping) else [{"id": key, **node} for key, node in nodes.items()]


def _apply(nodes: Nodes, edges: Edges, change: Any, at: str) -> tuple[Nodes, Edges]:
    if not isinstance(change, Mapping) or change.get("op") not in ("add", "remove", "set", "resize"):
        raise GraphError("a change has an op: add, remove, set or resize", pointer=f"{at}/op")
    if change["op"] == "add":
        return _add(nodes, edges, change, at)
    vertex = change.get("vertex")
    if not isinstance(vertex, str) or vertex not in nodes:
        raise GraphError(f"there is no vertex {str(vertex)[:100]}", pointer=f"{at}/vertex")
    if change["op"] == "remove":
        return _remove(nodes, edges, vertex)
    key = "properties" if change["op"] == "set" else "size"
    if key not in change:
        raise GraphError(f"{key} is missing", pointer=f"{at}/{key}")
    metadata = {**(nodes[vertex].get("metadata") or {}), key: change[key]}
    return {**nodes, vertex: {**nodes[vertex], "metadata": metadata}}, edges


def _add(nodes: Nodes, edges: Edges, change: Mapping[str, Any], at: str) -> tuple[Nodes, Edges]:
    new, tied = change.get("nodes", {}), change.get("edges", [])
    if not isinstance(new, Mapping) or not all(isinstance(node, Mapping) for node in new.values()):
        raise GraphError("nodes is a mapping of ids to vertices", pointer=f"{at}/nodes")
    if not isinstance(tied, list) or not all(isinstance(edge, Mapping) for edge in tied):
        raise GraphError("edges is a list of edges", pointer=f"{at}/edges")
    for key in new:
        if key in nodes:
            raise GraphError(f"there is a vertex {str(key)[:100]} already", pointer=f"{at}/nodes")
    return {**nodes, **{str(key): dict(node) for key, node in new.items()}}, [*edges, *map(dict, tied)]


def contained(edges: Iterable[Mapping[str, Any]], vertices: Iterable[str]) -> set[str]:
    """Return these vertices and all they contain, at any depth."""
    below: dict[str, list[str]] = {}
    for edge in edges:
        if (edge.get("relation") or "contains") == "contains":
            below.setdefault(str(edge.get("source")), []).append(str(edge.get("target")))
    left = list(vertices)
    found = set(left)
    while left:
        new = [each for each in below.get(left.pop(), []) if each not in found]
        found.update(new)
        left += new
    return found


def _remove(nodes: Nodes, edges: Edges, vertex: str) -> tuple[Nodes, Edges]:
    gone = contained(edges, [vertex])
    kept = [edge for edge in edges if str(edge.get("source")) not in gone and str(edge.get("target")) not in gone]
    return {key: node for key, node in nodes.items() if key not in gone}, kept
