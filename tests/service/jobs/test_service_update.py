"""What is changed of a job after its submit: in the next plan, or refused with a reason and nothing half done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import ADMIN, Api, Cluster, jobspec


def submit(oak: Cluster, spec: Any = None, **more: Any) -> str:
    body = {"jobspec": spec or jobspec(), "requestor": "ann", "name": "job", **more}
    return str(oak.api.good("POST", "/v1/jobs", body, oak.token)["id"])


def update(oak: Cluster, job: str, *tokens: str, **changes: Any) -> dict[str, Any]:
    told: dict[str, Any] = oak.api.good(
        "PATCH", f"/v1/jobs/{job}", changes, *(tokens or (oak.token,)), Rainbow_Login="ann"
    )
    return told


def refused(oak: Cluster, job: str, status: int, code: str, **changes: Any) -> str:
    return str(oak.api.problem(status, code, "PATCH", f"/v1/jobs/{job}", changes, oak.token)["detail"])


def test_changed_limit_is_that_of_the_offer_and_stays_with_the_old_one(oak: Cluster) -> None:
    oak.say("heartbeat", workers=["n0"])
    job = submit(oak, jobspec(duration=3600))
    assert oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token).get("changes") is None
    update(oak, job, time_limit=7200)
    shown = update(oak, job, time_limit=1440, name="other")
    assert [one["changed"] for one in shown["changes"]] == [
        {"time_limit": [3600.0, 7200]},
        {"time_limit": [7200.0, 1440], "name": ["job", "other"]},
    ]
    assert {one["by"] for one in shown["changes"]} == {"ann"}
    assert update(oak, job, time_limit=1440)["changes"] == shown["changes"]  # nothing new
    [offer] = oak.take()
    assert (offer["job"], offer["duration"]) == (job, 1440)


def test_fewer_nodes_start_where_more_had_no_room(oak: Cluster) -> None:
    oak.say("heartbeat", workers=["n0"])  # of two
    job = submit(oak, jobspec(nodes=2))
    assert oak.take() == []
    assert refused(oak, job, 422, "value-refused", nodes=4) == "/nodes: the job asks for 2; give 1"
    assert update(oak, job, nodes=1)["changes"][0]["changed"] == {"nodes": [2, 1]}
    [offer] = oak.take()
    assert list(offer["placement"]) == ["n0"]


def test_of_what_runs_only_the_limit_may_be_lowered(oak: Cluster, clock: Any) -> None:
    oak.say("heartbeat", workers=["n0", "n1"])
    job = submit(oak, jobspec(duration=3600))
    [offer] = oak.take()
    oak.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    for change in ({"time_limit": 7200}, {"time_limit": 0}, {"nodes": 1}, {"nodes": 1, "name": "other"}):
        assert refused(oak, job, 409, "conflict", **change) == f"job {job} runs: only its limit may be lowered"
    shown = update(oak, job, time_limit=60)
    assert (shown["name"], shown["changes"][0]["changed"]) == ("job", {"time_limit": [3600.0, 60]})
    clock.now += 3_000
    oak.say("heartbeat", workers=["n0", "n1"], running=[{"id": offer["id"], "attempt": 1}])
    oak.take()
    assert [one["id"] for one in oak.say("heartbeat", workers=["n0", "n1"])["stop"]] == [offer["id"]]


def test_a_lower_priority_is_anyones_and_a_higher_one_the_owners(oak: Cluster) -> None:
    job = submit(oak)
    assert update(oak, job, priority=-5)["priority"] == -5
    assert "only the cluster's owner may raise it" in refused(oak, job, 403, "forbidden", priority=5, name="other")
    assert update(oak, job, oak.secret, priority=7)["priority"] == 7
    assert update(oak, job, ADMIN, priority=9, held=True)["held_at"] is not None
    assert update(oak, job, held=False)["held_at"] is None


@pytest.mark.parametrize("body", [{}, {"nodes": 0}, {"time_limit": -1}, {"nme": "x"}, {"name": ""}, {"held": "yes"}])
def test_what_is_no_change_is_refused(oak: Cluster, body: Any) -> None:
    refused(oak, submit(oak), 400, "request-invalid", **body)


def test_nobody_changes_the_job_of_another_or_one_that_has_ended(api: Api) -> None:
    oak = api.register("oak")
    token = api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["bob"]}, oak.secret)["token"]
    job = submit(oak)
    api.problem(403, "forbidden", "PATCH", f"/v1/jobs/{job}", {"name": "x"}, token)
    api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    assert "already ended: CANCELED" in refused(oak, job, 409, "conflict", name="x")
