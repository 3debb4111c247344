"""The forms of a graph: JSON Graph Format, those of NetworkX (networkx_forms.py), and RFC 20's R.

R version 1 is what Flux says a job or an instance has: `execution` gives the ranks and, by idset, the cores and GPUs
of each; its hosts go with the ranks in ascending order. Where `scheduling` holds a graph, it says the same and more,
and is read instead.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rainbow.errors import GraphError
from rainbow.graph.document import (
    CONTAINMENT,
    CONTAINS,
    Document,
    Edge,
    Limits,
    Vertex,
    directed,
    edges,
    given,
    identity,
    mapping,
    name_of,
    sequence,
    step,
    text,
)
from rainbow.graph.networkx_forms import read_adjacency, read_cytoscape, read_networkx, read_node_link
from rainbow.jobspec.hostlist import expand_hosts, expand_ids


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
    return Document(name, list(read), f"{at}/nodes", edges(graph.get("edges"), f"{at}/edges", limits), f"{at}/edges")


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
    given = text(listed, pointer, "a host list", longest=_LONGEST_LIST)
    # a short list repeats its longest part once for every host
    short = all(len(part) <= _LONGEST_HOST for part in _SEPARATOR.split(given))
    names = expand_hosts(given, limits.vertices) if short else None
    if names is None:
        raise GraphError('a host list (RFC 29) reads like "node[0-3,7]"', pointer=pointer)
    return names


def _properties(properties: Any, ranks: Mapping[int, Any], limits: Limits) -> dict[int, dict[str, str]]:
    at = "/execution/properties"
    found: dict[int, dict[str, str]] = {}
    total = 0
    for name, listed in mapping({} if properties is None else properties, at, "properties").items():
        place = step(at, text(name, at, "a property"))
        named = _idset(listed, place, limits)
        total += len(named)
        limits.check("edges", total, place)  # a short text can hang every property on every rank
        for rank in named:
            if rank not in ranks:
                raise GraphError(f"rank {rank} not found", pointer=place)
            found.setdefault(rank, {})[name] = ""
    return found


def _idset(listed: Any, pointer: str, limits: Limits) -> list[int]:
    given = text(listed, pointer, "an idset", longest=_LONGEST_LIST)
    numbers = expand_ids(given, limits.vertices)
    if numbers is None:
        most = f"and names at most {limits.vertices} numbers"
        raise GraphError(f'an idset (RFC 22) reads like "0-3,7" {most}', pointer=pointer)
    return numbers
