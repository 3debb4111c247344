"""Promised starts in a live service: stored, shown with what they depend on, and broken with an event."""

import re

import pytest
import sqlalchemy as sa

from rainbow.service.core.counters import REGISTRY
from rainbow.service.scheduler.step import step
from rainbow.store import events
from rainbow.store.schema import promises
from rainbow.text import rfc3339
from tests.service.scheduler.test_service_priority import submit, switch, why
from tests.support.agent_by_hand import Agent
from tests.support.asking import api, cluster

__all__ = ["api", "cluster"]  # fixtures


@pytest.fixture
def waiting(api, service, cluster):
    """Return a job that waits with a promised start, behind one that has both workers."""
    Agent(api, cluster["secret"]).say("heartbeat")
    switch(api, cluster, "priority")
    submit(api, cluster, 4, 2, duration=300)
    job = submit(api, cluster, 4, 2, duration=60)
    assert step(service, "one")
    return job


def stored(service):
    with service.store.read() as connection:
        return [row._asdict() for row in connection.execute(sa.select(promises))]


def told(service):
    with service.store.read() as connection:
        return [one.facts for one in events.after(connection, 0, None) if one.kind == "promise-broken"]


def test_a_promise_is_stored_and_shown_with_what_it_depends_on(api, service, cluster, waiting, clock):
    (one,) = stored(service)
    assert (one["job"], one["start"]) == (waiting, clock.now + 300)
    wait = why(api, cluster, waiting)
    assert wait["facts"]["promised"] == rfc3339(clock.now + 300)
    assert re.search(
        r"; promised start \d\d:\d\d UTC \(kept unless a worker fails or a higher priority comes\)$", wait["text"]
    )
    assert api("GET", f"/v1/jobs/{waiting}/eta", cluster["token"]).json["promised"] == rfc3339(clock.now + 300)
    begun = one["start"]
    clock.now += 10
    first = submit(api, cluster, 4, 2, duration=60)
    step(service, "one")
    assert [row["start"] for row in stored(service)] == [begun]
    assert "promised" not in why(api, cluster, first)["facts"]


def test_a_promise_that_a_lost_worker_breaks_is_told_as_an_event(api, service, cluster, waiting, clock):
    before = clock.now + 300
    assert api("POST", "/v1/clusters/one/workers/node0:offline", cluster["secret"]).status_code == 200
    step(service, "one")
    (event,) = told(service)
    assert (event["job"], event["old"], event["new"]) == (waiting, rfc3339(before), None)
    assert event["why"] == "worker-lost"
    assert "node0" in event["text"]
    assert stored(service) == []
    assert REGISTRY.get_sample_value("rainbow_promises_broken_total", {"why": "worker-lost"})


def test_a_promise_falls_with_the_policy_that_made_it(api, service, cluster, waiting):
    switch(api, cluster, "load_based")
    (event,) = told(service)
    assert (event["job"], event["why"]) == (waiting, "settings")
    assert stored(service) == []


def test_under_an_order_that_arrivals_change_nothing_is_promised(api, service, cluster, waiting):
    switch(api, cluster, "priority", order="f2")
    step(service, "one")
    (event,) = told(service)
    assert event["why"] == "settings"
    assert why(api, cluster, waiting)["text"].endswith("as it is planned by time limits and nothing is promised)")
