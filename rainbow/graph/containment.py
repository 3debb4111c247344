"""What contains what: from the edges of a document to a tree, or to an order of a graph without cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from rainbow.errors import GraphError
from rainbow.graph.document import CONTAINMENT, CONTAINS, IN, Document, Edge, Vertex, short
from rainbow.graph.limits import Limits


@dataclass(frozen=True, slots=True)
class Tree:
    """A containment tree: `order` has every vertex after what contains it, `parents` all but the root."""

    root: str
    order: list[str]
    parents: Mapping[str, str]


def read_tree(document: Document, vertices: Mapping[str, Vertex], limits: Limits) -> Tree:
    """Return the tree of a dominant graph; GraphError for an unknown end, a cycle, or a second root.

    Edges of other subsystems are ignored, and so are vertices that only they touch. A vertex that several
    vertices contain counts once: it stays under the first of them, in the document's order of edges.
    """
    own = [edge for edge in document.edges if edge.subsystem == CONTAINMENT and edge.relation in (CONTAINS, IN)]
    for edge in own:
        check_ends(document, edge, vertices, vertices)
    edges = [edge for edge in own if edge.relation == CONTAINS]
    inside = _dominant(document, vertices, own)
    order = top_down(document, inside, edges)
    parents: dict[str, str] = {}
    for edge in edges:
        parents.setdefault(edge.target, edge.source)
    root = _root(document, vertices, [vertex for vertex in inside if vertex not in parents])
    _check_depth(vertices, order, parents, limits)
    return Tree(root, order, parents)


def check_ends(document: Document, edge: Edge, sources: Container[str], targets: Container[str]) -> None:
    """Raise GraphError unless both ends of an edge are known."""
    for side, end, known in (("source", edge.source, sources), ("target", edge.target, targets)):
        if end not in known:
            pointer = f"{document.edge_at(edge)}/{side}"
            raise GraphError(f"the {side} {short(end)} of an edge is no vertex", pointer=pointer)


def top_down(document: Document, vertices: Iterable[str], edges: list[Edge]) -> list[str]:
    """Order vertices so that each comes after all that contain it (Kahn 1962); GraphError names a cycle."""
    below: dict[str, list[str]] = {}
    open_edges = dict.fromkeys(vertices, 0)
    for edge in edges:
        below.setdefault(edge.source, []).append(edge.target)
        open_edges[edge.target] += 1
    ready = deque(vertex for vertex, above in open_edges.items() if not above)
    order = []
    while ready:
        order.append(ready.popleft())
        for vertex in below.get(order[-1], ()):
            open_edges[vertex] -= 1
            if not open_edges[vertex]:
                ready.append(vertex)
    if len(order) < len(open_edges):
        raise _cycle(document, {vertex for vertex, above in open_edges.items() if above}, edges)
    return order


def _cycle(document: Document, left: set[str], edges: list[Edge]) -> GraphError:
    """Name a cycle: every vertex left over is contained by another one left over, so going up ends in one."""
    above = {edge.target: edge for edge in edges if edge.source in left and edge.target in left}
    seen: dict[str, int] = {}
    vertex = next(iter(above))
    while vertex not in seen:
        seen[vertex] = len(seen)
        vertex = above[vertex].source
    cycle = list(seen)[seen[vertex] :]
    closing = max((above[vertex] for vertex in cycle), key=lambda edge: edge.place)
    downward = [short(vertex) for vertex in (cycle[0], *reversed(cycle))]
    shown = " contains ".join(downward if len(downward) <= 6 else [*downward[:5], f"... ({len(cycle)} vertices)"])
    return GraphError(f"containment has a cycle: {shown}", pointer=document.edge_at(closing))


def _dominant(document: Document, vertices: Mapping[str, Vertex], own: list[Edge]) -> list[str]:
    """Leave out the vertices that belong to other subsystems in the same document."""
    ours = {end for edge in own for end in (edge.source, edge.target)}
    others = {end for edge in document.edges for end in (edge.source, edge.target)} - ours
    inside = [vertex for vertex in vertices if vertex not in others]
    if not inside:
        raise GraphError("the graph has no containment", pointer=document.edges_at)
    return inside


def _root(document: Document, vertices: Mapping[str, Vertex], roots: list[str]) -> str:
    if len(roots) > 1:
        shown = ", ".join(short(root) for root in roots[:5]) + (", ..." if len(roots) > 5 else "")
        text = f"the graph has {len(roots)} roots ({shown}); everything but one vertex must be contained"
        raise GraphError(text, pointer=vertices[roots[1]].pointer)
    return roots[0]


def _check_depth(
    vertices: Mapping[str, Vertex], order: list[str], parents: Mapping[str, str], limits: Limits
) -> None:
    depth: dict[str, int] = {}
    for vertex in order:
        depth[vertex] = depth[parents[vertex]] + 1 if vertex in parents else 1
        if depth[vertex] > limits.depth:
            limits.check("depth", depth[vertex], vertices[vertex].pointer)
