"""Changes of a graph's document: computed, and applied all together or not at all.

    {"op": "add", "nodes": {id: {"metadata": ...}}, "edges": [{"source", "target", ...}]}
    {"op": "remove", "vertex": id}                       with everything it contains, and their edges
    {"op": "set", "vertex": id, "properties": ...}       in place of the properties it had
    {"op": "resize", "vertex": id, "size": n}

What the result means is not looked at here: `read_cluster` does that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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
    nodes, edges = _nodes(graph["nodes"]), list(graph.get("edges") or [])
    for k, change in enumerate(changes):
        edges = _apply(nodes, edges, change, f"/changes/{k}")
    return {**document, "graph": {**graph, "nodes": _as_before(graph["nodes"], nodes), "edges": edges}}


def _nodes(options: Any) -> Nodes:
    if isinstance(options, Mapping):
        return (
            dict(options) if set(map(type, options)) <= {str} else {str(key): node for key, node in options.items()}
        )
    return {str(node["id"]): node for node in options}


def _as_before(options: Any, nodes: Nodes) -> Any:
    """JGF has its nodes as a mapping or as a list; a cluster keeps the form it was given in."""
    return nodes if isinstance(options, Mapping) else [{"id": key, **node} for key, node in nodes.items()]


def _apply(nodes: Nodes, edges: Edges, change: Any, at: str) -> Edges:
    """Apply a change to the nodes, which are the caller's own; return the edges after it."""
    if not isinstance(change, Mapping) or change.get("op") not in ("add", "remove", "set", "resize"):
        raise GraphError("each change needs an op: add, remove, set or resize", pointer=f"{at}/op")
    if change["op"] == "add":
        return _add(nodes, edges, change, at)
    vertex = change.get("vertex")
    if not isinstance(vertex, str) or vertex not in nodes:
        raise GraphError(f"vertex {str(vertex)[:100]} does not exist", pointer=f"{at}/vertex")
    if change["op"] == "remove":
        return _remove(nodes, edges, vertex)
    key = "properties" if change["op"] == "set" else "size"
    if key not in change:
        raise GraphError(f"{key} is missing", pointer=f"{at}/{key}")
    metadata = {**(nodes[vertex].get("metadata") or {}), key: change[key]}
    nodes[vertex] = {**nodes[vertex], "metadata": metadata}
    return edges


def _add(nodes: Nodes, edges: Edges, change: Mapping[str, Any], at: str) -> Edges:
    new, tied = change.get("nodes", {}), change.get("edges", [])
    if not isinstance(new, Mapping) or not all(isinstance(node, Mapping) for node in new.values()):
        raise GraphError("nodes is a mapping of ids to vertices", pointer=f"{at}/nodes")
    if not isinstance(tied, list) or not all(isinstance(edge, Mapping) for edge in tied):
        raise GraphError("edges is a list of edges", pointer=f"{at}/edges")
    for key in new:
        if key in nodes:
            raise GraphError(f"vertex {str(key)[:100]} already exists", pointer=f"{at}/nodes")
    nodes.update((str(key), dict(node)) for key, node in new.items())
    edges.extend(map(dict, tied))
    return edges


def contained(edges: Iterable[Mapping[str, Any]], vertices: Iterable[str]) -> set[str]:
    """Return these vertices and all they contain, at any depth."""
    below: dict[str, list[str]] = {}
    for edge in edges:
        if (edge.get("relation") or "contains") == "contains":
            below.setdefault(str(edge.get("source")), []).append(str(edge.get("target")))
    remaining = list(vertices)
    result = set(remaining)
    while remaining:
        new = [each for each in below.get(remaining.pop(), []) if each not in result]
        result.update(new)
        remaining += new
    return result


def _remove(nodes: Nodes, edges: Edges, vertex: str) -> Edges:
    gone = contained(edges, [vertex])
    for one in gone:
        nodes.pop(one, None)
    return [edge for edge in edges if str(edge.get("source")) not in gone and str(edge.get("target")) not in gone]


