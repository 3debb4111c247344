"""The contract of a graph source, over every one that is installed."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from rainbow.errors import InputError, LimitError, RainbowError
from rainbow.graph import Limits, read_cluster
from rainbow.graph.sources import graph_sources
from rainbow.plugins import UnknownPlugin

CASES = Path(__file__).parents[1] / "cases" / "sources"
# a text each source must read, the workers it must find in it, and those of them that are down;
# who adds a source adds its line
EXAMPLES = {
    "flux-r": ("flux-r.json", {"tioga0", "tioga1", "tioga2", "tioga3", "big"}, set()),
    "slurm": ("slurm-scontrol-22.05.txt", {"node01", "node02"}, {"node02"}),
    "hwloc": ("hwloc-2.9.xml", {"vm"}, set()),
    "local": ("local.json", {"laptop"}, set()),
    "kubernetes": (
        "kubernetes-nodes.json",
        {"edge-1", *(f"ip-10-0-{n}.ec2.internal" for n in ("1-10", "1-11", "2-20"))},
        {"edge-1", "ip-10-0-1-11.ec2.internal"},
    ),
}
NO_CLUSTER = [
    "",
    " \n\t",
    "{}",
    "[]",
    "null",
    "NaN",
    "7",
    "{",
    "\x00",
    "\ud800",
    '"\\ud800"',
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"nodes": ' + "9" * 5000 + "}",
    "<html><body>502 Bad Gateway</body></html>",
    "Unable to connect to the server: dial tcp 127.0.0.1:6443: connect: connection refused",
]


@pytest.fixture(params=list(graph_sources))
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def text_of(source: str) -> str:
    return (CASES / EXAMPLES[source][0]).read_text()


def test_source_finds_the_workers_by_name(source: str) -> None:
    cluster = read_cluster(graph_sources.get(source)(text_of(source)))
    assert set(cluster.workers) == EXAMPLES[source][1]
    assert cluster.totals["core"] > 0


def test_source_keeps_nodes_that_are_down_and_says_why(source: str) -> None:
    cluster = read_cluster(graph_sources.get(source)(text_of(source)))
    marked = {
        name: cluster.graph.nodes[vertex]["metadata"].get("unavailable") for name, vertex in cluster.workers.items()
    }
    assert {name for name, why in marked.items() if why} == EXAMPLES[source][2]


def test_source_of_equal_text_gives_an_equal_document_of_its_own(source: str) -> None:
    first, second = (graph_sources.get(source)(text_of(source)) for _ in range(2))
    kept = copy.deepcopy(second)
    assert first == second
    first["graph"]["nodes"].clear()
    assert second == kept


def test_source_gives_json_graph_format_that_survives_json(source: str) -> None:
    document = graph_sources.get(source)(text_of(source))
    assert json.loads(json.dumps(document)) == document
    assert document["graph"]["nodes"]
    assert read_cluster(document, "oak").name == "oak"


@pytest.mark.parametrize("text", NO_CLUSTER, ids=lambda text: repr(text[:20]))
def test_source_refuses_what_is_no_cluster_with_its_place(source: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        graph_sources.get(source)(text)
    assert caught.value.pointer is not None or caught.value.line is not None


def test_source_within_limits_is_read_within_the_same_limits(source: str) -> None:
    full = read_cluster(graph_sources.get(source)(text_of(source)))
    limits = Limits(vertices=len(full.graph))
    assert read_cluster(graph_sources.get(source)(text_of(source), limits), limits=limits).totals == full.totals
    with pytest.raises(LimitError):
        graph_sources.get(source)(text_of(source), Limits(vertices=len(full.graph) - 1))


def test_unknown_source_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownPlugin, match="flux-r, hwloc, kubernetes, local, slurm") as caught:
        graph_sources.get("pbs")
    assert isinstance(caught.value, RainbowError)
