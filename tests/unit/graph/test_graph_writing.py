"""What is written is read as the same cluster."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.graph import Cluster, read_cluster, write_jgf
from tests.conftest import examples
from tests.unit.graph.test_graph_reading import jgf

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
FIELDS = st.fixed_dictionaries(
    {"type": NAMES},
    optional={
        "size": st.integers(1, 2**53),
        "unit": st.sampled_from(["", "GB", "KiB"]),
        "name": NAMES,
        "basename": NAMES,
        "id": st.one_of(st.integers(0, 9), NAMES),
        "rank": st.integers(-1, 9),
        "properties": st.one_of(st.lists(NAMES), st.dictionaries(NAMES, NAMES)),
        "paths": st.fixed_dictionaries({}, optional={"containment": NAMES}),
        "exclusive": st.booleans(),
        "version": NAMES,
    },
)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """A JGF document: every vertex below one before it, some of them templates, some with a second parent."""
    ids = draw(st.lists(NAMES.filter(lambda name: "." not in name), unique=True, min_size=1, max_size=8))
    nodes: dict[str, Any] = {vertex: draw(FIELDS) for vertex in ids}
    edges = []
    for place, vertex in enumerate(ids[1:], start=1):
        above = draw(st.lists(st.sampled_from(ids[:place]), min_size=1, max_size=2))
        edges += [(parent, vertex) for parent in above]
        if draw(st.booleans()):
            nodes[vertex]["count"] = draw(st.integers(1, 3))
    return jgf(nodes, *edges)


def content(cluster: Cluster) -> tuple[Any, ...]:
    nodes = {vertex: cluster.graph.nodes[vertex] for vertex in cluster.graph}
    return cluster.name, cluster.root, nodes, set(cluster.graph.edges)


@settings(max_examples=examples(150), deadline=None)
@given(trees())
def test_write_jgf_read_again_is_the_same_cluster(document: dict[str, Any]) -> None:
    cluster = read_cluster(document, "willow")
    written = json.loads(json.dumps(write_jgf(cluster)))
    assert content(read_cluster(written)) == content(cluster)


@settings(max_examples=50, deadline=None)
@given(trees())
def test_read_cluster_of_its_own_networkx_graph_is_the_same_cluster(document: dict[str, Any]) -> None:
    cluster = read_cluster(document, "willow")
    assert content(read_cluster(cluster.graph, "willow")) == content(cluster)
