"""No wait without a reason: every state a job can be in before its end is asked why."""

import pytest

from rainbow.scheduling import policies
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.service.scheduler.step import step
from rainbow.state_machine import BOOKED, TaskState
from rainbow.store.jobs import change
from rainbow.store.jobs import get as get_job
from tests.conftest import grid, jobspec


def submit(api, oak, **more):
    return api.good("POST", "/v1/jobs", {"jobspec": jobspec(**more), "requestor": "ann"}, oak.token)["id"]


def why(api, oak, job):
    """Ask in every way there is; all of them give the same reason."""
    answer = api.good("GET", f"/v1/jobs/{job}/why", None, oak.token)["wait"]
    shown = api.good("GET", f"/v1/jobs/{job}", None, oak.token)["wait"]
    (listed,) = [one["wait"] for one in api.good("GET", "/v1/jobs", None, oak.token)["jobs"] if one["id"] == job]
    assert shown == listed
    assert (answer is None) == (shown is None)
    return answer


def ref(offer, **more):
    return {"task": offer["id"], "attempt": offer["attempt"], **more}


def state_of(api, oak, job):
    return api.good("GET", f"/v1/jobs/{job}", None, oak.token)["tasks"][0]["state"]


def test_job_no_cycle_has_looked_at_yet_says_so(api, oak):
    job = submit(api, oak)
    assert why(api, oak, job)["reason"] in ("next-cycle", "no-agent")


def test_job_of_a_cluster_whose_cycle_fails_says_how(api, oak, monkeypatch):
    job = submit(api, oak)
    api.service.faults[api.service.catalogue["oak"].id] = "PlanError: it went wrong"
    wait = why(api, oak, job)
    assert (wait["reason"], "it went wrong" in wait["text"]) == ("step-failed", True)


@pytest.mark.parametrize("policy", policies.names())
def test_job_of_a_cluster_without_any_agent_says_so_under_every_policy(api, policy):
    oak = api.register("oak", grid(2, 2), policy={"name": policy})
    job = submit(api, oak)
    step(api.service, "oak")
    wait = why(api, oak, job)
    assert wait is not None
    assert wait["text"]
    if policy == "delegate":
        assert wait["reason"] == "no-agent"
        assert wait["text"].startswith("0 agents of oak are connected, none has received it; none was ever seen")


def test_delegate_cluster_whose_agent_went_away_says_when_it_was_seen(api, clock):
    oak = api.register("oak", grid(2, 2), policy={"name": "delegate"})
    oak.say("heartbeat", running=[])
    clock.now += 10_000
    job = submit(api, oak)
    step(api.service, "oak")
    wait = why(api, oak, job)
    assert wait["reason"] == "no-agent"
    assert wait["facts"]["last_seen"].endswith("Z")


def test_assigned_task_that_no_agent_has_accepted_says_so(api, oak):
    oak.say("heartbeat", running=[])
    job = submit(api, oak)
    step(api.service, "oak")
    assert state_of(api, oak, job) == "ASSIGNED"
    wait = why(api, oak, job)
    assert (wait["reason"], wait["facts"]["agents"]) == ("not-accepted", ["a"])
    assert wait["text"] == "1 task assigned; 1 connected agent of oak may accept"


@pytest.mark.parametrize("policy", policies.names())
def test_agent_that_signs_off_is_not_waited_for(api, policy):
    """A clean end: what it was offered goes back at once, and no answer takes it for an agent that may accept."""
    oak = api.register("oak", grid(2, 2), policy={"name": policy})
    oak.say("heartbeat", running=[])
    job = submit(api, oak, duration=60)
    step(api.service, "oak")
    Forecaster(api.service).turn()
    eta = api.good("GET", f"/v1/jobs/{job}/eta", None, oak.token)
    assert (eta["how"], eta["end"], eta["text"]) == ("unknown", None, why(api, oak, job)["text"])
    oak.say("heartbeat", running=[], workers=[])
    step(api.service, "oak")
    assert state_of(api, oak, job) == ("ASSIGNED" if policy == "delegate" else "WAITING")
    wait = why(api, oak, job)
    assert wait["reason"] == "no-agent"
    assert wait["text"].startswith("0 connected agents of oak serve a worker")
    assert api.good("GET", "/v1/clusters/oak", None, oak.token)["state"] == "unattended"
    oak.say("receive", max=1, wait=0)  # a poll that was under way brings nothing back
    assert why(api, oak, job)["reason"] == "no-agent"


