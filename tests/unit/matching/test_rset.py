"""What a take holds as containment paths and as RFC 20's R."""

import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rainbow
from rainbow.jobspec.hostlist import expand_hosts, expand_ids, fold_hosts, fold_ids
from rainbow.matching.explain.report import paths, resource_set
from rainbow.matching.model.layout import layout
from tests.conftest import SHARED, examples
from tests.unit.matching.test_matching import document, requests, shapes

IDSET = {"type": "string", "pattern": r"^\d+(-\d+)?(,\d+(-\d+)?)*$"}
SCHEMA = {  # RFC 20, "Resource Set Format Definition", version 1, as far as it concerns what we write
    "type": "object",
    "required": ["version", "execution"],
    "properties": {
        "version": {"const": 1},
        "execution": {
            "type": "object",
            "required": ["R_lite", "starttime", "expiration"],
            "properties": {
                "R_lite": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["rank", "children"],
                        "additionalProperties": False,
                        "properties": {
                            "rank": IDSET,
                            "children": {
                                "type": "object",
                                "additionalProperties": False,
                                "properties": {"core": IDSET, "gpu": IDSET},
                            },
                        },
                    },
                },
                "nodelist": {"type": "array", "items": {"type": "string"}},
                "starttime": {"type": "number"},
                "expiration": {"type": "number"},
            },
        },
    },
}


def ranked(shape):
    """Give the nodes of a shape ranks, in natural order."""
    made = document(shape)
    nodes = made["graph"]["nodes"]
    workers = sorted(v for v, vertex in nodes.items() if vertex["metadata"]["type"] == "node")
    for rank, vertex in enumerate(workers):
        nodes[vertex]["metadata"] |= {"rank": rank, "name": f"node{rank}"}
    return made


def nodes_of(cores, nodes, first=0):
    """Build R's own graph: nodes with ranks, cores with ids from `first`."""
    ranks, ids = fold_ids(range(nodes)), fold_ids(range(first, first + cores))
    lite = [{"rank": ranks, "children": {"core": ids}}]
    document = {"version": 1, "execution": {"R_lite": lite, "nodelist": [f"oak[08-{7 + nodes:02}]"]}}
    return rainbow.read_cluster(document, name="oak")


def taken(cluster, resources):
    return rainbow.match(rainbow.parse_jobspec({"resources": resources}), [cluster])[0].take


def test_ranks_with_equal_children_are_one_entry():
    cluster = nodes_of(cores=4, nodes=4)
    take = taken(cluster, {"a": {"type": "node", "replicas": 3, "with": [{"type": "core", "count": 2}]}})
    assert resource_set(take, cluster) == {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-2", "children": {"core": "0-1"}}],
            "nodelist": ["oak[08-10]"],
            "starttime": 0,
            "expiration": 0,
        },
    }
    assert paths(take, cluster)[:3] == ["/cluster/oak08/core0", "/cluster/oak08/core1", "/cluster/oak09/core0"]


def test_ids_are_those_of_the_vertices():
    cluster = nodes_of(cores=2, nodes=1, first=6)
    results = resource_set(taken(cluster, {"a": {"type": "node"}}), cluster)
    assert results["execution"]["R_lite"] == [{"rank": "0", "children": {"core": "6-7"}}]


def test_units_of_one_large_vertex_are_numbered_within_the_worker():
    cluster = rainbow.read_cluster(ranked([("node", ["core:4", "core:4", "gpu"])]), name="c")
    take = taken(cluster, {"a": {"type": "node", "with": [{"type": "core", "count": 6}, {"type": "gpu"}]}})
    assert resource_set(take, cluster)["execution"]["R_lite"] == [
        {"rank": "0", "children": {"core": "0-5", "gpu": "0"}}
    ]


def test_without_ranks_there_is_no_resource_set():
    cluster = rainbow.read_cluster(document([("node", ["core:4"])]), name="c")
    take = taken(cluster, {"a": {"type": "core", "replicas": 1}})
    assert resource_set(take, cluster) is None
    assert paths(take, cluster) == ["/cluster0/node0/core0"]


@given(shapes, requests)
@settings(deadline=None, max_examples=examples(200))
def test_resource_set_is_read_back_and_names_only_what_is_held(shape, request):
    cluster = rainbow.read_cluster(ranked(shape), name="c")
    take = rainbow.match(request, [cluster])[0].take
    written = take and resource_set(take, cluster)
    if not written:
        return
    jsonschema.validate(json.loads(json.dumps(written)), SCHEMA)
    again = rainbow.read_cluster(written, name="again")
    placed = {w: held for _, slots in take.placed for w, held in slots.items() if w}
    assert set(again.workers) >= set(placed)
    assert set(again.workers) <= set(cluster.workers)
    for kind in ("core", "gpu"):
        sums = sum(held.get(kind, 0) for _, slots in take.placed for w, held in slots.items() if w)
        assert again.totals.get(kind, 0) == sums


@given(shapes, requests)
@settings(deadline=None, max_examples=examples(100))
def test_ids_of_a_rank_exist_there(shape, request):
    cluster = rainbow.read_cluster(ranked(shape), name="c")
    take = rainbow.match(request, [cluster])[0].take
    laid_out = layout(cluster)
    ranks = {cluster.graph.nodes[laid_out.vertices[i]]["rank"]: i for i in laid_out.workers}
    written = (resource_set(take, cluster) if take else None) or {"execution": {"R_lite": []}}
    for entry in written["execution"]["R_lite"]:
        for rank in expand_ids(entry["rank"], 100):
            inside = range(ranks[rank], laid_out.last[ranks[rank]])
            for kind, listed in entry["children"].items():
                most = sum(laid_out.sizes[i] for i in inside if laid_out.types[i] == kind)
                assert max(expand_ids(listed, 100)) < most


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not beside this checkout")
def test_all_of_the_rfcs_example_is_written_as_the_example_is():
    example = json.loads((SHARED / "inputs" / "rfc" / "spec_20" / "example1.json").read_text())
    jsonschema.validate(example, SCHEMA)
    cluster = rainbow.read_cluster(example, name="example")
    take = taken(cluster, {"a": {"type": "node", "replicas": 4}})
    written = resource_set(take, cluster)["execution"]
    assert {key: written[key] for key in ("R_lite", "nodelist")} == {
        key: example["execution"][key] for key in ("R_lite", "nodelist")
    }


@given(st.lists(st.sampled_from(["a", "a1", "a2", "a3", "a09", "a10", "a11", "b", "b0", "b00", "7", "8"])))
def test_folded_hosts_expand_to_the_same(names):
    assert expand_hosts(fold_hosts(names), 100) == names
