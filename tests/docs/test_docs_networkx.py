"""docs/networkx.md as it stands; every form in which NetworkX writes a graph; what a notebook shows."""

from __future__ import annotations

import doctest
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import rainbow
from rainbow.client import Client, Problem
from rainbow.errors import GraphError, RequestError
from rainbow.graph import read_cluster, write_jgf
from tests.conftest import REGISTRATION
from tests.support.live import rainbow_at
from tests.support.services import package

PAGE = (Path(__file__).parents[2] / "docs" / "networkx.md").read_text()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with rainbow_at(tmp_path_factory.mktemp("networkx")) as url, Client(url, REGISTRATION) as made:
        yield made


def drawn() -> nx.DiGraph[Any]:
    """Draw willow with ids of both kinds, and numpy's numbers where a data frame would have them."""
    graph: nx.DiGraph[Any] = nx.DiGraph(name="willow")
    graph.add_node("c", type="cluster", name="willow")
    for n in np.arange(2):
        graph.add_node(f"n{n}", type="node", rank=n, id=n + 7, properties=np.array(["amd"]))
        graph.add_edge("c", f"n{n}")
        for core in np.arange(3):
            graph.add_node(10 * n + core, type="core", size=np.int32(2))
            graph.add_edge(f"n{n}", 10 * n + core)
    return graph


def plainly(document: Any) -> Any:
    return json.loads(json.dumps(document, default=lambda value: value.tolist()))


def node_link_of_version_1(graph: nx.DiGraph[Any]) -> Any:
    document = nx.node_link_data(graph, edges="links")
    places = {node["id"]: place for place, node in enumerate(document["nodes"])}
    links = [{"source": places[link["source"]], "target": places[link["target"]]} for link in document["links"]]
    return {**document, "graph": [["name", "willow"]], "links": links}


def without_ids(graph: nx.DiGraph[Any]) -> nx.DiGraph[Any]:
    """Node-link data has one place for a vertex's key and its own field `id`: the key wins."""
    for _, fields in graph.nodes(data=True):
        fields.pop("id", None)
    return graph


FORMS = {
    "a DiGraph": lambda: drawn(),
    "node-link with links": lambda: plainly(nx.node_link_data(drawn(), edges="links")),
    "node-link with edges": lambda: plainly(nx.node_link_data(drawn(), edges="edges")),
    "node-link of NetworkX 1": lambda: plainly(node_link_of_version_1(without_ids(drawn()))),
    "adjacency": lambda: plainly(nx.adjacency_data(without_ids(drawn()))),
    "Cytoscape": lambda: plainly(nx.cytoscape_data(drawn())),
    "JGF": lambda: write_jgf(read_cluster(drawn())),
}


def test_the_page_runs_as_it_stands(client: Client) -> None:
    names = {"url": client.url, "registration_secret": REGISTRATION}
    test = doctest.DocTestParser().get_doctest(PAGE, names, "networkx.md", "docs/networkx.md", 0)
    done = doctest.DocTestRunner(verbose=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(test)
    assert done.failed == 0
    assert done.attempted >= 25


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_networkx_is_the_same_cluster(form: str) -> None:
    cluster, expected = read_cluster(FORMS[form]()), read_cluster(drawn())
    assert (cluster.name, dict(cluster.totals)) == ("willow", {"cluster": 1, "core": 12, "node": 2})
    assert set(cluster.graph.edges) == set(expected.graph.edges)
    for vertex, fields in cluster.graph.nodes(data=True):
        answer = {key: fields[key] for key in ("type", "size", "name", "rank", "properties")}
        assert answer == {key: expected.graph.nodes[vertex][key] for key in answer}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_registered_as_it_is_as_text_and_from_a_file(form: str, client: Client, tmp_path: Path) -> None:
    document, number = FORMS[form](), list(FORMS).index(form)
    totals = {"cluster": 1, "core": 12, "node": 2}
    assert client.register_cluster(f"willow{number}", document)["totals"] == totals
    if not isinstance(document, nx.DiGraph):
        text = json.dumps(document)
        assert client.register_cluster(f"text{number}", text)["totals"] == totals
        (tmp_path / "graph.json").write_text(text)
        assert client.register_cluster(f"path{number}", tmp_path / "graph.json")["totals"] == totals
        assert client.register_cluster(f"name{number}", str(tmp_path / "graph.json"))["totals"] == totals
    else:
        assert client.register_cluster("cluster", read_cluster(document))["totals"] == totals


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"size": np.int64(0)}, "vertex '11': a vertex of size 0"),
        ({"type": 5}, "vertex '11': the type of a vertex must be text"),
        ({"rank": 1.5}, "vertex '11': the rank of a vertex must be an integer"),
    ],
)
def test_errors_name_the_vertex_here_and_over_http(change: Any, says: str, client: Client) -> None:
    graph = drawn()
    graph.nodes[11].update(change)
    with pytest.raises(GraphError) as here:
        read_cluster(graph)
    with pytest.raises(Problem) as there:
        client.register_cluster("faulty", graph)
    for fault in (here.value, there.value):
        assert (says in str(fault), fault.pointer and fault.pointer.rpartition("/")[2]) == (True, next(iter(change)))


