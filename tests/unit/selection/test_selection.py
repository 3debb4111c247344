"""Selection: the founding text worked by hand, the steps, and that no decision changes another."""

from __future__ import annotations

import copy
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection import Choice, Step, check_options, select
from tests.conftest import examples

CASES = Path(__file__).parents[2] / "cases" / "selection"
SHARED = Path(__file__).parents[3].parent / "shared"


def load(name: str) -> Any:
    return yaml.load((CASES / name).read_text(), yaml.CSafeLoader)


FOUNDING = load("founding-options.yaml")
HAND_WORKED = load("founding.yaml")
STEPS = load("steps.yaml")
names = [pytest.param(case, id=case["case"]) for case in HAND_WORKED["cases"]]


def choose(
    states: dict[str, dict[str, Any]],
    options: dict[str, Any],
    parameters: dict[str, Any],
    nodes: int = 2,
    seed: int | str = 0,
    selector: str = "constraint",
) -> Choice:
    verdicts = [Verdict(name, True, fits=3, totals={"nodes": nodes, "cores": 2 * nodes}) for name in states]
    request = Request(variants=((),), tasks=(), parameters=parameters)
    return select(request, verdicts, states, selector=selector, options=options, seed=seed)


def one_priority(*steps: dict[str, str]) -> dict[str, Any]:
    return {"priorities": [{"priority": 1, "steps": list(steps)}]}


# ── the founding text ───────────────────────────────────────────────────────────────────────────────────────


def arrange(case: dict[str, Any]) -> dict[str, Any]:
    text = FOUNDING["priorities"]
    for old, new in case.get("first", {}).items():
        text = text.replace(old, new, 1)
    for old, new in case.get("everywhere", {}).items():
        text = text.replace(old, new)
    states = copy.deepcopy(HAND_WORKED["states"])
    for name, change in case.get("states", {}).items():
        states[name] = {k: v for k, v in {**states[name], **change}.items() if v is not None}
    return {
        "states": states,
        "options": {"priorities": text, **case.get("options", {})},
        "parameters": case.get("parameters", HAND_WORKED["parameters"]),
        "nodes": HAND_WORKED["nodes"],
    }


def assert_values(result: Any, expected: dict[str, str]) -> None:
    assert dict(result).keys() == expected.keys()
    for key, fraction in expected.items():
        assert result[key] == pytest.approx(float(Fraction(fraction)), rel=1e-12, abs=0)


def assert_step(step: Step, expected: dict[str, Any]) -> None:
    for key in ("priority", "step", "argument"):
        assert getattr(step, key) == expected.get(key, getattr(step, key))
    if "survivors" in expected:
        assert list(step.survivors) == expected["survivors"]
    if "values" in expected:
        assert_values(step.values, expected["values"])
    if "dropped" in expected:
        assert step.dropped.keys() == expected["dropped"].keys()
        assert all(why in step.dropped[name] for name, why in expected["dropped"].items())
    assert expected.get("note", "") in step.note


@pytest.mark.parametrize("case", names)
def test_founding_text_case_as_worked_by_hand(case: dict[str, Any]) -> None:
    choice, expect = choose(**arrange(case)), case["expect"]
    assert choice.cluster in (expect["one_of"] if "one_of" in expect else [expect["cluster"]])
    assert expect.get("reason", "") in choice.reason
    if "warnings" in expect:
        assert list(choice.warnings) == expect["warnings"]
    if "steps" in expect:
        assert len(choice.steps) == len(expect["steps"])
    for step, expected in zip(choice.steps, expect.get("steps", []), strict=False):
        assert_step(step, expected)
    if "values" in expect:
        assert choice.values.keys() == expect["values"].keys()
        for name, values in expect["values"].items():
            assert_values(choice.values[name], values)


def test_founding_text_random_over_3000_seeds_is_uniform_and_replayable() -> None:
    case = arrange({})
    winners = [choose(**case, seed=seed).cluster for seed in range(3000)]
    assert all(abs(count - 1000) <= 100 for count in Counter(winners).values())
    assert [choose(**case, seed=seed).cluster for seed in range(300)] == winners[:300]


def test_founding_text_random_seeded_by_job_ids_is_uniform() -> None:
    case = arrange({})
    wins = Counter(choose(**case, seed=f"job-{number}").cluster for number in range(3000))
    assert sorted(wins) == ["alpha", "bravo", "carol"]
    assert all(abs(count - 1000) <= 100 for count in wins.values())


def test_random_after_sort_does_not_depend_on_the_sort() -> None:
    up = arrange({"everywhere": {"sort_descending": "sort_ascending"}})
    for seed in range(50):
        assert choose(**up, seed=seed).cluster == choose(**arrange({}), seed=seed).cluster


