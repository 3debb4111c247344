"""RFC 26's dependencies by name: who waits for whom, within which scope, and what is refused."""

import pytest

from rainbow.service.live_state.mirror import Mirrors
from tests.conftest import ADMIN, grid, jobspec


@pytest.fixture
def oak(api):
    made = api.register("oak", grid(9, 1))
    made.say("heartbeat", running=[])
    return made


def submit(oak, *dependencies, who="ann", token=None):
    named = [dict(zip(("scheme", "value", "type", "scope"), one, strict=True)) for one in dependencies]
    spec = jobspec(1, **({"dependencies": named} if named else {}))
    return oak.api.good("POST", "/v1/jobs", {"jobspec": spec, "requestor": who}, token or oak.token)["id"]


def starting(oak):
    """The jobs that start now; their offers are ended by `end`."""
    return {offer["job"]: offer for offer in oak.take()}


def s(name, kind, scope="user"):
    return ("string", name, kind, scope)


def test_chain_of_inout_runs_one_after_another(oak):
    jobs = [submit(oak, s("foo", "inout")) for _ in range(3)]
    for job in jobs:
        begun = starting(oak)
        assert list(begun) == [job]
        oak.end(begun[job])
    assert starting(oak) == {}


def test_fan_out_of_the_rfc(oak):
    first = submit(oak, s("A", "out"))
    middle = [submit(oak, s("A", "in"), s("B", "out")) for _ in range(3)]
    last = submit(oak, s("B", "in"))
    begun = starting(oak)
    assert list(begun) == [first]
    oak.end(begun[first])
    begun = starting(oak)
    assert sorted(begun) == sorted(middle)
    for job in middle[:2]:
        oak.end(begun[job])
    assert starting(oak) == {}
    wait = oak.api.good("GET", f"/v1/jobs/{last}/why", None, ADMIN)["wait"]
    assert (wait["reason"], wait["facts"]["jobs"]) == ("dependency", [middle[2]])
    oak.end(begun[middle[2]])
    assert list(starting(oak)) == [last]


def test_outs_of_one_name_wait_for_nothing(oak):
    jobs = [submit(oak, s("foo", "out")) for _ in range(2)]
    assert sorted(starting(oak)) == sorted(jobs)


def test_what_has_ended_is_not_waited_for_however_it_ended(oak):
    first = submit(oak, s("foo", "out"))
    oak.end(starting(oak)[first], exit_code=1)
    second = submit(oak, s("foo", "in"))
    assert list(starting(oak)) == [second]


def test_order_only_a_failure_cancels_nobody(oak):
    first, second = submit(oak, s("foo", "out")), submit(oak, s("foo", "in"))
    oak.end(starting(oak)[first], exit_code=1)
    assert list(starting(oak)) == [second]


@pytest.mark.parametrize(
    ("brings", "wants", "who", "waits"),
    [
        (s("foo", "out"), s("foo", "in"), "ann", True),
        (s("foo", "out"), s("foo", "in"), "bob", False),
        (s("foo", "out"), s("foo", "in", "global"), "bob", False),
        (s("foo", "out"), s("foo", "in", "global"), "ann", True),
        (s("foo", "out", "global"), s("foo", "in", "global"), "bob", True),
        (s("foo", "out", "global"), s("foo", "in"), "bob", False),
        (s("foo", "out", "global"), s("foo", "in"), "ann", True),
        (s("foo", "out"), s("bar", "in"), "ann", False),
        (s("foo", "in"), s("foo", "in"), "ann", False),
    ],
)
def test_scope_says_who_belongs_together(oak, brings, wants, who, waits):
    first = submit(oak, brings, token=ADMIN)
    second = submit(oak, wants, who=who)
    begun = starting(oak)
    assert (first in begun, second in begun) == (True, not waits)


@pytest.mark.parametrize("kind", ["out", "inout"])
def test_to_concern_everybody_needs_the_admin_token(oak, kind):
    spec = jobspec(1, dependencies=[{"scheme": "string", "value": "foo", "type": kind, "scope": "global"}])
    answer = oak.api.problem(403, "forbidden", "POST", "/v1/jobs", {"jobspec": spec}, oak.token)
    assert "requires the admin token" in answer["detail"]


def test_fluid_in_waits_for_the_job_of_that_id(oak):
    first = submit(oak)
    second = submit(oak, ("fluid", first, "in", "user"))
    begun = starting(oak)
    assert list(begun) == [first]
    oak.end(begun[first])
    assert list(starting(oak)) == [second]


@pytest.mark.parametrize(
    ("value", "kind", "pointer"),
    [("hungry-hippo-white-elephant", "in", "value"), ("f1", "out", "type"), ("f1", "inout", "type")],
)
def test_what_fluid_cannot_name_is_refused(oak, value, kind, pointer):
    spec = jobspec(1, dependencies=[{"scheme": "fluid", "value": value, "type": kind, "scope": "global"}])
    answer = oak.api.call("POST", "/v1/jobs", {"jobspec": spec}, oak.token)
    assert answer.status_code == 422
    assert answer.get_json()["pointer"].endswith(f"/attributes/system/dependencies/0/{pointer}")


def test_whom_it_waits_for_outlives_a_restart(oak, service):
    first, second = submit(oak, s("foo", "out")), submit(oak, s("foo", "in"))
    service.state(Mirrors).clear()
    begun = starting(oak)
    assert list(begun) == [first]
    oak.end(begun[first])
    assert list(starting(oak)) == [second]
