"""An agent of cluster one that says, call by call, what a test wants it to say."""

import pytest

from rainbow.service.scheduler.step import step
from tests.support.asking import jobspec


@pytest.fixture
def agent(api, cluster):
    return Agent(api, cluster["secret"])


class Agent:
    """Says what an agent says."""

    def __init__(self, api, secret, name="agent-1"):
        self.api, self.secret, self.name = api, secret, name

    def say(self, verb, **body):
        answer = self.api("POST", f"/v1/clusters/one/{verb}", self.secret, json={"agent": self.name, **body})
        assert answer.status_code == 200, answer.json
        return answer.json

    def take(self):
        offered = self.say("receive")["tasks"]
        taken = self.say("accept", tasks=[{"id": t["id"], "attempt": t["attempt"]} for t in offered])["accepted"]
        return [task for task in offered if task["id"] in taken]

    def end(self, task, code=0, result="exited"):
        event = {
            "task": task["id"],
            "attempt": task["attempt"],
            "event": "ended",
            "result": result,
            "exit_code": code,
        }
        return self.say("events", events=[event])


def submit(api, cluster, **more):
    return api("POST", "/v1/jobs", cluster["token"], data=jobspec(**more)).json["id"]


def show(api, cluster, job):
    return api("GET", f"/v1/jobs/{job}", cluster["token"]).json


def begin(api, service, cluster, agent):
    """Submit a job and let the agent accept its one task; return both."""
    job = submit(api, cluster)
    agent.say("heartbeat")
    step(service, "one")
    (task,) = agent.take()
    return job, task
