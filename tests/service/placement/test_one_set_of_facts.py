"""A job that moves is decided by what its submit was decided by, in whatever way it comes to move."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.service.placement.unplaced_jobs import Round
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.service.scheduler.step import step
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec

STEPS = [{"sort_ascending": "eta.finish"}, {"select": "first"}]
BY_TIME = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": STEPS}]}}


def fill(cluster: Cluster, seconds: float) -> None:
    """Let a cluster run a job that holds all of it, for half of its limit as is expected."""
    spec = jobspec(1, duration=2 * seconds)
    spec["resources"] = [{"type": "slot", "count": 1, "label": "t", "with": [{"type": "node", "count": 1}]}]
    spec["tasks"] = [{"command": ["true"], "slot": "t", "count": {"total": 1}}]
    cluster.api.good("POST", "/v1/jobs", {"jobspec": spec}, cluster.token)
    [offer] = cluster.take()
    cluster.say("events", events=[{"task": offer["id"], "attempt": offer["attempt"], "event": "started"}])


@pytest.fixture
def three(api: Api) -> list[Cluster]:
    """The clusters ash, busy for ten hours, elm, busy for ten minutes, and fir, which is free."""
    clusters = [api.register(name, grid(1, 1)) for name in ("ash", "elm", "fir")]
    for cluster in clusters:
        cluster.say("heartbeat", running=[])
    fill(clusters[0], 36_000)
    fill(clusters[1], 600)
    Forecaster(api.service).turn()
    return clusters


def submit(api: Api, clusters: list[Cluster], **more: Any) -> str:
    body = {"jobspec": jobspec(1, duration=600), "selector": BY_TIME, **more}
    return str(api.good("POST", "/v1/jobs", body, *(one.token for one in clusters))["id"])


def cluster_of(api: Api, job: str) -> Any:
    return api.good("GET", f"/v1/jobs/{job}", None, ADMIN)["cluster"]


@pytest.mark.parametrize("cause", ["drain", "loss"])
def test_a_job_leaves_for_the_cluster_that_is_free_in_ten_minutes(
    api: Api, clock: Clock, three: list[Cluster], cause: str
) -> None:
    job = submit(api, three)
    assert cluster_of(api, job) == "fir"
    if cause == "drain":
        api.good("POST", "/v1/clusters/fir:drain", None, three[2].secret)
    else:
        for _ in range(12):
            clock.now += 10
            for cluster in three[:2]:
                cluster.say("heartbeat")
        Forecaster(api.service).turn()
    for _ in range(3):
        clock.now += 11
        step(api.service, "fir")
    assert cluster_of(api, job) == "elm"
    [move] = api.good("GET", f"/v1/jobs/{job}/why", None, ADMIN)["decision"]["moves"]
    first = move["selection"]["steps"][0]
    assert first["survivors"] == ["elm", "ash"]
    assert "not provided" not in str(move)


def test_jobs_that_leave_together_see_what_those_before_them_will_hold(api: Api, clock: Clock) -> None:
    clusters = [api.register(name, grid(1, 1)) for name in ("ash", "elm", "fir")]
    for cluster in clusters:
        cluster.say("heartbeat", running=[])
    Forecaster(api.service).turn()
    spec = jobspec(1, duration=600)
    jobs = [
        api.good("POST", "/v1/jobs", {"jobspec": spec, "selector": BY_TIME}, *(one.token for one in clusters))["id"]
        for _ in range(6)
    ]
    assert sorted(cluster_of(api, job) for job in jobs) == ["ash", "ash", "elm", "elm", "fir", "fir"]
    api.good("POST", "/v1/clusters/fir:drain", None, clusters[2].secret)
    for _ in range(4):
        clock.now += 11
        step(api.service, "fir")
    assert sorted(cluster_of(api, job) for job in jobs) == ["ash"] * 3 + ["elm"] * 3


def test_an_unplaced_job_is_decided_by_the_same(api: Api, three: list[Cluster]) -> None:
    steps = [{"filter": "open > 0"}, *STEPS]
    selector = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": steps}]}}
    for cluster in three:
        api.good("PUT", f"/v1/clusters/{cluster.name}/state", {"open": 0}, cluster.secret)
    job = api.good(
        "POST",
        "/v1/jobs",
        {"jobspec": jobspec(1, duration=600), "selector": selector, "queue": True},
        *(one.token for one in three),
    )["id"]
    assert cluster_of(api, job) is None
    for cluster in three[:2]:
        api.good("PUT", f"/v1/clusters/{cluster.name}/state", {"open": 1}, cluster.secret)
    Round(api.service, api.service.monotonic).look()
    assert cluster_of(api, job) == "elm"
