"""Importing what Slurm, Flux and Kubernetes print: cases as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rainbow import match, parse_jobspec
from rainbow.errors import InputError
from rainbow.graph import Cluster, read_cluster, write_jgf
from rainbow.graph.document import Limits
from rainbow.graph.sources import graph_sources
from tests.support.source_cases import CASES, read

SHARED = Path(__file__).parents[4] / "shared"


def text_of(case: dict[str, Any]) -> str:
    if "text" in case:
        return str(case["text"])
    if "file" in case:
        return (CASES / case["file"]).read_text()
    if not (SHARED / case["shared"]).exists():
        pytest.skip(f"{case['shared']} is not here")
    return (SHARED / case["shared"]).read_text()


def imported(case: dict[str, Any]) -> tuple[dict[str, Any], Cluster]:
    document = graph_sources.get(case["source"])(text_of(case))
    return document, read_cluster(json.loads(json.dumps(document)))


def parts_of(cluster: Cluster, worker: str) -> dict[str, list[int]]:
    sizes: dict[str, list[int]] = {}
    for vertex in cluster.children(cluster.workers[worker]):
        fields = cluster.graph.nodes[vertex]
        sizes.setdefault(fields["type"], []).append(fields["size"])
    return sizes


@pytest.mark.parametrize("case", read("good.yaml"))
def test_import_gives_what_the_file_says(case: dict[str, Any]) -> None:
    document, cluster = imported(case)
    fields = {name: cluster.graph.nodes[vertex] for name, vertex in cluster.workers.items()}
    assert cluster.totals == case["totals"]
    assert cluster.name == case["called"]
    assert list(cluster.workers) == case.get("workers", list(cluster.workers))
    for worker, sizes in case.get("parts", {}).items():
        assert parts_of(cluster, worker) | sizes == parts_of(cluster, worker)
    for worker, names in case.get("properties", {}).items():
        assert sorted(fields[worker]["properties"]) == names
    for worker, rank in case.get("ranks", {}).items():
        assert fields[worker]["rank"] == rank
    down = {name: one["metadata"].get("unavailable") for name, one in fields.items()}
    assert {name: why for name, why in down.items() if why} == case["unavailable"]
    assert document["graph"].get("metadata", {}).get("left_out", []) == case.get("left_out", [])


@pytest.mark.parametrize("case", read("good.yaml"))
def test_import_has_the_cores_where_they_are_and_templates_where_they_are_exact(case: dict[str, Any]) -> None:
    document, cluster = imported(case)
    for worker, sockets in case.get("below", {}).items():
        results = {
            cluster.graph.nodes[vertex]["name"]: len(cluster.children(vertex))
            for vertex in cluster.children(cluster.workers[worker])
            if cluster.graph.nodes[vertex]["type"] == "socket"
        }
        assert results == sockets
    drawn = [node for node in document["graph"]["nodes"].values() if node["metadata"]["type"] == "node"]
    assert len(drawn) == case["drawn"]


@pytest.mark.parametrize("case", read("refused.yaml"))
def test_import_of_what_is_no_cluster_is_refused_with_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=case["says"]) as caught:
        graph_sources.get(case["source"])(case["text"], Limits(**case.get("limits", {})))
    assert caught.value.code == case.get("code", "graph-invalid")
    assert caught.value.pointer == case.get("pointer")
    assert caught.value.line == case.get("line")


def test_flux_r_is_the_cluster_that_registering_r_itself_gives() -> None:
    for name in ("flux-r.json", "flux-r-equal.json", "flux-r-scheduling.json"):
        text = (CASES / name).read_text()
        through, itself = (read_cluster(d) for d in (graph_sources.get("flux-r")(text), json.loads(text)))
        assert through.totals == itself.totals
        assert list(through.workers) == list(itself.workers)
        for worker in itself.workers:
            one, other = (c.graph.nodes[c.workers[worker]] for c in (through, itself))
            assert [one[k] for k in ("rank", "properties")] == [other[k] for k in ("rank", "properties")]
            names = [[c.graph.nodes[v]["name"] for v in c.children(c.workers[worker])] for c in (through, itself)]
            assert names[0] == names[1]


def numbered(names: list[str]) -> str:
    return json.dumps({"nodes": [{"name": name, "cpus": 4} for name in names]})


@pytest.mark.parametrize(
    ("names", "drawn"),
    [
        (["n0", "n1", "n2", "n4", "n5"], 3),
        (["n0", "n1", "n2"], 1),
        (["n2", "n0", "n1"], 1),
        (["n1", "n2"], 2),
        (["n0", "n2"], 2),
        (["n00", "n01"], 2),
        (["n0"], 1),
        (["a0", "b0"], 2),
        (["0", "1"], 2),
        (["n0", "n1", "m"], 2),
    ],
)
def test_nodes_are_a_template_only_where_their_names_are(names: list[str], drawn: int) -> None:
    document = graph_sources.get("slurm")(numbered(names))
    assert sum(node["metadata"]["type"] == "node" for node in document["graph"]["nodes"].values()) == drawn
    assert sorted(read_cluster(document).workers) == sorted(names)


def test_nodes_that_differ_are_no_template() -> None:
    nodes = [{"name": f"n{i}", "cpus": 4, "state": ["DOWN"] if i else ["IDLE"]} for i in range(2)]
    document = graph_sources.get("slurm")(json.dumps({"nodes": nodes}))
    assert "count" not in str(document["graph"]["nodes"]["cluster/n0"])
    cluster = read_cluster(document)
    down = [cluster.graph.nodes[vertex]["metadata"].get("unavailable") for vertex in cluster.workers.values()]
    assert down == [None, "DOWN"]


def test_import_written_out_is_read_as_the_same_cluster() -> None:
    for case in read("good.yaml"):
        if "file" in case.values[0]:
            _, cluster = imported(case.values[0])
            again = read_cluster(write_jgf(cluster))
            assert (again.totals, list(again.workers)) == (cluster.totals, list(cluster.workers))


@pytest.mark.parametrize(
    ("file", "wanted", "constraint", "fits"),
    [
        ("slurm-scontrol-23.11.json", {"type": "gpu", "count": 4}, "gpu=a100", 5),
        ("slurm-scontrol-23.11.json", {"type": "core", "count": 64}, "nvlink", 4),
        ("slurm-scontrol-23.11.json", {"type": "core", "count": 90}, "partition=fat", 1),
        ("kubernetes-nodes.json", {"type": "core", "count": 7}, "pool=general", 2),
        ("flux-r.json", {"type": "gpu", "count": 4}, "amd-mi250", 4),
    ],
)
def test_imported_cluster_answers_a_constraint(file: str, wanted: Any, constraint: str, fits: int) -> None:
    source = next(name for name in graph_sources if file.startswith(name))
    cluster = read_cluster(graph_sources.get(source)((CASES / file).read_text()))
    spec = {
        "version": 1,
        "resources": [
            {"type": "node", "count": 1, "with": [{"type": "slot", "count": 1, "label": "s", "with": [wanted]}]}
        ],
        "tasks": [{"command": ["true"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 60, "constraints": {"properties": [constraint]}}},
    }
    for backend in ("index", "networkx"):
        (verdict,) = match(parse_jobspec(json.dumps(spec)), [cluster], backend=backend)
        assert (verdict.matched, verdict.fits) == (True, fits)
