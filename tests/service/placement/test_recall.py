"""Jobs that a site has not begun leave it: stuck there, or expected to start sooner elsewhere; none runs twice."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.service.scheduler.step import step
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec
from tests.unit.api.test_api_events import told

CHEAPEST = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "cost"}, {"select": "first"}]}]}
STUCK = {
    "code": "site:PartitionTimeLimit",
    "text": "cannot start",
    "facts": {"class": "stuck", "reason": "TimeLimit"},
}
TURN = {"code": "site:Priority", "text": "waits for its turn", "facts": {"class": "turn"}}


class Two:
    """A site oak, which everything comes to first, and a site elm; both hand over, each has an agent."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self.api, self.clock = api, clock
        self.oak, self.elm = (api.register(name, grid(2, 2), policy={"name": "delegate"}) for name in ("oak", "elm"))
        for cost, cluster in enumerate((self.oak, self.elm)):
            cluster.say("heartbeat")
            self.report(cluster, cost=cost)

    def report(self, cluster: Cluster, **state: Any) -> None:
        self.api.good("PATCH", f"/v1/clusters/{cluster.name}/state", state, cluster.secret)

    def settings(self, **options: Any) -> None:
        self.api.good("PATCH", "/v1/clusters/oak/scheduler", options, self.oak.secret)

    def handed_over(self, *tokens: str, **more: Any) -> list[dict[str, Any]]:
        """Submit a job that oak accepts; return its offers."""
        request = {"jobspec": jobspec(1, **more), "selector": {"name": "constraint", "options": CHEAPEST}}
        job = self.api.good("POST", "/v1/jobs", request, *(tokens or (self.oak.token, self.elm.token)))
        assert job["cluster"] == "oak"
        return [offer for offer in self.oak.take() if offer["job"] == job["id"]]

    def says(self, offer: dict[str, Any], event: str, **more: Any) -> None:
        self.oak.say("events", events=[{"task": offer["id"], "attempt": offer["attempt"], "event": event, **more}])

    def look(self, seconds: float = 61.0) -> list[dict[str, Any]]:
        """Let time go by and step both; return what oak is asked to give back."""
        self.clock.now += seconds
        for cluster in (self.oak, self.elm):
            cluster.say("heartbeat")
            step(self.api.service, cluster.name)
        return list(self.oak.say("heartbeat")["withdraw"])

    def gives_back(self, offer: dict[str, Any]) -> None:
        self.oak.end(offer, result="stopped", exit_code=None, detail="canceled: Slurm job 7")
        step(self.api.service, "oak")

    def job(self, offer: dict[str, Any]) -> dict[str, Any]:
        return dict(self.api.good("GET", f"/v1/jobs/{offer['job']}", None, ADMIN))

    def moves(self, offer: dict[str, Any]) -> list[tuple[str, str, str]]:
        decision = self.api.good("GET", f"/v1/jobs/{offer['job']}/why", None, ADMIN)["decision"]
        return [(move["from"], move["to"], move["why"]) for move in decision.get("moves", [])]

    def events(self, state: str) -> list[str]:
        return [each["why"] for each in told(self.api, ADMIN) if each.get("state") == state]


@pytest.fixture
def two(api: Api, clock: Clock) -> Two:
    return Two(api, clock)


WHY = "stuck at oak for 60 s: TimeLimit"


def test_a_job_that_is_stuck_at_its_site_moves_when_the_site_has_given_it_back(two: Two) -> None:
    [offer] = two.handed_over()
    two.says(offer, "pending", **STUCK)
    assert two.look(59) == []
    assert two.look(6) == [{"id": offer["id"], "attempt": 1}]
    waits = two.job(offer)["wait"]
    assert (waits["reason"], waits["text"]) == ("withdrawing", f"oak is asked to give it back: {WHY}")
    assert two.elm.take() == []
    two.gives_back(offer)
    assert (two.job(offer)["cluster"], two.moves(offer)) == ("elm", [("oak", "elm", WHY)])
    assert [one["id"] for one in two.elm.take()] == [offer["id"]]
    assert two.oak.take() == []


