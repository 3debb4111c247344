"""Reading clusters: forms, refusals, limits, templates. Cases are in cases/graphs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import yaml

from rainbow.errors import GraphError, LimitError
from rainbow.graph import Cluster, Limits, read_cluster

CASES = Path(__file__).parents[2] / "cases" / "graphs"


def cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in yaml.safe_load((CASES / name).read_text())]


def jgf(nodes: dict[str, Any], *edges: tuple[str, str], **more: Any) -> dict[str, Any]:
    listed = [{"source": source, "target": target, "relation": "contains"} for source, target in edges]
    return {"graph": {"nodes": {key: {"metadata": fields} for key, fields in nodes.items()}, "edges": listed}, **more}


def shape(cluster: Cluster) -> set[tuple[Any, ...]]:
    keys = ("type", "size", "unit", "name", "path", "rank", "properties")
    return {tuple(fields[key] for key in keys) for _, fields in cluster.graph.nodes(data=True)}


@pytest.mark.parametrize("case", cases("forms.yaml"))
def test_read_cluster_every_form_gives_the_same_cluster(case: dict[str, Any]) -> None:
    cluster = read_cluster(case["document"])
    none: frozenset[str] = frozenset()
    assert cluster.name == "willow"
    assert shape(cluster) == {
        ("cluster", 1, "", "willow", "/willow", None, none),
        ("node", 1, "", "n0", "/willow/n0", 0, frozenset({"amd"})),
        ("node", 1, "", "n1", "/willow/n1", 1, none),
        *(("core", 2, "", "core", f"/willow/n{i}/core", None, none) for i in (0, 1)),
        *(("memory", 64, "GB", "memory", f"/willow/n{i}/memory", None, none) for i in (0, 1)),
    }
    assert nx.is_arborescence(cluster.graph)
    assert cluster.totals == {"cluster": 1, "core": 4, "memory": 128, "node": 2}


@pytest.mark.parametrize("case", cases("refused.yaml"))
def test_read_cluster_faulty_document_is_refused_at_its_pointer(case: dict[str, Any]) -> None:
    with pytest.raises(GraphError) as caught:
        read_cluster(case["document"])
    assert caught.value.pointer == case["pointer"]
    assert case["says"] in caught.value.message


@pytest.mark.parametrize("case", cases("limits.yaml"))
def test_read_cluster_beyond_a_limit_names_the_limit(case: dict[str, Any]) -> None:
    limits = Limits(**case["limits"])
    with pytest.raises(LimitError) as caught:
        read_cluster(case["document"], limits=limits)
    assert caught.value.facts == {"limit": case["limit"], "allowed": getattr(limits, case["limit"])}
    assert caught.value.pointer == case["pointer"]


def test_read_cluster_names_come_from_caller_then_document_then_root() -> None:
    nodes = {"c": {"type": "cluster", "name": "rooted"}}
    assert read_cluster(jgf(nodes, name="written"), "given").name == "given"
    assert read_cluster(jgf(nodes, name="written")).name == "written"
    assert read_cluster(jgf(nodes)).name == "rooted"


def test_read_cluster_unknown_levels_are_refused() -> None:
    with pytest.raises(GraphError, match="any, strict"):
        read_cluster(jgf({"c": {"type": "cluster"}}), levels="loose")


def test_read_cluster_vertex_with_two_parents_stays_under_the_first_edge() -> None:
    nodes = {kind: {"type": kind} for kind in ("cluster", "a", "b", "core")}
    cluster = read_cluster(jgf(nodes, ("cluster", "b"), ("b", "core"), ("a", "core"), ("cluster", "a")))
    assert list(cluster.graph.predecessors("core")) == ["b"]
    assert cluster.totals == {"a": 1, "b": 1, "cluster": 1, "core": 1}
    assert cluster.graph.nodes["core"]["path"] == "/cluster/b/core"


def test_read_cluster_metadata_is_kept_as_given() -> None:
    options = {"type": "core", "exclusive": True, "mine": [1, {"a": None}], "paths": {"containment": "/x/y"}}
    cluster = read_cluster(jgf({"c": options}))
    assert cluster.graph.nodes["c"]["metadata"] == options
    assert cluster.graph.nodes["c"]["path"] == "/x/y"


def test_read_cluster_digraph_and_what_was_read_from_it_are_the_same() -> None:
    graph: nx.DiGraph[Any] = nx.DiGraph(name="willow")
    graph.add_node(0, type="cluster")
    graph.add_node(1, metadata={"type": "node", "rank": 3, "properties": {"amd"}}, label="n1")
    graph.add_edge(0, 1, relation="contains")
    graph.add_edge(1, 0, relation="in")
    once = read_cluster(graph)
    again = read_cluster(once.graph, once.name)
    assert once.name == "willow"
    assert dict(once.graph.nodes["1"]) == dict(again.graph.nodes["1"])
    assert (once.graph.nodes["1"]["name"], once.graph.nodes["1"]["rank"]) == ("n1", 3)
    assert shape(once) == shape(again)


@pytest.mark.parametrize(
    ("graph", "pointer"), [(nx.Graph([(0, 1)]), "/directed"), (nx.DiGraph([((1, 2), 3)]), "/nodes/0/id")]
)
def test_read_cluster_faulty_networkx_graph_is_refused(graph: Any, pointer: str) -> None:
    with pytest.raises(GraphError) as caught:
        read_cluster(graph)
    assert caught.value.pointer == pointer


def test_read_cluster_resource_set_gives_nodes_their_hosts_ids_and_properties() -> None:
    cluster = read_cluster(
        {
            "version": 1,
            "execution": {
                "R_lite": [
                    {"rank": "2-3", "children": {"core": "0-1,8", "gpu": "0"}},
                    {"rank": "0", "children": {"core": "4"}},
                ],
                "nodelist": ["node[8-9]", "login"],
                "properties": {"amd": "0,3"},
            },
        },
        "flux",
    )
    nodes = {name: cluster.graph.nodes[vertex] for name, vertex in cluster.workers.items()}
    assert cluster.totals == {"cluster": 1, "core": 7, "gpu": 2, "node": 3}
    assert {name: (node["rank"], set(node["properties"])) for name, node in nodes.items()} == {
        "node8": (0, {"amd"}),
        "node9": (2, set()),
        "login": (3, {"amd"}),
    }
    below = [cluster.graph.nodes[vertex]["name"] for vertex in cluster.children(cluster.workers["node9"])]
    assert below == ["core0", "core1", "core8", "gpu0"]


def test_read_cluster_template_stands_for_numbered_siblings() -> None:
    nodes = {
        "c": {"type": "cluster"},
        "rack": {"type": "rack", "count": 2},
        "node": {"type": "node", "name": "n", "count": 3, "rank": 10, "paths": {"containment": "/wrong"}},
        "core": {"type": "core", "size": 4, "metadata": "kept"},
    }
    cluster = read_cluster(jgf(nodes, ("c", "rack"), ("rack", "node"), ("node", "core")))
    assert cluster.totals == {"cluster": 1, "core": 24, "node": 6, "rack": 2}
    assert cluster.children("rack.1") == ["node.1.0", "node.1.1", "node.1.2"]
    assert cluster.children("node.1.2") == ["core.1.2"]
    core = cluster.graph.nodes["core.1.2"]
    assert (core["name"], core["path"], core["metadata"]["metadata"]) == ("core", "/c/rack1/n2/core", "kept")
    assert [cluster.graph.nodes[vertex]["rank"] for vertex in cluster.workers.values()] == list(range(10, 16))
    assert list(cluster.workers) == [f"/c/rack{r}/n{n}" for r in (0, 1) for n in (0, 1, 2)]


def test_read_cluster_template_equals_the_graph_written_out() -> None:
    short = jgf({"c": {"type": "cluster"}, "n": {"type": "node", "count": 12}}, ("c", "n"))
    long = jgf(
        {"c": {"type": "cluster"}, **{f"n.{i}": {"type": "node", "name": f"n{i}"} for i in range(12)}},
        *(("c", f"n.{i}") for i in range(12)),
    )
    assert shape(read_cluster(short)) == shape(read_cluster(long))
    assert list(read_cluster(short).workers.items()) == list(read_cluster(long).workers.items())


def test_read_cluster_path_too_long_is_left_empty() -> None:
    names = [f"{i}-{'x' * 200}" for i in range(8)]
    nodes = {name: {"type": "node"} for name in names}
    cluster = read_cluster(jgf(nodes, *pairwise(names)))
    paths = [cluster.graph.nodes[name]["path"] for name in names]
    assert paths == ["".join(f"/{name}" for name in names[: i + 1]) if i < 5 else "" for i in range(8)]
