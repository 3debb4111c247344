"""`rainbow.match` takes one cluster or several, and says what makes a cluster or a request of anything else."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest

import rainbow

GRAPH: nx.DiGraph[str] = nx.DiGraph([("c", "n")])
nx.set_node_attributes(GRAPH, {"c": "cluster", "n": "node"}, "type")
OAK = rainbow.read_cluster(GRAPH, "oak")
JOB = rainbow.parse_jobspec("resources: {work: {type: node}}")


@pytest.mark.parametrize("clusters", [OAK, [OAK], (OAK,), {"oak": OAK}.values(), iter([OAK])])
def test_one_cluster_or_several_are_matched(clusters: Any) -> None:
    assert [verdict.matched for verdict in rainbow.match(JOB, clusters)] == [True]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (("resources: {}", [OAK]), r"takes a request, not text: parse_jobspec\(text\) makes one"),
        (({"resources": {}}, [OAK]), "takes a request, not dict"),
        ((JOB, GRAPH), r"takes clusters, not DiGraph: read_cluster\(graph\) makes one"),
        ((JOB, [OAK, GRAPH]), "takes clusters, not DiGraph"),
        ((JOB, "oak"), "takes clusters, not text"),
        ((JOB, {"oak": OAK}), "takes clusters, not dict"),
        ((JOB, 5), "takes clusters, not int"),
    ],
)
def test_what_is_neither_is_refused_with_what_makes_it(inputs: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        rainbow.match(*inputs)
