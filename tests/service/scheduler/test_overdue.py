"""Time limits: told to the agent, and held by the server where the agent does not."""

import pytest

from tests.conftest import grid, jobspec


@pytest.fixture
def oak(api):
    oak = api.register("oak", grid(2, 1))
    oak.say("heartbeat", running=[])
    return oak


def start(api, oak, limits=None, **system):
    """Submit, accept and start one task; return its job and offer."""
    if limits:
        api.good("PATCH", "/v1/clusters/oak/scheduler", {"limits": limits}, oak.secret)
    job = api.good("POST", "/v1/jobs", {"jobspec": jobspec(**system)}, oak.token)["id"]
    (offer,) = oak.take()
    oak.say("events", events=[{"task": offer["id"], "attempt": offer["attempt"], "event": "started"}])
    return job, offer


def stops(api, oak, clock, seconds):
    clock.now += seconds
    oak.say("heartbeat", running=[])
    oak.take()
    return oak.say("heartbeat", running=[])["stop"]


def task_of(api, oak, job):
    return api.good("GET", f"/v1/jobs/{job}", None, oak.token)["tasks"][0]


def test_duration_of_the_jobspec_and_the_allowance(api, oak, clock):
    job, offer = start(api, oak, duration=30)
    assert offer["duration"] == 30
    assert stops(api, oak, clock, 45) == []
    assert [stop["id"] for stop in stops(api, oak, clock, 2)] == [offer["id"]]
    oak.end(offer, result="stopped", exit_code=None)
    assert task_of(api, oak, job)["state"] == "TIMED_OUT"


def test_cluster_limits_what_asks_for_none(api, oak, clock):
    job, offer = start(api, oak, {"task_minutes": 1, "allowance_seconds": 5, "max_retries": 1})
    assert offer["duration"] == 60
    assert stops(api, oak, clock, 64) == []
    assert len(stops(api, oak, clock, 3)) == 1
    oak.end(offer, result="stopped", exit_code=None)
    task = task_of(api, oak, job)
    assert (task["state"], task["retries_left"]) == ("WAITING", 0)  # too long is a failure, and uses up a retry


def test_without_limits_a_task_runs_for_ever(api, oak, clock):
    _, offer = start(api, oak)
    assert offer["duration"] == 0
    for _ in range(5):
        assert stops(api, oak, clock, 50) == []


def test_canceled_stays_canceled(api, oak, clock):
    job, offer = start(api, oak, duration=1)
    api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    clock.now += 40
    oak.end(offer, result="stopped", exit_code=None)
    assert task_of(api, oak, job)["state"] == "CANCELED"


@pytest.mark.parametrize("limits", [{"task_minutes": -1}, {"allowance_seconds": 1.5}, {"task_minutes": True}])
def test_limits_that_are_none(api, oak, limits):
    api.problem(422, "policy-invalid", "PATCH", "/v1/clusters/oak/scheduler", {"limits": limits}, oak.secret)
