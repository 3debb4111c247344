"""Many jobs together: in order, optimal against every assignment there is, and over HTTP."""

from __future__ import annotations

import itertools
from functools import partial
from random import Random
from time import monotonic
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection import integer_program
from rainbow.selection.assignment import Assignment, BatchJob, Offer, Solution, assign, greedy, offers_of, total
from tests.conftest import Api, examples, grid, jobspec
from tests.support.services import package

package("scipy")

solve = partial(integer_program.solve, clock=monotonic)
NAMES = ["a", "b", "c"]
PRICE = {"priorities": [{"priority": 1, "steps": [{"calc": "price=cost*hours"}, {"sort_ascending": "price"}]}]}

costs = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.0, 1.0, 2.5, -3.0, 7.0]), max_size=3)
offers = st.builds(lambda cost, nodes: Offer(cost, dict.fromkeys(cost, nodes)), costs, st.integers(0, 3))


def best_by_hand(given_offers: list[Offer], free: dict[str, int]) -> tuple[int, float]:
    """Try every assignment: the most placed, then the least sum."""
    results = []
    for clusters in itertools.product(*[[None, *offer.costs] for offer in given_offers]):
        used = dict.fromkeys(free, 0)
        for cluster, offer in zip(clusters, given_offers, strict=True):
            if cluster in used:
                used[cluster] += offer.takes[cluster]
        if all(used[name] <= free[name] for name in free):
            results.append((-sum(c is not None for c in clusters), total(clusters, given_offers)))
    return min(results)


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(offers, min_size=1, max_size=5), st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6)))
def test_optimal_equals_the_best_of_every_assignment(given_offers: list[Offer], free: dict[str, int]) -> None:
    solution = solve(given_offers, free, 10)
    clusters = solution.clusters
    if clusters is None:
        assert not any(offer.costs for offer in given_offers), solution.status
        return
    assert solution.status == "optimal"
    assert all(
        cluster is None or cluster in offer.costs for cluster, offer in zip(clusters, given_offers, strict=True)
    )
    placed, least = best_by_hand(given_offers, free)
    assert -sum(cluster is not None for cluster in clusters) == placed
    assert total(clusters, given_offers) == pytest.approx(least, abs=1e-9)
    assert solution.bound is not None
    assert (solution.bound.placed, solution.bound.at) == (-placed, -placed)
    assert solution.bound.total == total(clusters, given_offers)


def batch_job(seed: int, nodes: int, hours: int, names: Any = NAMES, options: Any = PRICE) -> BatchJob:
    verdicts = [Verdict(name, True, totals={"nodes": nodes}) for name in names]
    return BatchJob(Request(((),), (), parameters={"hours": hours}), verdicts, "constraint", options, seed)


def states(**free: int) -> dict[str, dict[str, Any]]:
    return {name: {"cost": at + 1, "nodes_free": free[name]} for at, name in enumerate(NAMES)}


def test_greedy_books_what_each_job_takes() -> None:
    jobs = [batch_job(n, 2, 1) for n in range(4)]
    assignment = greedy(jobs, states(a=3, b=4, c=0), "price")
    assert assignment.clusters == ("a", "b", "b", None)
    assert assignment.total == 1 + 2 + 2


def test_long_job_that_comes_last_gets_the_cheap_nodes_only_if_all_are_placed_together() -> None:
    jobs = [batch_job(0, 1, 1), batch_job(1, 1, 100)]
    better, in_order = assign(jobs, states(a=1, b=1, c=1), "price", 10, solve)
    assert (in_order.clusters, in_order.total) == (("a", "b"), 1 + 200)
    assert (better.clusters, better.total, better.by) == (("b", "a"), 2 + 100, "optimal")


def test_greedy_that_cannot_be_bettered_is_kept() -> None:
    jobs = [batch_job(n, 1, 1) for n in range(3)]
    better, in_order = assign(jobs, states(a=9, b=9, c=9), "price", 10, solve)
    assert (better.clusters, better.by) == (in_order.clusters, "greedy")
    assert "as good" in better.status


def test_more_jobs_placed_is_better_than_a_smaller_sum() -> None:
    jobs = [batch_job(0, 1, 1), batch_job(1, 2, 9)]
    better, in_order = assign(jobs, states(a=2, b=1, c=0), "price", 10, solve)
    assert in_order.placed == 1
    assert better.clusters == ("b", "a")


@pytest.mark.parametrize("status", ["time is over", "scipy is not installed"])
def test_greedy_is_the_fallback_and_says_why(status: str) -> None:
    jobs = [batch_job(0, 1, 1), batch_job(1, 1, 100)]
    better, in_order = assign(jobs, states(a=1, b=1, c=1), "price", 10, lambda *_: Solution(None, status))
    assert (better.clusters, better.by, better.status) == (in_order.clusters, "greedy", status)
    assert (better.bound.placed, better.bound.at, better.bound.total) == (2, 2, 101)  # of two jobs at the cheapest


