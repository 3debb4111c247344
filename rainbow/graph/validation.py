"""Rules of a graph: containment is a tree, and attributes are well formed; what holds to them is an outline."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.document import (
    CONTAINMENT,
    CONTAINS,
    IN,
    Document,
    Edge,
    Limits,
    Vertex,
    given,
    identity,
    mapping,
    short,
    step,
    text,
    whole,
)
from rainbow.graph.outline import Fields, Outline, numbered


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
        if edge.source not in vertices and edge.target in vertices:
            text = (
                f"edge source {short(edge.source)} does not refer to a vertex; if it is a vertex of a cluster, this "
                "graph is a subsystem's: attach it with rainbow subsystem register, or --subsystem NAME=FILE"
            )
            raise GraphError(text, pointer=f"{document.edge_at(edge)}/source")
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
            raise GraphError(f"edge {side} {short(end)} does not refer to a vertex", pointer=pointer)


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


def _cycle(document: Document, remaining: set[str], edges: list[Edge]) -> GraphError:
    """Name a cycle: every vertex left over is contained by another one left over, so going up ends in one."""
    above = {edge.target: edge for edge in edges if edge.source in remaining and edge.target in remaining}
    seen: dict[str, int] = {}
    vertex = next(iter(above))
    while vertex not in seen:
        seen[vertex] = len(seen)
        vertex = above[vertex].source
    cycle = list(seen)[seen[vertex] :]
    closing = max((above[vertex] for vertex in cycle), key=lambda edge: edge.place)
    downward = [short(vertex) for vertex in (cycle[0], *reversed(cycle))]
    shown = " contains ".join(downward if len(downward) <= 6 else [*downward[:5], f"... ({len(cycle)} vertices)"])
    return GraphError(f"containment edges form a cycle: {shown}", pointer=document.edge_at(closing))


def _dominant(document: Document, vertices: Mapping[str, Vertex], own: list[Edge]) -> list[str]:
    """Leave out the vertices that belong to other subsystems in the same document."""
    ours = {end for edge in own for end in (edge.source, edge.target)}
    others = {end for edge in document.edges for end in (edge.source, edge.target)} - ours
    inside = [vertex for vertex in vertices if vertex not in others]
    if not inside:
        raise GraphError("graph has no containment edges", pointer=document.edges_at)
    return inside


def _root(document: Document, vertices: Mapping[str, Vertex], roots: list[str]) -> str:
    if len(roots) > 1:
        shown = ", ".join(short(root) for root in roots[:5]) + (", ..." if len(roots) > 5 else "")
        text = (
            f"graph must have exactly one root, found {len(roots)}: {shown}; connect every other vertex with a "
            "containment edge"
        )
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


_LONGEST_PATH = 2**20


def check_vertices(document: Document) -> dict[str, Vertex]:
    """Return the vertices by id; GraphError for none at all and for an id used twice."""
    result: dict[str, Vertex] = {}
    for vertex in document.vertices:
        if vertex.id in result:
            first = result[vertex.id].pointer
            raise GraphError(f"duplicate vertex id {short(vertex.id)}, first used at {first}", pointer=vertex.pointer)
        result[vertex.id] = vertex
    if not result:
        raise GraphError("the graph has no vertices", pointer=document.vertices_at)
    return result


def attributes(vertex: Vertex) -> Fields:
    """Return the attributes of a vertex; `path` is "" where the document gives none."""
    fields, at = vertex.metadata, vertex.fields
    kind = text(fields.get("type"), f"{at}/type", "the type of a vertex")
    if not kind:
        raise GraphError("the type of a vertex must not be empty", pointer=f"{at}/type")
    return Fields(
        kind,
        _size(fields["size"], f"{at}/size") if "size" in fields else 1,
        text(given(fields, "unit", ""), f"{at}/unit", "the unit of a vertex"),
        _name(vertex),
        _path(fields, f"{at}/paths"),
        _rank(fields.get("rank"), f"{at}/rank"),
        _properties(fields.get("properties"), f"{at}/properties"),
        fields,
    )


def _size(size: Any, pointer: str) -> int:
    if size == 0 and isinstance(size, int) and not isinstance(size, bool):
        raise GraphError("a vertex of size 0 holds nothing: leave it out (sizes are 1 or more)", pointer=pointer)
    return whole(size, pointer, "the size of a vertex")


def _name(vertex: Vertex) -> str:
    """Name a vertex as its metadata does, else by its label, else basename and id (node3), else by its id."""
    fields, at = vertex.metadata, vertex.fields
    name = text(given(fields, "name", ""), f"{at}/name", "the name of a vertex")
    basename = text(given(fields, "basename", ""), f"{at}/basename", "the basename of a vertex")
    if name or vertex.label:
        return name or vertex.label
    number = given(fields, "id", None)
    return vertex.id if not basename or number is None else basename + identity(number, f"{at}/id")


def _path(fields: Mapping[str, Any], pointer: str) -> str:
    paths = mapping(given(fields, "paths", {}), pointer, "paths")
    return text(given(paths, "containment", ""), f"{pointer}/containment", "the path of a vertex", _LONGEST_PATH)


def _rank(rank: Any, pointer: str) -> int | None:
    if rank is None:
        return None
    number = whole(rank, pointer, "the rank of a vertex", least=-1)  # -1: how Flux writes "none"
    return None if number == -1 else number


def _properties(properties: Any, pointer: str) -> frozenset[str]:
    """Read the names of properties (RFC 31): the keys of a mapping, or a list."""
    if properties is None:
        return frozenset()
    if not isinstance(properties, (Mapping, list, tuple, set, frozenset)):
        raise GraphError("properties must be a mapping or a list of names", pointer=pointer)
    names: Iterable[Any] = properties
    return frozenset(
        text(name, step(pointer, place) if isinstance(properties, (list, tuple)) else pointer, "a property")
        for place, name in enumerate(names)
    )


def build(document: Document, limits: Limits) -> Outline:
    """Return the outline of a document's dominant graph; GraphError and LimitError say what is wrong where."""
    vertices = check_vertices(document)
    tree = read_tree(document, vertices, limits)
    counts = _counts(tree, vertices, limits)
    places = {vertex: entry for entry, vertex in enumerate(tree.order)}
    outline = Outline(
        tree.order,
        [attributes(vertices[vertex]) for vertex in tree.order],
        [places[tree.parents[vertex]] if vertex in tree.parents else -1 for vertex in tree.order],
        [counts.get(vertex, 0) for vertex in tree.order],
    )
    if counts:
        _check_ids(outline, vertices)
    return outline