def test_an_agent_that_asks_for_tasks_hears_at_once_what_to_give_back(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    [offer] = two.handed_over()
    two.says(offer, "pending", **STUCK)
    two.look()
    monkeypatch.setattr(two.api.service.news, "wait_for", lambda pause: pytest.fail("there is nothing to wait for"))
    assert two.oak.say("receive", max=1, wait=20)["withdraw"] == [{"id": offer["id"], "attempt": 1}]


def test_what_begins_after_all_runs_on_and_stays(two: Two) -> None:
    [offer] = two.handed_over()
    two.says(offer, "pending", **STUCK)
    assert two.look() != []
    two.says(offer, "started")
    assert two.look(1) == []
    assert (two.job(offer)["wait"], two.job(offer)["state"], two.job(offer)["cluster"]) == (None, "RUNNING", "oak")
    two.oak.end(offer)
    assert (two.job(offer)["state"], two.moves(offer)) == ("COMPLETED", [])


def test_a_job_with_no_other_place_stays_and_an_event_says_that_it_is_stuck(two: Two) -> None:
    [offer] = two.handed_over(two.oak.token)
    two.says(offer, "pending", **STUCK)
    assert two.look() == two.look() == []
    assert two.events("stuck") == [WHY]


@pytest.mark.parametrize(("then", "state"), [("hold", "WAITING"), ("cancel", "CANCELED")])
def test_an_operator_says_what_becomes_of_what_is_stuck(two: Two, then: str, state: str) -> None:
    two.settings(settings={"on_stuck": then, "stuck_after": 10})
    [offer] = two.handed_over()
    two.says(offer, "pending", **STUCK)
    assert two.look(11) == []
    for _ in two.oak.say("heartbeat")["stop"]:
        two.oak.end(offer, result="stopped", exit_code=None)
    assert (two.job(offer)["state"], two.events("stuck")) == (state, [WHY.replace("60", "10")])


def test_a_job_moves_to_the_site_where_it_would_start_sooner_by_the_rules_of_moves(two: Two) -> None:
    rules = {"gain": 0.5, "least": 60, "most": 1, "apart": 0, "every": 60}
    two.settings(limits={"replace": rules})
    two.report(two.oak, expected_wait=3_000, expected_wait_low=2_000, expected_wait_high=4_000)
    two.report(two.elm, expected_wait=900, expected_wait_low=0, expected_wait_high=1_100)
    offers = [two.handed_over()[0] for _ in range(2)]
    for offer in offers:
        two.says(offer, "pending", **TURN)
    assert two.look() == []  # 1,100 s at most is no half of 2,000 s at least
    two.report(two.elm, expected_wait_high=900)
    soon = {**TURN, "facts": {"class": "turn", "expected_start": "1970-01-01T00:01:00+00:00"}}
    two.says(offers[1], "pending", **soon)  # this one is about to start
    assert two.look() == [{"id": offers[0]["id"], "attempt": 1}]
    two.gives_back(offers[0])
    assert two.moves(offers[0]) == [("oak", "elm", "expected to end sooner there")]
    assert two.job(offers[1])["cluster"] == "oak"


def test_without_rules_of_moves_only_what_is_stuck_leaves(two: Two) -> None:
    two.report(two.oak, expected_wait=3_000, expected_wait_low=2_000)
    two.report(two.elm, expected_wait=0, expected_wait_low=0, expected_wait_high=0)
    [offer] = two.handed_over()
    two.says(offer, "pending", **TURN)
    assert two.look() == two.look() == []


def test_a_site_that_does_not_give_it_back_keeps_it_and_is_asked_again_later(two: Two) -> None:
    [offer] = two.handed_over()
    two.says(offer, "pending", **STUCK)
    assert two.look() != []
    assert two.look(60) != []
    assert two.look(61) == []
    assert two.job(offer)["wait"]["reason"] == "pending"
    assert two.look(500) != []