def test_no_time_at_all_is_survived() -> None:
    jobs = [batch_job(n, 1 + n % 3, n) for n in range(60)]
    better, _ = assign(jobs, states(a=20, b=20, c=20), "price", 0, solve)
    assert better.placed > 0


def test_offer_is_that_of_the_priority_that_decides() -> None:
    options = {
        "priorities": [
            {"priority": 1, "steps": [{"calc": "price=1"}, {"filter": "cost > 9"}]},
            {"priority": 2, "steps": [{"calc": "price=cost*10"}, {"filter": "cost > 1"}, {"select": "random"}]},
        ]
    }
    (offer,) = offers_of([batch_job(0, 2, 1, options=options)], states(a=9, b=9, c=9), "price")
    assert offer == Offer({"b": 20.0, "c": 30.0}, {"b": 2, "c": 2})


def test_jobs_without_the_variable_have_no_offer() -> None:
    (offer,) = offers_of([batch_job(0, 1, 1)], states(a=9, b=9, c=9), "prize")
    assert offer == Offer()
    assert solve([offer], {}, 1) == Solution(None, "no job has this variable anywhere")


def test_offer_goes_on_to_the_priorities_after_and_prefers_the_first() -> None:
    """What is full under priority 1 leaves what priority 2 lets in; nothing goes there without need."""
    options = {
        "priorities": [
            {"priority": 1, "steps": [{"filter": "cost > 1"}, {"calc": "price=cost"}]},
            {"priority": 2, "steps": [{"calc": "price=0"}]},
        ]
    }
    jobs = [batch_job(n, 1, 1, options=options) for n in range(3)]
    (offer, *_) = offers_of(jobs, states(a=9, b=9, c=9), "price")
    assert offer == Offer({"b": 2.0, "c": 3.0, "a": 0.0}, {"a": 1, "b": 1, "c": 1}, {"a": 1})
    better, _ = assign(jobs, states(a=9, b=1, c=1), "price", 10, solve)
    assert sorted(filter(None, better.clusters)) == ["a", "b", "c"]


# ── a batch with too little room ────────────────────────────────────────────────────────────────────────────


def test_jobs_that_the_optimal_plan_leaves_out_do_not_take_the_place_of_those_it_places() -> None:
    jobs = [batch_job(n, nodes, 1, ["a"]) for n, nodes in enumerate([4, 1, 1, 1, 1])]
    better, in_order = assign(jobs, {"a": {"cost": 1, "nodes_free": 4}}, "price", 10, solve)
    assert in_order.clusters == ("a", None, None, None, None)
    assert better.clusters == (None, "a", "a", "a", "a")
    assert (better.by, better.status, better.bound.placed, better.bound.total) == ("optimal", "optimal", 4, 4)


def crowded(chance: Random) -> tuple[list[BatchJob], dict[str, dict[str, Any]]]:
    """Three clusters and up to six jobs that want more nodes than there are, or more of the cheap ones."""
    given_states = {name: {"cost": chance.randint(1, 9), "nodes_free": chance.randint(0, 4)} for name in NAMES}
    jobs = [
        batch_job(n, chance.randint(1, 4), chance.randint(1, 20), chance.sample(NAMES, chance.randint(1, 3)))
        for n in range(chance.randint(3, 6))
    ]
    return jobs, given_states


@pytest.mark.parametrize("part", range(4))
def test_optimal_batch_equals_an_exact_solver_on_200_instances_with_too_little_room(part: int) -> None:
    for seed in range(50 * part, 50 * (part + 1)):
        jobs, given_states = crowded(Random(seed))
        offers = offers_of(jobs, given_states, "price")
        free = {name: state["nodes_free"] for name, state in given_states.items()}
        placed, least = best_by_hand(offers, free)
        better, in_order = assign(jobs, given_states, "price", 10, solve)
        assert (-better.placed, better.total) == (placed, pytest.approx(least, abs=1e-9)), seed
        assert (better.bound.placed, better.bound.total) == (better.placed, better.total), seed
        assert worth(better) <= worth(in_order), seed


def worth(assignment: Assignment) -> tuple[int, float]:
    return -assignment.placed, assignment.total


