"""Changes between two graphs: applied to the one they give the other."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from rainbow.errors import GraphError
from rainbow.graph import Cluster, read_cluster
from rainbow.graph.delta import MOST, apply_delta, changes_between
from rainbow.graph.sources import graph_sources
from rainbow.matching.equivalence.subtree_classes import classify
from tests.conftest import grid


def as_sets(document: Any) -> Any:
    graph = document["graph"]
    edges = sorted(json.dumps(edge, sort_keys=True) for edge in graph.get("edges") or [])
    return {**document, "graph": {**graph, "edges": edges}}


def slurm(*nodes: dict[str, Any]) -> dict[str, Any]:
    return graph_sources.get("slurm")(json.dumps({"nodes": [{"cpus": 4, "real_memory": 100, **n} for n in nodes]}))


def kinds(changes: Any) -> list[str]:
    return [change["op"] for change in changes]


ONE = [{"name": "a"}, {"name": "b", "features": "ib"}, {"name": "c"}]


@pytest.mark.parametrize(
    ("after", "ops"),
    [
        (ONE, []),
        ([ONE[0], {**ONE[1], "features": "ib,gpu"}, ONE[2]], ["set"]),
        ([ONE[0], {**ONE[1], "real_memory": 50}, ONE[2]], ["resize"]),
        ([ONE[0], {**ONE[1], "state": "DOWN"}, ONE[2]], ["remove", "add"]),
        ([ONE[0], {**ONE[1], "cpus": 8}, ONE[2]], ["remove", "add"]),
        ([ONE[0], ONE[2]], ["remove"]),
        ([*ONE, {"name": "d"}], ["add"]),
        ([{"name": "n0"}, {"name": "n1"}, ONE[2]], ["remove", "remove", "add"]),
    ],
    ids=["equal", "features", "memory", "down", "cores", "gone", "new", "others"],
)
def test_what_changes_on_a_cluster_is_said_by_as_much(after: list[dict[str, Any]], ops: list[str]) -> None:
    before = slurm(*ONE)
    changes = changes_between(before, slurm(*after))
    assert kinds(changes) == ops
    changed = apply_delta(before, changes)
    assert as_sets(changed) == as_sets(slurm(*after))
    assert read_cluster(changed).totals == read_cluster(slurm(*after)).totals


def test_one_more_of_a_thousand_equal_nodes_is_one_new_template() -> None:
    few, many = (slurm(*({"name": f"n{k}"} for k in range(count))) for count in (1_000, 1_001))
    changes = changes_between(few, many)
    assert len(json.dumps(changes)) < 1_000
    assert as_sets(apply_delta(few, changes)) == as_sets(many)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (grid(1, 1), {**grid(1, 1), "name": "x"}),
        (grid(1, 1), {"graph": {**grid(1, 1)["graph"], "metadata": {"left_out": ["x"]}}}),
        ({"nodes": [], "links": []}, grid(1, 1)),
        ({"graph": {"nodes": [], "edges": []}}, grid(1, 1)),
        (None, grid(1, 1)),
        (grid(1, 1), {"graph": {"nodes": grid(1, 1)["graph"]["nodes"], "edges": []}}),
        (slurm(*ONE), graph_sources.get("local")('{"machine": {"name": "x", "cores": 1}}')),
        (grid(MOST + 1, 1), grid(0, 1)),
    ],
    ids=["named", "metadata", "node-link", "listed", "none", "untied", "another", "many"],
)
def test_what_changes_cannot_say_is_none(before: Any, after: Any) -> None:
    changes = changes_between(before, after)
    assert changes is None or as_sets(apply_delta(before, changes)) == as_sets(after)
    if before != slurm(*ONE):
        assert changes is None


def changed_at_random(rng: random.Random, document: Any) -> Any:
    """Change, remove and add some vertices anywhere, with their edges."""
    made = copy.deepcopy(document)
    nodes, edges = made["graph"]["nodes"], made["graph"]["edges"]
    for number in range(rng.randint(0, 6)):
        vertex = rng.choice(sorted(nodes))
        what = rng.choice(["size", "properties", "name", "remove", "add", "add", "edge"])
        if what == "remove" and len(nodes) > 1:
            del nodes[vertex]
            edges[:] = [edge for edge in edges if vertex not in (edge["source"], edge["target"])]
        elif what == "add":
            nodes[f"new{number}"] = {"metadata": {"type": "core"}}
            edges.append({"source": vertex, "target": f"new{number}", "relation": rng.choice(["contains", "near"])})
        elif what == "edge":
            edges.append({"source": vertex, "target": rng.choice(sorted(nodes)), "relation": "contains"})
        elif what not in ("remove",):
            nodes[vertex]["metadata"][what] = rng.choice([1, 2, ["a"], "x"])
    rng.shuffle(edges)
    return made


@pytest.mark.parametrize("seed", range(200))
def test_changes_applied_give_the_other_graph_whatever_it_is(seed: int) -> None:
    rng = random.Random(seed)
    before = changed_at_random(rng, grid(rng.randint(1, 3), rng.randint(0, 3)))
    after = changed_at_random(rng, before)
    stored = copy.deepcopy((before, after))
    changes = changes_between(before, after)
    assert (before, after) == stored
    if changes is not None:
        assert as_sets(apply_delta(before, changes)) == as_sets(after)


def test_most_random_changes_can_be_said() -> None:
    said = 0
    for seed in range(200):
        rng = random.Random(seed)
        before = grid(rng.randint(1, 3), rng.randint(0, 3))
        said += changes_between(before, changed_at_random(rng, before)) is not None
    assert said > 150


@st.composite
def grown(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A graph, and changes that add what may be anywhere below it, some of it wrong."""
    nodes: dict[str, Any] = {"r": {"metadata": {"type": "cluster"}}}
    edges: list[dict[str, Any]] = []
    for k in range(draw(st.integers(1, 9))):
        vertex = draw(st.sampled_from([f"v{k}", f"v{k}", f"v{k - 1}.0"]))
        more = draw(st.fixed_dictionaries({}, optional=OPTIONAL))
        nodes[vertex] = {"metadata": {"type": draw(st.sampled_from(["node", "core", "rack"])), **more}}
        edges.append({"source": draw(st.sampled_from(sorted(nodes.keys() - {vertex}))), "target": vertex})
    first = draw(st.integers(1, len(nodes) - 1))
    old, new = list(nodes)[:first], list(nodes)[first:]
    inside = [edge for edge in edges if edge["source"] in old and edge["target"] in old]
    rest = draw(st.permutations([edge for edge in edges if edge not in inside]))
    rest += (
        draw(st.lists(st.sampled_from([{"source": "r", "target": old[-1]}, {**rest[0], "relation": "in"}])))
        if rest
        else []
    )
    cut = draw(st.integers(0, len(new)))
    parts = [part for part in (new[:cut], new[cut:]) if part]
    adds = [
        {"op": "add", "nodes": {v: nodes[v] for v in part}, "edges": rest if part is parts[-1] else []}
        for part in parts
    ]
    return {"graph": {"nodes": {v: nodes[v] for v in old}, "edges": inside}}, adds