def size_of(changes: Iterable[Mapping[str, Any]]) -> int:
    """Return how many vertices and edges changes name."""
    return sum(
        len(change.get("nodes", ())) + len(change.get("edges", ())) if change["op"] == "add" else 1
        for change in changes
    )


MOST = 200  # vertices that are not as they were; of more the whole graph is sooner read than changes are applied
_BY_OP = {"properties": "set", "size": "resize"}
_ABSENT = object()


class _Parts(NamedTuple):
    nodes: Mapping[str, Any]
    edges: Sequence[Mapping[str, Any]]
    rest: tuple[Any, Any]


def changes_between(before: Any, after: Any) -> list[dict[str, Any]] | None:
    """Return what makes `before` into `after`, but for the order of edges; None where no changes can say it.

    >>> one, two = ({"graph": {"nodes": {"n": {"metadata": {"size": size}}}, "edges": []}} for size in (1, 2))
    >>> changes_between(one, two)
    [{'op': 'resize', 'vertex': 'n', 'size': 2}]
    """
    old, new = _parts(before), _parts(after)
    if old is None or new is None or old.rest != new.rest:
        return None
    altered = {vertex: _altered(vertex, node, new.nodes.get(vertex)) for vertex, node in old.nodes.items()}
    if sum(ops != [] for ops in altered.values()) > MOST:
        return None
    removed, gone = _removed(old, [vertex for vertex, ops in altered.items() if ops is None])
    edges = _more_edges(old, new, gone)
    if edges is None or len(gone) == len(old.nodes):
        return None
    nodes = {vertex: node for vertex, node in new.nodes.items() if vertex in gone or vertex not in old.nodes}
    changed = [op for vertex, ops in altered.items() if vertex not in gone for op in ops or ()]
    return removed + changed + ([{"op": "add", "nodes": nodes, "edges": edges}] if nodes or edges else [])


def _parts(document: Any) -> _Parts | None:
    graph = document.get("graph") if isinstance(document, Mapping) else None
    if not isinstance(graph, Mapping) or not isinstance(graph.get("nodes"), Mapping):
        return None
    around = {key: value for key, value in document.items() if key != "graph"}
    within = {key: value for key, value in graph.items() if key not in ("nodes", "edges")}
    return _Parts(graph["nodes"], graph.get("edges") or [], (around, within))


def _altered(vertex: str, before: Any, after: Any) -> list[dict[str, Any]] | None:
    """Return what changes a vertex; None if it must be removed, and perhaps added again."""
    if after is None or {**before, "metadata": None} != {**after, "metadata": None}:
        return None
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    differ = [key for key in {**old, **new} if old.get(key, _ABSENT) != new.get(key, _ABSENT)]
    if not all(key in _BY_OP and key in new for key in differ):
        return None
    return [{"op": _BY_OP[key], "vertex": vertex, key: new[key]} for key in differ]


def _removed(old: _Parts, unlike: Sequence[str]) -> tuple[list[dict[str, Any]], set[str]]:
    """Return the removals, and all they take with them."""
    removed: list[dict[str, Any]] = []
    gone: set[str] = set()
    for vertex in unlike:
        if vertex not in gone:
            gone |= contained(old.edges, [vertex])
            removed.append({"op": "remove", "vertex": vertex})
    return removed, gone & set(old.nodes)


def _more_edges(old: _Parts, new: _Parts, gone: set[str]) -> list[Any] | None:
    """Return the edges to add; None if one would have to go whose ends stay."""
    stay = Counter(
        _text(e) for e in old.edges if str(e.get("source")) not in gone and str(e.get("target")) not in gone
    )
    options = {_text(edge): edge for edge in new.edges}
    more = Counter(map(_text, new.edges))
    return None if stay - more else [options[text] for text in (more - stay).elements()]


def _text(edge: Mapping[str, Any]) -> str:
    return json.dumps(edge, sort_keys=True)
