"""Hanging subsystems on a cluster. Cases are in cases/graphs/refused_subsystems.yaml."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest

from rainbow.errors import GraphError, LimitError
from rainbow.graph import Cluster, Limits, hang_subsystem, read_cluster
from tests.unit.graph.test_graph_reading import cases, jgf


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    nodes = {
        "c": {"type": "cluster"},
        "n0": {"type": "node"},
        "n1": {"type": "node"},
        "core": {"type": "core"},
        "t": {"type": "node", "count": 2},
    }
    return read_cluster(jgf(nodes, ("c", "n0"), ("c", "n1"), ("n1", "core"), ("c", "t")))


@pytest.mark.parametrize("case", cases("refused_subsystems.yaml"))
def test_hang_subsystem_faulty_document_is_refused_at_its_pointer(cluster: Cluster, case: dict[str, Any]) -> None:
    with pytest.raises(GraphError) as caught:
        hang_subsystem(cluster, "io", case["document"])
    assert caught.value.pointer == case["pointer"]
    assert case["says"] in caught.value.message
    assert cluster.subsystems == {}


def test_hang_subsystem_vertex_hangs_with_all_below_it(cluster: Cluster) -> None:
    kinds = {"lustre": {"type": "lustre"}, "app": {"type": "package"}, "lib": {"type": "library"}}
    hung = cluster.with_subsystem(
        "fs", jgf(kinds, ("n1", "lustre"), ("lustre", "app"), ("app", "lib"), ("n0", "lib"))
    )
    subsystem = hung.subsystems["fs"]
    assert subsystem.attached == {"n1": ("lustre", "app", "lib"), "n0": ("lib",)}
    assert subsystem.graph.nodes["lib"]["path"] == "/lustre/app/lib"
    assert set(subsystem.graph.edges) == {("lustre", "app"), ("app", "lib")}
    assert cluster.subsystems == {}


def test_hang_subsystem_root_of_its_own_name_may_hang_free(cluster: Cluster) -> None:
    one_step = {"type": "root", "paths": {"containment": "/root0"}}
    for root in ({"type": "io"}, {"type": "root", "basename": "io"}, one_step):
        hung = cluster.with_subsystem("io", jgf({"io0": root, "shm": {"type": "shm"}}, ("n0", "shm")))
        assert hung.subsystems["io"].attached == {"n0": ("shm",)}


def test_hang_subsystem_vertex_joined_to_one_that_hangs_need_not_hang_itself(cluster: Cluster) -> None:
    kinds = {"io0": {"type": "io"}, "shm": {"type": "shm"}, "spare": {"type": "nvme"}}
    hung = cluster.with_subsystem("io", jgf(kinds, ("n0", "shm"), ("io0", "shm"), ("io0", "spare")))
    assert hung.subsystems["io"].attached == {"n0": ("shm",)}


def test_hang_subsystem_on_a_template_hangs_on_every_copy(cluster: Cluster) -> None:
    hung = cluster.with_subsystem("io", jgf({"shm": {"type": "shm"}}, ("t", "shm")))
    assert hung.subsystems["io"].attached == {"t.0": ("shm",), "t.1": ("shm",)}


def test_hang_subsystem_id_in_both_graphs_is_the_subsystems(cluster: Cluster) -> None:
    hung = cluster.with_subsystem("io", jgf({"n0": {"type": "shm"}, "x": {"type": "shm"}}, ("n1", "n0"), ("n0", "x")))
    assert hung.subsystems["io"].attached == {"n1": ("n0", "x")}


def test_hang_subsystem_edges_of_its_own_label_count_and_others_do_not(cluster: Cluster) -> None:
    edges = [
        {"source": "n0", "target": "a", "metadata": {"subsystem": "power"}},
        {"source": "n1", "target": "a", "metadata": {"subsystem": "network"}},
        {"source": "c", "target": "a", "relation": "supplies"},
    ]
    document = {"graph": {"nodes": [{"id": "a", "metadata": {"type": "pdu"}}], "edges": edges}}
    assert cluster.with_subsystem("power", document).subsystems["power"].attached == {"n0": ("a",)}


def test_hang_subsystem_again_replaces_the_old_one(cluster: Cluster) -> None:
    first = cluster.with_subsystem("io", jgf({"shm": {"type": "shm"}}, ("n0", "shm")))
    second = first.with_subsystem("io", jgf({"nvme": {"type": "nvme"}}, ("n1", "nvme")))
    assert second.subsystems["io"].attached == {"n1": ("nvme",)}
    assert second.without_subsystem("io").subsystems == {}


def test_hang_subsystem_networkx_graph_is_read(cluster: Cluster) -> None:
    graph: nx.DiGraph[str] = nx.DiGraph([("n0", "shm"), ("t", "shm")])
    with pytest.raises(GraphError, match="type of a vertex must be text"):
        cluster.with_subsystem("io", graph)
    graph.nodes["shm"]["type"] = "shm"
    subsystem = cluster.with_subsystem("io", graph).subsystems["io"]
    assert subsystem.attached == {"n0": ("shm",), "t.0": ("shm",), "t.1": ("shm",)}
    assert list(subsystem.graph) == ["shm"]


def test_hang_subsystem_attached_too_often_meets_the_limit(cluster: Cluster) -> None:
    kinds = {f"v{i}": {"type": "package"} for i in range(20)}
    chain = [(f"v{i}", f"v{i + 1}") for i in range(19)]
    document = jgf(kinds, *chain, ("c", "v0"), ("n0", "v0"), ("n1", "v0"))
    with pytest.raises(LimitError) as caught:
        hang_subsystem(cluster, "io", document, Limits(edges=50))
    assert caught.value.pointer == "/graph/edges/21"
