"""The contract of a graph source."""

from __future__ import annotations

import copy
import json
from typing import ClassVar

import pytest

from rainbow.errors import InputError, LimitError
from rainbow.graph import Limits, read_cluster
from rainbow.graph.sources import GraphSource, graph_sources

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


class GraphSourceContract:
    """Tests of the graph source called `name`, which reads `example`.

    `workers` are the names of the workers in the example, `down` those of them that are down.
    """

    name: ClassVar[str]
    example: ClassVar[str]
    workers: ClassVar[set[str]]
    down: ClassVar[set[str]] = set()

    @pytest.fixture
    def source(self) -> GraphSource:
        """Return the graph source."""
        return graph_sources.get(self.name)

    def text(self) -> str:
        """Return the example."""
        return self.example

    def test_source_finds_the_workers_by_name(self, source: GraphSource) -> None:
        cluster = read_cluster(source(self.text()))
        assert set(cluster.workers) == self.workers
        assert cluster.totals["core"] > 0

    def test_source_keeps_nodes_that_are_down_and_says_why(self, source: GraphSource) -> None:
        cluster = read_cluster(source(self.text()))
        marked = {
            name: cluster.graph.nodes[vertex]["metadata"].get("unavailable")
            for name, vertex in cluster.workers.items()
        }
        assert {name for name, why in marked.items() if why} == self.down

    def test_source_of_equal_text_gives_an_equal_document_of_its_own(self, source: GraphSource) -> None:
        first, second = (source(self.text()) for _ in range(2))
        stored = copy.deepcopy(second)
        assert first == second
        first["graph"]["nodes"].clear()
        assert second == stored

    def test_source_gives_json_graph_format_that_survives_json(self, source: GraphSource) -> None:
        document = source(self.text())
        assert json.loads(json.dumps(document)) == document
        assert document["graph"]["nodes"]
        assert read_cluster(document, "oak").name == "oak"

    @pytest.mark.parametrize("text", NO_CLUSTER, ids=lambda text: repr(text[:20]))
    def test_source_refuses_what_is_no_cluster_with_its_place(self, source: GraphSource, text: str) -> None:
        with pytest.raises(InputError) as caught:
            source(text)
        assert caught.value.pointer is not None or caught.value.line is not None

    def test_source_within_limits_is_read_within_the_same_limits(self, source: GraphSource) -> None:
        full = read_cluster(source(self.text()))
        limits = Limits(vertices=len(full.graph))
        assert read_cluster(source(self.text(), limits), limits=limits).totals == full.totals
        with pytest.raises(LimitError):
            source(self.text(), Limits(vertices=len(full.graph) - 1))
