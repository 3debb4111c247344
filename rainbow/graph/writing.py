"""Cluster → JGF."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rainbow.graph.cluster import Cluster


def write_jgf(cluster: Cluster) -> dict[str, Any]:
    """Write a cluster's dominant graph as JGF (nodes a mapping); read_cluster reads it back."""
    nodes = {
        vertex: {"label": data["name"], "metadata": _metadata(data)}
        for vertex, data in cluster.graph.nodes(data=True)
    }
    edges = [{"source": a, "target": b, "relation": "contains"} for a, b in cluster.graph.edges]
    return {"name": cluster.name, "graph": {"directed": True, "nodes": nodes, "edges": edges}}


def _metadata(data: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in data["metadata"].items() if key != "count"}
    rank = -1 if data["rank"] is None else data["rank"]
    written = {"type": data["type"], "size": data["size"], "unit": data["unit"], "name": data["name"], "rank": rank}
    return {**rest, **written, "paths": {"containment": data["path"]}, "properties": sorted(data["properties"])}
