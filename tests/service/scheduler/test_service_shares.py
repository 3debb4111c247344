"""Usage of the share tree in a live service: counted from the record of what ran, however seldom anybody plans."""

import pytest

from rainbow.service.live_state.mirror import Mirrors
from rainbow.service.scheduler.step import step
from rainbow.store import clusters
from tests.service.scheduler.test_service_priority import switch
from tests.support.agent_by_hand import Agent
from tests.support.asking import api, cluster

__all__ = ["api", "cluster"]  # fixtures

TREE = {"name": "root", "children": [{"name": "ann", "shares": 75}, {"name": "bob", "shares": 25}]}
TICKETS = {"share": 1000, "share_tree": TREE, "halftime": 0}


@pytest.fixture
def agent(api, cluster):
    switch(api, cluster, "priority", tickets=TICKETS)
    result = Agent(api, cluster["secret"])
    result.say("heartbeat")
    return result


def whole(api, cluster, who):
    """Submit a job of both nodes."""
    slot = {"type": "slot", "count": 2, "label": "s", "with": [{"type": "core", "count": 4}]}
    task = {"command": ["true"], "slot": "s", "count": {"per_slot": 1}}
    system = {"system": {"duration": 1_000}}
    spec = {"version": 1, "resources": [slot], "tasks": [task], "attributes": system}
    answer = api("POST", "/v1/jobs", cluster["token"], json={"jobspec": spec, "requestor": who})
    assert answer.status_code in (200, 201, 202), answer.json
    return answer.json["id"]


def usage(service):
    """Return what has been counted, by owner."""
    with service.store.read() as connection:
        return clusters.find(connection, "one").memory["priority"]["usage"]["used"]


def run_one(api, service, agent, clock, seconds):
    """Plan once, and let what starts end before the next plan; return the owner of the job."""
    step(service, "one")
    (task,) = agent.take()
    clock.now += seconds
    agent.end(task)
    return task["job"]


def test_what_starts_and_ends_between_two_plans_counts_and_shares_converge(api, service, agent, cluster, clock):
    owners = {whole(api, cluster, who): who for who in ["ann", "bob"] * 16}
    spent = {"ann": 0.0, "bob": 0.0}
    for _ in range(16):
        spent[owners[run_one(api, service, agent, clock, 100.0)]] += 800.0
    assert spent == {"ann": 12 * 800.0, "bob": 4 * 800.0}
    step(service, "one")
    assert usage(service) == pytest.approx({f"/{who}": amount for who, amount in spent.items()})


def test_usage_is_read_from_the_record_after_a_restart(api, service, agent, cluster, clock):
    for who in ["ann", "ann"]:
        whole(api, cluster, who)
    run_one(api, service, agent, clock, 100.0)
    service.state(Mirrors).clear()
    clock.now += 50.0
    step(service, "one")
    assert usage(service) == pytest.approx({"/ann": 800.0})
