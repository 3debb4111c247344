"""Selection by time: `eta.*` of each candidate, booked as jobs are accepted, and kept so that replay agrees."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rainbow.service.core.service import Outlook
from rainbow.service.placement import ledger
from rainbow.service.placement.match_cache import MOST_SHOWN
from rainbow.service.scheduler.forecaster import Forecaster
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec

SOONEST = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "eta.finish"}, {"select": "first"}]}]}
BY_TIME = {"name": "constraint", "options": SOONEST}


def wide(cores: int, duration: float = 600.0, **parameter: Any) -> dict[str, Any]:
    """A job of so many cores on one node."""
    spec = jobspec(duration=duration)
    slot = {"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": cores}]}
    spec["resources"] = [slot]
    spec["attributes"]["parameter"] = parameter
    return spec


def alive(cluster: Cluster) -> None:
    cluster.say("heartbeat", running=[], workers=None)


def forecast(api: Api) -> Forecaster:
    made = Forecaster(api.service)
    made.turn()
    return made


def submit(api: Api, clusters: list[Cluster], spec: dict[str, Any], **more: Any) -> Any:
    body = {"jobspec": spec, "selector": BY_TIME, **more}
    return api.good("POST", "/v1/jobs", body, *(one.token for one in clusters))


@pytest.fixture
def four(api: Api) -> list[Cluster]:
    made = [api.register(name, grid(1, 8)) for name in ("ash", "elm", "fir", "oak")]
    for cluster in made:
        alive(cluster)
    forecast(api)
    return made


def test_a_hundred_equal_jobs_of_one_batch_spread_evenly_over_four_equal_idle_clusters(
    api: Api, four: list[Cluster]
) -> None:
    jobs = [{"jobspec": wide(8)} for _ in range(100)]
    tokens = [one.token for one in four]
    answers = api.good("POST", "/v1/jobs:batch", {"jobs": jobs, "selector": BY_TIME}, *tokens)["answers"]
    counts = Counter(answer["cluster"] for answer in answers)
    assert len(counts) == 4
    assert all(24 <= count <= 26 for count in counts.values())


def test_a_job_goes_where_it_ends_first_and_its_decision_is_replayed_alike(api: Api, four: list[Cluster]) -> None:
    for busy in four[:3]:
        submit(api, [busy], wide(8, 3_600))
    made = submit(api, four, wide(8))
    assert made["cluster"] == "oak"
    states = api.good("GET", "/v1/decisions", None, ADMIN)["decisions"][0]["states"]
    now = api.service.clock()
    assert states["oak"]["eta.finish"] == now + 300  # half of its limit: nothing like it has run
    assert states["ash"]["eta.finish"] == now + 1_800 + 300
    assert "eta.wait" not in states["oak"]  # nobody reads it
    assert api.good("GET", f"/v1/jobs/{made['id']}/replay", None, ADMIN)["equal"]


def test_of_many_clusters_only_what_is_expected_is_kept_with_each_decision_and_replayed_alike(api: Api) -> None:
    """Their states are kept whole once; what a job is told of each stands beside what differs from that."""
    made = [api.register(f"c{k:02}", grid(1, 8)) for k in range(MOST_SHOWN + 4)]
    for cluster in made[1:]:  # the first one's agent is away: nobody knows when a job would end there
        alive(cluster)
    small = api.register("c03-small", grid(1, 2))  # no candidate
    forecast(api)
    placed = [submit(api, [*made, small], wide(8))["id"] for _ in range(3)]
    known = [cluster.name for cluster in made[1:]]
    for k, job in enumerate(placed):
        again = api.good("GET", f"/v1/jobs/{job}/replay", None, ADMIN)
        assert again["equal"]
        assert {"arriving", "frame"} <= again["digests"].keys()
        with api.service.store.read() as connection:
            states = ledger.whole(connection, job)["given"]["states"]
        assert "eta.finish" not in states["c00"]
        ends = [states[name]["eta.finish"] - api.service.clock() for name in known]
        assert ends == [600.0] * k + [300.0] * (len(known) - k)  # half of its limit, behind what was placed before
    answer = api.good("GET", "/v1/decisions", None, ADMIN)["decisions"][0]["states"]
    assert "eta.finish" in answer[known[2]]


def test_a_job_cannot_say_when_it_would_end(api: Api, four: list[Cluster]) -> None:
    for busy in four[:3]:
        submit(api, [busy], wide(8, 3_600))
    made = submit(api, four, wide(8, **{"eta.finish": 0, "eta.known": True}))
    assert made["cluster"] == "oak"
    answer = made["decision"]["selection"]["warnings"]
    assert "ignored job parameter eta.finish: jobs cannot set this variable" in answer


def ran(api: Api, cluster: Cluster, name: str, seconds: float, clock: Clock) -> None:
    """Let a job run so long on a cluster."""
    alive(cluster)
    submit(api, [cluster], wide(8, 3_600), name=name, requestor="ann")
    [offer] = cluster.take()
    cluster.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    clock.now += seconds
    cluster.end(offer)


def ends(api: Api, four: list[Cluster]) -> dict[str, float]:
    """Submit a job, and return in how many seconds it would have ended on each cluster."""
    for one in four:
        alive(one)
    forecast(api)
    submit(api, four, wide(8, 3_600), name="train", requestor="ann")
    states = api.good("GET", "/v1/decisions", None, ADMIN)["decisions"][0]["states"]
    return {name: state["eta.finish"] - api.service.clock() for name, state in states.items()}


def test_lengths_that_were_learned_move_jobs(api: Api, four: list[Cluster], clock: Clock) -> None:
    """Runs that took a minute of their hour make the next one short, wherever it goes."""
    ran(api, four[0], "train", 60, clock)
    assert set(ends(api, four).values()) == {60}


def test_a_job_known_on_a_slow_cluster_only_is_expected_sooner_on_a_fast_one(
    api: Api, four: list[Cluster], clock: Clock
) -> None:
    """Two other jobs ran on ash and elm, on elm three times as fast; on fir and oak nothing ever ran."""
    ash, elm = four[:2]
    for name, seconds in (("survey", 90.0), ("model", 600.0)):
        ran(api, ash, name, seconds, clock)
        ran(api, elm, name, seconds / 3, clock)
    ran(api, ash, "train", 300, clock)
    assert ends(api, four) == {"ash": 300, "elm": pytest.approx(100), "fir": 300, "oak": 300}
    forecast(api)
    [placed] = api.good("GET", "/v1/jobs?state=WAITING", None, ADMIN)["jobs"]
    assert placed["cluster"] == "elm"
    answer = api.service.state(Outlook).every()[api.service.catalogue["elm"].id].expected(placed["id"])
    assert (answer.start, answer.end) == (clock.now, pytest.approx(clock.now + 100))  # as it was when it was chosen


def test_without_a_forecast_a_cluster_is_not_known_and_selection_still_places(api: Api) -> None:
    made = [api.register(name, grid(1, 8)) for name in ("ash", "elm")]
    options = {
        "priorities": [
            {"priority": 1, "steps": [{"filter": "eta.known"}, {"select": "first"}]},
            {"priority": 2, "steps": [{"select": "random"}]},
        ]
    }
    placed = submit(api, made, wide(8), selector={"name": "constraint", "options": options})
    states = api.good("GET", "/v1/decisions", None, ADMIN)["decisions"][0]["states"]
    assert {state["eta.known"] for state in states.values()} == {False}
    assert placed["cluster"] in ("ash", "elm")


def test_a_cluster_whose_agent_is_away_has_no_eta(api: Api, four: list[Cluster], clock: Clock) -> None:
    clock.now += 1_000
    for one in four[1:]:
        alive(one)
    from rainbow.service.scheduler.step import step

    step(api.service, "ash")
    forecast(api)
    answer = api.service.state(Outlook).every()
    by_name = {name: answer[entry.id] for name, entry in api.service.catalogue.items()}
    assert by_name["ash"].room is None
    assert by_name["elm"].room is not None


def test_a_forecast_of_a_time_to_come_counts_as_none(api: Api, four: list[Cluster], clock: Clock) -> None:
    """The clock was set back."""
    clock.now -= 3_600
    submit(
        api,
        four,
        wide(8),
        selector={
            "name": "constraint",
            "options": {
                "priorities": [{"priority": 1, "steps": [{"sort_ascending": "eta.known"}, {"select": "first"}]}]
            },
        },
    )
    states = api.good("GET", "/v1/decisions", None, ADMIN)["decisions"][0]["states"]
    assert {state["eta.known"] for state in states.values()} == {False}


def test_a_forecast_that_was_made_before_a_job_came_does_not_forget_it(api: Api, four: list[Cluster]) -> None:
    outlook, entry = api.service.state(Outlook), api.service.catalogue["ash"]
    made = outlook.every()[entry.id]
    assert submit(api, four, wide(8))["cluster"] == "ash"
    outlook.put(entry.id, made)
    assert submit(api, four, wide(8))["cluster"] == "elm"
