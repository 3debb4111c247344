"""Tasks that are tried again, workers that are put away, durations that are remembered."""

import pytest

from rainbow.service.agents.liveness import LOOK
from rainbow.service.scheduler.step import step
from rainbow.store import statistics
from rainbow.store.schema import durations
from tests.conftest import grid

PATH = "/v1/clusters/oak/scheduler"


@pytest.fixture
def oak(api):
    made = api.register("oak", grid(2, 1))
    made.say("heartbeat")
    return made


def limit(oak, **limits):
    oak.api.good("PATCH", PATH, {"limits": limits}, oak.secret)


def submit(oak, *names, requestor="ann", job="job"):
    slot = {"type": "node", "replicas": 1, "with": [{"type": "core", "count": 1}]}
    entries = [{"name": name, "command": ["true"], "resources": "work"} for name in names or ["t"]]
    spec = {"resources": {"work": slot}, "tasks": entries}
    body = {"jobspec": spec, "requestor": requestor, "name": job}
    return oak.api.good("POST", "/v1/jobs", body, oak.token)["id"]


def show(oak, job):
    return oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)


def workers(oak):
    listed = oak.api.good("GET", "/v1/clusters/oak/workers", None, oak.secret)["workers"]
    return {worker["name"]: worker["state"] for worker in listed}


@pytest.mark.parametrize("bad", [{"exit_code": 1}, {"result": "failed", "exit_code": None}, {"result": "timed_out"}])
def test_failed_task_runs_again_while_retries_last(oak, bad):
    limit(oak, max_retries=2)
    job = submit(oak)
    for remaining in (1, 0):
        oak.end(oak.take()[0], **bad)
        (task,) = show(oak, job)["tasks"]
        assert (task["state"], task["retries_left"]) == ("WAITING", remaining)
    oak.end(oak.take()[0], **bad)
    assert show(oak, job)["state"] == "FAILED"
    assert oak.take() == []


def test_no_retries_unless_asked_for(oak):
    job = submit(oak)
    oak.end(oak.take()[0], exit_code=1)
    assert show(oak, job)["state"] == "FAILED"


def test_lost_worker_uses_up_no_retry(oak):
    limit(oak, max_retries=1)
    job = submit(oak)
    (offer,) = oak.take()
    oak.say("heartbeat", workers=[])
    step(oak.api.service, "oak")
    oak.end(offer, result="stopped", exit_code=None)
    (task,) = show(oak, job)["tasks"]
    assert (task["state"], task["retries_left"], task["attempt"]) == ("WAITING", 1, 1)


# ── quarantine ──


def test_worker_that_cannot_start_tasks_is_put_away_and_comes_back(oak):
    limit(oak, quarantine_after=2, quarantine_minutes=5)
    for _ in range(2):
        submit(oak)
        (offer,) = oak.take()
        assert list(offer["placement"]) == ["n0"]
        oak.end(offer, result="failed", exit_code=None)
    assert workers(oak) == {"n0": "QUARANTINED", "n1": "READY"}
    submit(oak)
    (offer,) = oak.take()
    assert list(offer["placement"]) == ["n1"]
    oak.api.service.clock.now += 299
    oak.say("heartbeat")
    step(oak.api.service, "oak")
    assert workers(oak)["n0"] == "QUARANTINED"
    oak.api.service.clock.now += LOOK
    step(oak.api.service, "oak")
    assert workers(oak)["n0"] == "READY"


def test_worker_whose_time_is_over_is_lost_if_nobody_speaks_for_it(oak):
    limit(oak, quarantine_after=1, quarantine_minutes=1)
    submit(oak)
    oak.end(oak.take()[0], result="failed", exit_code=None)
    oak.api.service.clock.now += 61
    oak.say("heartbeat", workers=["n1"])
    step(oak.api.service, "oak")
    assert workers(oak)["n0"] == "LOST"
    oak.say("heartbeat")
    assert workers(oak)["n0"] == "READY"


@pytest.mark.parametrize("between", [{"exit_code": 0}, {"exit_code": 1}])
def test_program_that_ends_badly_is_no_fault_of_the_worker(oak, between):
    limit(oak, quarantine_after=2)
    for event in ({"result": "failed", "exit_code": None}, between, {"result": "failed", "exit_code": None}):
        submit(oak)
        oak.end(oak.take()[0], **event)
    assert workers(oak)["n0"] == "READY"


def test_nothing_is_put_away_unless_asked_for(oak):
    for _ in range(5):
        submit(oak)
        oak.end(oak.take()[0], result="failed", exit_code=None)
    assert workers(oak)["n0"] == "READY"


def test_task_of_a_worker_nobody_speaks_for_is_given_back_though_the_worker_is_put_away(oak):
    """The original counted a worker free that was listed busy, and never used it again (S1)."""
    limit(oak, quarantine_after=1, quarantine_minutes=60)
    job = submit(oak, "a", "b")
    first, second = oak.take()
    oak.end(first, result="failed", exit_code=None)
    oak.say("heartbeat", workers=["n0"])
    step(oak.api.service, "oak")
    oak.end(second, result="stopped", exit_code=None)
    task = next(task for task in show(oak, job)["tasks"] if task["id"] == second["id"])
    assert task["state"] == "WAITING"
    assert workers(oak) == {"n0": "QUARANTINED", "n1": "LOST"}


