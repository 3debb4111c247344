"""Policy, settings and limits over HTTP: checked, kept, effective at the next step, audited."""

import threading
from pathlib import Path

import pytest
import yaml

from rainbow.service.scheduler.step import step
from tests.conftest import ADMIN, Api, grid, jobspec, open_service_at

PATH = "/v1/clusters/oak/scheduler"
REFUSED = yaml.load(
    (Path(__file__).parents[2] / "cases" / "scheduler" / "refused.yaml").read_text(), yaml.CSafeLoader
)
CLASSES = {"classes": {"a": 50, "b": 50}, "default_class": "a", "requestors": [{"match": "b.*", "class": "b"}]}


@pytest.fixture
def oak(api):
    return api.register("oak", grid(4, 1))


def change(oak, **body):
    return oak.api.good("PATCH", PATH, body, oak.secret)


def submit(oak, requestor="ann", **more):
    body = {"jobspec": jobspec(1, **more), "requestor": requestor}
    return oak.api.good("POST", "/v1/jobs", body, oak.token)["id"]


def state(oak, job):
    return oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)["tasks"][0]["state"]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["pointer"])
@pytest.mark.parametrize("verb", ["PUT", "PATCH"])
def test_refused_change_is_told_by_pointer_and_changes_nothing(oak, verb, case):
    before = oak.api.good("GET", PATH, None, oak.secret)
    answer = oak.api.problem(422, "policy-invalid", verb, PATH, case["body"], oak.secret)
    assert answer["pointer"] == case["pointer"]
    assert oak.api.good("GET", PATH, None, oak.secret) == before
    assert oak.api.good("GET", f"{PATH}/changes", None, oak.secret) == {"changes": []}


def test_unknown_part_is_refused(oak):
    answer = oak.api.problem(400, "request-invalid", "PUT", PATH, {"setting": {}}, oak.secret)
    assert answer["detail"] == "unknown key setting; did you mean settings?"


def test_patch_changes_only_what_is_given_and_null_brings_the_default_back(oak):
    change(oak, settings={**CLASSES, "rebalance_threshold": 10})
    made = change(
        oak, settings={"rebalance_threshold": None, "rebalance_minimum_duration": 9}, limits={"throttle": 5}
    )
    assert made["settings"]["classes"] == {"a": 50, "b": 50}
    assert (made["settings"]["rebalance_threshold"], made["settings"]["rebalance_minimum_duration"]) == (0, 9)
    assert change(oak, limits={"max_requestors": 2})["limits"]["throttle"] == 5
    assert change(oak, limits={"throttle": None})["limits"]["throttle"] == -1


def test_put_brings_back_the_defaults_of_what_is_not_given_but_leaves_limits(oak):
    change(oak, settings=CLASSES, limits={"throttle": 5})
    made = oak.api.good("PUT", PATH, {"settings": {"rebalance_threshold": 3}}, oak.secret)
    assert made["settings"]["classes"] == {"default": 100}
    assert made["limits"]["throttle"] == 5


def test_settings_outlive_a_restart(tmp_path, clock):
    service = open_service_at(tmp_path, clock)
    oak = Api(service).register("oak", grid(4, 1))
    made = change(oak, settings={**CLASSES, "rebalance_threshold": 10}, limits={"max_requestors": 1})
    service.close()
    again = open_service_at(tmp_path, clock)
    shown = Api(again).good("GET", PATH, None, oak.secret)
    assert {key: shown[key] for key in ("policy", "settings", "limits")} == {
        key: made[key] for key in ("policy", "settings", "limits")
    }
    again.close()


def test_change_is_effective_at_the_next_step(oak):
    oak.say("heartbeat")
    first = [submit(oak, "ann") for _ in range(4)]
    change(oak, policy="delegate", settings={"max_handed_over": 1})
    step(oak.api.service, "oak")
    assert [state(oak, job) for job in first].count("ASSIGNED") == 1
    change(oak, policy="load_based", settings={})
    step(oak.api.service, "oak")
    assert [state(oak, job) for job in first].count("ASSIGNED") == 4


def test_every_change_is_audited(oak):
    clock = oak.api.service.clock
    change(oak, settings={"rebalance_threshold": 10})
    clock.now += 60
    oak.api.good("PATCH", PATH, {"settings": {"rebalance_threshold": 20}, "limits": {"throttle": 3}}, ADMIN)
    change(oak, settings={"rebalance_threshold": 20})
    result = oak.api.good("GET", f"{PATH}/changes", None, oak.secret)["changes"]
    assert [(one["what"], one["from"], one["to"], one["who"].split()[0]) for one in result] == [
        ("limits.throttle", -1, 3, "admin"),
        ("settings.rebalance_threshold", 10, 20, "admin"),
        ("settings.rebalance_threshold", 0, 10, "secret"),
    ]
    assert result[2]["changed_at"] < result[1]["changed_at"]
    assert oak.secret not in str(oak.api.good("GET", f"{PATH}/changes", None, oak.secret))


