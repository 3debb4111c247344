"""Steps, leases, ends and restarts: what the service does between submit and result."""

import pytest
from sqlalchemy.exc import OperationalError

from rainbow.api import create_app
from rainbow.scheduling import Traits, policies, traits_of
from rainbow.service import Service, Settings, settings_of
from rainbow.service.scheduler.loop import step_safely
from rainbow.service.scheduler.step import step
from rainbow.state_machine import TaskState, advance
from rainbow.store import open_store, tasks
from tests.conftest import ADMIN, REGISTRATION
from tests.support.agent_by_hand import Agent, agent, begin, show, submit
from tests.support.asking import api, cluster, jobspec, shared_folder

__all__ = ["agent", "api", "cluster"]  # fixtures


def test_job_waits_with_a_reason_until_an_agent_is_seen(api, service, cluster, agent):
    job = submit(api, cluster)
    assert not step(service, "one")
    wait = api("GET", f"/v1/jobs/{job}/why", cluster["token"]).json["wait"]
    assert wait["reason"] == "no-agent"
    assert wait["text"] == "0 agents of one are connected; none was ever seen; start one with rainbow agent"
    agent.say("heartbeat")
    assert step(service, "one")
    assert show(api, cluster, job)["tasks"][0]["state"] == "ASSIGNED"


def test_reason_that_is_stored_follows_the_states_of_the_workers(api, service, cluster, agent):
    agent.say("heartbeat")
    names = [one["name"] for one in api("GET", "/v1/clusters/one/workers", cluster["secret"]).json["workers"]]
    answers = []
    for verb in ("drain", "offline"):
        for name in names:
            assert api("POST", f"/v1/clusters/one/workers/{name}:{verb}", cluster["secret"]).status_code == 200
        job = answers[0][0] if answers else submit(api, cluster)
        step(service, "one")
        answers.append((job, show(api, cluster, job)["wait"]["text"]))
    every = f"({', '.join(names)})"
    assert [text for _, text in answers] == [
        f"no worker is available: all {len(names)} workers are {word} {every}" for word in ("draining", "offline")
    ]


def test_reasons_of_many_jobs_follow_one_worker_and_no_job_is_written_for_it(api, service, cluster, agent, clock):
    agent.say("heartbeat")
    first, *_ = names = [
        one["name"] for one in api("GET", "/v1/clusters/one/workers", cluster["secret"]).json["workers"]
    ]
    for name in names:
        api("POST", f"/v1/clusters/one/workers/{name}:drain", cluster["secret"])
    jobs = [submit(api, cluster) for _ in range(2)]
    step(service, "one")
    before = [show(api, cluster, job)["wait"] for job in jobs]
    api("POST", f"/v1/clusters/one/workers/{first}:offline", cluster["secret"])
    clock.now += 2
    assert not step(service, "one")
    after = [show(api, cluster, job)["wait"] for job in jobs]
    assert all("offline" not in wait["text"] for wait in before)
    assert all("offline" in wait["text"] for wait in after)
    assert [wait["since"] for wait in after] == [wait["since"] for wait in before]
    assert api("GET", f"/v1/jobs/{jobs[0]}/why", cluster["token"]).json["wait"] == after[0]


def test_task_goes_through_its_states_to_completed(api, service, cluster, agent):
    job, task = begin(api, service, cluster, agent)
    assert show(api, cluster, job)["tasks"][0]["state"] == "ACCEPTED"
    agent.say("events", events=[{"task": task["id"], "attempt": 1, "event": "started"}])
    assert show(api, cluster, job)["state"] == "RUNNING"
    assert agent.end(task) == {"recorded": [task["id"]], "stale": []}
    shown = show(api, cluster, job)
    assert (shown["state"], shown["tasks"][0]["state"], shown["tasks"][0]["exit_code"]) == (
        "COMPLETED",
        "COMPLETED",
        0,
    )


@pytest.mark.parametrize(("most", "first"), [(1024, [7, 1024]), (0, [0, 7])])
def test_job_of_higher_priority_goes_first_as_far_as_its_site_lets_it(api, service, cluster, agent, most, first):
    agent.say("heartbeat")
    settings = {"settings": {"most_asked_priority": most}}
    assert api("PUT", "/v1/clusters/one/scheduler", cluster["secret"], json=settings).status_code == 200
    requests = (0, -5, 7, 1024, 3)  # for two workers
    sent = {submit(api, cluster, attributes={"system": {"priority": priority}}): priority for priority in requests}
    step(service, "one")
    started = [
        priority for job, priority in sent.items() if show(api, cluster, job)["tasks"][0]["state"] == "ASSIGNED"
    ]
    assert started == first


