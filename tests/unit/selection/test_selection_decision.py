"""The decision as a value: groups of clusters, ranks and drops, and the same decision taken again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.errors import SelectionError
from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection import Choice, reads, select
from rainbow.selection.replay import RecordedDecision, SelectorRules, compare, redecide
from rainbow.store import jobs
from tests.conftest import ADMIN, grid, jobspec

CASES = Path(__file__).parents[2] / "cases" / "selection"
GROUPS = yaml.load((CASES / "groups.yaml").read_text(), yaml.CSafeLoader)
CHEAPEST = {"priorities": [{"priority": 1, "steps": [{"calc": "price=2*cost"}, {"sort_ascending": "price"}]}]}
DEAREST = {"priorities": [{"priority": 1, "steps": [{"calc": "price=cost"}, {"sort_descending": "price"}]}]}


def choose(states: dict[str, dict[str, Any]], options: dict[str, Any]) -> Choice:
    verdicts = [Verdict(name, True, totals={"nodes": 1}) for name in states]
    return select(Request(((),), ()), verdicts, states, "constraint", options)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in GROUPS["cases"]])
def test_priorities_for_groups_leave(case: dict[str, Any]) -> None:
    choice = choose(GROUPS["states"], {"groups": GROUPS["groups"], "priorities": case["priorities"]})
    assert list(choice.ranks) == case["left"]
    assert choice.cluster == (case["left"][0] if case["left"] else None)
    assert choice.drops.keys() == case["dropped"].keys()
    assert all(why in choice.drops[name] for name, why in case["dropped"].items())


def test_groups_without_end_are_refused() -> None:
    options = {"priorities": [{"priority": 1, "group": "g", "steps": [{"select": "first"}]}]}
    for group, says in (
        ([f"c{n}" for n in range(10_001)], "10001 names"),
        (["*" + "a" * n for n in range(99)] * 2, "pat"),
    ):
        with pytest.raises(SelectionError, match=says):
            choose({"a": {}}, {**options, "groups": {"g": group}})
    many = {f"g{n}": ["a"] for n in range(257)}
    with pytest.raises(SelectionError, match="at most 256"):
        choose({"a": {}}, {**options, "groups": many})


def test_ranks_are_places_before_the_select() -> None:
    choice = choose({"a": {"cost": 3}, "b": {"cost": 1}, "c": {"cost": 2}, "d": {}}, CHEAPEST)
    assert choice.ranks == {"b": 1, "c": 2, "a": 3}
    assert choice.drops == {"d": "priority 1, calc: price: cost is not known"}


def test_drops_of_booking_last_over_every_priority() -> None:
    two = {"priorities": [{"priority": n, "steps": [{"filter": f"cost > {3 - n}"}]} for n in (1, 2)]}
    choice = choose({"a": {"cost": 2, "nodes_free": 0}, "b": {"cost": 2, "nodes_free": 5}}, two)
    assert choice.cluster == "b"
    assert choice.drops == {"a": "booking: job needs 1 node, but none is free (nodes_free)"}


@pytest.mark.parametrize(
    ("selector", "options", "answer"),
    [
        ("random", {}, False),
        ("constraint", CHEAPEST, False),
        ("constraint", {**CHEAPEST, "uninformed_sort": "queue.idle_workers"}, True),
        ("constraint", {"priorities": "[{priority: 1, steps: [{filter: queue.idle_workers > 0}]}]"}, True),
    ],
)
def test_what_a_selector_reads_is_known(selector: str, options: dict[str, Any], answer: bool) -> None:
    assert reads(selector, options, "queue.idle_workers") is answer


# ── decisions taken again ───────────────────────────────────────────────────────────────────────────────────


def recorded(number: int, **costs: float) -> RecordedDecision:
    verdicts = [Verdict(name, True, totals={"nodes": 1}) for name in costs]
    return RecordedDecision(
        f"j{number}", verdicts, {name: {"cost": cost} for name, cost in costs.items()}, {}, f"j{number}"
    )


def test_compare_of_two_policies_names_the_moved_and_sums_what_was_computed() -> None:
    decisions = [recorded(1, a=1, b=2), recorded(2, a=5, b=3), recorded(3, a=4)]
    result = compare(decisions, SelectorRules("constraint", CHEAPEST), SelectorRules("constraint", DEAREST))
    assert (result.decisions, [(m.id, m.old, m.new) for m in result.moved]) == (
        3,
        [("j1", "a", "b"), ("j2", "b", "a")],
    )
    old, new = result.sums["price"]
    assert (old.total, old.jobs, new.total, new.jobs) == (2 + 6 + 8, 3, 2 + 5 + 4, 3)


def test_compare_leaves_out_of_a_sum_what_would_make_it_infinite() -> None:
    huge = [recorded(1, a=1e308), recorded(2, a=2**1022), recorded(3, a=4)]
    result = compare(huge, SelectorRules("constraint", CHEAPEST), SelectorRules("constraint", DEAREST))
    assert [(each.total, each.jobs) for each in result.sums["price"]] == [(8, 1), (4, 1)]


def test_compare_counts_what_neither_places_and_what_is_no_longer_known() -> None:
    nowhere = RecordedDecision("j2", [], {}, {}, "j2")
    forgotten = replace(recorded(3, a=1, b=2), unknown=("b",))
    result = compare(
        [recorded(1, a=1, b=2), nowhere, forgotten], SelectorRules("random", {}), SelectorRules("random", {})
    )
    assert (result.decisions, result.neither, result.left_out) == (2, 1, 1)


def test_compare_of_a_policy_with_itself_moves_nobody() -> None:
    policy = SelectorRules("random", {})
    assert compare([recorded(n, a=1, b=2, c=3) for n in range(20)], policy, policy).moved == []


def test_redecide_draws_as_the_first_time() -> None:
    again = {redecide(recorded(7, a=1, b=2, c=3), SelectorRules("random", {})).cluster for _ in range(5)}
    assert len(again) == 1


# ── kept by the service ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def two(api: Any) -> Any:
    oak = api.register("oak", state={"cost": 2, "nodes_free": 2})
    elm = api.register("elm", state={"cost": 1, "nodes_free": 2})
    return oak, elm


def submit(api: Any, clusters: Any, options: dict[str, Any], **more: Any) -> Any:
    body = {"jobspec": jobspec(), "selector": {"name": "constraint", "options": options}, **more}
    return api.good("POST", "/v1/jobs", body, *(cluster.token for cluster in clusters))


def test_submitted_decision_has_ranks_and_no_states(api: Any, two: Any) -> None:
    made = submit(api, two, CHEAPEST)
    assert made["decision"]["selection"]["ranks"] == {"elm": 1, "oak": 2}
    assert "ledger" not in made["decision"]
    why = api.good("GET", f"/v1/jobs/{made['id']}/why", None, two[1].token)
    assert why["decision"]["selection"]["ranks"] == {"elm": 1}
    assert "ledger" not in why["decision"]


def test_replay_after_states_have_changed_is_equal(api: Any, two: Any) -> None:
    made = submit(
        api, two, {"priorities": [{"priority": 1, "steps": [{"filter": "cost > 0"}, {"select": "random"}]}]}
    )
    api.good("PUT", "/v1/clusters/elm/state", {"cost": -1}, two[1].secret)
    api.good("PUT", "/v1/clusters/oak/state", {"cost": -1}, two[0].secret)
    answer = api.good("GET", f"/v1/jobs/{made['id']}/replay", None, *(one.token for one in two))
    assert answer["equal"] is True
    assert answer["replayed"] == answer["selection"] == made["decision"]["selection"]
    assert answer["graphs_changed_since"] == []
    api.good("PUT", "/v1/clusters/elm/graph", grid(3, 2), two[1].secret)
    answer = api.good("GET", f"/v1/jobs/{made['id']}/replay", None, *(one.token for one in two))
    assert (answer["equal"], answer["graphs_changed_since"]) == (True, ["elm"])


def test_replay_knows_how_many_switches_the_job_was_below(api: Any) -> None:
    edges = [("c", "s"), ("s", "n0"), ("c", "t"), ("t", "n1"), ("n0", "k0"), ("n1", "k1")]
    types = {"c": "cluster", "s": "switch", "t": "switch", "n0": "node", "n1": "node", "k0": "core", "k1": "core"}
    torn = {
        "nodes": [{"id": one, "type": kind} for one, kind in types.items()],
        "edges": [{"source": above, "target": below} for above, below in edges],
    }
    near = {**torn, "edges": [{**one, "source": one["source"].replace("t", "s")} for one in torn["edges"]]}
    clusters = [api.register("elm", torn), api.register("oak", near)]
    steps = [{"filter": "matched.switches >= 1"}, {"sort_ascending": "matched.switches"}]
    options = {"priorities": [{"priority": 1, "steps": steps}]}
    made = submit(api, clusters, options, jobspec=jobspec(2))
    assert made["cluster"] == "oak"
    assert made["decision"]["selection"]["steps"][1]["values"] == {"elm": 2, "oak": 1}
    answer = api.good("GET", f"/v1/jobs/{made['id']}/replay", None, *(one.token for one in clusters))
    assert (answer["equal"], answer["replayed"]) == (True, made["decision"]["selection"])


def test_replay_of_a_decision_that_was_tampered_with_is_not_equal(api: Any, two: Any) -> None:
    made = submit(api, two, CHEAPEST)
    with api.service.store.write() as connection:
        stored = jobs.decision(connection, made["id"])
        stored["ledger"]["states"] = stored["ledger"]["states"].replace('"cost": 2', '"cost": 0')
        jobs.change(connection, made["id"], decision=stored)
    answer = api.good("GET", f"/v1/jobs/{made['id']}/replay", None, *(one.token for one in two))
    assert answer["equal"] is False
    assert (answer["selection"]["cluster"], answer["replayed"]["cluster"]) == ("elm", "oak")


def test_replay_of_a_job_placed_before_the_ledger_says_so(api: Any, two: Any) -> None:
    made = submit(api, two, CHEAPEST)
    with api.service.store.write() as connection:
        jobs.change(connection, made["id"], decision=made["decision"])
    api.problem(409, "conflict", "GET", f"/v1/jobs/{made['id']}/replay", None, *(one.token for one in two))
    assert api.good("GET", "/v1/decisions", None, ADMIN) == {"decisions": [], "next": None}


def test_replay_shows_only_clusters_that_exist_for_its_reader(api: Any, two: Any) -> None:
    made = submit(api, two, CHEAPEST)
    answer = api.good("GET", f"/v1/jobs/{made['id']}/replay", None, two[1].token)
    assert "oak" not in str(answer)
    api.problem(404, "not-found", "GET", f"/v1/jobs/{made['id']}/replay", None, two[0].token)


def test_recorded_decisions_are_the_admins_and_come_page_by_page(api: Any, two: Any) -> None:
    made = [submit(api, two, CHEAPEST)["id"] for _ in range(3)]
    api.problem(403, "forbidden", "GET", "/v1/decisions", None, two[0].token)
    first = api.good("GET", "/v1/decisions?limit=2", None, ADMIN)
    rest = api.good("GET", f"/v1/decisions?limit=2&cursor={first['next']}", None, ADMIN)
    assert [one["id"] for one in (*first["decisions"], *rest["decisions"])] == made[::-1]
    assert rest["next"] is None
    assert rest["decisions"][0]["states"]["elm"]["nodes_free"] == 2
    assert rest["decisions"][0]["selector"] == {"name": "constraint", "options": CHEAPEST}


def test_idle_workers_are_those_that_are_ready_and_hold_nothing(api: Any) -> None:
    oak = api.register("oak", state={"nodes_free": 2})
    options = {"priorities": [{"priority": 1, "steps": [{"calc": "idle=queue.idle_workers"}]}]}

    def idle() -> Any:
        return submit(api, [oak], options)["decision"]["selection"]["values"]["oak"]["idle"]

    assert idle() == 0  # no agent has spoken for a worker yet
    oak.say("heartbeat", running=[])
    assert len(oak.take()) == 1
    assert idle() == 1
