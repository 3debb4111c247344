"""A server killed between any two phases of a step: nothing is lost, nothing runs twice, settings stay."""

import pytest

from rainbow.jobs import BOOKED
from rainbow.service import following, presence, stepping
from rainbow.service.stepping import step
from rainbow.store import clusters, jobs, tasks
from tests.conftest import Api, grid, jobspec, open_service_at

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
    (stepping, "follow"),
    (following, "_look_at_dependents"),
    (stepping, "lose_the_silent"),
    (presence, "release"),
    (stepping, "stop_the_overdue"),
    (stepping, "frozen"),
    (stepping, "check_plan"),
    (tasks, "save_all"),
    (clusters, "set_memory"),
    (jobs, "change"),
    (clusters, "new_epoch"),
    (stepping, "_carry_out"),
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


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
def test_step_that_is_killed_loses_nothing_and_starts_nothing_twice(tmp_path, clock, monkeypatch, place, when):
    service = open_service_at(tmp_path, clock)
    oak = Api(service).register("oak", grid(4, 1))
    oak.api.good("PATCH", "/v1/clusters/oak/scheduler", {"settings": SETTINGS}, oak.secret)
    oak.say("heartbeat")
    send = {"jobspec": jobspec(1), "requestor": "bob"}
    ids = [oak.api.good("POST", "/v1/jobs", send, oak.token)["id"] for _ in range(4)]
    held = {offer["id"]: offer for offer in oak.take()}
    # bob holds all workers for long, so the step to be killed starts, stops and remembers
    oak.end(held.pop(sorted(held)[0]))
    ids += [oak.api.good("POST", "/v1/jobs", {**send, "requestor": "ann"}, oak.token)["id"] for _ in range(2)]
    with service.store.write() as connection:
        clusters.set_memory(connection, service.catalogue["oak"].id, {"over_since": clock.now - 61})
    kill_at(monkeypatch, place, when)
    with pytest.raises(Killed):
        step(service, "oak")
    monkeypatch.undo()

    again = open_service_at(tmp_path, clock)
    oak.api = Api(again)
    shown = oak.api.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)
    assert shown["settings"]["classes"] == {"a": 50, "b": 50}
    assert len(everything(again, ids)) == len(ids)
    booked = [worker for task in everything(again, ids) if task.state in BOOKED for worker in task.placement]
    assert len(booked) == len(set(booked))
    runs = dict.fromkeys((task.id for task in everything(again, ids)), 0)
    for _ in range(12):
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