def test_full_cluster_over_seeds_never_wins() -> None:
    case = arrange({"states": {"bravo": {"nodes_free": 0}}})
    assert {choose(**case, seed=seed).cluster for seed in range(200)} == {"alpha", "carol"}


def test_states_after_a_decision_are_untouched() -> None:
    case = arrange({"first": {"nodes_free > 0": "nodes_free > 100"}})
    before = copy.deepcopy(case)
    choose(**case)
    assert case == before


def test_founding_text_check_warns_of_what_it_does_not_mean() -> None:
    warnings = "\n".join(check_options("constraint", FOUNDING))
    assert "priority 2, step 2 (calc): memory_min can be negative" in warnings
    assert "priority 1, step 4 (select): random ignores the sort" in warnings
    assert "sort_descending of build_cost followed by first would select the most expensive cluster" in warnings


@pytest.mark.parametrize(
    "path", ["inputs/rainbow/scheduler/rainbow-selection-config.yaml", "inputs/rainbow/scheduler/rainbow-config.yaml"]
)
def test_upstream_configuration_unmodified_is_accepted(path: str) -> None:
    if not (SHARED / path).exists():
        pytest.skip("the shared inputs are not beside this repository")
    written = yaml.load((SHARED / path).read_text(), yaml.CSafeLoader)["scheduler"]["algorithms"]["selection"]
    case = {**arrange({}), "options": written.get("options", {})}
    assert choose(**case, selector=written["name"]).cluster in case["states"]


# ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in STEPS["cases"]])
def test_steps_of_one_priority_leave(case: dict[str, Any]) -> None:
    choice = choose(STEPS["states"], one_priority(*case["steps"]), STEPS["parameters"], STEPS["nodes"])
    # the last step is the implied select, unless nobody was left for it
    last = choice.steps[-2] if case["left"] else choice.steps[-1]
    assert list(last.survivors) == case["left"]
    assert choice.cluster == (case["left"][0] if case["left"] else None)
    reasons = [why for step in choice.steps for why in step.dropped.values()]
    assert not case.get("why") or any(case["why"] in why for why in reasons)


def test_priorities_in_any_order_are_tried_ascending() -> None:
    second = {"priority": 2, "steps": [{"select": "last"}]}
    first = {"priority": 1, "steps": [{"select": "first"}]}
    states: dict[str, dict[str, Any]] = {"alpha": {}, "bravo": {}}
    assert choose(states, {"priorities": [second, first]}, {}).cluster == "alpha"


def test_computed_variable_in_the_next_priority_is_gone() -> None:
    one = {"priority": 1, "steps": [{"calc": "big=1"}, {"filter": "big > 1"}]}
    two = {"priority": 2, "steps": [{"filter": "big == 1"}]}
    choice = choose({"alpha": {}}, {"priorities": [one, two]}, {})
    assert choice.cluster is None
    assert "big is given neither by the job nor by any cluster" in choice.steps[-1].dropped["alpha"]


def test_clusters_without_nodes_free_are_not_refused_for_it() -> None:
    choice = choose({"alpha": {}, "bravo": {"nodes_free": 1}}, one_priority({"select": "last"}), {}, nodes=2)
    assert choice.cluster == "alpha"
    assert choice.steps[0].step == "booking"


@pytest.mark.parametrize("free", ["many", float("nan"), float("inf"), True])
def test_nodes_free_that_cannot_be_booked_drops_that_cluster(free: Any) -> None:
    choice = choose(
        {"alpha": {"nodes_free": free}, "bravo": {"nodes_free": 9}}, one_priority({"select": "first"}), {}
    )
    assert choice.cluster == "bravo"
    assert choice.steps[0].dropped.keys() == {"alpha"}


def test_job_setting_our_variables_is_warned_and_ignored() -> None:
    options = one_priority({"filter": "matched.nodes == 2"}, {"filter": "coalesce(queue.waiting_tasks, 7) == 7"})
    choice = choose({"alpha": {}}, options, {"matched.nodes": 5, "queue.waiting_tasks": 0, "list": [1], 3: 4})
    assert choice.cluster == "alpha"
    assert list(choice.warnings) == [
        "ignored job parameter 3: not a number, text or boolean",
        "ignored job parameter list: not a number, text or boolean",
        "ignored job parameter matched.nodes: jobs cannot set this variable",
        "ignored job parameter queue.waiting_tasks: jobs cannot set this variable",
    ]


