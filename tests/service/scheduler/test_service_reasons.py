"""Why a job waits: one answer to all who ask, from the plan in force; the store keeps the code and its time."""

from __future__ import annotations

import threading
import time

import pytest
import sqlalchemy as sa

from rainbow.errors import PlanError
from rainbow.scheduling import Plan, Wait, policies
from rainbow.service import Service
from rainbow.service.scheduler import step as scheduler_step
from rainbow.service.scheduler.plan_in_force import BUDGET, PlansInForce
from rainbow.service.scheduler.reasons import reasons_of
from rainbow.service.scheduler.step import step
from rainbow.store import jobs as stored_jobs
from rainbow.store.schema import jobs
from tests.conftest import ADMIN, LONG
from tests.support.agent_by_hand import Agent
from tests.support.asking import api

__all__ = ["api"]  # a fixture

POLICIES = ("load_based", "priority", "fair_share", "delegate")
MANY = 200 if LONG else 14
GRAPH = {
    "nodes": {
        "c": {"metadata": {"type": "cluster"}},
        "n": {"metadata": {"type": "node", "count": 6}},
        "k": {"metadata": {"type": "core", "count": 4}},
        "m": {"metadata": {"type": "memory", "count": 4}},
    },
    "edges": [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}, {"source": "n", "target": "m"}],
}


def register(api, policy=None, name="one", settings=None):
    """Register a cluster of six nodes with four cores each."""
    planned = {"policy": {"name": policy, "settings": settings or {}}} if policy else {}
    answer = api("POST", "/v1/clusters", ADMIN, json={"name": name, "graph": {"graph": GRAPH}, **planned})
    assert answer.status_code == 201, answer.json
    return answer.json


def submit(api, cluster, kind="node", count=1, seconds=900, many=1):
    """Submit equal jobs; return their ids."""
    spec = {
        "version": 1,
        "resources": {"w": {"type": kind, "count": count}},
        "tasks": [{"command": ["true"], "resources": "w"}],
        **({"attributes": {"system": {"duration": seconds}}} if seconds else {}),
    }
    sent = [api("POST", "/v1/jobs", cluster["token"], json={"jobspec": spec}) for _ in range(many)]
    assert {answer.status_code for answer in sent} == {201}, sent[0].json
    return [answer.json["id"] for answer in sent]


def waits(api, cluster, job):
    """Return why a job waits as list, show and why say it."""
    listed = api("GET", "/v1/jobs?limit=1000", cluster["token"]).json["jobs"]
    return [
        next(one["wait"] for one in listed if one["id"] == job),
        api("GET", f"/v1/jobs/{job}", cluster["token"]).json["wait"],
        api("GET", f"/v1/jobs/{job}/why", cluster["token"]).json["wait"],
    ]


def codes(service):
    """Return what the store has of the waits of all jobs."""
    with service.store.read() as connection:
        return dict(connection.execute(sa.select(jobs.c.id, jobs.c.wait)).all())


@pytest.mark.parametrize("policy", POLICIES)
def test_list_show_why_and_the_page_say_the_same_before_and_after_ends(api, service, clock, policy):
    settings = {"max_handed_over": 6} if policy == "delegate" else None
    cluster = register(api, policy, settings=settings)
    agent = Agent(api, cluster["secret"])
    agent.say("heartbeat")
    submit(api, cluster, many=MANY)
    step(service, "one")
    tasks = agent.take()
    assert tasks
    for ended in (0, 3):
        for task in tasks[:ended]:
            agent.end(task)
        listed = api("GET", "/v1/jobs?limit=1000&state=waiting", cluster["token"]).json["jobs"]
        answer = {one["id"]: one["wait"] for one in listed if one["wait"]}
        assert len(answer) >= MANY - 6
        differ = [
            job
            for job, wait in answer.items()
            if not (
                wait
                == api("GET", f"/v1/jobs/{job}", cluster["token"]).json["wait"]
                == api("GET", f"/v1/jobs/{job}/why", cluster["token"]).json["wait"]
            )
        ]
        assert differ == []
        planned = [wait for wait in answer.values() if wait["at"]]
        assert len({(wait["at"], wait["plan"]) for wait in planned}) == 1
        clock.now += 2


def test_the_store_keeps_codes_and_writes_no_job_whose_code_stays(api, service, clock):
    cluster = register(api, "load_based")
    agent = Agent(api, cluster["secret"])
    agent.say("heartbeat")
    submit(api, cluster, many=20)
    step(service, "one")
    tasks = agent.take()
    before = codes(service)
    assert {frozenset(wait) for wait in before.values() if wait} == {frozenset({"reason", "since"})}
    for task in tasks[:3]:
        agent.end(task)
        clock.now += 5
        step(service, "one")
    after = codes(service)
    starts = [job for job, wait in before.items() if wait and not after[job]]
    assert len(starts) == 3
    assert {job: after[job] for job in before if job not in starts} == {
        job: before[job] for job in before if job not in starts
    }


