"""A job that names what does not exist is rejected at submit, with the nearest name, and runs nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.errors import JobspecError
from rainbow.jobspec import parse_jobspec
from tests.conftest import Api, grid, jobspec

PRIORITY = {"name": "priority", "settings": {"queues": {"batch": {}, "debug": {}}}}
FAIR = {"name": "fair_share", "settings": {"classes": {"gold": {"policy": "FAIR_SHARE", "default": True}}}}


def asking(**system: Any) -> dict[str, Any]:
    spec = jobspec()
    spec["attributes"]["system"] = {**spec["attributes"].get("system", {}), **system}
    return spec


def test_task_that_names_a_resource_group_that_does_not_exist_is_rejected(api: Api) -> None:
    oak = api.register("oak")
    spec = {
        "version": 1,
        "resources": {"work": {"type": "core", "count": 1}},
        "tasks": [{"command": ["true"]}],
        "groups": [{"name": "g", "resources": "work", "tasks": [{"command": ["true"], "resources": "wrk"}]}],
    }
    problem = api.problem(422, "jobspec-invalid", "POST", "/v1/jobs", spec, oak.token)
    assert problem["detail"] == "resources refers to undefined resource group wrk; did you mean work?"
    assert problem["pointer"] == "/groups/0/tasks/0/resources"
    spec["groups"][0] |= {"resources": "wrk", "tasks": [{"command": ["true"]}]}
    problem = api.problem(422, "jobspec-invalid", "POST", "/v1/jobs", spec, oak.token)
    assert problem["pointer"] == "/groups/0/resources"
    assert api.good("GET", "/v1/jobs", None, oak.token)["jobs"] == []
    assert "did you mean work?" in api.good("POST", "/v1/match", spec, oak.token)["warnings"][0]


def test_match_says_what_submit_refuses(api: Api) -> None:
    oak = api.register("oak")
    tasks: list[tuple[dict[str, Any], str]] = [
        ({"tasks": [{"resources": "work"}]}, "task-0 has no command"),
        ({"tasks": [{"name": "a", "command": ["x"]}] * 2}, "/tasks/1/name a is the name of another task, too"),
        (
            {"tasks": [{"command": ["x"], "count": {"total": 3}}]},
            "oak: task task-0 starts 3 processes on 1 core; at most 1 for each core it holds "
            "(limits.processes_per_core)",
        ),
        (
            {
                "tasks": [{"command": ["x"]}],
                "attributes": {"system": {"dependencies": [{"scheme": "afterok", "value": "ff"}]}},
            },
            "job ff not found; dependencies name jobs by the number or the id that submit answers with "
            "(at /attributes/system/dependencies/0/value)",
        ),
    ]
    for more, said in tasks:
        spec = {"resources": {"work": {"type": "core", "count": 1}}, **more}
        for explain in (False, True):
            answer = api.good("POST", "/v1/match", {"jobspec": spec, "explain": explain}, oak.token)
            assert answer["warnings"] == [f"{said}; submit refuses the job"]
        assert api.call("POST", "/v1/jobs", spec, oak.token).status_code == 422
    assert api.good("GET", "/v1/jobs", None, oak.token)["jobs"] == []


@pytest.mark.parametrize(
    ("policy", "key", "asked", "said"),
    [
        (PRIORITY, "queue", "bacth", "queue bacth not found on cluster oak; did you mean batch?"),
        (PRIORITY, "queue", ["debug", "zzz*"], "queue zzz* not found on cluster oak; there are: batch, debug"),
        (PRIORITY, "master_queue", "debgu@n0", "master_queue debgu@n0 not found on cluster oak; did you mean debug?"),
        (PRIORITY, "pe", "mpi", "pe mpi not found on cluster oak; there are: none"),
        (FAIR, "class", "golden", "class golden not found on cluster oak; did you mean gold?"),
        ({}, "class", "gold", "class gold not found on cluster oak; there are: default"),
    ],
)
def test_queue_or_class_that_does_not_exist_is_rejected_at_submit_with_the_nearest_name(
    api: Api, policy: Any, key: str, asked: Any, said: str
) -> None:
    oak = api.register("oak", policy=policy)
    problem = api.problem(422, "jobspec-invalid", "POST", "/v1/jobs", asking(**{key: asked}), oak.token)
    assert (problem["detail"], problem["pointer"]) == (said, f"/attributes/system/{key}")


@pytest.mark.parametrize("queue", ["batch", "b*", "batch@node1", ["batch", "debug"], "", []])
def test_queue_that_exists_is_taken(api: Api, queue: Any) -> None:
    oak = api.register("oak", policy=PRIORITY)
    assert api.good("POST", "/v1/jobs", asking(queue=queue), oak.token)["cluster"] == "oak"


def test_job_goes_to_the_cluster_that_has_its_queue_and_is_told_why_not_to_the_other(api: Api) -> None:
    elm = api.register("elm", grid(9, 9), policy={"name": "priority", "settings": {"queues": {"night": {}}}})
    oak = api.register("oak", policy=PRIORITY)
    made = api.good("POST", "/v1/jobs", asking(queue="batch"), elm.token, oak.token)
    assert made["cluster"] == "oak"
    assert list(made["decision"]["barred"]) == ["elm"]
    path = f"/v1/jobs/{made['id']}"
    assert api.good("GET", f"{path}/replay", None, oak.token, elm.token)["equal"]
    assert api.good("GET", f"{path}/why", None, oak.token)["decision"]["barred"] == {}


@pytest.mark.parametrize("priority", ["high", 1025, -1024, 1.5, True, [1]])
def test_priority_that_is_no_number_in_range_is_rejected(priority: Any) -> None:
    with pytest.raises(JobspecError, match="priority must be a whole number from -1023 to 1024, got ") as caught:
        parse_jobspec(asking(priority=priority))
    assert caught.value.pointer == "/attributes/system/priority"
