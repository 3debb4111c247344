"""What NetworkX hands over and writes: a DiGraph, node-link, adjacency and Cytoscape data.

The attributes of a vertex stand flat beside its id, or together under `metadata`. numpy's numbers are read as
Python's. Until NetworkX 2, node-link data named the ends of an edge by their places in the list of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rainbow.errors import GraphError
from rainbow.graph.document import (
    Document,
    Edge,
    Limits,
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

if TYPE_CHECKING:
    import networkx as nx

PLAIN = frozenset({str, int, float, bool, type(None)})


def read_networkx(graph: nx.Graph[Any], limits: Limits) -> Document:
    """Turn a NetworkX DiGraph into plain form; pointers are those of its node-link JSON."""
    if not graph.is_directed():
        raise GraphError("the graph must be directed", pointer="/directed")
    limits.check("vertices", graph.number_of_nodes(), "/nodes")
    limits.check("edges", graph.number_of_edges(), "/edges")
    nodes = [{**plain(fields), "id": plain(vertex)} for vertex, fields in graph.nodes(data=True)]
    vertices = list(_vertices(nodes))
    links = ({**plain(fields), "source": plain(u), "target": plain(v)} for u, v, fields in graph.edges(data=True))
    found = [edge(link, f"/edges/{place}", place) for place, link in enumerate(links)]
    return Document(name_of(plain(graph.graph), "/graph"), vertices, "/nodes", found, "/edges")


def plain(value: Any) -> Any:
    """Return a value with numpy's numbers and lists as Python's.

    >>> import numpy
    >>> plain({"size": numpy.int64(4), "properties": numpy.array(["a"])})
    {'size': 4, 'properties': ['a']}
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, dict):
        return (
            value if all(type(item) in PLAIN for item in value.values()) else {k: plain(v) for k, v in value.items()}
        )
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.tolist() if type(value).__module__.partition(".")[0] == "numpy" else value


def read_node_link(document: Mapping[str, Any], limits: Limits) -> Document:
    """Turn {"nodes": [{"id": ...}], "links": [...]} (or "edges") into plain form."""
    key = "links" if document.get("links") is not None else "edges"
    nodes = sequence(document["nodes"], "/nodes", "the nodes")
    directed(document, "", document.get(key))
    limits.check("vertices", len(nodes), "/nodes")
    vertices = list(_vertices(nodes))
    listed = _by_id(document.get(key), vertices, is_old=isinstance(document.get("graph"), list))
    return Document(_name(document), vertices, "/nodes", edges(listed, f"/{key}", limits), f"/{key}")


def _by_id(links: Any, vertices: list[Vertex], is_old: bool) -> Any:
    """Return links that name their ends by id.

    NetworkX 1 wrote places: told by the attributes of the graph, a list then, or by places that are no ids.
    """
    if not isinstance(links, list) or not links or not all(isinstance(link, Mapping) for link in links):
        return links
    ends = [link.get(side) for link in links for side in ("source", "target")]
    ids = {vertex.id for vertex in vertices}
    if not all(type(end) is int and 0 <= end < len(vertices) and (is_old or str(end) not in ids) for end in ends):
        return links
    return [{**k, "source": vertices[k["source"]].id, "target": vertices[k["target"]].id} for k in links]


def read_adjacency(document: Mapping[str, Any], limits: Limits) -> Document:
    """Turn {"nodes": [{"id": ...}], "adjacency": [[{"id": ...}], ...]} into plain form."""
    nodes = sequence(document.get("nodes"), "/nodes", "the nodes")
    rows = sequence(document["adjacency"], "/adjacency", "the adjacency")
    directed(document, "", [item for row in rows if isinstance(row, list) for item in row])
    limits.check("vertices", len(nodes), "/nodes")
    if len(rows) != len(nodes):
        text = f"the adjacency must have one list for each node, got {len(rows)} for {len(nodes)} nodes"
        raise GraphError(text, pointer="/adjacency")
    vertices, found = list(_vertices(nodes)), list[Edge]()
    for k, row in enumerate(rows):
        limits.check("edges", len(found) + len(sequence(row, f"/adjacency/{k}", "a row")), f"/adjacency/{k}")
        for n, item in enumerate(row):
            at = f"/adjacency/{k}/{n}"
            fields = mapping(item, at, "an edge")
            link = {**fields, "source": vertices[k].id, "target": identity(fields.get("id"), f"{at}/id")}
            found.append(edge(link, at, len(found)))
    return Document(_name(document), vertices, "/nodes", found, "/adjacency")


def read_cytoscape(document: Mapping[str, Any], limits: Limits) -> Document:
    """Turn {"elements": {"nodes": [{"data": ...}], "edges": [{"data": ...}]}} into plain form.

    The id of a vertex is its `value`, where NetworkX puts it; the field `id` may be the vertex's own.
    """
    elements = mapping(document["elements"], "/elements", "elements")
    nodes = _data(elements.get("nodes"), "/elements/nodes")
    links = _data(elements.get("edges"), "/elements/edges")
    directed(document, "", links)
    limits.check("vertices", len(nodes), "/elements/nodes")
    limits.check("edges", len(links), "/elements/edges")
    found = [_from_cytoscape(node, f"/elements/nodes/{k}/data") for k, node in enumerate(nodes)]
    made = [edge(link, f"/elements/edges/{place}/data", place) for place, link in enumerate(links)]
    return Document(_name(document), found, "/elements/nodes", made, "/elements/edges")


def _data(items: Any, pointer: str) -> list[Mapping[str, Any]]:
    listed = sequence([] if items is None else items, pointer, "elements")
    read = (mapping(item, f"{pointer}/{k}", "an element") for k, item in enumerate(listed))
    return [mapping(item.get("data"), f"{pointer}/{k}/data", "data") for k, item in enumerate(read)]


def _from_cytoscape(data: Mapping[str, Any], at: str) -> Vertex:
    key = "value" if "value" in data else "id"
    vertex = identity(data.get(key), f"{at}/{key}")
    if isinstance(data.get("metadata"), Mapping):
        return Vertex(vertex, _label(data, at), data["metadata"], at, f"{at}/metadata")
    drawn = {"value", *(["id"] if key == "id" or str(data.get("id")) == vertex else [])}
    return Vertex(vertex, _label(data, at), {k: v for k, v in data.items() if k not in drawn}, at, at)


def _name(document: Mapping[str, Any]) -> str:
    """Return the name of a graph; its attributes are a mapping, or (adjacency, NetworkX 1) a list of pairs."""
    said: Any = next((document[k] for k in ("graph", "data") if isinstance(document.get(k), Mapping | list)), {})
    pairs = said if isinstance(said, Mapping) else {}
    if isinstance(said, list):
        pairs = {pair[0]: pair[1] for pair in said if isinstance(pair, list) and len(pair) == 2 and pair[0] == "name"}
    return name_of(document, "") or name_of(pairs, "/graph")


def _vertices(nodes: Iterable[Any]) -> Iterator[Vertex]:
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