def test_names_with_numbers_tie_in_natural_order() -> None:
    states: dict[str, dict[str, Any]] = {name: {"cost": 1} for name in ("c10", "c9", "c2")}
    choice = choose(states, one_priority({"sort_descending": "cost"}), {})
    assert choice.steps[0].survivors == ("c2", "c9", "c10")


def test_uninformed_variable_nearly_right_names_the_nearest() -> None:
    choice = choose({"alpha": {"seconds_per_gb": 1}}, one_priority({"calc": "x=second_per_gb"}), {})
    assert "did you mean seconds_per_gb?" in choice.steps[0].note


def test_many_clusters_decide_as_few_do() -> None:
    """Columns and single evaluation give one answer: the clusters in doubt are dropped, the rest untouched."""
    states = {
        f"c{n}": {"cost_per_node_hour": n % 7 + n / 8, "nodes_free": 5, "memory_per_node": n} for n in range(200)
    }
    states["c50"]["memory_per_node"] = "big"
    del states["c51"]["memory_per_node"]
    states["c52"]["memory_per_node"] = 2**70
    states["c53"]["nodes_free"] = 0
    options = {"priorities": FOUNDING["priorities"].replace("random", "first")}
    choice = choose(states, options, {"seconds_per_gb": 2})
    dropped = {name: why for step in choice.steps for name, why in step.dropped.items()}
    assert dropped.keys() == {"c50", "c51", "c53"}
    assert choice.cluster == "c52"
    for name in ("c3", "c199", "c52"):
        alone = choose({name: states[name]}, options, {"seconds_per_gb": 2})
        assert alone.values[name] == choice.values[name]


# ── nobody changes anybody else's decision ──────────────────────────────────────────────────────────────────


def test_options_of_one_request_never_change_those_of_another() -> None:
    requirements = [
        (mode, direction) for mode in ("first", "last") for direction in ("sort_ascending", "sort_descending")
    ]

    def decide(number: int) -> tuple[int, str | None]:
        mode, direction = requirements[number % 4]
        return number % 4, choose(
            HAND_WORKED["states"], one_priority({direction: "nodes_free"}, {"select": mode}), {}
        ).cluster

    shared = arrange({"everywhere": {"random": "first"}})
    before = choose(**shared)
    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(decide, range(400)))
    assert answers == {(0, "bravo"), (1, "alpha"), (2, "alpha"), (3, "bravo")}
    assert choose(**shared) == before


variable = st.sampled_from(["a", "b"])
number = st.one_of(st.integers(-3, 3), st.floats(-3, 3), st.just("text"), st.just(float("nan")))
clusters = st.dictionaries(st.sampled_from("uvwxyz"), st.dictionaries(variable, number), min_size=1)
step = st.sampled_from(
    [
        {"filter": "a > 0"},
        {"calc": "b=a/b"},
        {"sort_ascending": "b"},
        {"sort_descending": "a+b"},
        {"filter": "b != a"},
    ]
)


@settings(max_examples=examples(150), deadline=None)
@given(clusters, st.lists(step, min_size=1, max_size=4), st.sampled_from(["first", "last", "random"]), st.integers())
def test_any_steps_lose_no_cluster_without_a_reason(
    states: dict[str, dict[str, Any]], steps: list[dict[str, str]], mode: str, seed: int
) -> None:
    options = one_priority(*steps, {"select": mode})
    choice = choose(states, options, {}, seed=seed)
    remaining = set(states)
    for done in choice.steps:
        if done.step == "select":
            assert set(done.survivors) <= remaining
            break
        assert remaining - done.dropped.keys() == set(done.survivors)
        remaining = set(done.survivors)
    assert (choice.cluster in remaining) if remaining else (choice.cluster is None)
    reversed_states = dict(reversed(states.items()))
    assert choose(reversed_states, options, {}, seed=seed) == choice


def test_sorts_in_sequence_compose_ties_by_the_sort_before_then_by_name() -> None:
    states = {
        "a": {"rack": 2, "cost": 1},
        "b": {"rack": 1, "cost": 3},
        "c": {"rack": 2, "cost": 1},
        "d": {"rack": 1, "cost": 1},
        "e": {"rack": 1, "cost": 3},
    }
    steps = [{"sort_descending": "cost"}, {"filter": "cost < 9"}, {"sort_ascending": "rack"}, {"select": "last"}]
    choice = choose(states, {"priorities": [{"priority": 1, "steps": steps}]}, {})
    assert [step.survivors for step in choice.steps] == [
        ("b", "e", "a", "c", "d"),
        ("b", "e", "a", "c", "d"),
        ("b", "e", "d", "a", "c"),
        ("c",),
    ]
