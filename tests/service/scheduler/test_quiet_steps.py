"""What a step costs when little changes: quiet clusters are left alone, of a large bag only the first are read."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.scheduling import LoadBased
from rainbow.service.agents.liveness import loads, spoken_for
from rainbow.service.live_state.live_job import Order
from rainbow.service.live_state.mirror import mirrored
from rainbow.service.scheduler import loop as looping
from rainbow.service.scheduler.loop import QUIET, Loop
from rainbow.service.scheduler.step import MANY_ROWS, step
from rainbow.state_machine import TaskState, advance
from rainbow.store import tasks
from rainbow.store.jobs import get as get_job
from rainbow.store.workers import AgentRecord
from tests.conftest import ADMIN, grid, snapshot
from tests.service.core.test_scatter import bag

TIMED = {
    "classes": {"default": 50, "b": 50},
    "requestors": [{"match": "bob", "class": "b"}],
    "rebalance_threshold": 10,
    "rebalance_minimum_duration": 9,
}


@pytest.fixture
def stepped(api, monkeypatch):
    """Name the clusters each turn of the loop would step, and step them."""
    loop = Loop(api.service, clock=lambda: 0.0)  # of which nothing goes by in a turn

    def turn(now):
        names = []
        for name in loop.turn(now):
            looping.step_safely(api.service, name)
            names.append(name)
        return sorted(names)

    return turn


def submit(api, oak, spec):
    return api.good("POST", "/v1/jobs", {"jobspec": spec}, oak.token)["id"]


def test_only_where_something_happens_is_stepped(api, stepped):
    oak, elm = api.register("oak", grid(2, 1)), api.register("elm", grid(2, 1))
    assert stepped(0.0) == ["elm", "oak"]
    oak.say("heartbeat", running=[])
    assert stepped(0.1) == ["oak"]
    assert stepped(0.2) == []
    job = submit(api, elm, bag(3))
    assert stepped(0.3) == ["elm"]
    api.good("DELETE", f"/v1/jobs/{job}", None, elm.token)
    assert stepped(0.4) == ["elm"]
    assert stepped(QUIET + 0.5) == ["elm", "oak"]


def test_fair_share_at_rest_is_left_alone_and_remembers(api, stepped):
    policy = {"name": "fair_share", "settings": {"quantum": {"type": "core"}}}
    oak = api.register("oak", grid(2, 1), policy=policy)
    oak.say("heartbeat", running=[])
    submit(api, oak, bag(5, elastic=True))
    seen = [stepped(k / 10) for k in range(6)]
    assert seen == [["oak"]] * 2 + [[]] * 4, "orders; what came of them; rest"
    assert oak.take()
    assert stepped(0.7) == ["oak"]
    assert stepped(0.8) == []


def test_what_is_full_is_not_planned_again_until_something_ends(api, stepped):
    oak = api.register("oak", grid(2, 1))
    oak.say("heartbeat", running=[])
    submit(api, oak, bag(5))
    assert stepped(0.0) == ["oak"]  # orders
    offers = oak.say("receive", max=10)["tasks"]
    oak.say("accept", tasks=[{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers])
    assert stepped(0.1) == ["oak"]
    assert stepped(0.2) == []
    oak.end(offers[0])
    assert stepped(0.3) == ["oak"]
    assert len(oak.say("receive", max=10)["tasks"]) == 1


@pytest.mark.parametrize("cause", ["a begin time", "a timer of the policy", "a failing step", "a policy of time"])
def test_where_time_matters_every_tick_is_a_step(api, stepped, cause, monkeypatch):
    oak = api.register("oak", grid(2, 1))
    oak.say("heartbeat", running=[])
    system = {"dependencies": [{"scheme": "begin-time", "value": "2000000"}]} if cause == "a begin time" else {}
    submit(api, oak, bag(3, **system))
    if cause == "a timer of the policy":
        api.good("PATCH", "/v1/clusters/oak/scheduler", {"settings": TIMED}, oak.secret)
        oak.take()
        api.good("POST", "/v1/jobs", {"jobspec": bag(3), "requestor": "bob"}, oak.token)
    if cause == "a failing step":
        monkeypatch.setattr(looping, "step", lambda *_: 1 / 0)
    if cause == "a policy of time":
        monkeypatch.setattr(LoadBased, "traits", LoadBased.traits._replace(by_events=False))
    now = 0.0
    for _ in range(5):
        now += 0.25
        names = stepped(now)
    assert names == ["oak"]


def test_of_a_large_bag_only_what_is_looked_at_is_built(api):
    oak = api.register("oak", grid(2, 1))
    oak.say("heartbeat", running=[])
    submit(api, oak, bag(20))
    with mirrored(api.service, api.service.catalogue["oak"]) as mirror:
        assert step(api.service, "oak")
        assert sum(map(len, (job._views for job in mirror.jobs.values()))) <= 3
    (job,) = snapshot(api.service, "oak").view.jobs
    assert (job.tasks, len(job.gangs)) == (18, 18)
    assert [gang.tasks for gang in job.gangs] == [(f"{job.id}-{k}",) for k in range(2, 20)]
    done = 0
    while offers := oak.take() or oak.say("receive", max=9)["tasks"]:
        done += len(offers)
        oak.say("accept", tasks=[{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers])
        for offer in offers:
            oak.end(offer)
    assert done == 20


@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=60),
    st.dictionaries(st.integers(0, 30), st.sampled_from([1.0, 5.0])),
)
def test_order_is_that_of_those_who_wait(changes, expected):
    order, waits = Order(range(20), expected), set(range(20))
    for index, comes in changes:
        (order.add if comes else order.discard)(index)
        (waits.add if comes else waits.discard)(index)
        assert list(order) == sorted(waits, key=lambda k: (-expected.get(k, 0.0), k))
        assert [order[k] for k in range(len(order))] == list(order)
        assert order.has(index) == comes


def test_longest_expected_of_a_stored_job_come_first(service, api):
    oak = api.register("oak", grid(2, 1))
    job = submit(api, oak, bag(6))
    lasts = [1.0, 5.0, 0.0, 5.0, 1.0, 9.0]
    with service.store.write() as connection:
        assert tasks.waiting_of(connection, job, 6) == (range(6), {})
        for task in tasks.of_job(connection, job):
            tasks.save(connection, replace(task, expected=lasts[task.index]), 0.0)
        assert list(Order(*tasks.waiting_of(connection, job, 6))) == [5, 1, 3, 0, 4, 2]
        at_once = tasks.waiting_at(connection, service.catalogue["oak"].id)
        assert list(Order(*at_once[job])) == [5, 1, 3, 0, 4, 2]
        tasks.save(connection, advance(tasks.of_job(connection, job)[5], TaskState.ASSIGNED), 0.0)
        assert list(Order(*tasks.waiting_of(connection, job, 6))) == [1, 3, 0, 4, 2]
        assert tasks.states_of(connection, job) == sorted([TaskState.WAITING, TaskState.ASSIGNED])


@pytest.mark.remembers
def test_cost_of_a_large_bag_grows_with_its_tasks_alone(api):
    """Twice the tasks take about twice the time (the original's time grew with the square)."""

    def spent(name, count):
        oak = api.register(name, grid(20, 1))
        oak.say("heartbeat", running=[])
        submit(api, oak, bag(count))
        began = 0.0
        for turn in range(16):
            began = time.thread_time() if turn == 1 else began  # the first reads the jobspec, whatever its length
            for offer in (offers := oak.take()):
                assert offer["processes"] == 1
            answer = {"attempt": 1, "event": "ended", "result": "exited", "exit_code": 0}
            oak.say("events", events=[{**answer, "task": offer["id"]} for offer in offers])
        return time.thread_time() - began

    spent("warm", 500)
    small, large = spent("small", 1_000), spent("large", 20_000)
    assert large < 5 * small  # the same fifteen rounds, in front of a queue twenty times as long


def test_metrics_are_the_figures_of_the_moment(api):
    oak = api.register("oak", grid(2, 1))
    oak.say("heartbeat", running=[])
    submit(api, oak, bag(5))
    oak.take()
    text = api.call("GET", "/metrics", None, ADMIN).get_data(as_text=True)
    for line in (
        'rainbow_class_running{class="default",cluster="oak"} 2.0',
        'rainbow_class_waiting{class="default",cluster="oak"} 3.0',
        'rainbow_class_target{class="default",cluster="oak"} 2.0',
        'rainbow_class_loaned{class="default",cluster="oak"} 0.0',
        'rainbow_spread{cluster="oak"} 0.0',
        'rainbow_step_failed{cluster="oak"} 0.0',
    ):
        assert line in text.splitlines()
    assert api.call("GET", "/metrics", None, oak.secret).status_code == 403
    assert api.call("GET", "/metrics").status_code == 401


def test_step_by_hand(api):
    oak = api.register("oak", grid(2, 1))
    oak.say("heartbeat", running=[])
    submit(api, oak, bag(1))
    assert api.good("POST", "/v1/clusters/oak/step", None, oak.secret) == {"ordered": True, "fault": None}
    assert api.good("POST", "/v1/clusters/oak/step", None, oak.secret) == {"ordered": False, "fault": None}
    assert api.call("POST", "/v1/clusters/oak/step", None, oak.token).status_code == 403


def test_why_tells_the_numbers_of_now_and_the_store_is_not_written_for_them(api):
    oak = api.register("oak", grid(1, 1))
    oak.say("heartbeat", running=[])
    jobs = [submit(api, oak, bag(1)) for _ in range(4)]
    (offer,) = oak.take()

    def waits(job):
        return api.good("GET", f"/v1/jobs/{job}/why", None, ADMIN)["wait"]

    def stored(job):
        with api.service.store.read() as connection:
            return get_job(connection, job).wait

    begun = waits(jobs[3])
    assert (begun["reason"], begun["facts"]["ahead"]) == ("share-used", 2)
    before = stored(jobs[3])
    oak.end(offer)
    (offer,) = oak.take()
    assert stored(jobs[3]) == before  # it still waits for the same reason
    now = waits(jobs[3])
    assert (now["reason"], now["facts"]["ahead"], now["since"]) == ("share-used", 1, begun["since"])
    assert now["text"].endswith("1 job ahead in the queue")


def test_where_nothing_can_start_a_share_of_the_time_is_spent(api):
    """Ten clusters without agents are looked at one after the other; the one with an agent always at once."""
    there = api.register("there", grid(2, 1))
    there.say("heartbeat", running=[])
    away = [api.register(f"away{k}", grid(2, 1)) for k in range(10)]
    now = [0.0]
    loop = Loop(api.service, clock=lambda: now[0])

    def turn():
        names = []
        for name in loop.turn(now[0]):
            now[0] += 0.004  # seconds that a step takes
            names.append(name)
        now[0] += 0.16 - 0.004 * len(names)
        return names

    turn()  # everything is new
    seen = []
    for _ in range(10):
        for one in [*away, there]:
            submit(api, one, bag(1))
        seen.append(turn())
    assert all(names[0] == "there" for names in seen)
    others = [name for names in seen for name in names[1:]]
    assert sorted(set(others)) == sorted(one.name for one in away)
    assert len(others) == pytest.approx(looping.SHARE * 10 * 0.16 / 0.004, abs=2)


@pytest.mark.parametrize(("policy", "at_once"), [("load_based", False), ("priority", False), ("delegate", True)])
def test_who_needs_no_worker_is_stepped_at_once(api, policy, at_once):
    oak = api.register("oak", grid(2, 1), policy={"name": policy})
    submit(api, oak, bag(1))
    loop = Loop(api.service, clock=lambda: 0.0)
    assert (loop._heard(0.0) == [api.service.catalogue["oak"].id]) is at_once
    assert list(loop.turn(0.0)) == ["oak"]


def test_workers_that_came_together_are_read_once(api):
    oak = api.register("oak", grid(MANY_ROWS + 1, 1))
    oak.say("heartbeat", running=[])
    rows = []
    for _ in range(4):
        step(api.service, "oak")
        with mirrored(api.service, api.service.catalogue["oak"]) as mirror:
            rows.append(mirror.read)
    assert max(rows) > MANY_ROWS
    assert rows[-1] == 0


def test_what_an_agent_serves_is_looked_up_once_whatever_the_others_serve():
    names = [f"n{k}" for k in range(2_000)]

    class Counted(frozenset):
        made = 0

        def __and__(self, other):
            Counted.made += len(self)
            return frozenset.__and__(self, other)

    signs = [AgentRecord(f"a{k}", float(k), Counted({name}), load={"load1": k}) for k, name in enumerate(names)]
    signs.append(AgentRecord("all", 0.5, None, load={"load1": -1.0}))
    assert spoken_for(signs, names) == set(names)
    assert loads(signs, names) == {"n0": {"load1": -1.0}} | {name: {"load1": k} for k, name in enumerate(names) if k}
    assert Counted.made == 2 * len(names)