def test_only_the_cluster_s_own_secret_may_change_or_see(oak):
    elm = oak.api.register("elm")
    oak.api.problem(404, "not-found", "PATCH", PATH, {"settings": {}}, elm.secret)
    oak.api.problem(403, "forbidden", "PATCH", PATH, {"settings": {}}, oak.token)
    oak.api.problem(403, "forbidden", "GET", f"{PATH}/changes", None, oak.token)


def test_overlapping_expressions_are_reported(oak):
    entries = [{"match": "a.*", "class": "a"}, {"match": ".*n", "class": "b"}]
    assert change(oak, settings={**CLASSES, "requestors": entries})["warnings"] == []
    submit(oak, "ann")
    shown = oak.api.good("GET", PATH, None, oak.secret)
    text = "ann matches several classes and uses a; also matches: b"
    assert shown["warnings"] == [{"requestor": "ann", "class": "a", "also": ["b"], "text": text}]


def test_figures_are_shown_when_nothing_waits(oak):
    oak.say("heartbeat")
    figures = oak.api.good("GET", PATH, None, oak.secret)["figures"]
    assert figures["workers"] == 4
    assert figures["classes"]["default"]["target"] == 4


# ── limits ──


@pytest.mark.parametrize(
    ("limits", "requestors", "limit"),
    [
        ({"max_requestors": 1}, ["ann", "bob"], "max_requestors"),
        ({"max_jobs_per_requestor": 1}, ["ann", "ann"], "max_jobs_per_requestor"),
        ({"max_waiting_tasks": 1}, ["ann", "bob"], "max_waiting_tasks"),
        ({"throttle": 1}, ["ann", "bob"], "throttle"),
        ({"throttle": 0}, ["ann"], "throttle"),
    ],
)
def test_limit_refuses_what_is_too_much_and_says_which(oak, limits, requestors, limit):
    change(oak, limits=limits)
    for requestor in requestors[:-1]:
        submit(oak, requestor)
    body = {"jobspec": jobspec(1), "requestor": requestors[-1]}
    answer = oak.api.problem(429, "too-many", "POST", "/v1/jobs", body, oak.token)
    assert answer["limit"] == limit
    change(oak, limits={limit: -1})
    submit(oak, requestors[-1])


def test_ended_jobs_make_room(oak):
    change(oak, limits={"max_jobs_per_requestor": 1, "max_requestors": 1, "throttle": 1})
    oak.say("heartbeat")
    submit(oak, "ann")
    (offer,) = oak.take()
    oak.api.problem(429, "too-many", "POST", "/v1/jobs", {"jobspec": jobspec(1), "requestor": "ann"}, oak.token)
    oak.end(offer)
    submit(oak, "bob")


def test_limit_holds_under_concurrency(oak):
    """The original accepted five jobs where one was allowed: it checked before the earlier ones were added (S3)."""
    change(oak, limits={"max_jobs_per_requestor": 3})
    statuses = []

    def send():
        body = {"jobspec": jobspec(1), "requestor": "ann"}
        statuses.append(oak.api.call("POST", "/v1/jobs", body, oak.token).status_code)

    threads = [threading.Thread(target=send) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [201] * 3 + [429] * 21


# ── rebalance through the host ──


def test_victims_run_again_without_using_up_a_retry(oak):
    service = oak.api.service
    change(oak, settings={**CLASSES, "rebalance_threshold": 10, "rebalance_minimum_duration": 1})
    oak.say("heartbeat")
    lent = [submit(oak, "bob") for _ in range(4)]
    taken = oak.take()
    assert len(taken) == 4
    wanting = submit(oak, "ann")
    step(service, "oak")
    service.clock.now += 61
    oak.say("heartbeat")
    step(service, "oak")
    (stop,) = oak.say("heartbeat")["stop"]
    assert state(oak, wanting) == "WAITING"
    oak.say("events", events=[{"task": stop["id"], "attempt": 1, "event": "ended", "result": "stopped"}])
    step(service, "oak")
    assert state(oak, wanting) == "ASSIGNED"
    victim = next(job for job in lent if stop["id"].startswith(job))
    shown = oak.api.good("GET", f"/v1/jobs/{victim}", None, oak.token)["tasks"][0]
    assert (shown["state"], shown["attempt"], shown["retries_left"]) == ("WAITING", 1, 0)


def test_victim_no_agent_has_accepted_is_given_back_at_once(oak):
    service = oak.api.service
    change(oak, settings={**CLASSES, "rebalance_threshold": 10, "rebalance_minimum_duration": 1})
    oak.say("heartbeat")
    lent = [submit(oak, "bob") for _ in range(4)]
    step(service, "oak")
    wanting = submit(oak, "ann")
    step(service, "oak")
    service.clock.now += 61
    oak.say("heartbeat")
    step(service, "oak")
    assert [state(oak, job) for job in lent].count("WAITING") == 1
    step(service, "oak")
    assert state(oak, wanting) == "ASSIGNED"
