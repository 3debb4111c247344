"""Events tell what happened in order, to whom it may be told, and are resumed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rainbow.service.scheduler.step import step
from rainbow.store import events
from tests.conftest import ADMIN, Api, Clock, Cluster, jobspec


def told(api: Api, *tokens: str, after: int = 0) -> list[dict[str, Any]]:
    text = api.call("GET", f"/v1/events?follow=false&after={after}", None, *tokens).get_data(as_text=True)
    results = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        results += [{"id": int(lines["id"]), "kind": lines["event"], **json.loads(lines["data"])}] if lines else []
    return results


def test_events_tell_what_happened_in_order_and_are_resumed(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    oak.say("heartbeat")
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    [offer] = oak.take()
    oak.end(offer)
    seen = told(api, oak.token)
    assert [(each["kind"], each.get("state")) for each in seen] == [
        ("cluster", "registered"),
        ("job", "WAITING"),
        ("task", "ASSIGNED"),
        ("task", "ACCEPTED"),
        ("task", "COMPLETED"),
        ("job", "COMPLETED"),
    ]
    assert {each["job"] for each in seen if each["kind"] in ("job", "task")} == {job}
    ended = {"job": job, "task": offer["id"], "state": "COMPLETED", "attempt": 1, "exit_code": 0, "cluster": "oak"}
    assert {key: seen[4][key] for key in ended} == ended
    assert told(api, oak.token, after=seen[1]["id"]) == seen[2:]
    assert [each["cluster"] for each in told(api, elm.token)] == ["elm"]
    assert len(told(api, ADMIN)) == len(seen) + 1
    api.problem(400, "request-invalid", "GET", "/v1/events?after=x", None, oak.token)


@pytest.mark.parametrize("how", ["started", "canceled", "lost"])
def test_events_tell_of_every_state_of_a_task(api: Api, clock: Clock, how: str) -> None:
    oak = api.register("oak")
    oak.say("heartbeat")
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    [offer] = oak.take()
    oak.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    if how == "canceled":
        api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
        oak.end(offer, result="stopped", exit_code=None)
    if how == "lost":
        clock.now += 10_000
        step(api.service, "oak")
    rest = {"started": [], "canceled": ["STOPPING", "CANCELED"], "lost": ["WAITING"]}[how]
    states = [each["state"] for each in told(api, oak.token) if each["kind"] == "task"]
    assert states == ["ASSIGNED", "ACCEPTED", "RUNNING", *rest]


def test_events_that_there_are_are_told_to_the_last(api: Api) -> None:
    oak = api.register("oak")
    with api.service.store.write() as connection:
        cluster = api.service.catalogue["oak"].id
        events.add_all(connection, 0.0, cluster, "job", [{"cluster": "oak", "n": n} for n in range(1_200)])
    assert [each["n"] for each in told(api, oak.token) if "n" in each] == list(range(1_200))


def test_stream_begins_at_last_event_id_and_is_one_of_few(oak: Cluster) -> None:
    def opened(beside: str = "") -> Any:
        headers = {"Authorization": f"Bearer {oak.token}{beside}", "Last-Event-ID": "0"}
        return oak.api.app.test_client().get("/v1/events", headers=headers)

    streams = [opened() for _ in range(4)]
    parts = iter(streams[0].response)
    assert next(parts).startswith(b":")
    assert b"registered" in next(parts)
    refused = opened()
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
    assert opened(", Bearer rbt_wrong").status_code == 429  # what nobody knows makes nobody else of a caller
    for stream in streams:
        stream.close()
    last = opened()
    assert last.status_code == 200
    last.close()
