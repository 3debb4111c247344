"""Run every benchmark: how matching, selecting and scheduling grow, and the two backends beside each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import rainbow
from benchmarks import fair_share
from rainbow.graph import Cluster

CONSTRAINT = [
    {
        "priority": 1,
        "steps": [
            {"filter": "nodes_free > 0"},
            {"calc": "build_cost=(cost_per_node_hour * (memory_per_node * seconds_per_gb)/60/60)"},
            {"sort_descending": "build_cost"},
            {"select": "random"},
        ],
    }
]


def flat(nodes: int, name: str = "flat") -> Cluster:
    """A cluster of equal nodes with 24 cores each, written as a template."""
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node", "count": nodes}, "k": {"type": "core", "count": 24}}
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    document = {"graph": {"nodes": {key: {"metadata": data} for key, data in vertices.items()}, "edges": edges}}
    return rainbow.read_cluster(document, name=name)


def timed(work: Callable[[], object], runs: int = 5) -> float:
    """Return the median time of some runs in microseconds, after one that is not counted."""
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times) * 1e6


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


def selecting() -> None:
    """Print how the founding text's selection grows with the candidates."""
    job = rainbow.parse_jobspec(
        {"resources": {"w": {"type": "node"}}, "attributes": {"parameter": {"seconds_per_gb": 2}}}
    )
    print(f"{'candidates':>10}{'select us':>14}{'us each':>14}")
    for count in (10, 100, 1_000, 10_000):
        verdicts = [rainbow.Verdict(f"c{k}", True, 1, totals={"nodes": 1}) for k in range(count)]
        states = {f"c{k}": {"cost_per_node_hour": k, "nodes_free": 3, "memory_per_node": 64} for k in range(count)}
        spent = timed(
            lambda v=verdicts, s=states: rainbow.select(  # type: ignore[misc]
                job, v, s, selector="constraint", options={"priorities": CONSTRAINT}, seed=1
            )
        )
        print(f"{count:>10}{spent:>14.0f}{spent / count:>14.2f}")


if __name__ == "__main__":
    matching()
    selecting()
    fair_share.epochs()