OPTIONAL: Any = {
    "name": st.sampled_from(["n1", "n2", "n10", "a"]),
    "count": st.integers(1, 3),
    "size": st.integers(1, 2),
    "paths": st.sampled_from(["/r/n1", "/r/n2", "/r/n10", "/x/n3"]).map(lambda path: {"containment": path}),
}


def structure(cluster: Cluster) -> Any:
    """What there is by id: the order of entries, but for that of siblings, is no matter."""
    outline = cluster.outline
    kinds = dict(zip(outline.ids, classify(cluster)[0], strict=True))
    below = {
        vertex: [(outline.ids[child], first, many) for child, first, many in outline.below[place]]
        for vertex, place in outline.places.items()
    }
    fields = dict(zip(outline.ids, outline.fields, strict=True))
    return (
        kinds,
        below,
        fields,
        outline.sizes,
        outline.numbers,
        dict(zip(outline.ids, outline.many, strict=True)),
        dict(cluster.workers),
    )


@given(grown())
def test_a_graph_that_has_grown_is_the_one_read_whole(of: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    document, changes = of
    try:
        before = read_cluster(document)
    except GraphError:
        return
    classify(before)
    after = apply_delta(document, changes)
    graph = document["graph"]
    revision = before.revision(changes, len(graph["nodes"]), len(graph["edges"]))
    try:
        whole = read_cluster(after, before.name)
    except GraphError:
        assert revision is None
        return
    event("read whole" if revision is None else "grown")
    if revision is not None:
        cluster = before.revised(revision)
        assert structure(cluster) == structure(whole)
        assert list(cluster.workers) == list(whole.workers)
        assert read_cluster(document).totals == before.totals
