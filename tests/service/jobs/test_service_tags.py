"""Basis and tag: newer versions replace older ones, and an older one does not come back."""

import pytest

from tests.conftest import grid, jobspec


@pytest.fixture
def oak(api):
    made = api.register("oak", grid(4, 1))
    made.say("heartbeat")
    return made


def submit(oak, basis, tag, requestor="ann", token=None):
    body = {"jobspec": jobspec(1), "requestor": requestor, "basis": basis, "tag": tag}
    return oak.api.good("POST", "/v1/jobs", body, token or oak.token)["id"]


def refused(oak, basis, tag, requestor="ann"):
    body = {"jobspec": jobspec(1), "requestor": requestor, "basis": basis, "tag": tag}
    return oak.api.problem(409, "conflict", "POST", "/v1/jobs", body, oak.token)


def state(oak, job):
    return oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)["state"]


def test_newer_tag_ends_what_waits_and_what_runs(oak):
    waiting = submit(oak, "review-1", "t1")
    running = submit(oak, "review-1", "t1")
    offers = oak.take()
    remaining = submit(oak, "review-1", "t2")
    assert {stop["id"] for stop in oak.say("heartbeat")["stop"]} == {offer["id"] for offer in offers}
    for offer in offers:
        oak.end(offer, result="stopped", exit_code=None)
    assert [state(oak, job) for job in (waiting, running, remaining)] == ["CANCELED", "CANCELED", "WAITING"]


def test_same_tag_is_another_try_and_ends_nothing(oak):
    first, second = submit(oak, "b", "t1"), submit(oak, "b", "t1")
    assert [state(oak, job) for job in (first, second)] == ["WAITING", "WAITING"]


def test_replayed_tag_is_refused(oak):
    """The original dropped the first tag of a basis, so t1, t2, t1 was accepted (S6)."""
    submit(oak, "b", "t1")
    stored = submit(oak, "b", "t2")
    assert refused(oak, "b", "t1")["newest"] == "t2"
    assert state(oak, stored) == "WAITING"


def test_repeats_use_up_no_place_in_the_history(oak):
    submit(oak, "b", "first")
    for _ in range(120):
        submit(oak, "b", "second")
    refused(oak, "b", "first")


def test_requestor_and_basis_do_not_run_into_each_other(oak):
    """The original's key was "ab" + "c" = "a" + "bc" (S6)."""
    one = submit(oak, "c", "t1", requestor="ab")
    submit(oak, "bc", "t2", requestor="a")
    assert state(oak, one) == "WAITING"
    submit(oak, "c", "t1", requestor="ab")


@pytest.mark.parametrize("other", [{"requestor": "bob"}, {"basis": "another"}])
def test_others_are_left_alone(oak, other):
    one = submit(oak, "b", "t1")
    submit(oak, **{"basis": "b", "tag": "t2", **other})
    assert state(oak, one) == "WAITING"


def test_job_that_was_refused_replaces_nothing(oak):
    stored = submit(oak, "b", "t1")
    oak.api.good("PATCH", "/v1/clusters/oak/scheduler", {"limits": {"throttle": 0}}, oak.secret)
    body = {"jobspec": jobspec(1), "requestor": "ann", "basis": "b", "tag": "t2"}
    oak.api.problem(429, "too-many", "POST", "/v1/jobs", body, oak.token)
    assert state(oak, stored) == "WAITING"
    oak.api.good("PATCH", "/v1/clusters/oak/scheduler", {"limits": {"throttle": -1}}, oak.secret)
    submit(oak, "b", "t1")


def test_cluster_of_others_is_not_touched(oak):
    elm = oak.api.register("elm", grid(1, 1))
    one = submit(oak, "b", "t1")
    submit(oak, "b", "t2", token=elm.token)
    assert state(oak, one) == "WAITING"


def test_job_shows_its_basis_and_tag(oak):
    job = submit(oak, "b", None)
    shown = oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)
    assert (shown["basis"], shown["tag"]) == ("b", job)
