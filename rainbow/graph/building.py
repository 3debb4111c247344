"""From a document in plain form to the NetworkX graph of a cluster, templates written out.

A vertex with `count: N` in its metadata is a template: it stands for N equal siblings with everything below it.
Copy i of vertex "node" has id "node.i" and its name followed by i; what is below it keeps its name and takes over
the numbers in its id: core 3 of node 7 is "core.7.3". Ranks count on from the one given. `graph.graph["templates"]`
is {id in the document: ids of its copies}; metadata of copies is without count, name and paths, which are
each copy's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import networkx as nx

from rainbow.errors import GraphError
from rainbow.graph.containment import Tree, read_tree
from rainbow.graph.document import Document, Vertex, short, whole
from rainbow.graph.limits import Limits
from rainbow.graph.vertices import attributes, check_vertices

_LONGEST_PATH = 1024
_NUMBERED = ("count", "name", "paths")


class _Copy(NamedTuple):
    """One vertex to be: where it hangs and the numbers it took over (".7.3", or "")."""

    id: str
    parent: str
    numbers: str
    name: str
    path: str


def build(document: Document, limits: Limits) -> tuple[nx.DiGraph[str], str]:
    """Return the dominant graph of a document and its root; GraphError and LimitError say what is wrong where."""
    vertices = check_vertices(document)
    tree = read_tree(document, vertices, limits)
    counts = _counts(tree, vertices, limits)
    graph: nx.DiGraph[str] = nx.DiGraph(templates={})
    copies: dict[str, list[_Copy]] = {}
    for vertex in tree.order:
        above = copies[tree.parents[vertex]] if vertex in tree.parents else [_Copy("", "", "", "", "")]
        fields = attributes(vertices[vertex])
        copies[vertex] = list(_copies(vertex, fields, above, counts.get(vertex)))
        _write(graph, vertices[vertex], fields, copies[vertex])
    return graph, tree.root


def _counts(tree: Tree, vertices: Mapping[str, Vertex], limits: Limits) -> dict[str, int]:
    """Read the counts of templates and refuse what would be too large before any of it is written out."""
    counts: dict[str, int] = {}
    many: dict[str, int] = {}
    total = 0
    for vertex in tree.order:
        read, times = vertices[vertex], many[tree.parents[vertex]] if vertex in tree.parents else 1
        if "count" in read.metadata:
            pointer = f"{read.fields}/count"
            counts[vertex] = whole(read.metadata["count"], pointer, "the count of a template")
            if vertex == tree.root:
                raise GraphError("the root of a cluster cannot be a template", pointer=pointer)
        many[vertex] = times * counts.get(vertex, 1)
        total += many[vertex]
        if total > limits.vertices:
            limits.check("vertices", total, f"{read.fields}/count" if vertex in counts else read.pointer)
    return counts


def _copies(vertex: str, fields: Mapping[str, Any], above: list[_Copy], count: int | None) -> Iterator[_Copy]:
    for parent in above:
        for number in range(count or 1):
            numbers = parent.numbers if count is None else f"{parent.numbers}.{number}"
            name = fields["name"] if count is None else f"{fields['name']}{number}"
            path = fields["path"] if fields["path"] and not numbers else derive_path(parent.id, parent.path, name)
            yield _Copy(vertex + numbers, parent.id, numbers, name, path)


def derive_path(parent: str, above: str, name: str) -> str:
    """Continue the path of a parent ("" for none); "" where it would be longer than 1024 characters.

    Without that bound, the paths of a deep graph would take memory quadratic in its depth.
    """
    path = f"{above}/{name}"
    return "" if len(path) > _LONGEST_PATH or (parent and not above) else path


def _write(graph: nx.DiGraph[str], vertex: Vertex, fields: dict[str, Any], copies: list[_Copy]) -> None:
    """Add a vertex, or the copies of it, to the graph."""
    if copies[0].numbers:
        graph.graph["templates"][vertex.id] = tuple(copy.id for copy in copies)
        shared = {key: value for key, value in fields["metadata"].items() if key not in _NUMBERED}
        fields = {**fields, "metadata": shared}
    for place, copy in enumerate(copies):
        if copy.id in graph:
            raise GraphError(f"the id {short(copy.id)} is used twice, once by a template", pointer=vertex.pointer)
        own = {**fields, "name": copy.name, "path": copy.path}
        if copy.numbers and fields["rank"] is not None:
            own["rank"] += place
            own["metadata"] = {**fields["metadata"], "rank": own["rank"]}
        graph.add_node(copy.id, **own)
        if copy.parent:
            graph.add_edge(copy.parent, copy.id)
