"""Questions a cluster answers: totals, workers, order and children."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.graph import read_cluster
from tests.unit.graph.test_graph_reading import jgf


def cluster_of(names: list[str], kind: str = "node", **more: Any) -> Any:
    nodes = {f"id{i}": {"type": kind, "name": name} for i, name in enumerate(names)}
    return read_cluster(jgf({"c": {"type": "cluster"}, **nodes}, *(("c", vertex) for vertex in nodes)), **more)


def test_children_are_in_natural_order() -> None:
    cluster = cluster_of(["node10", "node2", "node1", "a"])
    assert cluster.children("c") == ["id3", "id2", "id1", "id0"]
    assert cluster.children("id0") == []


def test_totals_add_sizes() -> None:
    nodes = {"c": {"type": "cluster"}, "a": {"type": "memory", "size": 64}, "b": {"type": "memory", "size": 36}}
    assert read_cluster(jgf(nodes, ("c", "a"), ("c", "b"))).totals == {"cluster": 1, "memory": 100}


@pytest.mark.parametrize(
    ("names", "workers"),
    [
        (["node10", "node2"], ["node2", "node10"]),
        (["same", "same"], ["id0", "id1"]),
    ],
)
def test_workers_are_called_by_what_tells_them_apart(names: list[str], workers: list[str]) -> None:
    assert list(cluster_of(names).workers) == workers


def test_workers_without_any_node_are_the_root() -> None:
    assert dict(cluster_of(["a", "b"], kind="host").workers) == {"c": "c"}


def test_workers_follow_the_worker_type() -> None:
    assert list(cluster_of(["b", "a"], kind="host", worker_type="host").workers) == ["a", "b"]
