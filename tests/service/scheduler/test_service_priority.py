"""The priority policy in a live service: shared workers, the resource diagram, and switching with work running."""

import pytest
from structlog.testing import capture_logs

from rainbow.scheduling import policies
from rainbow.service.scheduler.step import step
from rainbow.text import rfc3339
from tests.support.agent_by_hand import Agent
from tests.support.asking import api, cluster

__all__ = ["api", "cluster"]  # fixtures


@pytest.fixture
def agent(api, cluster):
    result = Agent(api, cluster["secret"])
    result.say("heartbeat")
    return result


def switch(api, cluster, policy, **settings):
    answer = api(
        "PUT", "/v1/clusters/one/scheduler", cluster["secret"], json={"policy": policy, "settings": settings}
    )
    assert answer.status_code == 200, answer.json


def submit(api, cluster, cores, slots=1, duration=100, **system):
    body = {
        "version": 1,
        "resources": [{"type": "slot", "count": slots, "label": "s", "with": [{"type": "core", "count": cores}]}],
        "tasks": [{"command": ["true"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": duration, **system}},
    }
    answer = api("POST", "/v1/jobs", cluster["token"], json={"jobspec": body})
    assert answer.status_code in (200, 201, 202), answer.json
    return answer.json["id"]


def state(api, cluster, job):
    return api("GET", f"/v1/jobs/{job}", cluster["token"]).json["tasks"][0]["state"]


def why(api, cluster, job):
    return api("GET", f"/v1/jobs/{job}/why", cluster["token"]).json["wait"]


def test_jobs_share_workers_by_cores_and_the_next_is_promised_a_time(api, service, cluster, agent):
    switch(api, cluster, "priority", discipline="conservative")
    small = [submit(api, cluster, 2) for _ in range(3)]
    wide = submit(api, cluster, 4)
    assert step(service, "one")
    assert [state(api, cluster, job) for job in small] == ["ASSIGNED"] * 3
    wait = why(api, cluster, wide)
    assert wait["reason"] == "reserved"
    assert wait["text"].startswith("0/2 workers: 2 busy until ")
    held = [task["processes"] for task in agent.take()]
    assert len(held) == 3


def test_slot_ranges_take_what_fits_and_the_agent_hears_of_every_slot(api, service, cluster, agent):
    switch(api, cluster, "priority")
    submit(api, cluster, 1, {"min": 2, "max": 6, "operator": "+", "operand": 1})
    step(service, "one")
    (task,) = agent.take()
    assert task["processes"] == 6


def test_jobs_behind_others_without_a_duration_are_promised_a_time_by_the_default_one(
    api, service, cluster, agent, clock
):
    switch(api, cluster, "priority", default_duration=300)
    first, second, third = (submit(api, cluster, 4, 2, duration=0) for _ in range(3))
    assert step(service, "one")
    assert state(api, cluster, first) == "ASSIGNED"
    wait = why(api, cluster, second)
    assert (wait["reason"], wait["facts"]["start"]) == ("reserved", rfc3339(clock.now + 300))
    assert "; promised start " in wait["text"]
    assert why(api, cluster, third)["reason"] == "busy"
    small = submit(api, cluster, 4, 1, duration=60)
    switch(api, cluster, "priority", default_duration=0)
    step(service, "one")
    wait = api("GET", f"/v1/jobs/{second}/why?verify=true", cluster["token"]).json
    assert (wait["wait"]["reason"], wait["verify"]["ever"]["can"]) == ("reserved", True)
    assert state(api, cluster, small) == "WAITING"


def test_timeline_shows_what_runs_and_what_is_promised(api, service, cluster, agent):
    switch(api, cluster, "priority")
    for slots in (8, 8):
        submit(api, cluster, 1, slots)
    step(service, "one")
    shown = api("GET", "/v1/clusters/one/timeline", cluster["secret"]).json
    assert {(line["worker"], line["type"], line["capacity"]) for line in shown["lines"]} == {
        (worker, "core", 4) for worker in {line["worker"] for line in shown["lines"]}
    }
    assert all([level for _, level in line["steps"]] == [4, 0] for line in shown["lines"])
    assert shown["svg"].startswith("<svg")
    assert api("GET", "/v1/clusters/one/timeline", cluster["token"]).status_code == 403


def test_every_step_prints_the_timeline_if_asked(api, service, cluster, agent, monkeypatch):
    switch(api, cluster, "priority")
    monkeypatch.setenv("RAINBOW_PRINT_TIMELINE", "1")
    submit(api, cluster, 2)
    with capture_logs() as logs:
        step(service, "one")
    (entry,) = [log for log in logs if log["event"] == "timeline"]
    assert " core of 4 " in entry["text"]


def test_plan_with_a_promise_without_end_is_plain_json(api, service, cluster, agent):
    switch(api, cluster, "priority")
    submit(api, cluster, 1, 8, duration=50)
    step(service, "one")
    submit(api, cluster, 1, 8, duration=0)
    answer = api("POST", "/v1/clusters/one/plan", cluster["secret"])
    assert [order["until"] for order in answer.json["orders"]] == [None]
    assert "Infinity" not in answer.get_data(as_text=True)


def test_timeline_of_an_idle_cluster_is_empty(api, service, cluster, agent):
    assert api("GET", "/v1/clusters/one/timeline", cluster["secret"]).json["lines"] == []


@pytest.mark.parametrize(("asked", "waits"), [((0, 0, 1024), 2), ((-5, 0, 0), 0)])
def test_a_jobspec_may_lower_its_own_job_and_not_raise_it(api, service, cluster, agent, asked, waits):
    switch(api, cluster, "priority", weights={"priority": 1.0})
    jobs = [submit(api, cluster, cores=4, priority=one) for one in asked]  # three, for two workers
    step(service, "one")
    assert [state(api, cluster, job) == "WAITING" for job in jobs] == [place == waits for place in range(3)]


def test_settings_are_refused_with_their_pointer(api, cluster):
    body = {"policy": "priority", "settings": {"queues": {"q": {"slots": -1}}}}
    answer = api("PUT", "/v1/clusters/one/scheduler", cluster["secret"], json=body)
    assert answer.status_code == 422 or answer.status_code == 400
    assert answer.json["pointer"].endswith("/queues/q/slots")


@pytest.mark.parametrize("unit", ["worker", "core"])
def test_switching_with_work_running_loses_and_stops_nothing(api, service, cluster, agent, clock, unit):
    """More waits than there is room for, in parallel and singly; every policy starts some of it while others run."""
    settings = {"load_based": {"unit": unit}}
    jobs, running, ended = [], {}, []

    def tasks():
        return [task for job in jobs for task in api("GET", f"/v1/jobs/{job}", cluster["token"]).json["tasks"]]

    def go_on():
        before = {task["id"] for task in tasks() if task["state"] == "RUNNING"}
        clock.now += 1
        agent.say("heartbeat", running=[{"id": t["id"], "attempt": t["attempt"]} for t in running.values()])
        step(service, "one")
        for task in agent.take():
            running[task["id"]] = task
            agent.say("events", events=[{"task": task["id"], "attempt": task["attempt"], "event": "started"}])
        states = {task["id"]: task["state"] for task in tasks()}
        assert {states[task] for task in before} <= {"RUNNING"}
        assert agent.say("heartbeat")["stop"] == []

    for policy in ("load_based", "priority", "fair_share", "load_based"):
        switch(api, cluster, policy, **settings.get(policy, {}))
        jobs += [submit(api, cluster, 2, slots, duration=10_000) for slots in (1, 2, 1)]
        go_on()
        first = next(iter(running))  # one ends under each policy, so that each has something to start
        agent.end(running.pop(first))
        ended.append(first)
        go_on()
    while running:
        agent.end(running.pop(next(iter(running))))
        go_on()
    assert {task["state"] for task in tasks()} == {"COMPLETED"}
    assert {task["attempt"] for task in tasks()} == {1}
    assert len(jobs) == 12


def verified(api, cluster, job):
    return api("GET", f"/v1/jobs/{job}/why?verify=true", cluster["token"]).json["verify"]


def test_can_ever_and_can_now_are_told_of_what_waits(api, service, cluster, agent):
    switch(api, cluster, "priority", quotas=[{"name": "q", "limits": [{"users": "{*}", "to": {"slots": 3}}]}])
    first, second, never = submit(api, cluster, 4), submit(api, cluster, 4, 2), submit(api, cluster, 1, 4)
    step(service, "one")
    assert verified(api, cluster, first) is None  # nothing of it waits
    answer = verified(api, cluster, second)
    assert (answer["ever"], answer["now"]["can"]) == ({"can": True, "text": "", "facts": {}}, False)
    assert answer["now"]["text"].startswith("1/2 workers: 1 busy until ")
    answer = verified(api, cluster, never)
    assert (answer["ever"]["can"], answer["now"]["can"]) == (False, False)
    assert (
        "quota" in answer["ever"]["text"] or "too few" in answer["ever"]["text"] or "room" in answer["ever"]["text"]
    )


@pytest.mark.parametrize("policy", [name for name in policies.names() if name != "priority"])
def test_can_ever_and_can_now_are_told_by_every_policy(api, service, cluster, agent, policy):
    switch(api, cluster, policy)
    jobs = [submit(api, cluster, 4) for _ in range(3)]
    step(service, "one")
    answers = [verified(api, cluster, job) for job in jobs]
    if policy == "delegate":
        assert answers == [None] * 3
        return
    assert [bool(one and one["ever"]["can"]) for one in answers] == [False, False, True]
    assert answers[2]["now"]["can"] is False
    assert answers[2]["now"]["text"]