@pytest.mark.parametrize("priority", [9_999, -1024, "no number", True, 1.5])
def test_priority_that_is_none_is_refused(api, cluster, priority):
    body = jobspec(attributes={"system": {"priority": priority}})
    answer = api("POST", "/v1/jobs", cluster["token"], data=body)
    assert (answer.status_code, answer.json["pointer"]) == (422, "/attributes/system/priority")


def test_end_told_twice_is_recorded_once_more_and_changes_nothing(api, service, cluster, agent):
    job, task = begin(api, service, cluster, agent)
    agent.end(task)
    before = show(api, cluster, job)
    assert agent.end(task, code=9)["recorded"] == [task["id"]]
    assert show(api, cluster, job) == before


def test_failure_fails_the_job(api, service, cluster, agent):
    job, task = begin(api, service, cluster, agent)
    agent.end(task, code=3)
    assert show(api, cluster, job)["state"] == "FAILED"


def test_silent_agent_loses_its_task_to_another(api, service, cluster, agent, clock):
    job, task = begin(api, service, cluster, agent)
    clock.now += service.settings.lease + service.settings.grace + 1
    step(service, "one")
    assert show(api, cluster, job)["tasks"][0]["state"] == "WAITING"
    clock.now += 1  # a task that was lost rests before its second attempt
    other = Agent(api, cluster["secret"], "agent-2")
    other.say("heartbeat")
    step(service, "one")
    (again,) = other.take()
    assert (again["id"], again["attempt"]) == (task["id"], 2)
    assert agent.end(task) == {"recorded": [], "stale": [task["id"]]}
    other.end(again)
    assert show(api, cluster, job)["state"] == "COMPLETED"


def test_agent_that_answers_keeps_its_tasks(api, service, cluster, agent, clock):
    job, task = begin(api, service, cluster, agent)
    for _ in range(5):
        clock.now += service.settings.lease / 2
        agent.say("heartbeat", running=[{"id": task["id"], "attempt": 1}])
        step(service, "one")
    assert show(api, cluster, job)["tasks"][0]["state"] == "ACCEPTED"


def test_cancel_ends_what_waits_and_stops_what_runs(api, service, cluster, agent):
    jobs = [submit(api, cluster) for _ in range(3)]
    agent.say("heartbeat")
    step(service, "one")
    taken = agent.take()
    assert len(taken) == 2
    for job in jobs:
        assert api("DELETE", f"/v1/jobs/{job}", cluster["token"]).status_code == 200
    assert show(api, cluster, jobs[2])["state"] == "CANCELED"
    stops = agent.say("heartbeat", running=[])["stop"]
    assert sorted(stop["id"] for stop in stops) == sorted(task["id"] for task in taken)
    for task in taken:
        agent.end(task, code=None, result="stopped")
    assert {show(api, cluster, job)["state"] for job in jobs} == {"CANCELED"}


def test_space_stays_booked_until_the_end_is_confirmed(api, service, cluster, agent):
    first, second, third = (submit(api, cluster) for _ in range(3))
    agent.say("heartbeat")
    step(service, "one")
    taken = agent.take()
    api("DELETE", f"/v1/jobs/{first}", cluster["token"])
    assert not step(service, "one")
    agent.end(next(t for t in taken if t["job"] == first), code=None, result="stopped")
    assert step(service, "one")
    assert show(api, cluster, third)["tasks"][0]["state"] == "ASSIGNED"
    assert show(api, cluster, second)["tasks"][0]["state"] == "ACCEPTED"


def test_failing_policy_stops_only_its_own_cluster(api, service, cluster, agent, monkeypatch):
    api.register("two", "cluster(node(core))")
    submit(api, cluster)
    agent.say("heartbeat")

    class Broken:
        def plan(self, view):
            raise RuntimeError("no plan today")

    monkeypatch.setitem(policies._built_in, "load_based", Broken())
    assert not step_safely(service, "one")
    assert "no plan today" in service.faults[service.catalogue["one"].id]
    assert not step_safely(service, "two")
    monkeypatch.undo()
    assert step_safely(service, "one")
    assert service.faults == {}