def test_a_wait_has_the_time_and_the_number_of_its_plan_and_the_next_plan_the_next(api, service, clock):
    cluster = register(api, "load_based")
    Agent(api, cluster["secret"]).say("heartbeat")
    *_, last = submit(api, cluster, many=8)
    step(service, "one")
    first = waits(api, cluster, last)[0]
    assert first["at"].endswith("Z")
    clock.now += 2
    submit(api, cluster)
    then = waits(api, cluster, last)
    assert then[0] == then[1] == then[2]
    assert then[0]["plan"] == first["plan"] + 1
    assert (then[0]["since"], then[0]["reason"]) == (first["since"], first["reason"])
    assert then[0]["at"] > first["at"]


def test_a_step_that_waited_for_its_disk_lets_readers_plan(api, service, clock, monkeypatch):
    cluster = register(api, "load_based")
    Agent(api, cluster["secret"]).say("heartbeat")
    *_, last = submit(api, cluster, many=8)
    commit = scheduler_step._carry_out

    def slow(*answer):
        time.sleep(BUDGET * 1.5)
        return commit(*answer)

    monkeypatch.setattr(scheduler_step, "_carry_out", slow)
    step(service, "one")
    first = waits(api, cluster, last)[0]
    clock.now += 2
    submit(api, cluster)
    assert waits(api, cluster, last)[0]["plan"] == first["plan"] + 1


def test_a_plan_that_costs_more_than_an_answer_may_spend_is_not_made_for_readers(api, service, clock):
    cluster = register(api, "load_based")
    Agent(api, cluster["secret"]).say("heartbeat")
    *_, last = submit(api, cluster, many=8)
    step(service, "one")
    for cost, plans in ((BUDGET * 2, 0), (BUDGET / 2, 1)):
        first = waits(api, cluster, last)[0]
        [known] = service.state(PlansInForce).values()
        known.cost = cost
        clock.now += 2
        submit(api, cluster)
        assert waits(api, cluster, last)[0]["plan"] == first["plan"] + plans


def test_a_cluster_is_planned_for_readers_once_a_second_and_the_last_plan_answers_between(api, service, clock):
    cluster = register(api, "load_based")
    Agent(api, cluster["secret"]).say("heartbeat")
    *_, last = submit(api, cluster, many=8)
    plans = set()
    for k in range(6):
        clock.now += 0.3
        submit(api, cluster)
        plans |= {wait["plan"] for wait in waits(api, cluster, last)}
        assert len(plans) <= 1 + 0.3 * (k + 1)


def test_free_cores_that_are_kept_are_named_as_that(api, service, clock):
    cluster = register(api, "load_based")
    agent = Agent(api, cluster["secret"])
    agent.say("heartbeat")
    four = submit(api, cluster, many=4)
    step(service, "one")
    [wide] = submit(api, cluster, count=6)
    [one] = submit(api, cluster, kind="core", seconds=None)
    step(service, "one")
    listed, shown, why = waits(api, cluster, one)
    assert listed == shown == why
    assert listed["reason"] == "kept"
    assert listed["text"].startswith("8 cores are free but kept for true (anonymous) until ")
    assert listed["text"].endswith("UTC; a limit of 15 min or less starts it now")
    assert listed["facts"]["free"] == 8
    assert [row["job"] for row in listed["facts"]["kept"]] == [wide]
    assert "8 cores free" in waits(api, cluster, wide)[0]["text"]
    clock.now += 2
    api("DELETE", f"/v1/jobs/{four[0]}", cluster["token"])
    listed, shown, why = waits(api, cluster, one)
    assert listed == shown == why
    assert listed["text"].startswith("12 cores are free but kept for true (anonymous) until ")


# ── a policy of a third party ──


class Odd:
    """Starts nothing; what it says of a job is what a test wants."""

    def __init__(self, of, plan=None):
        self.reason, self.of, self._plan = "odd", of, plan

    def check(self, settings):
        return settings

    def plan(self, view):
        if self._plan is not None:
            self._plan()
        return Plan(rest=self)


@pytest.fixture
def odd(monkeypatch):
    """Install a policy as a third party's."""

    def install(policy):
        monkeypatch.setitem(policies._installed, "odd", policy)

    return install


def raising(job):
    raise KeyError(job)


def test_a_policy_that_raises_for_one_job_is_named_there_and_nowhere_else(api, service, odd):
    bad = []
    odd(Odd(lambda job: raising(job) if job in bad else Wait(job, "odd", "it is odd")))
    cluster = register(api, "odd")
    Agent(api, cluster["secret"]).say("heartbeat")
    ids = submit(api, cluster, many=3)
    bad.append(ids[1])
    step(service, "one")
    said = {job: waits(api, cluster, job) for job in ids}
    assert all(one == own[0] for own in said.values() for one in own)
    assert [said[job][0]["text"] for job in (ids[0], ids[2])] == ["it is odd"] * 2
    assert said[ids[1]][0]["reason"] == "odd"
    assert "KeyError" in said[ids[1]][0]["text"]
    assert 'rainbow_step_faults_total{cluster="one"}' in api("GET", "/metrics", ADMIN).text


