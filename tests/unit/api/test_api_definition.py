"""What a job is, and what was submitted, for who may act for its user and for who may only see it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rainbow.jobspec import parse_jobspec
from rainbow.service.queries.definition import resources_in_words
from tests.conftest import Cluster, jobspec

SECRET = "hunter2"
SCRIPT = f"#!/bin/bash\n#SBATCH --export=TOKEN={SECRET},PLAIN\necho hello\n"
CORE = [{"type": "slot", "count": 1, "label": "s", "with": [{"type": "core", "count": 2}]}]
NODES = [{"type": "node", "count": 2, "with": CORE}]


def rfc14(system: Any = None, tasks: Any = None, resources: Any = None) -> dict[str, Any]:
    task = {"command": ["./train.sh", "--fast"], "slot": "s", "count": {"per_slot": 1}}
    system = {"duration": 600, **(system or {})}
    results = {"version": 1, "resources": resources or CORE, "tasks": tasks or [task]}
    return {**results, "attributes": {"system": system}}


def submit(oak: Cluster, spec: Any, **more: Any) -> dict[str, Any]:
    body = {"jobspec": spec, "requestor": "ann", "name": "train", **more}
    return oak.api.good("POST", "/v1/jobs", body, oak.token)


def shown(oak: Cluster, job: Any, token: str = "") -> dict[str, Any]:
    return oak.api.good("GET", f"/v1/jobs/{job}", None, token or oak.token)["definition"]


@pytest.fixture
def bob(oak: Cluster) -> str:
    """A token that sees all jobs, and acts for bob alone."""
    return oak.api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["bob"]}, oak.secret)["token"]


def test_a_command(oak: Cluster) -> None:
    job = submit(oak, rfc14({"cwd": "/home/ann/net", "environment": {"B": "2", "A": "1"}, "output": "out.txt"}))
    answer = shown(oak, job["number"])
    assert answer["command"] == ["./train.sh", "--fast"]
    assert answer["resources"]["text"] == "1 task of 2 cores"
    assert answer["limits"] == {"time": 600, "least_time": None, "begin": None}
    assert (answer["directory"], answer["environment"]) == ("/home/ann/net", ["A", "B"])
    assert answer["output"] == {"output": "out.txt"}
    assert answer["after"] == answer["before"] == []


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (NODES, "2 nodes, each with 1 task of 2 cores"),
        ([{"type": "node", "count": 1, "exclusive": True, "with": CORE}],
         "1 node, not shared, with 1 task of 2 cores"),
        ([{**CORE[0], "count": "2-4"}], "2 to 4 tasks of 2 cores"),
        ([{**CORE[0], "with": [{"type": "core", "count": 1}, {"type": "memory", "count": 4, "unit": "GB"}]}],
         "1 task of 1 core and 4 GB memory"),
    ],
)  # fmt: skip
def test_resources_in_words(resources: Any, text: str) -> None:
    assert resources_in_words(parse_jobspec(rfc14(resources=resources))) == text


def test_an_array_and_a_script(oak: Cluster) -> None:
    task = {"command": ["fit.sh", "{index}"], "slot": "s", "count": {"per_slot": 1}}
    job = submit(oak, rfc14({"array": "0-3%2", "script": SCRIPT}, [task]))
    answer = shown(oak, job["number"])
    assert answer["array"] == {"elements": "0-3", "at_once": 2}
    assert answer["resources"]["text"] == "4 elements, at most 2 at once, each 1 task of 2 cores"
    assert answer["script"] is True
    assert answer["command"] == ["fit.sh", "{index}"]
    assert oak.api.good("GET", f"/v1/jobs/{job['number']}/script", None, oak.token)["script"] == SCRIPT


def test_three_tasks(oak: Cluster) -> None:
    spec = jobspec()
    resources = {"work": {"type": "core", "replicas": 1, "count": 1}}
    tasks = [
        {"name": "a", "command": ["first"], "resources": "work"},
        {"name": "b", "command": ["second"], "resources": "work", "depends_on": ["a"]},
        {"name": "c", "command": ["third"], "resources": "work", "depends_on": ["a", "b"]},
    ]
    answer = shown(oak, submit(oak, {**spec, "resources": resources, "tasks": tasks})["number"])
    assert answer["command"] is None
    assert [(one["name"], one["command"], one["after"]) for one in answer["tasks"]] == [
        ("a", ["first"], []),
        ("b", ["second"], ["a"]),
        ("c", ["third"], ["a", "b"]),
    ]


def test_a_chain_is_named_from_both_sides(oak: Cluster, bob: str) -> None:
    first = submit(oak, jobspec(), name="fetch")
    after = [{"scheme": "afterok", "value": str(first["number"])}]
    begin = {"scheme": "begin-time", "value": "4000000000"}
    second = submit(oak, rfc14({"dependencies": [*after, begin]}))
    third = submit(oak, rfc14({"dependencies": [{"scheme": "afterany", "value": second["id"]}]}), name="last one")
    answer = shown(oak, second["number"])
    assert [(one["number"], one["name"], one["state"], one["scheme"]) for one in answer["after"]] == [
        (first["number"], "fetch", "WAITING", "afterok")
    ]
    assert [(one["number"], one["scheme"]) for one in answer["before"]] == [(third["number"], "afterany")]
    assert answer["limits"]["begin"].startswith("2096-10-02")
    assert shown(oak, first["number"], bob)["before"][0]["number"] == second["number"]


def test_what_holds_now_is_shown_and_what_was_submitted_stays(oak: Cluster) -> None:
    spec = rfc14()
    job = submit(oak, spec)
    oak.api.good("PATCH", f"/v1/jobs/{job['id']}", {"time_limit": 60}, oak.token)
    assert shown(oak, job["id"])["limits"]["time"] == 60
    assert oak.api.good("GET", f"/v1/jobs/{job['id']}/jobspec", None, oak.token)["jobspec"] == spec


@pytest.mark.parametrize("form", [dict, str])
def test_values_of_the_environment_are_for_who_may_act_for_the_user(oak: Cluster, bob: str, form: type) -> None:
    task = {"command": ["x"], "slot": "s", "count": {"per_slot": 1}, "attributes": {"environment": {"KEY": SECRET}}}
    spec: Any = rfc14({"environment": {"TOKEN": SECRET, "GONE": None}, "script": SCRIPT}, [task])
    if form is str:
        spec = yaml.safe_dump(spec)
    job = submit(oak, spec)["number"]
    mine = oak.api.good("GET", f"/v1/jobs/{job}/jobspec", None, oak.token)
    assert mine["jobspec"] == spec
    assert not mine["environment_hidden"]
    for path in (f"/v1/jobs/{job}/jobspec", f"/v1/jobs/{job}/script", f"/v1/jobs/{job}"):
        answer = oak.api.call("GET", path, None, bob)
        assert answer.status_code == 200, path
        assert SECRET not in answer.get_data(as_text=True), path
    reported = oak.api.good("GET", f"/v1/jobs/{job}/jobspec", None, bob)
    assert reported["environment_hidden"]
    assert reported["jobspec"]["attributes"]["system"]["environment"] == {"TOKEN": "***", "GONE": None}
    assert reported["jobspec"]["tasks"][0]["attributes"]["environment"] == {"KEY": "***"}
    assert "--export=TOKEN=***,PLAIN\necho hello" in reported["jobspec"]["attributes"]["system"]["script"]
    assert shown(oak, job, bob)["environment"] == ["GONE", "KEY", "TOKEN"]


def test_a_job_of_a_command_has_no_script(oak: Cluster) -> None:
    job = submit(oak, rfc14())["number"]
    answer = oak.api.problem(404, "not-found", "GET", f"/v1/jobs/{job}/script", None, oak.token)
    assert answer["detail"] == f"job {job} has no script: it was submitted as a command or a jobspec"