def test_accepted_task_says_that_its_agent_gives_no_reason(api, oak):
    oak.say("heartbeat", running=[])
    job = submit(api, oak)
    oak.take()
    wait = why(api, oak, job)
    assert (wait["reason"], wait["facts"]["agent"]) == ("not-started", "a")


def test_accepted_task_says_what_its_resource_manager_says(api, oak, clock):
    """Pending in a Slurm: its own reason, since it is that reason."""
    oak.say("heartbeat", running=[])
    job = submit(api, oak)
    (offer,) = oak.take()
    begun = clock.now
    said = {
        "event": "pending",
        "code": "Priority",
        "text": "slurm job 7 waits: Priority",
        "facts": {"native_id": "7"},
    }
    oak.say("events", events=[ref(offer, **said)])
    clock.now += 5
    oak.say("events", events=[ref(offer, **{**said, "text": "slurm job 7 waits: Priority, 2 ahead"})])
    wait = why(api, oak, job)
    assert (wait["reason"], wait["text"]) == ("pending", "slurm job 7 waits: Priority, 2 ahead")
    assert wait["facts"] == {"native_id": "7", "code": "Priority", "agent": "a", "tasks": 1}
    since = wait["since"]
    clock.now = begun + 9
    oak.say("events", events=[ref(offer, **{**said, "code": "Resources", "text": "slurm job 7 waits: Resources"})])
    assert why(api, oak, job)["since"] > since
    oak.say("events", events=[ref(offer, event="started")])
    assert why(api, oak, job) is None
    oak.say("events", events=[ref(offer, **said)])  # late: it runs
    assert why(api, oak, job) is None


@pytest.mark.parametrize("started", [False, True])
def test_task_of_a_silent_agent_says_since_when(api, oak, clock, monkeypatch, started):
    oak.say("heartbeat", running=[])
    job = submit(api, oak)
    (offer,) = oak.take()
    if started:
        oak.say("events", events=[ref(offer, event="started")])
        assert why(api, oak, job) is None
    clock.now += api.service.settings.lease + 1
    api.service.heartbeats.silences = lambda _, signs: {
        name: type("S", (), {"likely": 1e9, "certain": 0.0}) for name in signs
    }
    wait = why(api, oak, job)
    assert (wait["reason"], wait["facts"]["agent"]) == ("agent-silent", "a")
    assert "silent since" in wait["text"]


def test_task_that_is_told_to_stop_says_who_has_not_confirmed(api, oak):
    oak.say("heartbeat", running=[])
    job = submit(api, oak)
    (offer,) = oak.take()
    oak.say("events", events=[ref(offer, event="started")])
    api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    wait = why(api, oak, job)
    assert (wait["reason"], wait["facts"]["agent"]) == ("stopping", "a")


def test_suspended_job_says_so(api, oak):
    oak.say("heartbeat", running=[])
    job = submit(api, oak, duration=60)
    (offer,) = oak.take()
    oak.say("events", events=[ref(offer, event="started")])
    api.good("POST", f"/v1/jobs/{job}:suspend", None, oak.token)
    Forecaster(api.service).turn()
    assert api.good("GET", f"/v1/jobs/{job}/eta", None, oak.token)["how"] == "running"
    oak.say("events", events=[ref(offer, event="suspended")])
    assert why(api, oak, job)["reason"] == "suspended"
    eta = api.good("GET", f"/v1/jobs/{job}/eta", None, oak.token)
    assert (eta["how"], eta["end"], eta["text"][:16]) == ("unknown", None, "1 task suspended")
    assert api.good("GET", f"/v1/jobs/{job}", None, oak.token)["eta"] is None
    api.good("POST", f"/v1/jobs/{job}:resume", None, oak.token)
    assert why(api, oak, job)["text"].endswith("or not resumed yet")


@pytest.mark.parametrize("state", sorted(BOOKED | {TaskState.WAITING}))
def test_every_state_before_the_end_has_a_reason_unless_it_runs(api, oak, state):
    oak.say("heartbeat", running=[])
    job = submit(api, oak)
    step(api.service, "oak")
    with api.service.store.write() as connection:
        connection.exec_driver_sql(f"UPDATE tasks SET state = '{state}', agent = 'a' WHERE job = '{job}'")  # noqa: S608
        change(connection, job, wait=None)
        assert get_job(connection, job).wait is None
    wait = why(api, oak, job)
    assert (wait is None) is (state is TaskState.RUNNING)
    if wait is not None:
        assert wait["reason"]
        assert 0 < len(wait["text"]) <= 150
        assert wait["since"] is not None
