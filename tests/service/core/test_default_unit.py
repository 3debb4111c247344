"""New clusters share workers by cores; what asks for whole nodes gets them, and clusters of before stay."""

import pytest

from rainbow.client import Client
from tests.conftest import REGISTRATION, grid
from tests.support.live import agent_of, rainbow_at
from tests.unit.scheduling.test_sharing import bag, cores, submit

PATH = "/v1/clusters/oak/scheduler"


def unit(oak):
    return oak.api.good("GET", PATH, None, oak.secret)["settings"].get("unit")


def ready(api, nodes, cores, **more):
    oak = api.register("oak", grid(nodes, cores), **more)
    oak.say("heartbeat", running=[])
    return oak


def test_24_tasks_of_one_core_start_together_on_24_cores(api):
    oak = ready(api, 3, 8)
    submit(api, oak, bag(24))
    assert cores(oak.take()) == {"n0": 8, "n1": 8, "n2": 8}


def test_24_sleeps_of_one_core_run_at_the_same_time(tmp_path):
    with rainbow_at(tmp_path) as url:
        registration = Client(url, REGISTRATION).register_cluster("oak", grid(3, 8))
        with agent_of(url, "oak", registration["secret"]), Client(url, registration["token"]) as client:
            sleeps = {**bag(24), "tasks": [{"command": ["sleep", "3"], "slot": "w", "count": {"per_slot": 1}}]}
            job = client.wait(client.submit(sleeps)["id"], timeout=60)
    assert {task["state"] for task in job["tasks"]} == {"COMPLETED"}
    assert max(task["started_at"] for task in job["tasks"]) < min(task["ended_at"] for task in job["tasks"])


@pytest.mark.parametrize("asked", [{"type": "node"}, {"type": "node", "exclusive": True, "with": [{"type": "core"}]}])
def test_a_node_without_with_and_an_exclusive_one_are_whole(api, asked):
    oak = ready(api, 2, 4)
    submit(api, oak, {**bag(3), "resources": [{"type": "slot", "count": 3, "label": "w", "with": [asked]}]})
    first = oak.take()
    assert sorted(worker for offer in first for worker in offer["placement"]) == ["n0", "n1"]
    submit(api, oak, bag(1))
    assert oak.take() == []  # nothing of a whole node is left for others
    oak.end(first[0])
    assert len(oak.take()) == 1


def hollow():
    """Two nodes, one of them without cores."""
    graph = grid(1, 2)
    graph["graph"]["nodes"]["n1"] = {"metadata": {"type": "node", "name": "n1"}}
    graph["graph"]["edges"].append({"source": "c0", "target": "n1", "relation": "contains"})
    return graph


@pytest.mark.parametrize(
    ("body", "begins"),
    [
        ({}, "core"),
        ({"policy": {"name": "load_based"}}, "core"),
        ({"policy": {"name": "load_based", "settings": {"unit": "worker"}}}, "worker"),
        ({"policy": {"name": "load_based", "settings": {"rounding": "classic"}}}, "worker"),
        ({"levels": "strict"}, "worker"),
        ({"graph": hollow()}, "worker"),
        ({"policy": {"name": "priority"}}, None),
    ],
)
def test_a_new_cluster_begins_with_cores_where_its_workers_have_some(api, body, begins):
    assert unit(api.register("oak", **body)) == begins


def test_settings_that_are_replaced_keep_the_unit_and_null_brings_the_default_back(api):
    oak = api.register("oak")
    change = {"classes": {"a": 100}, "default_class": "a"}
    api.good("PUT", PATH, {"settings": change}, oak.secret)
    assert unit(oak) == "core"
    api.good("PATCH", PATH, {"settings": {"unit": "worker"}}, oak.secret)
    api.good("PUT", PATH, {"settings": change}, oak.secret)
    assert unit(oak) == "worker"
    api.good("PATCH", PATH, {"settings": {"unit": None}}, oak.secret)
    assert unit(oak) == "core"
    api.good("PUT", PATH, {"settings": {"rounding": "classic"}}, oak.secret)
    assert unit(oak) == "worker"
    api.good("PUT", PATH, {"policy": "priority"}, oak.secret)
    api.good("PUT", PATH, {"policy": "load_based"}, oak.secret)
    assert unit(oak) == "core"
    api.good("PATCH", PATH, {"settings": {"rounding": "classic"}}, oak.secret)
    assert unit(oak) == "worker"


def test_a_unit_that_no_worker_has_is_refused(api):
    oak = ready(api, 2, 4)
    for verb, body in (("PATCH", {"settings": {"unit": "cores"}}), ("PUT", {"settings": {"unit": "cores"}})):
        answer = oak.api.problem(422, "policy-invalid", verb, PATH, body, oak.secret)
        assert answer["detail"].startswith("no worker has 'cores'; unit is worker, core")
        assert answer["pointer"] == "/settings/unit"
    assert unit(oak) == "core"