def test_batch_of_200_jobs_short_of_room_is_never_worse_than_greedy_and_tells_its_bound_when_time_is_over() -> None:
    chance = Random(5)
    names = [f"c{n}" for n in range(20)]
    given_states = {name: {"cost": n + 1, "nodes_free": chance.randint(5, 40)} for n, name in enumerate(names)}
    jobs = [batch_job(n, chance.randint(1, 8), chance.randint(1, 50), names) for n in range(200)]
    for seconds in (0.0, 1.0):
        better, in_order = assign(jobs, given_states, "price", seconds, solve)
        assert worth(better) <= worth(in_order)
        assert in_order.placed < better.placed <= better.bound.placed < 200
        assert 0 < better.bound.total <= better.total


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=6),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6), min_size=3),
    st.sampled_from(["nodes_free > 2", "nodes_free > matched.nodes", "cost > 1 or nodes_free > 3"]),
)
def test_optimal_is_never_worse_than_greedy_where_filters_read_what_is_booked(
    wanted: list[tuple[int, int]], free: dict[str, int], text: str
) -> None:
    options = {
        "priorities": [
            {"priority": 1, "steps": [{"calc": "price=cost*hours"}, {"filter": text}, {"sort_ascending": "price"}]},
            {"priority": 2, "steps": [{"calc": "price=2*cost*hours+nodes_free"}, {"sort_descending": "price"}]},
        ]
    }
    jobs = [batch_job(n, nodes, hours, options=options) for n, (nodes, hours) in enumerate(wanted)]
    better, in_order = assign(jobs, states(**free), "price", 5, solve)
    assert worth(better) <= worth(in_order)
    assert better.bound.placed >= better.placed
    assert better.bound.total <= better.total


# ── over HTTP ───────────────────────────────────────────────────────────────────────────────────────────────

SELECTOR = {"name": "constraint", "options": PRICE}


def job(nodes: int = 1, hours: int = 1, **more: Any) -> dict[str, Any]:
    spec = jobspec(nodes)
    spec["attributes"]["parameter"] = {"hours": hours}
    return {"jobspec": spec, **more}


@pytest.fixture
def tokens(api: Api) -> list[str]:
    costs = {"cheap": 1, "dear": 10}
    return [
        api.register(name, grid(4, 2), state={"cost": cost, "nodes_free": 2}).token for name, cost in costs.items()
    ]


def send(api: Api, tokens: list[str], jobs: list[Any], **more: Any) -> Any:
    return api.good("POST", "/v1/jobs:batch", {"jobs": jobs, "selector": SELECTOR, **more}, *tokens)


def test_batch_in_order_gives_every_job_its_answer(api: Api, tokens: list[str]) -> None:
    answer = send(api, tokens, [job(2), job(1), {"jobspec": "[", "name": "bad"}, job(2), 5, job(1), job(1)])
    assert [one["status"] for one in answer["answers"]] == [201, 201, 422, 409, 400, 201, 409]
    assert [one.get("cluster") for one in answer["answers"]] == ["cheap", "dear", None, None, None, "dear", None]
    assert answer["answers"][2]["code"] == "jobspec-invalid"
    assert answer["answers"][3]["code"] == "no-cluster-now"
    assert answer["answers"][4]["pointer"] == "/jobs/4"
    assert answer["assign"] == {"by": "greedy", "placed": 3}
    listed = api.good("GET", "/v1/jobs", None, *tokens)["jobs"]
    assert {one["id"] for one in listed} == {one["id"] for one in answer["answers"] if one["status"] == 201}


def test_batch_assigned_optimally_reports_the_gap_to_what_is_proved(api: Api, tokens: list[str]) -> None:
    answer = send(api, tokens, [job(2, 1), job(2, 100)], assign="optimal", minimise="price")
    assert [one["cluster"] for one in answer["answers"]] == ["dear", "cheap"]
    assert answer["assign"] == {
        "by": "optimal",
        "status": "optimal",
        "minimise": "price",
        "placed": 2,
        "sum": 110,
        "greedy": {"placed": 2, "sum": 1001},
        "bound": {"placed": 2, "sum": 110},
        "gap": 0,
    }
    why = api.good("GET", f"/v1/jobs/{answer['answers'][0]['id']}/why", None, *tokens)
    assert "plan of a batch" in why["decision"]["placed_by"]
    assert api.good("GET", f"/v1/jobs/{answer['answers'][0]['id']}/replay", None, *tokens)["equal"] is True


def test_batch_assigned_optimally_never_books_more_than_there_is(api: Api, tokens: list[str]) -> None:
    answer = send(api, tokens, [job(1, n) for n in range(7)], assign="optimal", minimise="price")
    assert [one["status"] for one in answer["answers"]].count(201) == 4
    assert answer["assign"]["placed"] == 4
    assert "every cluster was filtered out" not in answer["assign"]["status"]


def test_batch_places_what_the_plan_leaves_out_after_what_it_places(api: Api) -> None:
    oak = api.register("oak", grid(4, 2), state={"cost": 1, "nodes_free": 4})
    answer = send(api, [oak.token], [job(4), *[job(1)] * 4], assign="optimal", minimise="price")
    assert [one["status"] for one in answer["answers"]] == [409, 201, 201, 201, 201]
    assert (answer["assign"]["placed"], answer["assign"]["greedy"]["placed"], answer["assign"]["gap"]) == (4, 1, 0)
    assert answer["assign"]["bound"] == {"placed": 4, "sum": 4}