def test_a_policy_that_raises_is_named_and_asked_once_a_second(api, service, clock, odd):
    plans: list[float] = []

    def plan():
        plans.append(clock.now)
        raise ValueError("out of order")

    odd(Odd(lambda job: Wait(job, "odd", "it is odd"), plan))
    cluster = register(api, "odd")
    Agent(api, cluster["secret"]).say("heartbeat")
    [job] = submit(api, cluster)
    for _ in range(2):
        for wait in waits(api, cluster, job):
            assert wait["reason"] == "next-cycle"
            assert "ValueError: out of order" in wait["text"]
        clock.now += 2
    assert len(plans) == 2


def test_a_policy_that_does_not_come_back_keeps_no_list_waiting(api, service, clock, odd):
    release = threading.Event()
    odd(Odd(lambda job: Wait(job, "odd", "it is odd") if release.wait(20) else None))
    cluster = register(api, "odd")
    Agent(api, cluster["secret"]).say("heartbeat")
    try:
        [job] = submit(api, cluster)
        step(service, "one")
        began = time.monotonic()
        for _ in range(3):
            [wait] = [one["wait"] for one in api("GET", "/v1/jobs", cluster["token"]).json["jobs"]]
            assert wait["reason"] == "odd"
        assert time.monotonic() - began < 5
        assert "does not come back" in wait["text"] or "has not come back" in wait["text"]
    finally:
        release.set()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        clock.now += 2
        wait = api("GET", f"/v1/jobs/{job}", cluster["token"]).json["wait"]
        if wait["text"] == "it is odd":
            break
        time.sleep(0.05)
    assert wait["text"] == "it is odd"


def test_a_list_over_many_clusters_is_answered_in_time(api, service, clock):
    many = 500 if LONG else 20
    for k in range(many):
        cluster = register(api, name=f"c{k:03}")
        api("POST", f"/v1/clusters/c{k:03}/heartbeat", cluster["secret"], json={"agent": "a"})
        submit(api, cluster)
    for within in (1.0, 0.5):  # the first time mirrors are made
        began = time.thread_time()
        listed = api("GET", "/v1/jobs?limit=1000", ADMIN).json["jobs"]
        spent = time.thread_time() - began
        assert len(listed) == many
        assert all(one["wait"]["text"] for one in listed)
        assert spent < within
    late = [one["wait"] for one in listed if one["wait"]["at"] is None]
    assert all(wait["text"].startswith("the next scheduling cycle of c") and not wait["facts"] for wait in late)


# ── upgrade ──


def test_texts_that_a_former_version_stored_are_ignored_and_replaced_by_codes_as_these_change(api, service, clock):
    cluster = register(api, "load_based")
    agent = Agent(api, cluster["secret"])
    agent.say("heartbeat")
    ids = submit(api, cluster, many=1_000 if LONG else 40)
    step(service, "one")
    tasks = agent.take()
    waiting = [job for job, wait in codes(service).items() if wait]
    with service.store.write() as connection:  # as the release before wrote it
        for job in waiting:
            old = {"reason": "share-used", "text": "old words", "facts": {"ahead": 7}, "since": clock.now - 60}
            stored_jobs.change(connection, job, wait=old)
    again = Service(service.store, service.settings, service.clock)
    records = {}
    with again.store.read() as connection:
        records = {record.id: record for record in stored_jobs.some(connection, waiting)}
    results = reasons_of(again, list(records.values()))
    assert results.keys() == set(waiting)
    assert all(one["text"] and "old words" not in one["text"] for one in results.values())
    assert {one["since"] for one in results.values()} == {clock.now - 60}
    agent.end(tasks[0])
    step(again, "one")
    stored = codes(service)
    assert {job: stored[job] for job in waiting if stored[job]}  # no code has changed: nothing is written
    assert ids[0] in stored


# ── a record that is lost on the way to memory ──


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ("UPDATE tasks SET state = 'COMPLETED' WHERE job = :job", "task {job}-0 is only in memory"),
        ("UPDATE jobs SET priority = 7 WHERE id = :job", "job {job}, priority: 0 in memory, 7 stored"),
        ("DELETE FROM jobs WHERE id = :job", "job {job} is only in memory"),
    ],
)
def test_a_change_that_memory_has_not_seen_is_found_and_named(api, service, lost, named):
    cluster = register(api, "load_based")
    agent = Agent(api, cluster["secret"])
    agent.say("heartbeat")
    [job] = submit(api, cluster)
    step(service, "one")
    agent.take()
    for _ in range(3):  # what is stored of the first job is no news any more
        submit(api, cluster)
        step(service, "one")
    with service.store.write() as connection:  # past the column that stamps every change
        connection.execute(sa.text(lost), {"job": job})
    with pytest.raises(PlanError) as fault:
        step(service, "one")
    assert named.format(job=job) in str(fault.value)
    step(service, "one")  # the mirror was thrown away; what is stored holds
