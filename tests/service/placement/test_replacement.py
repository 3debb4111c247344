"""Jobs that would end sooner elsewhere move there, if their cluster says so; what was accepted or promised stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rainbow.service.placement.replacement import WHY, is_unfinished
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.service.scheduler.step import step
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec

FREELY = {"gain": 0.1, "least": 60, "most": 1, "apart": 0, "every": 60}


class Site:
    """Two equal clusters with agents: all that is submitted comes to oak, elm is free."""

    def __init__(self, api: Api, clock: Clock, rules: dict[str, Any] | None) -> None:
        self.api, self.clock = api, clock
        self.oak, self.elm = (api.register(name, grid(2, 2)) for name in ("oak", "elm"))
        for cluster in (self.oak, self.elm):
            cluster.say("heartbeat")
            api.good(
                "PATCH", f"/v1/clusters/{cluster.name}/scheduler", {"limits": {"replace": rules}}, cluster.secret
            )
        api.good("PUT", "/v1/clusters/oak/state", {"cost": 1}, self.oak.secret)
        api.good("PUT", "/v1/clusters/elm/state", {"cost": 2}, self.elm.secret)
        self.forecaster = Forecaster(api.service)

    def submit(self, *tokens: str, **more: Any) -> str:
        """Submit a job that fills the cluster for ten minutes, the cheaper one first."""
        spec = jobspec(2, duration=600)
        spec["resources"][0]["with"][0]["with"][0]["count"] = 2
        request = {"selector": {"name": "constraint", "options": CHEAPEST}, **more}
        job = self.api.good("POST", "/v1/jobs", {"jobspec": spec, **request}, *(tokens or self.tokens))
        assert job["cluster"] == "oak"
        return str(job["id"])

    @property
    def tokens(self) -> tuple[str, str]:
        return self.oak.token, self.elm.token

    def look(self, seconds: float = 61.0) -> None:
        """Let time go by; forecast both, and step both."""
        self.clock.now += seconds
        for cluster in (self.oak, self.elm):
            cluster.say("heartbeat")
        self.forecaster._due.clear()
        self.forecaster._heard.clear()
        self.forecaster.turn()
        for cluster in (self.oak, self.elm):
            step(self.api.service, cluster.name)

    def where(self, job: str) -> str:
        return str(self.api.good("GET", f"/v1/jobs/{job}", None, ADMIN)["cluster"])

    def moves(self, job: str) -> list[dict[str, Any]]:
        answer = self.api.good("GET", f"/v1/jobs/{job}/why", None, ADMIN)["decision"]
        return list(answer.get("moves", []))


CHEAPEST = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "cost"}, {"select": "first"}]}]}


@pytest.fixture
def site(api: Api, clock: Clock) -> Site:
    api.service.settings = replace(api.service.settings, forecast_share=1.0)
    return Site(api, clock, FREELY)


def test_a_job_moves_to_where_it_ends_sooner_and_the_decision_tells_both_ends(site: Site) -> None:
    first, second = site.submit(), site.submit()
    site.oak.take()
    site.look()
    assert (site.where(first), site.where(second)) == ("oak", "elm")
    [move] = site.moves(second)
    assert (move["from"], move["to"], move["why"]) == ("oak", "elm", WHY)
    assert move["expected_end"]["to"] < move["expected_end"]["from"]
    assert [one["id"] for one in site.elm.take()] == [f"{second}-0"]


def test_each_job_is_booked_before_the_next_one_is_looked_at(site: Site) -> None:
    """Three wait for a busy cluster, and the other one has room for one at a time: not all of them go."""
    jobs = [site.submit() for _ in range(4)]
    site.oak.take()
    site.look()
    assert sorted(map(site.where, jobs)) == ["elm", "elm", "oak", "oak"]


def test_jobs_stay_where_nothing_is_said_of_moves(api: Api, clock: Clock) -> None:
    api.service.settings = replace(api.service.settings, forecast_share=1.0)
    site = Site(api, clock, None)
    jobs = [site.submit(), site.submit()]
    site.oak.take()
    site.look()
    assert list(map(site.where, jobs)) == ["oak", "oak"]


def test_a_gain_below_the_least_moves_nothing(api: Api, clock: Clock) -> None:
    api.service.settings = replace(api.service.settings, forecast_share=1.0)
    site = Site(api, clock, {"least": 10_000})
    job = [site.submit(), site.submit()][1]
    site.oak.take()
    site.look()
    assert site.where(job) == "oak"


def test_a_job_goes_only_where_its_submit_allowed(site: Site) -> None:
    job = [site.submit(site.oak.token), site.submit(site.oak.token)][1]
    named = site.submit(clusters=[{"name": "oak", "token": site.oak.token}])
    site.oak.take()
    site.look()
    assert (site.where(job), site.where(named)) == ("oak", "oak")


def test_a_job_that_depends_on_another_stays(site: Site) -> None:
    first = site.submit()
    spec = jobspec(2, duration=600, dependencies=[{"scheme": "afterany", "value": first}])
    job = site.api.good(
        "POST", "/v1/jobs", {"jobspec": spec, "selector": {"name": "constraint", "options": CHEAPEST}}, *site.tokens
    )
    site.oak.take()
    site.look()
    assert site.where(job["id"]) == "oak"


def test_a_promised_job_stays(site: Site) -> None:
    site.api.good(
        "PUT", "/v1/clusters/oak/scheduler", {"policy": "priority", "limits": {"replace": FREELY}}, site.oak.secret
    )
    jobs = [site.submit() for _ in range(3)]
    site.oak.take()
    site.look()
    assert [site.where(job) for job in jobs] == ["oak", "oak", "elm"]
    wait = site.api.good("GET", f"/v1/jobs/{jobs[1]}/why", None, ADMIN)["wait"]
    assert wait["reason"] == "reserved"


def test_a_job_moves_no_more_often_than_it_may(site: Site) -> None:
    job = [site.submit(), site.submit()][1]
    site.oak.take()
    site.look()
    assert site.where(job) == "elm"
    site.api.good("POST", "/v1/clusters/elm:drain", None, site.elm.secret)
    site.look()
    assert [move["why"] == WHY for move in site.moves(job)] == [True]


@pytest.mark.parametrize(
    ("rules", "pointer"),
    [
        ({"gain": 2}, "/limits/replace/gain"),
        ({"most": 0}, "/limits/replace/most"),
        ({"often": 1}, "/limits/replace/often"),
        (7, "/limits/replace"),
    ],
)
def test_rules_that_are_none_are_refused_where_they_are_wrong(
    api: Api, oak: Cluster, rules: Any, pointer: str
) -> None:
    body = {"limits": {"replace": rules}}
    answer = api.problem(422, "policy-invalid", "PATCH", "/v1/clusters/oak/scheduler", body, oak.secret)
    assert answer["pointer"] == pointer


def test_a_look_that_is_cut_short_goes_on_at_the_next_step(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    running, *waiting = (site.submit() for _ in range(4))
    site.oak.take()
    ticks = iter(range(10_000))
    monkeypatch.setattr(site.api.service, "monotonic", lambda: next(ticks) * 0.3)
    site.look()
    assert is_unfinished(site.api.service, site.api.service.catalogue["oak"].id)
    for _ in range(6):
        step(site.api.service, "oak")
    assert not is_unfinished(site.api.service, site.api.service.catalogue["oak"].id)
    assert site.where(running) == "oak"
    assert sorted(site.where(job) for job in waiting).count("elm") >= 1


def test_a_look_that_is_cut_short_ends_with_the_drain_of_its_cluster(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        site.submit()
    site.oak.take()
    ticks = iter(range(10_000))
    monkeypatch.setattr(site.api.service, "monotonic", lambda: next(ticks) * 0.3)
    site.look()
    oak = site.api.service.catalogue["oak"].id
    assert is_unfinished(site.api.service, oak)
    site.api.good("POST", "/v1/clusters/oak:drain", None, site.oak.secret)
    step(site.api.service, "oak")
    assert not is_unfinished(site.api.service, oak)
