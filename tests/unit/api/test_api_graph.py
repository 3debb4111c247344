"""Graphs come back as they were put, deltas are applied whole or not at all, and pages hold while others write."""

from __future__ import annotations

import copy
import json
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow.graph import read_cluster
from rainbow.matching.equivalence.subtree_classes import root_of
from rainbow.service import Service, Settings
from rainbow.service.clusters import graphs
from rainbow.service.clusters.graphs import patch_graph
from rainbow.service.core import event_stream
from rainbow.service.core.access import Caller, caller
from tests.conftest import ADMIN, Api, Cluster, examples, grid, jobspec

EXAMPLES = examples(120)
MANY = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
GRAPH = "/v1/clusters/oak/graph"
NUMBERS = st.integers() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
UNKNOWN = st.dictionaries(WORDS.map("x-{}".format), VALUES, max_size=3)


def put(oak: Cluster, document: Any) -> Any:
    return oak.api.call("PUT", GRAPH, json.dumps(document), oak.secret, Content_Type="application/json")


def got(oak: Cluster) -> tuple[str, str]:
    """The graph's text, written alike whatever its spaces, and its ETag."""
    answer = oak.api.call("GET", GRAPH, None, oak.secret)
    return json.dumps(json.loads(answer.get_data(as_text=True))), answer.headers["ETag"]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Graphs with fields nobody knows, at every place that may have some, vertices and edges in any order."""
    graph = grid(draw(st.integers(1, 3)), draw(st.integers(1, 3)))["graph"]
    nodes: Any = dict(draw(st.permutations(list(graph["nodes"].items()))))
    for node in nodes.values():
        node["metadata"] |= draw(UNKNOWN)
        node |= draw(UNKNOWN)
    edges = [{**edge, **draw(UNKNOWN)} for edge in draw(st.permutations(graph["edges"]))]
    if draw(st.booleans()):
        nodes = [{"id": key, **node} for key, node in nodes.items()]
    return {**draw(UNKNOWN), "graph": {**draw(UNKNOWN), "nodes": nodes, "edges": edges}}


@MANY
@given(document=documents())
def test_graph_comes_back_as_it_was_put(oak: Cluster, document: Any) -> None:
    assert put(oak, document).status_code == 200
    assert got(oak)[0] == json.dumps(document)


@pytest.mark.parametrize("number", ["1", "1.0", "-0.0", "1e3", "0.1", "123456789012345678901234567890", "1e-320"])
def test_number_comes_back_as_the_number_it_was(oak: Cluster, number: str) -> None:
    text = json.dumps({**grid(1, 1), "x": "HERE"}).replace('"HERE"', number)
    assert oak.api.call("PUT", GRAPH, text, oak.secret, Content_Type="application/json").status_code == 200
    result = json.loads(got(oak)[0])["x"]
    assert (type(result), repr(result)) == (type(json.loads(number)), repr(json.loads(number)))


# ── deltas ──

IDS = st.sampled_from(["c0", "n0", "n1", "n0c0", "n1c1", "a", "b", "nobody"])
NODE = st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"type": st.sampled_from(["node", "core", "gpu"])})})
EDGE = st.fixed_dictionaries({"source": IDS, "target": IDS})
CHANGE = st.one_of(
    st.fixed_dictionaries(
        {"op": st.just("add"), "nodes": st.dictionaries(IDS, NODE, max_size=2), "edges": st.lists(EDGE, max_size=2)}
    ),
    st.builds(
        lambda new, under: {
            "op": "add",
            "nodes": {new: {"metadata": {"type": "core"}}},
            "edges": [_edge(under, new)],
        },
        st.sampled_from(["a", "b"]),
        st.sampled_from(["n0", "n1"]),
    ),
    st.fixed_dictionaries({"op": st.just("remove"), "vertex": IDS}),
    st.fixed_dictionaries({"op": st.just("set"), "vertex": IDS, "properties": st.just({"fast": ""}) | VALUES}),
    st.fixed_dictionaries({"op": st.just("resize"), "vertex": IDS, "size": st.integers(1, 9) | VALUES}),
)


def _edge(source: str, target: str) -> dict[str, str]:
    return {"source": source, "target": target}


def expected(document: Any, changes: list[Any]) -> Any:
    """What a reader of the documentation makes of it; None where a vertex is not, or is already, there."""
    graph = copy.deepcopy(document)["graph"]
    nodes, edges = graph["nodes"], graph["edges"]
    for change in changes:
        if change["op"] == "add":
            if set(change["nodes"]) & set(nodes):
                return None
            nodes.update(change["nodes"])
            edges.extend(change["edges"])
            continue
        vertex = change["vertex"]
        if vertex not in nodes:
            return None
        if change["op"] == "set":
            nodes[vertex]["metadata"]["properties"] = change["properties"]
        elif change["op"] == "resize":
            nodes[vertex]["metadata"]["size"] = change["size"]
        else:
            gone = {vertex}
            while more := {e["target"] for e in edges if e["source"] in gone} - gone:
                gone |= more
            nodes = {key: node for key, node in nodes.items() if key not in gone}
            edges = [e for e in edges if not {e["source"], e["target"]} & gone]
    return {"graph": {"nodes": nodes, "edges": edges}}


@MANY
@given(changes=st.lists(CHANGE, max_size=4))
def test_delta_is_applied_whole_or_not_at_all(oak: Cluster, changes: list[Any]) -> None:
    assert put(oak, grid(2, 2)).status_code == 200
    before, shown = got(oak), oak.api.good("GET", "/v1/clusters/oak", None, oak.secret)
    answer = oak.api.call("PATCH", GRAPH, {"changes": changes}, oak.secret)
    if answer.status_code == 200:
        assert json.loads(got(oak)[0]) == expected(grid(2, 2), changes)
        assert got(oak)[1] == f'"{answer.get_json()["revision"]}"' != before[1]
        compiled, whole = oak.api.service.catalogue["oak"].cluster, read_cluster(expected(grid(2, 2), changes))
        assert (root_of(compiled), dict(compiled.workers)) == (root_of(whole), dict(whole.workers))
        return
    assert answer.status_code == 422, answer.get_data(as_text=True)
    assert answer.get_json()["pointer"].startswith("/") or "detail" in answer.get_json()
    assert got(oak) == before
    assert oak.api.good("GET", "/v1/clusters/oak", None, oak.secret) == shown
    model = expected(grid(2, 2), changes)
    assert model is None or put(oak, model).status_code == 422, "what would have been a good graph was refused"


GROWTH = st.builds(
    lambda new, kind, under: [{"op": "add", "nodes": {new: {"metadata": kind}}, "edges": [_edge(under, new)]}],
    st.sampled_from(["a", "n00", "x1", "x2", "x10", "x4"]),
    st.sampled_from(
        [{"type": "core"}, {"type": "node"}, {"type": "node", "name": "n1"}, {"type": "node", "count": 3}]
    ),
    st.sampled_from(["n0", "n1", "c0", "c0", "x1"]),
)


@settings(MANY, max_examples=EXAMPLES // 3)
@given(steps=st.lists(GROWTH | GROWTH | st.lists(CHANGE, max_size=2), max_size=7), beside=st.integers(0, 6))
def test_changes_kept_beside_a_document_make_what_it_is(
    oak: Cluster, monkeypatch: pytest.MonkeyPatch, steps: list[list[Any]], beside: int
) -> None:
    monkeypatch.setattr(graphs, "MOST_BESIDE", beside)
    model = grid(2, 2)
    assert put(oak, model).status_code == 200
    for changes in steps:
        answer = oak.api.call("PATCH", GRAPH, {"changes": changes}, oak.secret)
        assert answer.status_code in (200, 422)
        if answer.status_code == 200:
            model = expected(model, changes)
        assert json.loads(got(oak)[0]) == model
        _is_compiled_of(oak.api.service, model)
    again = Service(oak.api.service.store, Settings())
    _is_compiled_of(again, model)
    reported = patch_graph(
        again, Caller(admin=True), "oak", {"changes": [{"op": "set", "vertex": "c0", "properties": {}}]}
    )
    assert str(reported["revision"]) == got(oak)[1].strip('"')


def _is_compiled_of(service: Service, model: Any) -> None:
    compiled, whole = service.catalogue["oak"].cluster, read_cluster(model)
    assert (root_of(compiled), [*compiled.workers.items()]) == (root_of(whole), [*whole.workers.items()])


def test_growth_of_a_graph_that_was_read_reads_it_no_more(oak: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(4):
        changes = [{"op": "add", "nodes": {f"x{k}": {"metadata": {"type": "node"}}}, "edges": [_edge("c0", f"x{k}")]}]
        oak.api.good("PATCH", GRAPH, {"changes": changes}, oak.secret)
        monkeypatch.setattr(graphs, "_read", None)
    monkeypatch.undo()
    nodes = json.loads(got(oak)[0])["graph"]["nodes"]
    assert {"x0", "x1", "x2", "x3"} < set(nodes)
    problem = oak.api.problem(422, "graph-invalid", "PATCH", GRAPH, {"changes": changes}, oak.secret)
    assert problem["pointer"] == "/changes/0/nodes"


# ── pages and events while others write ──


def test_pages_hold_while_others_write(api: Api, oak: Cluster) -> None:
    there = [api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"] for _ in range(25)]
    stop = threading.Event()
    other = Api(api.service)

    def write() -> None:
        while not stop.is_set():
            made = other.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
            other.good("DELETE", f"/v1/jobs/{made}", None, oak.token)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen, cursor = [], ""
        while cursor is not None:
            page = api.good("GET", f"/v1/jobs?limit=4&cursor={cursor}", None, oak.token)
            seen += [job["id"] for job in page["jobs"]]
            cursor = page["next"]
    finally:
        stop.set()
        thread.join()
    assert seen == sorted(set(seen), reverse=True), "twice, or out of order"
    assert set(there) <= set(seen)


def test_events_are_resumed_anywhere_without_a_gap_while_others_write(api: Api, oak: Cluster) -> None:
    threads = [threading.Thread(target=_submit, args=(Api(api.service), oak.token, 15)) for _ in range(3)]
    for thread in threads:
        thread.start()
    number, seen = 0, []
    with api.service.store.read() as connection:
        asking = caller(api.service, connection, [ADMIN])
    while any(thread.is_alive() for thread in threads) or event_stream.since(api.service, asking, number)[0]:
        some = event_stream.since(api.service, asking, number)[0][:3]  # resumed in the middle of a page
        seen += some
        number = some[-1].number if some else number
    assert seen == event_stream.since(api.service, asking, 0)[0]
    assert len([event for event in seen if event.kind == "job"]) == 45


def _submit(api: Api, token: str, times: int) -> None:
    for _ in range(times):
        api.good("POST", "/v1/jobs", jobspec(), token)
