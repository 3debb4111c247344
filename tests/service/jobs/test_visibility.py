"""Under `visibility: own` a token that names requestors sees their jobs only: what it may not see is not there."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from rainbow.service.core import event_stream
from rainbow.service.core.access import caller
from tests.conftest import ADMIN, Api, Cluster, jobspec

SCHEDULER = "/v1/clusters/oak/scheduler"


@pytest.fixture
def two(api: Api) -> tuple[Cluster, dict[str, str], dict[str, str]]:
    """A cluster that shows one's own jobs only; tokens and jobs of ann and bob."""
    oak = api.register("oak", visibility="own")
    named = {who: {"clusters": ["oak"], "requestors": [who]} for who in ("ann", "bob")}
    tokens = {who: api.good("POST", "/v1/tokens", body, oak.secret)["token"] for who, body in named.items()}
    jobs = {who: api.good("POST", "/v1/jobs", jobspec(), token)["id"] for who, token in tokens.items()}
    oak.say("heartbeat")
    for offer in oak.take():
        oak.end(offer, output=f"of {offer['job']}")
    return oak, tokens, jobs


def told(api: Api, path: str, token: str) -> str:
    text: str = api.call("GET", path, None, token).get_data(as_text=True)
    return text


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs?cluster=oak", "/v1/events?follow=false&after=0"])
def test_lists_and_events_hold_ones_own_only(api: Api, two: Any, path: str) -> None:
    oak, tokens, jobs = two
    for who, other in (("ann", "bob"), ("bob", "ann")):
        assert jobs[who] in told(api, path, tokens[who])
        assert jobs[other] not in told(api, path, tokens[who])
    for whole in (oak.token, oak.secret, ADMIN):  # the secret, the administrator, and a token that names nobody
        assert all(job in told(api, path, whole) for job in jobs.values())


def test_a_stream_that_follows_tells_ones_own_only(api: Api, two: Any) -> None:
    _, tokens, jobs = two
    with api.service.store.read() as connection:
        ann = caller(api.service, connection, [tokens["ann"]])
    some = next(event_stream.follow(api.service, lambda: ann, 0))
    assert isinstance(some, list)
    assert {event.facts["job"] for event in some if event.kind in ("job", "task")} == {jobs["ann"]}
    assert not any(event.kind in ("token", "reservation") for event in some)


@pytest.mark.parametrize(
    ("method", "verb"),
    [("GET", ""), ("GET", "/why"), ("GET", "/replay"), ("DELETE", ""), ("POST", ":suspend"), ("POST", ":resume")],
)
def test_a_job_one_may_not_see_is_as_if_it_did_not_exist(api: Api, two: Any, method: str, verb: str) -> None:
    oak, tokens, jobs = two

    def asked(job: str) -> tuple[list[str], str]:
        said: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            said.append(statement)

        sa.event.listen(api.service.store.engine, "before_cursor_execute", note)
        api_told = api.problem(404, "not-found", method, f"/v1/jobs/{job}{verb}", None, tokens["ann"])
        sa.event.remove(api.service.store.engine, "before_cursor_execute", note)
        return said, str(api_told).replace(job, "*")

    asked(jobs["bob"])
    assert asked(jobs["bob"]) == asked(jobs["bob"][::-1])
    if method == "GET":
        api.good(method, f"/v1/jobs/{jobs['ann']}{verb}", None, tokens["ann"])
        api.good(method, f"/v1/jobs/{jobs['bob']}{verb}", None, oak.secret)


def test_the_owner_changes_it_at_any_time_and_it_is_noted(api: Api, two: Any) -> None:
    oak, tokens, jobs = two
    api.problem(403, "forbidden", "PATCH", SCHEDULER, {"visibility": "all"}, tokens["ann"])
    assert api.good("PATCH", SCHEDULER, {"visibility": None}, oak.secret)["visibility"] == "all"
    assert jobs["bob"] in told(api, "/v1/jobs", tokens["ann"])
    assert jobs["bob"] in told(api, "/v1/events?follow=false&after=0", tokens["ann"])
    assert api.good("PUT", SCHEDULER, {"visibility": "own"}, oak.secret)["visibility"] == "own"
    assert api.good("PUT", SCHEDULER, {}, oak.secret)["visibility"] == "own"
    assert jobs["bob"] not in told(api, "/v1/jobs", tokens["ann"])
    noted = api.good("GET", f"{SCHEDULER}/changes", None, oak.secret)["changes"]
    assert [(one["from"], one["to"]) for one in noted if one["what"] == "visibility"] == [
        ("all", "own"),
        ("own", "all"),
    ]
    api.problem(400, "request-invalid", "PATCH", SCHEDULER, {"visibility": "some"}, oak.secret)
