"""Draft → a tree of vertices, or the first fault in it with its JSON Pointer."""

from __future__ import annotations

import re
from typing import Any

import networkx as nx

from rainbow.errors import GraphError, LimitError
from rainbow.graph.draft import Draft, DraftEdge, DraftVertex, Limits, escape

_TRAILING_DIGITS = re.compile(r"\d+$")


def vertices_of(draft: Draft, limits: Limits) -> dict[str, dict[str, Any]]:
    """Check every vertex by itself; {id: attributes} as graph/cluster.py names them, `path` still as declared."""
    checked: dict[str, dict[str, Any]] = {}
    for vertex in draft.vertices:
        if vertex.id in checked:
            raise GraphError(
                f"two vertices have the id {vertex.id}", pointer=vertex.pointer.removesuffix("/metadata")
            )
        checked[vertex.id] = _attributes(vertex, limits)
    if not checked:
        raise GraphError("the graph has no vertices", pointer="/graph/nodes")
    return checked


def _attributes(vertex: DraftVertex, limits: Limits) -> dict[str, Any]:
    data, at = vertex.metadata, vertex.pointer
    kind = data.get("type")
    if not isinstance(kind, str) or not kind:
        raise GraphError("type must be text" if "type" in data else "a vertex needs a type", pointer=f"{at}/type")
    size = _whole_number(data, "size", at, limits.size)
    unit = _text(data, "unit", at)
    rank = data.get("rank")
    return {
        "type": kind,
        "size": size,
        "unit": unit,
        "name": _name(vertex),
        "path": _declared_path(data, at),
        "rank": rank if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 else None,
        "properties": _properties(data, at),
        "metadata": data,
    }


def _whole_number(data: Any, key: str, at: str, most: int) -> int:
    value = data.get(key, 1)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise GraphError(f"{key} must be a positive integer", pointer=f"{at}/{key}")
    if value > most:
        raise LimitError(f"{key} {value}, the limit is {most}", pointer=f"{at}/{key}", limit=key)
    return value


def _text(data: Any, key: str, at: str) -> str:
    value = data.get(key)
    if value is None or isinstance(value, str):
        return value or ""
    raise GraphError(f"{key} must be text", pointer=f"{at}/{key}")


def _name(vertex: DraftVertex) -> str:
    data = vertex.metadata
    name = _text(data, "name", vertex.pointer) or vertex.label
    if name or not isinstance(data.get("basename"), str):
        return name or vertex.id
    return f"{data['basename']}{data.get('id', '')}"


def _declared_path(data: Any, at: str) -> str:
    paths = data.get("paths")
    if paths is None:
        return ""
    path = paths.get("containment", "") if isinstance(paths, dict) else None
    if not isinstance(path, str):
        raise GraphError("paths must be a mapping of texts", pointer=f"{at}/paths")
    return path


def _properties(data: Any, at: str) -> frozenset[str]:
    value = data.get("properties") or ()
    if isinstance(value, (dict, list, tuple, set, frozenset)) and all(isinstance(item, str) for item in value):
        return frozenset(value)
    raise GraphError("properties must be a mapping or a list of names", pointer=f"{at}/properties")


def check_ends(edges: list[DraftEdge], known: Any) -> None:
    """Refuse an edge whose end is no vertex."""
    for edge in edges:
        for end, vertex in (("source", edge.source), ("target", edge.target)):
            if vertex not in known:
                raise GraphError(f"the edge's {end} {vertex} is no vertex", pointer=f"{edge.pointer}/{end}")


def check_acyclic(edges: list[DraftEdge]) -> None:
    """Refuse a vertex that contains itself, directly or through others."""
    contains: nx.DiGraph[str] = nx.DiGraph((edge.source, edge.target) for edge in edges)
    if nx.is_directed_acyclic_graph(contains):
        return
    cycle = [source for source, _ in nx.find_cycle(contains)]
    shown = " > ".join([*cycle[:5], "..." if len(cycle) > 5 else cycle[0]])
    first = next(edge for edge in edges if edge.source == cycle[0] and edge.target == cycle[1 % len(cycle)])
    raise GraphError(f"containment goes in a circle: {shown}", pointer=first.pointer)


def tree_of(draft: Draft, limits: Limits) -> tuple[nx.DiGraph[str], str]:
    """Build the containment tree and name its root.

    A vertex that several others contain stays with the first of them in the document's order: it counts once.
    """
    vertices = vertices_of(draft, limits)
    check_ends(draft.edges, vertices)
    edges = [edge for edge in draft.edges if edge.contains]
    check_acyclic(edges)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(vertices.items())
    placed: set[str] = set()
    for edge in edges:
        if edge.target not in placed:
            placed.add(edge.target)
            graph.add_edge(edge.source, edge.target)
    root = _root(draft, placed)
    _check_depth(graph, root, limits)
    return expand_templates(graph, root, limits), root


def _root(draft: Draft, contained: set[str]) -> str:
    roots = [vertex for vertex in draft.vertices if vertex.id not in contained]
    if len(roots) > 1:
        names = ", ".join(vertex.id for vertex in roots[:5])
        pointer = roots[1].pointer.removesuffix("/metadata")
        raise GraphError(
            f"{len(roots)} vertices are contained in nothing, a cluster has one root: {names}", pointer=pointer
        )
    return roots[0].id


def _check_depth(graph: nx.DiGraph[str], root: str, limits: Limits) -> None:
    level, depth = [root], 0
    while level:
        depth += 1
        if depth > limits.depth:
            raise LimitError(f"the graph is deeper than {limits.depth} levels", pointer="/graph/edges", limit="depth")
        level = [child for vertex in level for child in graph.successors(vertex)]


def expand_templates(graph: nx.DiGraph[str], root: str, limits: Limits) -> nx.DiGraph[str]:
    """Write out every vertex with `count: n` as n equal siblings, with all below, and give every vertex its path.

    Copies are named by number (node0, node1, ...) and know by `template` which vertex they stand for.
    """
    full: nx.DiGraph[str] = nx.DiGraph()
    stack = [(root, "", "", "")]  # vertex of the document, suffix of ids, parent, path of the parent
    while stack:
        vertex, suffix, parent, above = stack.pop()
        data = graph.nodes[vertex]
        copies = _whole_number(data["metadata"], "count", f"/graph/nodes/{escape(vertex)}/metadata", limits.vertices)
        if len(full) + copies > limits.vertices:
            raise LimitError(f"more than {limits.vertices} vertices with templates written out", limit="vertices")
        for number in range(copies):
            own = f"{suffix}.{number}" if copies > 1 else suffix
            made = _copy(data, number, copies, vertex, above, expanded=bool(own))
            full.add_node(vertex + own, **made)
            if parent:
                full.add_edge(parent, vertex + own)
            stack.extend((child, own, vertex + own, made["path"]) for child in graph.successors(vertex))
    return full


def _copy(data: dict[str, Any], number: int, copies: int, vertex: str, above: str, expanded: bool) -> dict[str, Any]:
    name = data["name"] if copies == 1 else f"{_TRAILING_DIGITS.sub('', data['name'])}{number}"
    path = data["path"] if data["path"] and not expanded else f"{above}/{name}"
    rank = None if data["rank"] is None else data["rank"] + number
    return {**data, "name": name, "path": path, "rank": rank, "template": vertex}
