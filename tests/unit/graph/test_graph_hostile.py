"""Documents meant to hurt: wrong types everywhere, and graphs that are deep or wide."""

from __future__ import annotations

import contextlib
import copy
import os
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow.errors import GraphError, LimitError
from rainbow.graph import Limits, hang_subsystem, read_cluster
from rainbow.jobspec import Request, Resource
from rainbow.matching import match
from tests.conftest import examples
from tests.support.oracle_cases import OWN_BACKENDS
from tests.unit.graph.test_graph_reading import cases, jgf

SECONDS = 60
DEEP = 100_000 if os.environ.get("RAINBOW_SOAK") else 25_000  # vertices below each other: far beyond recursion
ONE_CORE = Request(((Resource("core"),),), ())

CONTAINERS = [
    "graph",
    "nodes",
    "edges",
    "links",
    "metadata",
    "paths",
    "execution",
    "R_lite",
    "scheduling",
    "children",
]
FIELDS = ["id", "type", "size", "name", "label", "basename", "rank", "count", "properties", "containment", "directed"]
LINKS = ["source", "target", "relation", "subsystem", "version", "core", "nodelist"]
KEYS = st.sampled_from([*CONTAINERS, *FIELDS, *LINKS])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["0", "1", "node", "contains", "in", "0-3", "n[0-2]", "\ud800", "0-99999999999999999999"]),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(KEYS, st.text()), inner, max_size=4)
    ),
    max_leaves=25,
)
SMALL = Limits(vertices=1000, edges=2000, depth=50)
GOOD = [case.values[0]["document"] for case in cases("forms.yaml")]
CLUSTER = read_cluster(GOOD[0])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


def put(document: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    changed = inner = copy.deepcopy(document)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = junk
    return changed


def read_or_refuse(document: Any) -> None:
    with contextlib.suppress(GraphError, LimitError):
        cluster = read_cluster(document, limits=SMALL)
        answers = [match(ONE_CORE, [cluster], backend=backend)[0] for backend in OWN_BACKENDS]
        assert answers[0] == answers[1]
        assert len(cluster.workers) <= len(cluster.graph)
    with contextlib.suppress(GraphError, LimitError):
        hang_subsystem(CLUSTER, "io", document, SMALL)


@settings(max_examples=examples(300), deadline=None)
@given(JUNK)
def test_read_cluster_junk_is_read_or_refused(document: Any) -> None:
    read_or_refuse(document)


@settings(max_examples=examples(500), deadline=None)
@given(st.data())
def test_read_cluster_good_document_with_junk_in_one_place_is_read_or_refused(data: st.DataObject) -> None:
    junk_in_one_place(data)


def junk_in_one_place(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(GOOD))
    path = data.draw(st.sampled_from(places(document)))
    read_or_refuse(put(document, path, data.draw(JUNK)))


@pytest.mark.parametrize("field", ["size", "rank", "count", "id", "type"])
def test_read_cluster_number_too_long_to_print_is_refused(field: str) -> None:
    node = {"type": "node", "basename": "node", field: 10**5000}
    with pytest.raises(GraphError):
        read_cluster(jgf({"c": {"type": "cluster"}, "n": node}, ("c", "n")))


def path_graph(length: int) -> dict[str, Any]:
    nodes = [{"id": i, "metadata": {"type": "core"}} for i in range(length)]
    return {"graph": {"nodes": nodes, "edges": [{"source": i, "target": i + 1} for i in range(length - 1)]}}


def test_read_cluster_deep_path_is_refused_by_depth_at_once() -> None:
    document = path_graph(DEEP)
    started = time.process_time()
    with pytest.raises(LimitError, match="limit depth") as caught:
        read_cluster(document)
    assert caught.value.pointer == "/graph/nodes/10000"
    assert time.process_time() - started < 5  # takes 1 s; recursion would crash, a quadratic walk take minutes


def test_read_cluster_deep_path_is_read_where_allowed() -> None:
    started = time.process_time()
    cluster = read_cluster(path_graph(DEEP), limits=Limits(depth=DEEP))
    assert cluster.children(str(DEEP - 2)) == [str(DEEP - 1)]
    assert time.process_time() - started < 15


def test_read_cluster_deep_cycle_is_refused() -> None:
    document = path_graph(DEEP)
    document["graph"]["edges"].append({"source": DEEP - 1, "target": 0})
    with pytest.raises(GraphError, match=rf"cycle: .* \.\.\. \({DEEP} vertices\)") as caught:
        read_cluster(document)
    assert caught.value.pointer == f"/graph/edges/{DEEP - 1}"


def test_read_cluster_many_vertices_side_by_side_are_read_in_seconds() -> None:
    nodes = {str(i): {"type": "core" if i else "cluster"} for i in range(2 * DEEP)}
    document = jgf(nodes, *(("0", str(i)) for i in range(1, 2 * DEEP)))
    started = time.process_time()
    cluster = read_cluster(document)
    assert cluster.totals == {"cluster": 1, "core": 2 * DEEP - 1}
    assert len(cluster.children("0")) == 2 * DEEP - 1
    assert time.process_time() - started < 30


def test_read_cluster_many_vertices_far_down_are_read_in_seconds_beside_a_template() -> None:
    deep = {f"v{i}": {"type": "rack"} for i in range(9_000)}
    leaves = {f"w{k}": {"type": "core"} for k in range(20_000)}
    edges = [(f"v{i}", f"v{i + 1}") for i in range(8_999)] + [("v8999", leaf) for leaf in leaves]
    document = jgf({**deep, **leaves, "t": {"type": "core", "count": 2}}, *edges, ("v0", "t"))
    started = time.process_time()
    assert read_cluster(document).totals["core"] == 20_002
    assert time.process_time() - started < 5


def test_hang_subsystem_deep_path_is_hung_whole() -> None:
    document = path_graph(DEEP)
    edges = document["graph"]["edges"]
    for vertex in document["graph"]["nodes"]:
        vertex["id"] += 1_000_000
    for edge in edges:
        edge["source"] += 1_000_000
        edge["target"] += 1_000_000
    edges.append({"source": CLUSTER.root, "target": 1_000_000})
    attached = hang_subsystem(CLUSTER, "io", document).subsystems["io"].attached
    assert len(attached[CLUSTER.root]) == DEEP


@pytest.mark.soak
def test_hostile_graphs_for_a_minute() -> None:
    end, count = time.monotonic() + SECONDS, 0

    @settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def campaign(data: st.DataObject) -> None:
        nonlocal count
        count += 1
        junk_in_one_place(data)

    while time.monotonic() < end:
        campaign()
    assert count > 100


def test_templates_in_templates_have_an_end():
    nodes = {"0": {"metadata": {"type": "cluster"}}}
    nodes |= {str(at): {"metadata": {"type": "rack", "count": 1}} for at in range(1, 66)}
    edges = [{"source": str(at), "target": str(at + 1)} for at in range(65)]
    with pytest.raises(LimitError) as caught:
        read_cluster({"graph": {"nodes": nodes, "edges": edges}})
    assert (caught.value.pointer, caught.value.facts["limit"]) == ("/graph/nodes/65/metadata/count", "templates")
