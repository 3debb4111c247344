"""Our own example clusters and, where they are at hand, clusters others wrote, are read as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from rainbow.graph import Cluster, read_cluster

HERE = Path(__file__).parents[3]
SHARED = HERE.parent / "shared"
EXAMPLES = sorted(path.parent for path in HERE.glob("graphs/*/cluster.json"))

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared inputs are not at hand")


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def example(folder: Path) -> Cluster:
    cluster = read_cluster(load(folder / "cluster.json"))
    for path in sorted(folder.glob("*.subsystem.json")):
        cluster = cluster.with_subsystem(path.name.removesuffix(".subsystem.json"), load(path))
    return cluster


def served(cluster: Cluster, subsystem: str, kind: str) -> list[str]:
    """The workers that have a subsystem vertex of a type hung on them or on what contains them."""
    hung = cluster.subsystems[subsystem]
    at = {vertex for vertex, result in hung.attached.items() if kind in {hung.graph.nodes[v]["type"] for v in result}}
    return [name for name, vertex in cluster.workers.items() if at & {vertex, *nx.ancestors(cluster.graph, vertex)}]


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_example_cluster_reads_with_all_its_subsystems(folder: Path) -> None:
    cluster = example(folder)
    assert cluster.name == folder.name
    assert all(subsystem.attached for subsystem in cluster.subsystems.values())
    state = load(folder / "state.json")
    assert state["nodes_free"] == len(cluster.workers)
    assert state["memory_per_node"] == cluster.totals["memory"] // len(cluster.workers)


def test_example_clusters_are_what_their_readme_says() -> None:
    willow, heron, juniper = (example(HERE / "graphs" / name) for name in ("willow", "heron", "juniper"))
    assert willow.totals == {"cluster": 1, "core": 64, "memory": 256, "node": 4, "socket": 8}
    assert heron.totals == {"cluster": 1, "core": 64, "gpu": 8, "memory": 512, "node": 2, "socket": 4}
    assert juniper.totals == {"cluster": 1, "core": 24, "memory": 96, "node": 6, "rack": 2}
    assert heron.graph.nodes[heron.workers["heron1"]]["properties"] == {"a100"}
    assert served(willow, "io", "lustre") == list(willow.workers)
    assert served(juniper, "io", "lustre") == list(juniper.workers)[:3]
    assert served(heron, "spack", "package") == list(heron.workers)


@needs_shared
@pytest.mark.parametrize("group", ["inputs/rainbow", "inputs/lammps/clusters"])
def test_upstream_cluster_reads_with_its_subsystems(group: str) -> None:
    folders = {path.parent for path in (SHARED / group).rglob("*nodes.json")}
    for folder in folders:
        cluster = read_cluster(load(next(folder.glob("*nodes.json"))))
        assert set(cluster.totals) == {"cluster", "core", "node", "rack", "socket"}
        for path in folder.glob("*-subsystem.json"):
            name = path.name.removesuffix("-subsystem.json").removeprefix("cluster-")
            hung = cluster.with_subsystem(name, load(path)).subsystems[name]
            free = set(hung.graph) - {vertex for result in hung.attached.values() for vertex in result}
            assert free == {f"{name}0"}
    assert folders


@needs_shared
def test_upstream_flux_graphs_and_default_cases_read() -> None:
    documents = [load(path) for path in sorted((SHARED / "conformance/fluxion/graphs").glob("*.json"))]
    lines = (SHARED / "conformance/default/cases.jsonl").read_text().splitlines()
    documents += [json.loads(line)["graph"] for line in lines]
    assert len(documents) > 800
    for document in documents:
        nodes = document["graph"]["nodes"]
        sizes = [node["metadata"]["size"] for node in (nodes.values() if isinstance(nodes, dict) else nodes)]
        assert sum(read_cluster(document).totals.values()) == sum(sizes)


@needs_shared
def test_upstream_resource_set_reads_as_nodes_with_their_hosts() -> None:
    cluster = read_cluster(load(SHARED / "inputs/rfc/spec_20/example1.json"))
    assert list(cluster.workers) == ["node186", "node187", "node188", "node189"]
    assert cluster.totals == {"cluster": 1, "core": 192, "gpu": 32, "node": 4}
    assert cluster.graph.nodes[cluster.workers["node189"]]["rank"] == 22
