"""A server killed between any two phases of a step: nothing is lost, nothing runs twice, settings stay."""

import multiprocessing
import os
import random
import signal

import pytest

from rainbow.service.agents import liveness
from rainbow.service.clusters import graphs
from rainbow.service.core.access import Caller
from rainbow.service.live_state import mirror
from rainbow.service.scheduler import step as scheduler_step
from rainbow.service.scheduler.step import step
from rainbow.state_machine import BOOKED
from rainbow.store import clusters, jobs, tasks, workers
from tests.conftest import ADMIN, Api, Clock, grid, jobspec, open_service_at
from tests.support import dying
from tests.support.dying import PHASES

SETTINGS = {
    "classes": {"a": 50, "b": 50},
    "default_class": "a",
    "requestors": [{"match": "bob", "class": "b"}],
    "rebalance_threshold": 10,
    "rebalance_minimum_duration": 1,
}


class Killed(BaseException):
    """The end of the process, as far as it is concerned."""


# where the process ends: before or after which function of a step
PLACES = [
    (scheduler_step, "follow"),
    (mirror, "_look_at_dependents"),
    (scheduler_step, "lose_the_silent"),
    (liveness, "end_quarantine"),
    (scheduler_step, "empty_for_maintenance"),
    (scheduler_step, "stop_the_overdue"),
    (scheduler_step, "frozen"),
    (scheduler_step, "check_plan"),
    (tasks, "save_all"),
    (clusters, "set_memory"),
    (jobs, "set_waits"),
    (clusters, "new_epoch"),
    (scheduler_step, "_carry_out"),
]


def kill_at(monkeypatch, place, when):
    module, name = place
    whole = getattr(module, name)

    def killed(*arguments, **named):
        if when == "after":
            whole(*arguments, **named)
        raise Killed

    monkeypatch.setattr(module, name, killed)


def everything(service, ids):
    with service.store.read() as connection:
        return [task for job in ids for task in tasks.of_job(connection, job)]


def prepared(service, clock):
    """Return a cluster whose next step starts, stops and remembers; its jobs, and what its agent holds."""
    oak = Api(service).register("oak", grid(4, 1))
    oak.api.good("PATCH", "/v1/clusters/oak/scheduler", {"settings": SETTINGS}, oak.secret)
    oak.say("heartbeat")
    send = {"jobspec": jobspec(1), "requestor": "bob"}
    ids = [oak.api.good("POST", "/v1/jobs", send, oak.token)["id"] for _ in range(4)]
    held = {offer["id"]: offer for offer in oak.take()}
    # bob holds all workers for long
    oak.end(held.pop(sorted(held)[0]))
    ids += [oak.api.good("POST", "/v1/jobs", {**send, "requestor": "ann"}, oak.token)["id"] for _ in range(2)]
    clock.now += 2  # it is looked for what is lost only now and then
    with service.store.write() as connection:
        clusters.set_memory(connection, service.catalogue["oak"].id, {"over_since": clock.now - 61})
    return oak, ids, held


def starts_have_certificates(service, ids):
    """No start is there without its certificate, and no certificate without its start."""
    with service.store.read() as connection:
        results = [task for job in ids for task in tasks.of_job(connection, job)]
        proved = {task.id: workers.certificate_of(connection, task) is not None for task in results}
    assert proved == {task.id: task.attempt > 0 for task in results}
    return sum(proved.values())


def goes_on(again, oak, ids, held):
    """After a restart: nothing is lost, nothing runs twice on a live worker, settings are intact."""
    oak.api = Api(again)
    shown = oak.api.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)
    assert {key: shown["settings"][key] for key in SETTINGS} == SETTINGS
    assert len(everything(again, ids)) == len(ids)
    starts_have_certificates(again, ids)
    booked = [worker for task in everything(again, ids) if task.state in BOOKED for worker in task.placement]
    assert len(booked) == len(set(booked))
    runs = dict.fromkeys((task.id for task in everything(again, ids)), 0)
    for _ in range(12):
        if not held and all(task.state == "COMPLETED" for task in everything(again, ids)):
            break
        running = [{"id": task, "attempt": offer["attempt"]} for task, offer in held.items()]
        answer = oak.say("heartbeat", running=running)
        assert answer["stale"] == []  # what runs on a live worker is known to the server, and only once
        for stop in answer["stop"]:
            oak.end(held.pop(stop["id"]), result="stopped", exit_code=None)
        for offer in oak.take():
            assert offer["id"] not in held
            held[offer["id"]] = offer
        for task in list(held):
            runs[task] += 1
            oak.end(held.pop(task))
    assert {task.state for task in everything(again, ids)} == {"COMPLETED"}
    assert max(runs.values()) == 1
    again.close()


