"""Jobs and tasks held in place and let go on: by their owners, by queues of the priority policy, on both stores."""

from __future__ import annotations

import pytest

from rainbow.service.scheduler.step import step
from rainbow.state_machine import Hold
from rainbow.store import clusters, tasks
from tests.conftest import jobspec

QUEUE = {"queues": {"q": {"suspend_thresholds": {"load_avg": 5.0}, "suspend_interval": 0}}}


@pytest.fixture
def oak(api):
    result = api.register("oak")
    result.say("heartbeat")
    return result


def submit(api, cluster, **system):
    return api.good("POST", "/v1/jobs", {"jobspec": jobspec(**system)}, cluster.token)["id"]


def ask(api, cluster, job, verb):
    return api.good("POST", f"/v1/jobs/{job}:{verb}", None, cluster.token)


def show(api, cluster, job):
    return api.good("GET", f"/v1/jobs/{job}", None, cluster.token)


def state(api, cluster, job):
    return show(api, cluster, job)["tasks"][0]["state"]


def tell(cluster, offer, event, **more):
    answer = {"task": offer["id"], "attempt": offer["attempt"], "event": event, **more}
    assert cluster.say("events", events=[answer])["recorded"] == [offer["id"]]


def begun(api, cluster, **system):
    job = submit(api, cluster, **system)
    (offer,) = cluster.take()
    tell(cluster, offer, "started")
    return job, offer


def ref(offer):
    return {"id": offer["id"], "attempt": offer["attempt"]}


def plan_by_load(api, cluster):
    api.good(
        "PUT", f"/v1/clusters/{cluster.name}/scheduler", {"policy": "priority", "settings": QUEUE}, cluster.secret
    )


def test_suspended_job_is_held_by_its_agent_and_goes_on(api, oak):
    job, offer = begun(api, oak)
    assert ask(api, oak, job, "suspend")["suspended_at"] is not None
    assert oak.say("receive")["suspend"] == oak.say("heartbeat", running=[ref(offer)])["suspend"] == [ref(offer)]
    assert state(api, oak, job) == "RUNNING"
    tell(oak, offer, "suspended")
    assert (state(api, oak, job), oak.say("heartbeat")["suspend"]) == ("SUSPENDED", [])
    ask(api, oak, job, "resume")
    assert oak.say("heartbeat")["resume"] == [ref(offer)]
    tell(oak, offer, "resumed")
    assert state(api, oak, job) == "RUNNING"
    oak.end(offer)
    assert show(api, oak, job)["state"] == "COMPLETED"


def test_what_waits_of_a_suspended_job_does_not_start_and_says_so(api, oak):
    job = submit(api, oak)
    ask(api, oak, job, "suspend")
    assert oak.take() == []
    assert show(api, oak, job)["wait"]["reason"] == "suspended"
    ask(api, oak, job, "resume")
    assert len(oak.take()) == 1


def test_time_stands_still_while_suspended(api, oak, service, clock):
    job, offer = begun(api, oak, duration=100)

    def later(seconds):
        clock.now += seconds
        oak.say("heartbeat", running=[ref(offer)])
        step(service, "oak")
        return state(api, oak, job)

    later(50)
    ask(api, oak, job, "suspend")
    tell(oak, offer, "suspended")
    assert [later(50) for _ in range(10)] == ["SUSPENDED"] * 10
    ask(api, oak, job, "resume")
    tell(oak, offer, "resumed")
    assert later(40) == "RUNNING"
    (listed,) = api.good("GET", "/v1/jobs?summary=true", None, oak.token)["jobs"]
    assert listed["summary"]["paused"] == 500
    assert later(40) == "STOPPING"  # it has run for 130 seconds, and may for 100 and 15 more


def test_executor_that_cannot_is_asked_once_and_its_task_goes_on(api, oak):
    job, offer = begun(api, oak)
    ask(api, oak, job, "suspend")
    tell(oak, offer, "unable", detail="it cannot")
    task = show(api, oak, job)["tasks"][0]
    assert (task["state"], task["detail"], oak.say("heartbeat")["suspend"]) == ("RUNNING", "it cannot", [])
    ask(api, oak, job, "resume")
    ask(api, oak, job, "suspend")
    assert oak.say("heartbeat")["suspend"] == [ref(offer)]


