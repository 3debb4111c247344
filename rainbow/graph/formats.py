"""The forms of a graph: JSON Graph Format, RFC 20's R, and those of NetworkX.

R version 1 is what Flux says a job or an instance has: `execution` gives the ranks and, by idset, the cores and GPUs
of each; its hosts go with the ranks in ascending order. Where `scheduling` holds a graph, it says the same and more,
and is read instead.

NetworkX hands over and writes a DiGraph, node-link, adjacency and Cytoscape data. A vertex has its attributes beside
its id, or together under `metadata`. numpy's numbers are read as Python's. Until NetworkX 2, node-link data named the
ends of an edge by their places in the list of nodes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.errors import GraphError
from rainbow.graph.document import (
    CONTAINMENT,
    CONTAINS,
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
    step,
    text,
)
from rainbow.jobspec.hostlist import expand_hosts, expand_ids

if TYPE_CHECKING:
    import networkx as nx


def read_document(document: Any, limits: Limits) -> Document:
    """Turn a document of any accepted form into plain form; GraphError if it is in none of them."""
    networkx = sys.modules.get("networkx")  # who has a graph of its own has imported it
    if networkx is not None and isinstance(document, networkx.Graph):
        return read_networkx(document, limits)
    if not isinstance(document, Mapping):
        raise GraphError("a graph document must be a mapping", pointer="")
    if "execution" in document or "scheduling" in document:
        return read_resource_set(document, limits)
    if isinstance(document.get("adjacency"), list):
        return read_adjacency(document, limits)
    if isinstance(document.get("elements"), Mapping):
        return read_cytoscape(document, limits)
    # node-link JSON has a `graph` too: attributes of the graph, and none of its nodes
    if isinstance(document.get("nodes"), (list, tuple)) and not _holds_nodes(document.get("graph")):
        return read_node_link(document, limits)
    if "graph" in document:
        return read_jgf(document, "", limits)
    raise GraphError(
        "unrecognized graph format: expected JSON Graph Format (graph.nodes), NetworkX's node-link (nodes, edges),"
        " adjacency (nodes, adjacency) or Cytoscape data (elements), or an RFC 20 resource set (execution.R_lite)",
        pointer="",
    )


def _holds_nodes(graph: Any) -> bool:
    return isinstance(graph, Mapping) and "nodes" in graph


def read_jgf(document: Mapping[str, Any], pointer: str, limits: Limits) -> Document:
    """Turn {"graph": {"nodes": ..., "edges": [...]}} into plain form."""
    at = f"{pointer}/graph"
    graph = mapping(document["graph"], at, "graph")
    nodes = graph.get("nodes")
    if not isinstance(nodes, (Mapping, list, tuple)):
        raise GraphError("the nodes must be a mapping by id (JGF 2) or a list (JGF 1)", pointer=f"{at}/nodes")
    directed(graph, at, graph.get("edges"))
    limits.check("vertices", len(nodes), f"{at}/nodes")
    read = _by_id(nodes, f"{at}/nodes") if isinstance(nodes, Mapping) else _listed(nodes, f"{at}/nodes")
    name = name_of(document, pointer) or name_of(graph, at)
    tied, about = edges(graph.get("edges"), f"{at}/edges", limits), graph.get("metadata")
    about = about if isinstance(about, Mapping) else {}
    return Document(name, list(read), f"{at}/nodes", tied, f"{at}/edges", about, f"{at}/metadata")


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


# ── R ──

_ROOT = "cluster"
_LONGEST_HOST = 255  # characters (RFC 1035)
_LONGEST_LIST = 2**24
_SEPARATOR = re.compile(r"[\[\],]")
Ranks = dict[int, tuple[str, Mapping[str, list[int]]]]  # {rank: (pointer of its entry, {type: ids})}


class Rank(NamedTuple):
    """What R says of one rank; `kinds` is {type: ids}, `pointer` that of its entry."""

    rank: int
    host: str
    properties: Mapping[str, str]
    kinds: Mapping[str, list[int]]
    pointer: str


def read_resource_set(document: Mapping[str, Any], limits: Limits) -> Document:
    """Turn {"version": 1, "execution": {"R_lite": [...]}} into plain form: a cluster of nodes with their ids."""
    ranks = read_ranks(document, limits)
    if ranks is None:
        return read_jgf(document["scheduling"], "/scheduling", limits)
    vertices = [_rset_vertex(_ROOT, _ROOT, {}, "/execution")]
    edges: list[Edge] = []
    for vertex, parent in _below(ranks):
        vertices.append(vertex)
        edges.append(Edge(parent, vertex.id, CONTAINS, CONTAINMENT, len(edges)))
    limits.check("vertices", len(vertices), "/execution/R_lite")
    return Document("", vertices, "/execution/R_lite", edges, "/execution/R_lite")


def read_ranks(document: Mapping[str, Any], limits: Limits) -> list[Rank] | None:
    """Return what `execution` says, in order of R_lite; None where `scheduling` holds a graph, which says more."""
    if document.get("version") != 1 or isinstance(document["version"], bool):
        raise GraphError("only version 1 of RFC 20 is read", pointer="/version")
    scheduling = document.get("scheduling")
    if isinstance(scheduling, Mapping) and "graph" in scheduling:
        return None
    execution = mapping(document.get("execution"), "/execution", "execution")
    entries = sequence(execution.get("R_lite"), "/execution/R_lite", "R_lite")
    children = _children(entries, limits)
    names = _hosts(execution.get("nodelist"), sorted(children), limits)
    properties = _properties(execution.get("properties"), children, limits)
    return [
        Rank(rank, names.get(rank, f"node{rank}"), properties.get(rank, {}), kinds, at)
        for rank, (at, kinds) in children.items()
    ]


def _below(ranks: Iterable[Rank]) -> Iterator[tuple[Vertex, str]]:
    """Yield every node and what it contains, each with the id of its parent."""
    for rank, host, properties, kinds, at in ranks:
        node = f"rank{rank}"
        yield _rset_vertex(node, "node", {"name": host, "rank": rank, "properties": properties}, at), _ROOT
        for kind, numbers in kinds.items():
            for number in numbers:
                yield (
                    _rset_vertex(f"{node}/{kind}{number}", kind, {"name": f"{kind}{number}", "id": number}, at),
                    node,
                )


def _rset_vertex(vertex: str, kind: str, fields: dict[str, Any], pointer: str) -> Vertex:
    return Vertex(vertex, "", {"type": kind, **fields}, pointer, pointer)


def _children(entries: Sequence[Any], limits: Limits) -> Ranks:
    ranks: Ranks = {}
    total = 0
    for place, entry in enumerate(entries):
        at = f"/execution/R_lite/{place}"
        entry = mapping(entry, at, "an entry of R_lite")
        kinds = _kinds(entry.get("children"), f"{at}/children", limits)
        for rank in _idset(entry.get("rank"), f"{at}/rank", limits):
            if rank in ranks:
                raise GraphError(f"rank {rank} is given twice", pointer=f"{at}/rank")
            ranks[rank] = (at, kinds)
            total += 1 + sum(map(len, kinds.values()))
        limits.check("vertices", total, at)
    return ranks


def _kinds(children: Any, pointer: str, limits: Limits) -> dict[str, list[int]]:
    kinds: dict[str, list[int]] = {}
    for kind, listed in mapping({} if children is None else children, pointer, "children").items():
        kinds[text(kind, pointer, "a type of children")] = _idset(listed, step(pointer, kind), limits)
        limits.check("vertices", sum(map(len, kinds.values())), pointer)
    return kinds


def _hosts(nodelist: Any, ranks: list[int], limits: Limits) -> dict[int, str]:
    if nodelist is None:
        return {}
    at = "/execution/nodelist"
    names: list[str] = []
    for place, item in enumerate([nodelist] if isinstance(nodelist, str) else sequence(nodelist, at, "nodelist")):
        names += host_list(item, at if isinstance(nodelist, str) else f"{at}/{place}", limits)
        limits.check("vertices", len(names), at)
    if len(names) != len(ranks):
        raise GraphError(f"nodelist names {len(names)} hosts for {len(ranks)} ranks", pointer=at)
    return dict(zip(ranks, names, strict=True))


def host_list(listed: Any, pointer: str, limits: Limits) -> list[str]:
    """Return the hosts of a host list, at most as many as a graph may have vertices."""
    value = text(listed, pointer, "a host list", longest=_LONGEST_LIST)
    # a short list repeats its longest part once for every host
    short = all(len(part) <= _LONGEST_HOST for part in _SEPARATOR.split(value))
    names = expand_hosts(value, limits.vertices) if short else None
    if names is None:
        raise GraphError('a host list (RFC 29) reads like "node[0-3,7]"', pointer=pointer)
    return names


def _properties(properties: Any, ranks: Mapping[int, Any], limits: Limits) -> dict[int, dict[str, str]]:
    at = "/execution/properties"
    result: dict[int, dict[str, str]] = {}
    total = 0
    for name, listed in mapping({} if properties is None else properties, at, "properties").items():
        place = step(at, text(name, at, "a property"))
        named = _idset(listed, place, limits)
        total += len(named)
        limits.check("edges", total, place)  # a short text can hang every property on every rank
        for rank in named:
            if rank not in ranks:
                raise GraphError(f"rank {rank} not found", pointer=place)
            result.setdefault(rank, {})[name] = ""
    return result


def _idset(listed: Any, pointer: str, limits: Limits) -> list[int]:
    value = text(listed, pointer, "an idset", longest=_LONGEST_LIST)
    numbers = expand_ids(value, limits.vertices)
    if numbers is None:
        most = f"and names at most {limits.vertices} numbers"
        raise GraphError(f'an idset (RFC 22) reads like "0-3,7" {most}', pointer=pointer)
    return numbers


# ── NetworkX ──

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
    results = [edge(link, f"/edges/{place}", place) for place, link in enumerate(links)]
    return Document(name_of(plain(graph.graph), "/graph"), vertices, "/nodes", results, "/edges")


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
    listed = _ends_by_id(document.get(key), vertices, is_old=isinstance(document.get("graph"), list))
    return Document(_name(document), vertices, "/nodes", edges(listed, f"/{key}", limits), f"/{key}")


def _ends_by_id(links: Any, vertices: list[Vertex], is_old: bool) -> Any:
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
    vertices, result = list(_vertices(nodes)), list[Edge]()
    for k, row in enumerate(rows):
        limits.check("edges", len(result) + len(sequence(row, f"/adjacency/{k}", "a row")), f"/adjacency/{k}")
        for n, item in enumerate(row):
            at = f"/adjacency/{k}/{n}"
            fields = mapping(item, at, "an edge")
            link = {**fields, "source": vertices[k].id, "target": identity(fields.get("id"), f"{at}/id")}
            result.append(edge(link, at, len(result)))
    return Document(_name(document), vertices, "/nodes", result, "/adjacency")


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
    results = [_from_cytoscape(node, f"/elements/nodes/{k}/data") for k, node in enumerate(nodes)]
    made = [edge(link, f"/elements/edges/{place}/data", place) for place, link in enumerate(links)]
    return Document(_name(document), results, "/elements/nodes", made, "/elements/edges")


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
