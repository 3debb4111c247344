"""A graph's document → `Cluster`, and back.

From a document in plain form to the outline of a cluster.

A vertex with `count: N` in its metadata is a template: it stands for N equal siblings with everything below it.
Copy i of vertex "node" has id "node.i" and its name followed by i; what is below it keeps its name and takes over
the numbers in its id: core 3 of node 7 is "core.7.3". Ranks count on from the one given. `graph.graph["templates"]`
is {id in the document: ids of its copies}; metadata of copies is without count, name and paths, which are
each copy's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rainbow.errors import GraphError
from rainbow.graph.cluster import WORKER_LEVEL_TYPES, WORKER_TYPE, Cluster
from rainbow.graph.document import CONTAINS, LIMITS, Limits, short, whole
from rainbow.graph.formats import read_document
from rainbow.graph.outline import Outline, numbered
from rainbow.graph.validation import Tree, attributes, check_vertices, read_tree

if TYPE_CHECKING:
    from rainbow.graph.document import Document, Vertex


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
                raise GraphError("the root of a cluster cannot be a template", pointer=pointer)
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
                text = f"the id {short(vertex)} is used twice, once by a template"
                later = max(stem, vertex, key=outline.places.__getitem__)
                raise GraphError(text, pointer=vertices[later].pointer)


LEVELS = ("any", "strict")


def read_cluster(
    document: Any,
    name: str = "",
    levels: str = "any",
    worker_type: str = WORKER_TYPE,
    worker_level_types: Collection[str] = WORKER_LEVEL_TYPES,
    limits: Limits = LIMITS,
) -> Cluster:
    """Read a cluster from JGF 1 or 2, a networkx.DiGraph or its JSON forms, or an RFC 20 resource set.

    Without `name` the cluster is called as the document says, or else as its root. A vertex that several others
    contain counts once, under the first of them in the document's order of edges, so that the graph is a tree.
    A vertex whose metadata has `count: N` stands for N equal siblings (see graph/conversion.py).

    Raises GraphError with a JSON Pointer into the document, and LimitError for a graph larger than `limits`.

    >>> nodes = {"0": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node", "count": 2}}}
    >>> cluster = read_cluster({"graph": {"nodes": nodes, "edges": [{"source": "0", "target": "n"}]}}, "willow")
    >>> cluster.totals, list(cluster.workers)
    ({'cluster': 1, 'node': 2}, ['n0', 'n1'])
    """
    if levels not in LEVELS:
        raise GraphError(f"levels must be one of {', '.join(LEVELS)}")
    plain = read_document(document, limits)
    with plain.naming():
        outline = build(plain, limits)
    called = name or plain.name or outline.fields[0].name
    return Cluster(called, outline, levels, worker_type, frozenset(worker_level_types))


def write_jgf(cluster: Cluster) -> dict[str, Any]:
    """Return the dominant graph in JSON Graph Format 2; `read_cluster` makes the same cluster of it.

    Templates are written out. Levels, worker types and subsystems are no part of the format.
    """
    nodes = {
        vertex: {"label": fields["name"], "metadata": dict(fields["metadata"])}
        for vertex, fields in cluster.graph.nodes(data=True)
    }
    edges = [{"source": u, "target": v, "relation": CONTAINS} for u, v in cluster.graph.edges]
    return {"name": cluster.name, "graph": {"directed": True, "nodes": nodes, "edges": edges}}