def test_properties_may_be_a_set(client: Client) -> None:
    graph = drawn()
    graph.nodes["n0"]["properties"] = {"amd", "ib"}
    client.register_cluster("sets", graph)
    assert read_cluster(graph).graph.nodes["n0"]["properties"] == {"amd", "ib"}


def test_an_id_that_is_none_is_named() -> None:
    with pytest.raises(GraphError, match=r"got \(1, 2\)"):
        read_cluster(nx.DiGraph([((1, 2), 3)]))


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        ("{broken", "the graph is not JSON"),
        ("no-such-file.json", "cannot read the graph's file no-such-file.json"),
        (nx.Graph([(0, 1)]), "must be a networkx.DiGraph"),
    ],
)
def test_what_cannot_be_sent_is_said(graph: Any, says: str, client: Client) -> None:
    with pytest.raises(RequestError, match=says):
        client.register_cluster("none", graph)


def test_an_edge_of_a_graph_without_direction_must_name_its_relation(client: Client) -> None:
    nodes = {"c": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node"}}}
    edge = {"source": "c", "target": "n"}
    named = {"graph": {"directed": False, "nodes": nodes, "edges": [{**edge, "relation": "contains"}]}}
    assert client.register_cluster("undirected", named)["totals"] == {"cluster": 1, "node": 1}
    with pytest.raises(Problem, match="each edge must name its relation"):
        client.register_cluster("neither", {"graph": {"directed": False, "nodes": nodes, "edges": [edge]}})


@pytest.mark.parametrize("backend", ["index", "networkx"])
def test_to_networkx_marks_what_is_taken_and_what_it_contains(backend: str) -> None:
    many = [read_cluster(drawn(), f"c{k:02}") for k in range(20)]  # more than are asked one by one
    for clusters in (many[:1], many):
        verdicts = rainbow.match(rainbow.parse_jobspec("resources: {w: {type: node}}"), clusters, backend)
        for verdict in verdicts:
            held = verdict.to_networkx()
            assert {vertex for vertex, chosen in held.nodes(data="chosen") if chosen} == {"n0", "0", "1", "2"}
            assert (held.nodes["n0"]["slots"], held.nodes["n0"]["taken"], held.nodes["n1"]["taken"]) == (["w"], 1, 0)
        assert "chosen" not in clusters[0].graph.nodes["n0"]
    [verdict] = rainbow.match(rainbow.parse_jobspec("resources: {w: {type: core, count: 3}}"), many[:1], backend)
    taken = {vertex: amount for vertex, amount in verdict.to_networkx().nodes(data="taken") if amount}
    assert taken == {"0": 2, "1": 1}
    [refused] = rainbow.match(rainbow.parse_jobspec("resources: {w: {type: gpu}}"), many[:1], backend)
    assert not any(chosen for _, chosen in refused.to_networkx().nodes(data="chosen"))


def test_to_frame_has_a_row_for_each_vertex_verdict_and_candidate() -> None:
    pandas = package("pandas")
    job = rainbow.parse_jobspec("resources: {w: {type: core, count: 5}}")
    clusters = [read_cluster(drawn(), name) for name in ("ash", "elm")] + [
        read_cluster({"nodes": [{"id": "n", "type": "node"}], "edges": []}, "oak")
    ]
    table = clusters[0].to_frame()
    assert (len(table), table.loc["n1", "parent"], table.loc["11", "size"]) == (9, "c", 2)
    assert table[table.type == "core"].groupby("parent")["size"].sum().to_dict() == {"n0": 6, "n1": 6}
    verdicts = rainbow.match(job, clusters)
    table = pandas.concat(verdict.to_frame() for verdict in verdicts)
    assert table["matched"].tolist() == [True, True, False]
    assert (table.loc["ash", "cores"], table.loc["oak", "why"]) == (5, "type-missing")
    steps = [{"calc": "price = 2 * cost"}, {"sort_ascending": "price"}, {"select": "first"}]
    options = {"priorities": [{"priority": 1, "steps": steps}]}
    choice = rainbow.select(job, verdicts, {"elm": {"cost": 3}}, selector="constraint", options=options)
    table = choice.to_frame()
    assert table.loc["elm", ["chosen", "rank", "price"]].tolist() == [True, 1, 6]
    assert "cost is not known" in table.loc["ash", "dropped"]
    assert rainbow.select(job, verdicts, {}).to_frame()["chosen"].any()
    assert rainbow.select(job, verdicts[2:], {}).to_frame().empty


def test_what_a_notebook_shows_is_short_and_escaped() -> None:
    cluster = read_cluster(drawn(), "<b>willow")
    job = rainbow.parse_jobspec("resources: {w: {type: node}}")
    verdicts = rainbow.match(job, [cluster])
    choice = rainbow.select(job, verdicts, {})
    for shown in (cluster, verdicts[0], choice):
        assert len(repr(shown)) < 120
        html = shown._repr_html_()
        assert html.startswith("<table><caption>")
        assert "&lt;b&gt;willow" in html
        assert "<b>" not in html