@pytest.mark.parametrize("how", ["cancel", "end", "lose"])
def test_suspended_task_may_be_canceled_end_and_be_lost(api, oak, service, clock, how):
    job, offer = begun(api, oak)
    ask(api, oak, job, "suspend")
    tell(oak, offer, "suspended")
    if how == "cancel":
        api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
        assert oak.say("heartbeat")["stop"] == [ref(offer)]
        oak.end(offer, result="stopped")
        assert state(api, oak, job) == "CANCELED"
    elif how == "end":
        oak.end(offer)
        assert state(api, oak, job) == "COMPLETED"
    else:
        clock.now += 1_000
        step(service, "oak")
        task = show(api, oak, job)["tasks"][0]
        assert (task["state"], task["hold"], task["suspended_at"], task["paused"]) == ("WAITING", "", None, 0)


def test_only_who_sees_a_job_may_suspend_it_and_only_while_it_lives(api, oak):
    other = api.register("elm")
    job, offer = begun(api, oak)
    for verb in ("suspend", "resume"):
        api.problem(404, "not-found", "POST", f"/v1/jobs/{job}:{verb}", None, other.token)
        api.problem(401, "unauthenticated", "POST", f"/v1/jobs/{job}:{verb}")
    oak.end(offer)
    api.problem(409, "conflict", "POST", f"/v1/jobs/{job}:suspend", None, oak.token)


def test_policy_holds_and_resumes_by_load_as_the_agent_measures_it(api, oak, service, clock):
    plan_by_load(api, oak)
    job, offer = begun(api, oak, duration=5_000)
    oak.say("heartbeat", running=[ref(offer)], load={"load_avg": 9.0})
    step(service, "oak")
    assert oak.say("receive")["suspend"] == [ref(offer)]
    tell(oak, offer, "suspended")
    oak.say("heartbeat", running=[ref(offer)], load={"load_avg": 9.0})
    step(service, "oak")
    assert (state(api, oak, job), oak.say("receive")["resume"]) == ("SUSPENDED", [])
    clock.now += 2
    oak.say("heartbeat", running=[ref(offer)], load={"load_avg": 0.5})
    step(service, "oak")
    assert oak.say("receive")["resume"] == [ref(offer)]
    tell(oak, offer, "resumed")
    assert state(api, oak, job) == "RUNNING"


def test_what_its_owner_suspended_a_policy_does_not_resume(api, oak, service):
    plan_by_load(api, oak)
    job, offer = begun(api, oak, duration=5_000)
    ask(api, oak, job, "suspend")
    tell(oak, offer, "suspended")
    for load in (9.0, 0.5):
        oak.say("heartbeat", running=[ref(offer)], load={"load_avg": load})
        step(service, "oak")
    assert (state(api, oak, job), oak.say("receive")["resume"]) == ("SUSPENDED", [])


def test_another_policy_lets_go_what_the_one_before_held(api, oak, service):
    plan_by_load(api, oak)
    job, offer = begun(api, oak, duration=5_000)
    oak.say("heartbeat", running=[ref(offer)], load={"load_avg": 9.0})
    step(service, "oak")
    tell(oak, offer, "suspended")
    with service.store.read() as connection:
        record = clusters.find(connection, "oak")
        assert tasks.of_job(connection, job)[0].hold == Hold.POLICY
    assert record.memory["priority"]["suspended"] == [offer["id"]]
    api.good("PUT", "/v1/clusters/oak/scheduler", {"policy": "load_based"}, oak.secret)
    assert oak.say("receive")["resume"] == [ref(offer)]


def test_resumed_job_no_longer_says_that_it_is_suspended(api, oak, service):
    job = submit(api, oak)
    ask(api, oak, job, "suspend")
    step(service, "oak")
    assert show(api, oak, job)["wait"]["reason"] == "suspended"
    assert ask(api, oak, job, "resume")["wait"]["reason"] == "next-cycle"