# ── durations ──


def run(oak, *seconds, job="job"):
    """Run tasks a, b, ... for so many seconds each, each on a worker of its own."""
    submit(oak, *"ab"[: len(seconds)], job=job)
    offers = sorted(oak.take(), key=lambda offer: seconds["ab".index(offer["name"])])
    events = [{"task": offer["id"], "attempt": offer["attempt"], "event": "started"} for offer in offers]
    oak.say("events", events=events)
    began = oak.api.service.clock.now
    for offer in offers:
        oak.api.service.clock.now = began + seconds["ab".index(offer["name"])]
        oak.end(offer)


def test_first_duration_is_the_mean_and_longest_starts_first(oak):
    """One run of 10 s was remembered as 5 s: a phantom first sample of nothing (S7)."""
    run(oak, 2.0, 10.0)
    job = submit(oak, "a", "new", "b")
    assert [task["expected"] for task in show(oak, job)["tasks"]] == [2.0, 0.0, 10.0]
    assert [offer["name"] for offer in oak.take()] == ["a", "b"]  # the two workers; `new` is unknown, so last


def test_longest_of_more_tasks_than_workers_starts_first(oak):
    run(oak, 2.0, 10.0)
    job = submit(oak, "c", "a", "b")
    oak.say("heartbeat", workers=["n0"])
    assert [offer["name"] for offer in oak.take()] == ["b"]
    assert [task["state"] for task in show(oak, job)["tasks"]] == ["WAITING", "WAITING", "ACCEPTED"]


def test_mean_is_of_all_runs_and_of_this_requestor_and_job(oak):
    run(oak, 2.0)
    run(oak, 4.0)
    assert show(oak, submit(oak, "a"))["tasks"][0]["expected"] == 3.0
    assert show(oak, submit(oak, "a", requestor="bob"))["tasks"][0]["expected"] == 0.0


def test_keys_of_jobs_do_not_run_into_each_other():
    """The original's key was a concatenation: "ab" + "c" was "a" + "bc" (S6)."""
    assert statistics.job_key("oak", "ab", "c") != statistics.job_key("oak", "a", "bc")


def test_only_the_tasks_that_ran_last_are_remembered(service):
    with service.store.write() as connection:
        for k in range(5):
            statistics.learn_duration(connection, "job", f"t{k}", 1.0, float(k))
        statistics.forget_oldest(connection, durations, 2)
        assert sorted(statistics.expected_durations(connection, "job")) == ["t3", "t4"]


# ── operators ──


def say_of(oak, worker, verb, status=200):
    answer = oak.api.call("POST", f"/v1/clusters/oak/workers/{worker}:{verb}", None, oak.secret)
    assert answer.status_code == status, answer.get_data(as_text=True)
    return answer.get_json()


@pytest.mark.parametrize(("verb", "state"), [("offline", "OFFLINE"), ("drain", "DRAINING")])
def test_busy_worker_put_away_and_brought_back_is_used_again(oak, verb, state):
    """Offlining a busy node and reinstating it leaked it: free by the count, busy by the list (S1)."""
    submit(oak)
    (offer,) = oak.take()
    assert say_of(oak, "n0", verb)["state"] == state
    submit(oak, "a", "b")
    (other,) = oak.take()
    assert (list(offer["placement"]), list(other["placement"])) == (["n0"], ["n1"])
    oak.end(offer)
    assert oak.take() == []
    say_of(oak, "n0", "reinstate")
    assert [list(offer["placement"]) for offer in oak.take()] == [["n0"]]


def test_heartbeat_of_an_offline_worker_alters_nothing(oak):
    """A node-added event for an offline node stored a nil node, and the next assignment panicked (S2)."""
    say_of(oak, "n0", "offline")
    oak.say("heartbeat", workers=["n1"])
    oak.say("heartbeat", workers=["n0", "n1"])
    submit(oak, "a", "b")
    assert [list(offer["placement"]) for offer in oak.take()] == [["n1"]]
    assert workers(oak) == {"n0": "OFFLINE", "n1": "READY"}


def test_what_an_operator_says_twice_is_said_once(oak):
    assert say_of(oak, "n0", "offline") == say_of(oak, "n0", "offline")
    say_of(oak, "n0", "drain", 409)
    say_of(oak, "n0", "reinstate")
    say_of(oak, "n0", "reinstate")
    say_of(oak, "nobody", "offline", 404)
    listed = oak.api.good("GET", f"{PATH}/changes", None, oak.secret)["changes"]
    assert [(one["what"], one["from"], one["to"]) for one in listed] == [
        ("worker n0", "OFFLINE", "READY"),
        ("worker n0", "READY", "OFFLINE"),
    ]


def test_lost_worker_is_not_reinstated_by_word_alone(oak):
    oak.say("heartbeat", workers=["n1"])
    say_of(oak, "n0", "reinstate", 409)
    assert workers(oak)["n0"] == "LOST"