def test_batch_tells_the_gap_when_there_was_no_time(api: Api, tokens: list[str]) -> None:
    jobs = [job(1 + n % 2, n + 1) for n in range(8)]
    answer = send(api, tokens, jobs, assign="optimal", minimise="price", time_limit=0)
    assert answer["assign"]["gap"] >= 0
    assert answer["assign"]["bound"]["placed"] >= answer["assign"]["placed"] >= answer["assign"]["greedy"]["placed"]


def test_batch_sent_again_under_its_key_is_the_same_jobs(api: Api, tokens: list[str]) -> None:
    body = {"jobs": [job(2, 1), job(2, 100)], "selector": SELECTOR, "assign": "optimal", "minimise": "price"}
    first = api.good("POST", "/v1/jobs:batch", body, *tokens, Idempotency_Key="k")
    again = api.good("POST", "/v1/jobs:batch", body, *tokens, Idempotency_Key="k")
    assert [one["id"] for one in again["answers"]] == [one["id"] for one in first["answers"]]
    assert [one["status"] for one in again["answers"]] == [200, 200]


def test_jobs_of_a_batch_bring_their_own_tokens_and_selectors(api: Api, tokens: list[str]) -> None:
    alone = [{"name": "dear", "token": tokens[1]}]
    own = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": [{"sort_descending": "cost"}]}]}}
    answer = api.good(
        "POST",
        "/v1/jobs:batch",
        {"jobs": [job(clusters=alone, selector=own), job()], "selector": SELECTOR},
        tokens[0],
    )
    assert [one["cluster"] for one in answer["answers"]] == ["dear", "cheap"]


@pytest.mark.parametrize(
    ("status", "body", "pointer"),
    [
        (400, {"jobs": 5}, "/jobs"),
        (400, {"jobs": []}, "/jobs"),
        (413, {"jobs": [{}] * 1001}, "/jobs"),
        (400, {"jobs": [{}], "assign": "best"}, "/assign"),
        (400, {"jobs": [{}], "assign": 5}, "/assign"),
        (400, {"jobs": [{}], "assign": "optimal"}, "/minimise"),
        (400, {"jobs": [{}], "assign": "optimal", "minimise": []}, "/minimise"),
        (400, {"jobs": [{}], "time_limit": "long"}, "/time_limit"),
        (400, {"jobs": [{}], "time_limit": -1}, "/time_limit"),
    ],
)
def test_batch_that_cannot_be_read_is_refused_whole(
    api: Api, tokens: list[str], status: int, body: Any, pointer: str
) -> None:
    code = "limit-exceeded" if status == 413 else "request-invalid"
    assert api.problem(status, code, "POST", "/v1/jobs:batch", body, *tokens)["pointer"] == pointer


@pytest.mark.parametrize("cost", ["1e308", "2**1023 + 2**1022", "0-1e308", "'text'", "true", "1e289", "0"])
@pytest.mark.parametrize("free", [10**400, -(10**400), 2.5, "text", 2])
def test_batch_of_any_cost_and_any_free_nodes_is_answered_in_json(api: Api, cost: str, free: Any) -> None:
    oak = api.register("oak", grid(4, 1), state={"nodes_free": free})
    options = {"priorities": [{"priority": 1, "steps": [{"calc": f"x={cost}"}]}]}
    body = {"jobs": [job(), job(), job()], "selector": {"name": "constraint", "options": options}}
    answer = api.call("POST", "/v1/jobs:batch", {**body, "assign": "optimal", "minimise": "x"}, oak.token)
    assert answer.status_code == 200
    assert {one["status"] for one in answer.get_json()["answers"]} <= {201, 409}
    assert "Infinity" not in answer.get_data(as_text=True)
    assert "NaN" not in answer.get_data(as_text=True)


@pytest.mark.parametrize(
    "entry", [None, [], "x", {}, {"jobspec": 5}, {"jobspec": {}, "selector": 5}, {"jobspec": {}, "clusters": [5]}]
)
def test_hostile_job_of_a_batch_is_its_own_answer(api: Api, tokens: list[str], entry: Any) -> None:
    for how in ({}, {"assign": "optimal", "minimise": "price"}):
        answer = send(api, tokens, [entry, job()], **how)
        assert [one["status"] for one in answer["answers"]] in ([400, 201], [422, 201])


def test_batch_without_a_token_is_refused(api: Api) -> None:
    api.problem(401, "unauthenticated", "POST", "/v1/jobs:batch", {"jobs": [job()]})