def _counts(tree: Tree, vertices: Mapping[str, Vertex], limits: Limits) -> dict[str, int]:
    """Read the counts of templates and refuse what would be too large written out."""
    counts: dict[str, int] = {}
    many: dict[str, int] = {}
    nested: dict[str, int] = {}
    total = 0
    for vertex in tree.order:
        read, parent = vertices[vertex], tree.parents.get(vertex, "")
        nested[vertex] = nested.get(parent, 0)
        if "count" in read.metadata:
            pointer = f"{read.fields}/count"
            counts[vertex] = whole(read.metadata["count"], pointer, "the count of a template")
            if vertex == tree.root:
                raise GraphError("the root vertex of a cluster cannot have a count", pointer=pointer)
            nested[vertex] += 1
            limits.check("templates", nested[vertex], pointer)
        many[vertex] = many.get(parent, 1) * counts.get(vertex, 1)
        total += many[vertex]
        if total > limits.vertices:
            limits.check("vertices", total, f"{read.fields}/count" if vertex in counts else read.pointer)
    return counts


def _check_ids(outline: Outline, vertices: Mapping[str, Vertex]) -> None:
    """Refuse a vertex that would be called as a template's copy is, "node.7", without writing any copy out."""
    for vertex in outline.ids:
        for stem, numbers in numbered(vertex):
            if stem not in outline.places:
                continue
            counts = outline.levels(stem)
            if len(counts) == len(numbers) + len(outline.levels(vertex)) and all(map(int.__lt__, numbers, counts)):
                text = f"duplicate vertex id {short(vertex)}: also generated by a vertex with a count"
                later = max(stem, vertex, key=outline.places.__getitem__)
                raise GraphError(text, pointer=vertices[later].pointer)


def grown(old: Outline, more: Document, limits: Limits) -> Outline | None:
    """Return an outline with more vertices; None unless each of them is new, and one edge puts it below another."""
    vertices, above = check_vertices(more), {edge.target: edge.source for edge in more.edges}
    plain = all(edge.relation == CONTAINS and edge.subsystem == CONTAINMENT for edge in more.edges)
    if not plain or above.keys() != vertices.keys() or len(above) < len(more.edges):
        return None
    if any(v in old for v in vertices) or any(v not in old.places and v not in vertices for v in above.values()):
        return None
    order = top_down(more, vertices, [edge for edge in more.edges if edge.source in vertices])
    places = {vertex: len(old.ids) + k for k, vertex in enumerate(order)}
    parents = [places[above[v]] if above[v] in places else old.places[above[v]] for v in order]
    answers = [vertices[vertex].metadata for vertex in order]
    counts = [whole(fields["count"], "", "count") if "count" in fields else 0 for fields in answers]
    made = old.with_more(order, [attributes(vertices[vertex]) for vertex in order], parents, counts)
    _check_grown(made, places, vertices, limits)
    return made


def _check_grown(grown: Outline, new: Mapping[str, int], vertices: Mapping[str, Vertex], limits: Limits) -> None:
    """Refuse an outline that has grown too large, or in which an id has become ambiguous."""
    limits.check("vertices", sum(grown.many), "")
    limits.check("depth", max(len(grown.chain(entry)) for entry in new.values()), "")
    limits.check("templates", max(len(grown.levels(vertex)) for vertex in new), "")
    if not grown.is_listed:
        _check_ids(grown, vertices)
