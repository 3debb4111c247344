"""RFC 26 by job id and by the clock: a dependent job waits with that reason, and ends when it can never start."""

import pytest

from rainbow.jobspec import Dependency
from rainbow.scheduling.dependencies import Target, awaited
from rainbow.state_machine import JobState
from rainbow.text import rfc3339
from tests.conftest import grid, jobspec

S = JobState
MET, LEFT, NEVER = "met", "left", "never"
# scheme → what it is at each of STANDS
TABLE = {
    "after": (LEFT, MET, MET, MET, NEVER, MET),
    "afterany": (LEFT, LEFT, MET, MET, MET, MET),
    "afterok": (LEFT, LEFT, MET, NEVER, NEVER, NEVER),
    "afternotok": (LEFT, LEFT, NEVER, MET, MET, MET),
}
STANDS = [(S.WAITING, 0), (S.RUNNING, 1), (S.COMPLETED, 1), (S.FAILED, 1), (S.CANCELED, 0), (S.CANCELED, 1)]


@pytest.mark.parametrize("scheme", TABLE)
def test_every_scheme_at_every_state_of_the_other_job(scheme):
    for (state, started), said in zip(STANDS, TABLE[scheme], strict=True):
        one = awaited([Dependency(scheme, "7")], lambda _, s=state, r=started: Target(s, bool(r)), 0.0)
        assert (NEVER if one.never else LEFT if one.waits else MET) == said, (scheme, state)


def test_all_dependencies_must_be_met():
    stands = {"1": Target(S.COMPLETED, True), "2": Target(S.RUNNING, True)}
    requirements = [Dependency("afterok", "1"), Dependency("afterok", "2"), Dependency("begin-time", "50.5")]
    one = awaited(requirements, stands.get, 10.0)
    assert (one.waits, one.jobs, one.until) == (("job 2 to complete",), ("2",), 50.5)
    assert awaited([Dependency("fluid", "x", "in", "user")], stands.get, 0.0).waits == ()


@pytest.fixture
def oak(api):
    oak = api.register("oak", grid(4, 1))
    oak.say("heartbeat", running=[])
    return oak


def submit(api, oak, *dependencies):
    listed = [{"scheme": scheme, "value": value} for scheme, value in dependencies]
    spec = jobspec(**({"dependencies": listed} if listed else {}))
    return api.good("POST", "/v1/jobs", {"jobspec": spec}, oak.token)["id"]


def why(api, oak, job):
    return api.good("GET", f"/v1/jobs/{job}/why", None, oak.token)["wait"]


def show(api, oak, job):
    return api.good("GET", f"/v1/jobs/{job}", None, oak.token)


def test_job_waits_for_another_and_starts_when_it_has_completed(api, oak):
    first = submit(api, oak)
    second = submit(api, oak, ("afterok", first))
    (offer,) = oak.take()
    answer = why(api, oak, second)
    assert (answer["reason"], answer["facts"]["jobs"]) == ("dependency", [first])
    assert first in answer["text"]
    oak.end(offer)
    assert [new["job"] for new in oak.take()] == [second]
    assert why(api, oak, second)["reason"] == "not-started"  # its agent has it


def test_failed_dependency_ends_all_that_wait_for_it(api, oak):
    first = submit(api, oak)
    second = submit(api, oak, ("afterok", first))
    third = submit(api, oak, ("afterok", second))
    other = submit(api, oak, ("afternotok", first))
    (offer,) = oak.take()
    oak.end(offer, exit_code=1)
    assert [new["job"] for new in oak.take()] == [other]
    oak.take()
    assert [show(api, oak, job)["state"] for job in (second, third)] == ["CANCELED", "CANCELED"]
    (task,) = show(api, oak, second)["tasks"]
    assert task["detail"] == f"dependency can never be met: waiting for job {first} to complete, but it is FAILED"


def test_canceled_job_ends_what_waits_for_its_start(api, oak):
    first = submit(api, oak, ("begin-time", "2000000"))
    second = submit(api, oak, ("after", first))
    third = submit(api, oak, ("afterany", first))
    assert oak.take() == []
    api.good("DELETE", f"/v1/jobs/{first}", None, oak.token)
    assert [new["job"] for new in oak.take()] == [third]
    assert show(api, oak, second)["state"] == "CANCELED"


def test_job_with_a_begin_time_waits_for_it(api, oak, clock):
    job = submit(api, oak, ("begin-time", str(clock.now + 30)))
    assert oak.take() == []
    answer = why(api, oak, job)
    assert (answer["reason"], answer["facts"]["until"]) == ("begin-time", rfc3339(clock.now + 30))
    clock.now += 30
    assert [new["job"] for new in oak.take()] == [job]


def test_job_waits_for_one_of_another_cluster(api, oak):
    elm = api.register("elm", grid(1, 1))
    elm.say("heartbeat", running=[])
    first = submit(api, oak)
    spec = jobspec(dependencies=[{"scheme": "after", "value": first}])
    body = {"jobspec": spec, "clusters": [{"name": "elm", "token": elm.token}]}
    second = api.good("POST", "/v1/jobs", body, elm.token, oak.token)["id"]
    assert elm.take() == []
    (offer,) = oak.take()
    oak.say("events", events=[{"task": offer["id"], "attempt": offer["attempt"], "event": "started"}])
    assert [new["job"] for new in elm.take()] == [second]


@pytest.mark.parametrize("value", ["nobody", "0", "\u0000", "x" * 999])
def test_unknown_job_is_refused(api, oak, value):
    spec = jobspec(dependencies=[{"scheme": "after", "value": value}])
    answer = api.problem(422, "jobspec-invalid", "POST", "/v1/jobs", {"jobspec": spec}, oak.token)
    assert answer["pointer"] == "/attributes/system/dependencies/0/value"


def test_job_of_somebody_else_does_not_exist(api, oak):
    elm = api.register("elm", grid(1, 1))
    first = submit(api, oak)
    spec = jobspec(dependencies=[{"scheme": "after", "value": first}])
    answer = api.problem(422, "jobspec-invalid", "POST", "/v1/jobs", {"jobspec": spec}, elm.token)
    assert answer["detail"].startswith(f"job {first} not found")


def test_time_that_no_calendar_has_is_only_far_away(api, oak):
    job = submit(api, oak, ("begin-time", "1e300"))
    assert oak.take() == []
    assert why(api, oak, job)["reason"] == "begin-time"
    assert why(api, oak, job)["text"] == "does not start before 1e+300 seconds since 1970"
