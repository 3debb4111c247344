"""Documents → Cluster and Subsystem: the one door for graphs, whatever form they come in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx as nx

from rainbow.errors import GraphError
from rainbow.graph.building import check_acyclic, tree_of, vertices_of
from rainbow.graph.cluster import WORKER_LEVEL_TYPES, WORKER_TYPE, Cluster, Subsystem
from rainbow.graph.draft import Draft, DraftEdge, Limits
from rainbow.graph.jgf import from_json, from_networkx
from rainbow.graph.rfc20 import from_r


def read_cluster(
    document: Any,
    name: str = "",
    levels: str = "any",
    worker_type: str = WORKER_TYPE,
    worker_level_types: frozenset[str] = WORKER_LEVEL_TYPES,
    limits: Limits | None = None,
) -> Cluster:
    """Read a cluster from JGF, node-link JSON, R version 1 (all as parsed JSON) or a NetworkX DiGraph.

    `name` defaults to the document's own, else its root's. GraphError and LimitError name the fault by pointer.
    """
    if levels not in ("any", "strict"):
        raise GraphError(f'levels is "any" or "strict", not {levels!r}')
    limits = limits or Limits()
    draft = draft_of(document, limits)
    graph, root = tree_of(draft, limits)
    called = name or draft.name or graph.nodes[root]["name"]
    return Cluster(called, graph, root, levels, worker_type, worker_level_types)


def draft_of(document: Any, limits: Limits) -> Draft:
    """Tell the form of a document by its keys and read it."""
    if isinstance(document, nx.Graph):
        return from_networkx(document, limits)
    if not isinstance(document, Mapping):
        raise GraphError(f"a graph is a mapping, not {type(document).__name__}", pointer="")
    if isinstance(document.get("scheduling"), Mapping):
        return from_json(document["scheduling"], limits)
    if "execution" in document:
        return from_r(document, limits)
    inner = document.get("graph")
    if "nodes" in document or (isinstance(inner, Mapping) and "nodes" in inner):
        return from_json(document, limits)
    raise GraphError(
        "neither JGF, node-link JSON nor R: no nodes found", pointer="/graph" if inner is not None else ""
    )


def hang_subsystem(cluster: Cluster, name: str, document: Any, limits: Limits | None = None) -> Cluster:
    """Return `cluster` with the subsystem `document` hung on it, in place of an earlier one of that name.

    An edge from a vertex of the cluster to one of the subsystem hangs it there, with all it contains. An id
    that both have is the subsystem's. Every subsystem vertex must belong to a part that hangs somewhere, but for
    the subsystem's own root (its type is the subsystem's name, or its declared path has a single step).
    """
    limits = limits or Limits()
    draft = draft_of(document, limits)
    vertices = vertices_of(draft, limits)
    targets = _copies(cluster)
    inner, hanging = _divide(draft, vertices, targets)
    check_acyclic(inner)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(vertices.items())
    graph.add_edges_from((edge.source, edge.target) for edge in inner)
    _check_tied(name, draft, graph, hanging)
    attached = _attached(graph, hanging, targets)
    return replace(cluster, subsystems={**cluster.subsystems, name: Subsystem(name, graph, attached)})


def _copies(cluster: Cluster) -> dict[str, list[str]]:
    """{vertex of the document: the vertices it stands for} (several for a template)."""
    copies: dict[str, list[str]] = {}
    for vertex, data in cluster.graph.nodes(data=True):
        copies.setdefault(data["template"], []).append(vertex)
    return copies


def _divide(draft: Draft, own: Any, dominant: Any) -> tuple[list[DraftEdge], list[DraftEdge]]:
    """Part the edges inside the subsystem from those that hang it on the cluster."""
    inner: list[DraftEdge] = []
    hanging: list[DraftEdge] = []
    for edge in draft.edges:
        for end, vertex in (("source", edge.source), ("target", edge.target)):
            if vertex not in own and vertex not in dominant:
                text = f"the edge's {end} {vertex} is neither a vertex of the subsystem nor of the cluster"
                raise GraphError(text, pointer=f"{edge.pointer}/{end}")
        if edge.contains and edge.target in own:
            (inner if edge.source in own else hanging).append(edge)
        elif edge.contains:
            raise GraphError(
                f"the edge leads to {edge.target}, no vertex of the subsystem", pointer=f"{edge.pointer}/target"
            )
    return inner, hanging


def _check_tied(name: str, draft: Draft, graph: nx.DiGraph[str], hanging: list[DraftEdge]) -> None:
    tied = {edge.target for edge in hanging}
    loose = [part for part in nx.weakly_connected_components(graph) if not part & tied]
    for vertex in draft.vertices:
        part = next((part for part in loose if vertex.id in part), None) if loose else None
        data = graph.nodes[vertex.id]
        is_root = data["type"] == name or data["path"].strip("/").count("/") == 0 < len(data["path"])
        if part and not (is_root and len(part) == 1):
            text = f"subsystem vertex {vertex.id} is tied to nothing in the cluster"
            raise GraphError(text, pointer=vertex.pointer.removesuffix("/metadata"))


def _attached(
    graph: nx.DiGraph[str], hanging: list[DraftEdge], targets: dict[str, list[str]]
) -> dict[str, tuple[str, ...]]:
    """{cluster vertex: the subsystem vertices that serve it}, in the order of the document."""
    found: dict[str, dict[str, None]] = {}
    for edge in hanging:
        below = [edge.target, *sorted(nx.descendants(graph, edge.target))]
        for vertex in targets[edge.source]:
            found.setdefault(vertex, {}).update(dict.fromkeys(below))
    return {vertex: tuple(below) for vertex, below in found.items()}