# nothing is written between the end of one function and the begin of the next
@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.soak), "after"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
def test_step_that_is_killed_loses_nothing_and_starts_nothing_twice(tmp_path, clock, monkeypatch, place, when):
    service = open_service_at(tmp_path, clock)
    oak, ids, held = prepared(service, clock)
    kill_at(monkeypatch, place, when)
    with pytest.raises(Killed):
        step(service, "oak")
    monkeypatch.undo()
    goes_on(open_service_at(tmp_path, clock), oak, ids, held)


def grown(service, name):
    more = {
        "nodes": {name: {"metadata": {"type": "node", "name": name}}},
        "edges": [{"source": "c0", "target": name}],
    }
    graphs.patch_graph(service, Caller(admin=True), "oak", {"changes": [{"op": "add", **more}]})


def grow_and_die(database, now):
    clock = Clock()
    clock.now = float(now)
    service, whole = open_service_at(database, clock), clusters.add_delta
    for name in ("x1", "x2"):  # stored whole, and beside that
        grown(service, name)

    def killed(*arguments, **named):
        whole(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    clusters.add_delta = killed
    grown(service, "x3")


def test_process_killed_in_a_change_of_a_graph_leaves_the_graph_before(database, clock):
    service = open_service_at(database, clock)
    oak = Api(service).register("oak", grid(2, 1))
    service.close()
    process = multiprocessing.get_context("fork").Process(target=grow_and_die, args=(database, str(clock.now)))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    again = open_service_at(database, clock)
    for name in ("x3", "x4"):
        there = Api(again).good("GET", "/v1/clusters/oak/graph", None, oak.secret)["graph"]["nodes"]
        assert name not in there
        results = set(again.catalogue["oak"].cluster.workers)
        assert results == {one for one, vertex in there.items() if vertex["metadata"]["type"] == "node"}
        grown(again, name)
    assert again.catalogue["oak"].revision == 5
    again.close()


@pytest.mark.parametrize("phase", PHASES)
def test_process_killed_in_a_step_loses_nothing_and_starts_nothing_twice(database, clock, phase):
    """kill -9 of a process of its own, after each phase of a step, on both stores."""
    service = open_service_at(database, clock)
    oak, ids, held = prepared(service, clock)
    service.close()
    killed_in_a_step(database, clock, phase)
    again = open_service_at(database, clock)
    assert Api(again).good("GET", "/v1/clusters/oak/workers", None, ADMIN)["workers"]
    goes_on(again, oak, ids, held)


def killed_in_a_step(database, clock, phase):
    """Let a process of its own take a step, and end it by kill -9 after a phase."""
    process = multiprocessing.get_context("fork").Process(target=dying.main, args=(database, str(clock.now), phase))
    process.start()  # a fork: all is imported
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


# after the check of a start, before its commit; not every step has a memory or a reason to write
BETWEEN = [phase for phase in PHASES if phase[0] in "456" and "memory" not in phase and "reason" not in phase]


@pytest.mark.soak
def test_thirty_kills_between_check_and_commit_leave_no_start_without_its_certificate(database, clock):
    chance, service = random.Random(30), open_service_at(database, clock)
    oak, ids = Api(service).register("oak", grid(90, 2)), []
    for _ in range(30):
        oak.api, send = Api(service), {"jobspec": jobspec(chance.randint(1, 2)), "requestor": "bob"}
        oak.say("heartbeat")
        ids += [oak.api.good("POST", "/v1/jobs", send, oak.token)["id"] for _ in range(2)]
        service.close()
        killed_in_a_step(database, clock, chance.choice(BETWEEN))
        service = open_service_at(database, clock)
        before = starts_have_certificates(service, ids)
        step(service, "oak")
        assert starts_have_certificates(service, ids) > before
        clock.now += 1
    service.close()
