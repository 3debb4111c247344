"""Run every benchmark: how matching and selecting grow with the clusters, and the two backends beside each other."""

from __future__ import annotations

import rainbow
from benchmarks.selecting import selecting
from benchmarks.timing import timed
from rainbow.graph import Cluster


def flat(nodes: int, name: str = "flat") -> Cluster:
    """A cluster of equal nodes with 24 cores each, written as a template."""
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node", "count": nodes}, "k": {"type": "core", "count": 24}}
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    document = {"graph": {"nodes": {key: {"metadata": data} for key, data in vertices.items()}, "edges": edges}}
    return rainbow.read_cluster(document, name=name)


def matching() -> None:
    """Print how one request grows with the vertices of one cluster, fresh and seen."""
    job = rainbow.parse_jobspec("resources: {w: {type: node, replicas: 2, with: [{type: core, count: 4}]}}")
    never = rainbow.parse_jobspec("resources: {w: {type: core, replicas: 1, count: 30}}")
    print(f"{'vertices':>10}{'networkx us':>14}{'refused us':>14}{'index, seen us':>16}{'ratio':>9}")
    for nodes in (40, 400, 4_000):
        cluster = flat(nodes)
        fresh = timed(lambda c=cluster: rainbow.match(job, [c], backend="networkx"))  # type: ignore[misc]
        refused = timed(lambda c=cluster: rainbow.match(never, [c], backend="networkx"))  # type: ignore[misc]
        seen = timed(lambda c=cluster: rainbow.match(job, [c], backend="index"))  # type: ignore[misc]
        print(f"{len(cluster.graph):>10}{fresh:>14.0f}{refused:>14.0f}{seen:>16.0f}{fresh / seen:>9.0f}")


if __name__ == "__main__":
    matching()
    selecting()
