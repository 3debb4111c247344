"""Many jobs in one request, and what people do to jobs: each is as it should be, or refused by itself."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.service.jobs import verbs
from tests.conftest import ADMIN, Cluster, jobspec

ARRAY = {
    "resources": {"w": {"type": "core", "replicas": 1}},
    "tasks": [{"command": ["true"], "resources": "w", "replicas": 4}],
    "attributes": {"system": {"array": "1-4"}},
}


def submit(oak: Cluster, requestor: str = "ann", name: str = "job", spec: Any = None) -> str:
    body = {"jobspec": spec or jobspec(), "requestor": requestor, "name": name}
    return str(oak.api.good("POST", "/v1/jobs", body, oak.token)["id"])


def many(oak: Cluster, verb: str, login: str = "ann", **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = oak.api.good("POST", f"/v1/jobs:{verb}", body, oak.token, Rainbow_Login=login)
    return answer


def states(oak: Cluster, *jobs: str) -> list[str]:
    return [oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)["state"] for job in jobs]


def tasks(oak: Cluster, job: str) -> list[str]:
    return [task["state"] for task in oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)["tasks"]]


def test_cancel_by_filter_is_of_ones_own_jobs_and_may_be_said_again(
    oak: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "TOGETHER", 3)
    mine = [submit(oak, name=f"sweep-{k}") for k in range(8)]
    other, theirs = submit(oak, name="train"), submit(oak, "bob", "sweep-9")
    where = {"name": "sweep-*", "state": "waiting"}
    assert [row["id"] for row in many(oak, "cancel", where=where, dry_run=True)["jobs"]] == mine
    assert many(oak, "cancel", where=where, limit=2) == {"done": 2, "refused": []}
    assert states(oak, *mine) == ["CANCELED"] * 2 + ["WAITING"] * 6
    assert many(oak, "cancel", where=where) == {"done": 6, "refused": []}
    assert many(oak, "cancel", where=where) == {"done": 0, "refused": []}
    assert states(oak, *mine, other, theirs) == ["CANCELED"] * 8 + ["WAITING"] * 2
    events = oak.api.call("GET", "/v1/events?follow=false&after=0", None, ADMIN).get_data(as_text=True)
    assert all(events.count(f'"job": "{job}", "state": "CANCELED", "cluster"') == 1 for job in mine), events[:500]
    assert many(oak, "cancel", where={"user": "bob", "name": "*"}) == {"done": 1, "refused": []}


def test_several_by_name_are_done_and_what_one_refuses_is_said_of_it(oak: Cluster) -> None:
    oak.say("heartbeat", workers=["n0", "n1"])
    ended, runs = submit(oak), submit(oak, name="long")
    [first, _] = oak.take()
    oak.end(first)
    [task] = oak.api.good("GET", f"/v1/jobs/{runs}", None, oak.token)["tasks"]
    oak.say("events", events=[{"task": task["id"], "attempt": 1, "event": "started"}])
    waits, again = submit(oak, name="waits"), submit(oak, name="again")
    many(oak, "cancel", jobs=[again])
    answer = many(oak, "cancel", jobs=["last", waits, ended, runs, "none-such", waits])
    assert answer["done"] == 3  # `last` is `again`, which is canceled already
    assert [(row["job"], row["code"]) for row in answer["refused"]] == [
        ("none-such", "not-found"),
        (ended, "conflict"),
    ]
    assert (states(oak, ended, waits, again), tasks(oak, runs)) == (
        ["COMPLETED", "CANCELED", "CANCELED"],
        ["STOPPING"],
    )


def test_a_token_for_one_requestor_changes_no_job_of_another(oak: Cluster) -> None:
    token = oak.api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["bob"]}, oak.secret)["token"]
    anns, bobs = submit(oak, "ann"), submit(oak, "bob")
    answer = oak.api.good("POST", "/v1/jobs:cancel", {"jobs": [anns, bobs]}, token)
    assert (answer["done"], [row["code"] for row in answer["refused"]]) == (1, ["forbidden"])
    answer = oak.api.good("POST", "/v1/jobs:hold", {"where": {"user": "ann"}}, token)
    assert (answer["done"], [row["job"] for row in answer["refused"]]) == (0, [anns])
    assert states(oak, anns, bobs) == ["WAITING", "CANCELED"]


@pytest.mark.parametrize(
    "body",
    [{"where": {}}, {"where": {"name": []}}, {"where": {"user": ""}}, {}, {"jobs": []}, {"where": {"nme": "x"}}],
)
def test_a_request_without_a_filter_is_refused(oak: Cluster, body: Any) -> None:
    job = submit(oak)
    oak.api.problem(400, "request-invalid", "POST", "/v1/jobs:cancel", body, oak.token)
    assert states(oak, job) == ["WAITING"]


def test_held_job_does_not_start_and_what_runs_of_it_is_left_alone(oak: Cluster) -> None:
    oak.say("heartbeat", workers=["n0"])  # two cores
    job = submit(oak, spec=ARRAY)
    for offer in (begun := oak.take()):
        oak.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    assert oak.api.good("POST", f"/v1/jobs/{job}:hold", None, oak.token)["held_at"] is not None
    assert oak.say("heartbeat", workers=["n0"])["stop"] == []
    oak.end(begun[0])
    assert oak.take() == []
    assert tasks(oak, job).count("RUNNING") == 1
    assert oak.api.good("GET", f"/v1/jobs/{job}/why", None, oak.token)["wait"]["reason"] == "held"
    assert oak.api.good("POST", f"/v1/jobs/{job}:release", None, oak.token)["held_at"] is None
    assert len(oak.take()) == 1
    assert many(oak, "hold", jobs=[job]) == many(oak, "hold", jobs=[job]) == {"done": 1, "refused": []}


def test_one_element_is_canceled_and_the_array_goes_on(oak: Cluster) -> None:
    oak.say("heartbeat", workers=["n0"])
    job = submit(oak, spec=ARRAY)
    first, second = oak.take()
    for element in (1, 4):  # one that its agent has, one that waits
        shown = oak.api.good("DELETE", f"/v1/jobs/{job}_{element}", None, oak.token)
        assert [task["index"] for task in shown["tasks"]] == [element - 1]
    assert tasks(oak, job) == ["STOPPING", "ACCEPTED", "WAITING", "CANCELED"]
    oak.end(first, result="stopped", exit_code=143)
    oak.end(second)
    [third] = oak.take()
    oak.end(third)
    assert tasks(oak, job) == ["CANCELED", "COMPLETED", "COMPLETED", "CANCELED"]
    answer = many(oak, "cancel", jobs=[f"{job}_2", f"{job}_1", f"{job}_9"])
    assert (answer["done"], [row["job"] for row in answer["refused"]]) == (1, [f"{job}_9", job])


def test_requeued_job_runs_again_and_one_that_must_not_is_refused(oak: Cluster) -> None:
    oak.say("heartbeat", workers=["n0", "n1"])
    job, once = submit(oak), submit(oak, spec=jobspec(requeue=False))
    offers = {offer["job"]: offer for offer in oak.take()}
    answer = many(oak, "requeue", jobs=[job, once])
    assert (answer["done"], [row["job"] for row in answer["refused"]]) == (1, [once])
    assert tasks(oak, job) == ["STOPPING"]
    oak.end(offers[job], result="stopped", exit_code=143)
    [again] = oak.take()
    assert (again["job"], again["attempt"]) == (job, 2)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("name=sweep-*", ["sweep-2", "sweep-1"]),
        ("name=sweep-1&name=train", ["train", "sweep-1"]),
        ("user=bob", ["train"]),
        ("user=bob&user=ann", ["train", "sweep-2", "sweep-1"]),
        ("user=bob&name=sweep-*", []),
        ("id=NUMBER&number=0", ["sweep-1"]),
        ("since=2001-01-01T00:00:00Z", ["train", "sweep-2", "sweep-1"]),
        ("until=1969-01-01T00:00:00Z", []),
        ("account=none", []),
        ("state=waiting,running&cluster=oak", ["train", "sweep-2", "sweep-1"]),
    ],
)
def test_lists_are_filtered_at_the_server(oak: Cluster, query: str, expected: list[str]) -> None:
    first = submit(oak, name="sweep-1")
    submit(oak, name="sweep-2")
    submit(oak, "bob", "train")
    number = oak.api.good("GET", f"/v1/jobs/{first}", None, oak.token)["number"]
    answer = oak.api.good("GET", f"/v1/jobs?tasks=true&{query.replace('NUMBER', str(number))}", None, oak.token)
    assert [job["name"] for job in answer["jobs"]] == expected
    assert all(len(job["tasks"]) == 1 for job in answer["jobs"])
