"""The fair-share policy in the service: jobs start, wait with a reason, give way to another user, and come back."""

import json

import pytest

from rainbow.service.scheduler.step import step
from tests.support.agent_by_hand import Agent
from tests.support.asking import api, jobspec

__all__ = ["api"]  # fixtures

SETTINGS = {
    "quantum": {"type": "core"},
    "classes": {"all": {"policy": "FAIR_SHARE", "default": True}},
}


@pytest.fixture
def cluster(api):
    return api.register("one", "cluster(node*2(core*4))", policy={"name": "fair_share", "settings": SETTINGS})


@pytest.fixture
def agent(api, cluster):
    agent = Agent(api, cluster["secret"])
    agent.say("heartbeat")
    return agent


def submit(api, cluster, who, count):
    body = {"jobspec": json.loads(jobspec()), "requestor": who}
    return [api("POST", "/v1/jobs", cluster["token"], json=body).json["id"] for _ in range(count)]


def held(api, cluster):
    figures = api("GET", "/v1/clusters/one/scheduler", cluster["secret"]).json["figures"]
    return {user: one["held"] for user, one in figures["users"].items()}


def test_jobs_start_while_there_is_space_and_then_wait_with_a_reason(api, cluster, agent, service):
    jobs = submit(api, cluster, "ann", 10)
    assert step(service, "one")
    running = agent.take()
    assert len(running) == 8
    waits = [api("GET", f"/v1/jobs/{job}/why", cluster["token"]).json["wait"] for job in jobs[8:]]
    assert [wait["reason"] for wait in waits] == ["fair-share"] * 2
    agent.end(running[0])
    step(service, "one")
    assert len(agent.take()) == 1


def test_wrong_settings_are_refused_where_they_stand(api, cluster):
    body = {"policy": "fair_share", "settings": {"classes": {"all": {"policy": "FAIR_SHARE"}}}}
    answer = api("PUT", "/v1/clusters/one/scheduler", cluster["secret"], json=body)
    assert answer.status_code == 422
    assert answer.json["pointer"].endswith("/settings/classes")


def test_second_user_gets_half_and_what_gave_way_waits_to_run_again(api, cluster, agent, service):
    submit(api, cluster, "ann", 8)
    step(service, "one")
    assert len(agent.take()) == 8
    submit(api, cluster, "bob", 8)
    assert step(service, "one")
    offered = agent.say("receive")
    assert (offered["tasks"], len(offered["stop"])) == ([], 4)  # nothing starts before what was stopped has ended
    for task in offered["stop"]:
        agent.end(task, code=None, result="stopped")
    assert step(service, "one")
    assert len(agent.take()) == 4
    assert held(api, cluster) == {"ann": 4, "bob": 4}
    assert not step(service, "one")


def test_gang_of_two_nodes_starts_when_both_are_empty(api, service):
    cluster = api.register("one", "cluster(node*2(core*4))", policy={"name": "fair_share"})
    agent = Agent(api, cluster["secret"])
    agent.say("heartbeat")
    submit(api, cluster, "ann", 1)
    step(service, "one")
    small = agent.take()
    resources = {"work": {"type": "node", "replicas": 2, "with": [{"type": "core", "count": 4}]}}
    both = {"resources": resources, "tasks": [{"command": ["true"], "resources": "work"}]}
    job = api("POST", "/v1/jobs", cluster["token"], json=both).json["id"]
    assert not step(service, "one")
    assert api("GET", f"/v1/jobs/{job}/why", cluster["token"]).json["wait"]["reason"] == "no-space"
    agent.end(small[0])
    assert step(service, "one")
    assert [set(task["placement"]) for task in agent.take()] == [{"node0", "node1"}]
