"""Tasks that wait for other tasks of their job: started in turn, canceled with what failed."""

import pytest

from rainbow.service.scheduler.step import step
from tests.support.agent_by_hand import agent, show
from tests.support.asking import api, cluster

__all__ = ["agent", "api", "cluster"]  # fixtures

CHAIN = """
resources: {w: {type: core, replicas: 1}}
tasks:
- {name: first, command: ["true"], resources: w}
- {name: second, command: ["true"], resources: w, depends_on: [first]}
- {name: third, command: ["true"], resources: w, depends_on: [second]}
"""


def states(api, cluster, job):
    return [task["state"] for task in show(api, cluster, job)["tasks"]]


def test_dependent_task_starts_when_what_it_waits_for_has_completed(api, service, cluster, agent):
    job = api("POST", "/v1/jobs", cluster["token"], data=CHAIN).json["id"]
    agent.say("heartbeat")
    for done in range(3):
        step(service, "one")
        step(service, "one")
        assert states(api, cluster, job) == ["COMPLETED"] * done + ["ASSIGNED"] + ["WAITING"] * (2 - done)
        if done < 2:
            wait = api("GET", f"/v1/jobs/{job}/why", cluster["token"]).json["wait"]
            assert wait["reason"] == "dependency"
        agent.end(*agent.take())
    assert show(api, cluster, job)["state"] == "COMPLETED"


def test_failed_dependency_cancels_all_that_wait_for_it(api, service, cluster, agent):
    job = api("POST", "/v1/jobs", cluster["token"], data=CHAIN).json["id"]
    agent.say("heartbeat")
    step(service, "one")
    agent.end(*agent.take(), code=1)
    assert states(api, cluster, job) == ["FAILED", "CANCELED", "CANCELED"]
    assert show(api, cluster, job)["state"] == "FAILED"


@pytest.mark.parametrize("names", ["[nobody]", "[third]", "[second]"])
def test_dependency_on_nothing_or_on_itself_is_refused(api, cluster, names):
    text = CHAIN.replace("depends_on: [first]", f"depends_on: {names}")
    assert api("POST", "/v1/jobs", cluster["token"], data=text).status_code == 422
