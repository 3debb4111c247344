"""Tasks that are lost: given to others only when they have certainly ended, later each time, and not for ever."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rainbow.service.live_state.mirror import Mirrors
from rainbow.service.scheduler.step import step
from tests.conftest import Clock, Cluster, grid
from tests.service.jobs.test_service_retries import PATH, limit, show, submit, workers

HOUR = 3_600.0


@pytest.fixture
def oak(api: Any) -> Cluster:
    made: Cluster = api.register("oak", grid(2, 1))
    made.say("heartbeat")
    return made


def task_of(oak: Cluster, job: str) -> Any:
    return show(oak, job)["tasks"][0]


def lose(oak: Cluster, clock: Clock) -> None:
    """Take whatever waits, and lose it."""
    for _ in range(400):
        for offer in oak.take():
            oak.end(offer, result="lost", exit_code=None, detail="what watched it was killed")
            return
        clock.now += 1
        oak.say("heartbeat")
    raise AssertionError("nothing was offered")


def test_a_task_that_keeps_getting_lost_waits_longer_and_has_failed_after_max_lost(
    oak: Cluster, clock: Clock
) -> None:
    job, begun = submit(oak), []
    for _ in range(5):
        lose(oak, clock)
        begun.append(clock.now)
    gaps = [int(later - before) for before, later in itertools.pairwise(begun)]
    assert gaps == [1, 2, 4, 8], "the back-off doubles from a second"
    result = task_of(oak, job)
    assert (result["state"], result["attempt"], result["cause"]) == ("FAILED", 5, "lost")
    assert result["detail"].startswith(
        "lost 5 times, the limit is 5: attempt 1: what watched it was killed; attempt 2"
    )
    assert [one["attempt"] for one in result["losses"]] == [1, 2, 3, 4, 5]
    assert oak.take() == []


def test_a_task_that_rests_says_why_it_waits(oak: Cluster, clock: Clock) -> None:
    job = submit(oak)
    lose(oak, clock)
    step(oak.api.service, "oak")
    wait = oak.api.good("GET", f"/v1/jobs/{job}/why", None, oak.token)["wait"]
    assert (wait["reason"], wait["facts"]["lost"]) == ("lost", 1)
    assert "what watched it was killed" in wait["text"]


def test_a_task_rests_though_the_scheduler_is_started_again(oak: Cluster, clock: Clock) -> None:
    submit(oak)
    lose(oak, clock)
    oak.api.service.state(Mirrors).clear()
    assert oak.take() == []
    clock.now += 1
    assert len(oak.take()) == 1


@pytest.mark.parametrize("step_by", [HOUR, -HOUR])
def test_a_clock_that_is_set_loses_no_task_and_lets_none_rest_for_long(
    oak: Cluster, clock: Clock, step_by: float
) -> None:
    service = oak.api.service
    measured = Clock()
    service.monotonic, service.heartbeats._monotonic = measured, measured
    service.heartbeats.began = measured()
    oak.say("heartbeat")
    first = submit(oak)
    [offer] = oak.take()
    clock.now += step_by
    measured.now += 1
    step(service, "oak")
    assert task_of(oak, first)["state"] == "ACCEPTED", "its agent was heard a second ago"
    assert set(workers(oak).values()) == {"READY"}
    clock.now += 2 * step_by
    oak.say("heartbeat")
    measured.now += service.settings.lease - 1
    step(service, "oak")
    assert task_of(oak, first)["state"] == "ACCEPTED"
    oak.end(offer, result="lost", exit_code=None)
    clock.now -= 3 * step_by
    oak.say("heartbeat")
    again = []
    for _ in range(3):
        clock.now += 1
        again += oak.take()
    assert [one["attempt"] for one in again] == [2]


def test_a_silent_agents_tasks_are_given_back_after_lease_and_grace_by_the_measured_time(
    oak: Cluster, clock: Clock
) -> None:
    settings = oak.api.service.settings
    job = submit(oak)
    oak.take()
    clock.now += settings.lease + settings.grace - 1
    step(oak.api.service, "oak")
    assert (task_of(oak, job)["state"], workers(oak)["n0"]) == ("ACCEPTED", "LOST")
    clock.now += 2
    step(oak.api.service, "oak")
    assert task_of(oak, job)["state"] == "WAITING"


def test_an_agent_that_keeps_its_tasks_has_them_until_an_operator_takes_the_worker_offline(
    oak: Cluster, clock: Clock
) -> None:
    job = submit(oak)
    oak.say("heartbeat", on_lost_server="keep")
    oak.take()
    clock.now += 24 * HOUR
    step(oak.api.service, "oak")
    assert task_of(oak, job)["state"] == "ACCEPTED"
    oak.api.good("POST", "/v1/clusters/oak/workers/n0:offline", None, oak.secret)
    clock.now += 2
    step(oak.api.service, "oak")
    assert task_of(oak, job)["state"] == "WAITING"


def test_a_worker_on_which_tasks_keep_getting_lost_is_quarantined(oak: Cluster, clock: Clock) -> None:
    limit(oak, quarantine_after_lost=3, quarantine_minutes=5)
    oak.say("heartbeat", workers=["n0"])
    for _ in range(3):
        assert workers(oak)["n0"] == "READY"
        submit(oak)
        lose(oak, clock)
    assert workers(oak)["n0"] == "QUARANTINED"
    clock.now += 300
    oak.say("heartbeat", workers=["n0"])
    step(oak.api.service, "oak")
    assert workers(oak)["n0"] == "READY"


def test_a_task_that_ends_as_it_should_clears_its_worker(oak: Cluster, clock: Clock) -> None:
    limit(oak, quarantine_after_lost=2, max_lost=1)
    oak.say("heartbeat", workers=["n0"])
    for _ in range(2):
        submit(oak)
        lose(oak, clock)
        submit(oak)
        oak.end(oak.take()[0], exit_code=1)
    assert workers(oak)["n0"] == "READY"


def test_the_limits_have_defaults_and_can_be_set(oak: Cluster) -> None:
    limits = oak.api.good("GET", PATH, None, oak.secret)["limits"]
    assert (limits["max_lost"], limits["quarantine_after_lost"]) == (5, 10)


def test_a_job_that_completed_after_a_loss_says_so(oak: Cluster, clock: Clock) -> None:
    job = submit(oak)
    lose(oak, clock)
    clock.now += 1
    step(oak.api.service, "oak")
    [offer] = oak.take()
    oak.end(offer)
    answer = oak.api.good("GET", f"/v1/jobs/{job}/why", None, oak.token)
    assert answer["answer"] == (
        "COMPLETED on oak; t lost 1 attempt before, the last because what watched it was killed"
    )


def test_a_task_stopped_because_its_worker_is_lost_counts_as_lost(oak: Cluster, clock: Clock) -> None:
    submit(oak)
    submit(oak)
    [_, offer] = sorted(oak.take(), key=lambda one: sorted(one["placement"]))
    [lost] = offer["placement"]
    for _ in range(4):
        clock.now += oak.api.service.settings.lease / 2
        oak.say("heartbeat", workers=[name for name in ("n0", "n1") if name != lost])
    step(oak.api.service, "oak")
    assert (workers(oak)[lost], task_of(oak, offer["job"])["state"]) == ("LOST", "STOPPING")
    oak.end(offer, result="stopped", exit_code=None)
    result = task_of(oak, offer["job"])
    assert (result["state"], [one["why"] for one in result["losses"]]) == (
        "WAITING",
        [f"lost contact with worker {lost}"],
    )
