"""On an idle cluster whatever fits starts at once, under every policy and for nodes of any sizes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rainbow.service.scheduler.loop import step_safely
from tests.conftest import REGISTRATION, Api, Clock, open_service_at

POLICIES = [("load_based", {}), ("load_based", {"unit": "worker"}), ("priority", {}), ("fair_share", {})]
NODE, CORES = {"type": "node"}, [{"type": "core", "count": 2}]
kinds = st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(0, 2)), min_size=1, max_size=3)
parts = st.builds(
    lambda kind, replicas: {**kind, "replicas": replicas},
    st.sampled_from(
        [NODE, {"type": "core"}, {"type": "gpu"}, {**NODE, "with": CORES}, {**NODE, "exclusive": True, "with": CORES}]
    ),
    st.integers(1, 3),
)


def graph_of(nodes: list[tuple[int, int]]) -> dict[str, Any]:
    """A cluster of nodes with so many cores and GPUs."""
    vertices: dict[str, Any] = {"c0": {"metadata": {"type": "cluster", "name": "c0"}}}
    edges = []
    for k, (cores, gpus) in enumerate(nodes):
        vertices[f"n{k}"] = {"metadata": {"type": "node", "name": f"n{k}"}}
        edges.append({"source": "c0", "target": f"n{k}", "relation": "contains"})
        for part in [f"core{i}" for i in range(cores)] + [f"gpu{i}" for i in range(gpus)]:
            vertices[f"n{k}{part}"] = {"metadata": {"type": part.rstrip("0123456789"), "name": part}}
            edges.append({"source": f"n{k}", "target": f"n{k}{part}", "relation": "contains"})
    return {"graph": {"nodes": vertices, "edges": edges}}


def gang_of(requests: list[dict[str, Any]]) -> dict[str, Any]:
    """A group of tasks that start together, each with resources of its own."""
    tasks = [{"name": f"t{k}", "command": ["true"], "resources": f"r{k}"} for k in range(len(requests))]
    return {
        "resources": {f"r{k}": one for k, one in enumerate(requests)},
        "groups": [{"name": "g", "tasks": tasks}],
    }


@given(st.sampled_from(POLICIES), st.lists(st.sampled_from(range(3)), min_size=1, max_size=5), kinds, st.data())
def test_what_fits_starts_on_an_idle_cluster(
    policy: tuple[str, dict[str, Any]], which: list[int], drawn: list[tuple[int, int]], data: st.DataObject
) -> None:
    nodes = [drawn[k % len(drawn)] for k in which]
    check(policy, nodes, [data.draw(st.lists(parts, min_size=1, max_size=3)) for _ in range(3)])


def test_a_whole_node_for_a_small_part_is_a_small_node() -> None:
    """The search takes the lowest node, which costs more than the job's class is granted: it waited for ever."""
    check(POLICIES[0], [(8, 0), (2, 0), (2, 0)], [[NODE, {"type": "core"}]])
    check(POLICIES[0], [(8, 2), (8, 2), (8, 2), (1, 1)], [[NODE, {"type": "gpu", "replicas": 2}, NODE]])


def check(policy: tuple[str, dict[str, Any]], nodes: list[tuple[int, int]], jobs: list[list[dict[str, Any]]]) -> None:
    """Submit each job to the idle cluster: if it is taken it starts in the next step."""
    with TemporaryDirectory() as folder:
        service = open_service_at(Path(folder), Clock())
        api = Api(service)
        reported = api.good("POST", "/v1/clusters", {"name": "oak", "graph": graph_of(nodes)}, REGISTRATION)
        name, given_ = policy
        api.good("PATCH", "/v1/clusters/oak/scheduler", {"policy": name, "settings": given_}, reported["secret"])
        api.good("POST", "/v1/clusters/oak/heartbeat", {"agent": "a"}, reported["secret"])
        for request in jobs:
            answer = api.call("POST", "/v1/jobs", {"jobspec": gang_of(request)}, reported["token"])
            if answer.status_code >= 300:
                continue
            job = answer.get_json()["id"]
            step_safely(service, "oak")
            shown = api.good("GET", f"/v1/jobs/{job}", None, reported["token"])
            assert {task["state"] for task in shown["tasks"]} == {"ASSIGNED"}, shown["wait"]
            api.good("DELETE", f"/v1/jobs/{job}", None, reported["token"])
            step_safely(service, "oak")
        service.close()
