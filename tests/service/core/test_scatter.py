"""A bag of independent tasks: every slot a task of its own, more of them than the cluster is large."""

from pathlib import Path

import pytest
import yaml

import rainbow
from rainbow.errors import JobspecError
from rainbow.state_machine import TaskState
from tests.conftest import grid, snapshot

CASES = yaml.load((Path(__file__).parents[2] / "cases" / "scatter" / "cases.yaml").read_text(), yaml.CSafeLoader)


def written(tree):
    """Write a tree shortly: type, label, count, what it holds."""
    inside = ", ".join(map(written, tree.children))
    label = f"[{tree.label}]" if tree.label else ""
    return f"{tree.type}{label}*{tree.count.min}" + (f"({inside})" if inside else "")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_slots_become_tasks(case):
    if "fault" in case:
        with pytest.raises(JobspecError) as refused:
            rainbow.parse_jobspec(case["jobspec"])
        assert [refused.value.pointer, refused.value.args[0]] == case["fault"]
        return
    request = rainbow.parse_jobspec(case["jobspec"])
    assert [[task.name, task.replicas, task.per_slot] for task in request.tasks] == case["tasks"]
    assert [written(tree) for tree in request.resources] == case["trees"]
    assert request.warnings == ()
    shares = request.elastic
    assert (shares and [shares.min, shares.max, shares.threads]) == case.get("elastic")


def bag(count, **system):
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": count, "label": "w", "with": [{"type": "node", "count": 1}]}],
        "tasks": [{"command": ["true"], "slot": "w", "count": {"per_slot": 1}}],
        "attributes": {"system": {"scatter": True, **system}},
    }


def test_bag_runs_on_a_cluster_smaller_than_itself(api):
    oak = api.register("oak", grid(2, 1))
    job = api.good("POST", "/v1/jobs", {"jobspec": bag(5)}, oak.token)["id"]
    oak.say("heartbeat", running=[])
    sizes = []
    while offers := oak.take():
        sizes.append(len(offers))
        assert all(offer["processes"] == 1 and len(offer["placement"]) == 1 for offer in offers)
        for offer in offers:
            oak.end(offer)
    shown = api.good("GET", f"/v1/jobs/{job}", None, oak.token)
    assert (sizes, shown["state"]) == ([2, 2, 1], "COMPLETED")
    assert {task["state"] for task in shown["tasks"]} == {TaskState.COMPLETED}


def test_giant_bag_is_refused_before_it_is_written_out(api):
    oak = api.register("oak", grid(2, 1))
    api.problem(413, "limit-exceeded", "POST", "/v1/jobs", {"jobspec": bag(10**15)}, oak.token)


def test_policy_is_told_which_jobs_are_elastic(api):
    oak = api.register("oak", grid(2, 1))
    oak.say("heartbeat", running=[])
    spec = bag(5, elastic={"min": 1, "max": 3})
    api.good("POST", "/v1/jobs", {"jobspec": spec}, oak.token)
    (job,) = snapshot(api.service, "oak").view.jobs
    assert (job.elastic.least, job.elastic.most, job.tasks) == (1, 3, 5)