def test_policy_that_is_not_installed_any_more_stops_only_its_own_cluster(api, service, cluster, agent, monkeypatch):
    other = api.register("two", "cluster(node(core))")
    api("PUT", "/v1/clusters/two/scheduler", other["secret"], json={"policy": "delegate"})
    submit(api, cluster)
    agent.say("heartbeat")
    monkeypatch.delitem(policies._built_in, "delegate")
    assert traits_of("delegate") == Traits()
    assert not step_safely(service, "two")
    assert "no plug-in 'delegate'" in service.faults[service.catalogue["two"].id]
    assert "no plug-in 'delegate'" in api("GET", "/v1/clusters/two/scheduler", other["secret"]).json["fault"]
    assert step_safely(service, "one")
    asking = jobspec(attributes={"system": {"class": "land"}})
    submitted = api("POST", "/v1/jobs", ADMIN, data=asking)
    assert submitted.status_code == 201, submitted.json
    repaired = api("PUT", "/v1/clusters/two/scheduler", other["secret"], json={"policy": "load_based"})
    assert (repaired.status_code, repaired.json["policy"]) == (200, "load_based")


def test_traits_of_a_policy_may_be_attributes_as_they_were(monkeypatch):
    class Old:
        rests = True

    monkeypatch.setitem(policies._built_in, "old", Old())
    assert traits_of("old") == Traits(rests=True)
    assert traits_of("load_based").by_census


def test_booked_nodes_come_back_when_the_job_has_ended(api, service, cluster, agent):
    def free():
        return api("GET", "/v1/clusters/one/state", cluster["secret"]).json["effective"]["nodes_free"]

    api("PUT", "/v1/clusters/one/state", cluster["secret"], json={"nodes_free": 10})
    submit(api, cluster)
    assert free() == 9
    agent.say("heartbeat")
    step(service, "one")
    (task,) = agent.take()
    assert free() == 9
    api("PUT", "/v1/clusters/one/state", cluster["secret"], json={"nodes_free": 9})  # it sees the job now
    assert free() == 9
    agent.end(task)
    assert free() == 10


def test_restart_finds_everything_as_it_was(api, service, cluster, agent, database, clock):
    jobs = [submit(api, cluster) for _ in range(5)]
    agent.say("heartbeat")
    step(service, "one")
    done, held = agent.take()
    agent.end(done)
    service.close()
    again = Service(open_store(database), Settings(secret=REGISTRATION, admin=ADMIN), clock)
    api.client = create_app(again).test_client()
    listed = api("GET", "/v1/jobs", cluster["token"]).json["jobs"]
    assert sorted(job["id"] for job in listed) == sorted(jobs)
    assert show(api, cluster, done["job"])["state"] == "COMPLETED"
    assert agent.end(held)["recorded"] == [held["id"]]
    assert step(again, "one")
    assert api("POST", "/v1/match", cluster["token"], data=jobspec()).json["candidates"]
    again.close()


def test_upstream_configurations_are_read_unmodified():
    for path in sorted((shared_folder() / "inputs" / "rainbow").rglob("*config.yaml")):
        settings = settings_of(path.read_bytes())
        assert settings.secret == "chocolate-cookies"
        assert settings.selector in ("random", "constraint")
        assert any(warning.startswith("ignored graphdatabase") for warning in settings.warnings)


def test_task_that_is_stopped_twice_blocks_nobody(api, service, cluster, agent):
    """A rebalance and a kill of one task blocked the original's loop for ever (S5)."""
    job, task = begin(api, service, cluster, agent)
    with service.store.write() as connection:
        (stored,) = tasks.of_job(connection, job)
        tasks.save(connection, advance(stored, TaskState.STOPPING, detail="RebalanceRequested"), service.clock())
    assert api("DELETE", f"/v1/jobs/{job}", cluster["token"]).status_code == 200
    assert api("DELETE", f"/v1/jobs/{job}", cluster["token"]).status_code == 200
    step(service, "one")
    assert [stop["id"] for stop in agent.say("heartbeat")["stop"]] == [task["id"]]
    agent.end(task, code=None, result="stopped")
    assert show(api, cluster, job)["state"] == "CANCELED"
    again = submit(api, cluster)
    step(service, "one")
    assert show(api, cluster, again)["tasks"][0]["state"] == "ASSIGNED"


def test_end_that_could_not_be_stored_is_told_again_and_stored(api, service, cluster, agent, monkeypatch):
    """After one failed write of an end the original failed every later one: the job never ended (S4)."""
    job, task = begin(api, service, cluster, agent)

    def full(*_):
        raise OperationalError("update tasks", {}, Exception("database or disk is full"))

    monkeypatch.setattr(tasks, "save_all", full)
    event = {"task": task["id"], "attempt": 1, "event": "ended", "result": "exited", "exit_code": 0}
    body = {"agent": "agent-1", "events": [event]}
    answer = api("POST", "/v1/clusters/one/events", cluster["secret"], json=body)
    assert answer.status_code == 503
    assert show(api, cluster, job)["state"] != "COMPLETED"
    monkeypatch.undo()
    agent.end(task)
    assert show(api, cluster, job)["state"] == "COMPLETED"
