"""The contract of a selector, over every one that is installed."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from rainbow.errors import RainbowError, SelectionError
from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.plugins import UnknownPlugin
from rainbow.selection import Choice, select, selectors

# what each needs to decide anything; a selector not named here must do without options
OPTIONS: dict[str, dict[str, Any]] = {
    "constraint": {"priorities": "- {priority: 1, steps: [{sort_ascending: cost}, {select: random}]}"}
}
STATES: dict[str, dict[str, Any]] = {f"c{n}": {"cost": n % 3, "nodes_free": 9} for n in range(12)}
REQUEST = Request(variants=((),), tasks=(), parameters={"seconds_per_gb": 2})


def verdicts(names: Any = STATES) -> list[Verdict]:
    return [Verdict(name, True, fits=1, totals={"nodes": 2}) for name in names]


def choose(selector: str, candidates: list[Verdict], **more: Any) -> Choice:
    return select(REQUEST, candidates, STATES, selector=selector, options=OPTIONS.get(selector), **more)


@pytest.fixture(params=list(selectors))
def selector(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_selector_among_candidates_picks_one_and_says_why(selector: str) -> None:
    choice = choose(selector, verdicts())
    assert choice.cluster in STATES
    assert choice.selector == selector
    assert choice.reason


def test_selector_without_candidates_picks_none_and_says_why(selector: str) -> None:
    refused = [Verdict(name, False) for name in STATES]
    for none in ([], refused):
        assert choose(selector, none) == Choice(None, selector, reason="no cluster matches")


def test_selector_never_picks_a_cluster_that_does_not_match(selector: str) -> None:
    mixed = [Verdict(name, name == "c7", totals={"nodes": 2}) for name in STATES]
    assert {choose(selector, mixed, seed=seed).cluster for seed in range(20)} == {"c7"}


def test_selector_of_equal_input_chooses_equally_whatever_the_order(selector: str) -> None:
    shuffled = verdicts()
    random.Random(5).shuffle(shuffled)  # a fixed order that is not the one of names
    for seed in (0, 7, "job-1", "3f1c"):
        assert choose(selector, verdicts(), seed=seed) == choose(selector, shuffled, seed=seed)


def test_selector_changes_nothing_it_is_given(selector: str) -> None:
    states, options, given = copy.deepcopy(STATES), copy.deepcopy(OPTIONS), verdicts()
    choose(selector, given)
    assert (states, options, given) == (STATES, OPTIONS, verdicts())


def test_selector_draws_only_from_its_generator(selector: str) -> None:
    before = random.getstate()
    choose(selector, verdicts())
    assert random.getstate() == before


def test_selector_steps_name_only_candidates(selector: str) -> None:
    choice = choose(selector, verdicts())
    assert all({*step.survivors, *step.values, *step.dropped} <= STATES.keys() for step in choice.steps)


def test_selector_check_of_its_options_gives_texts(selector: str) -> None:
    assert all(isinstance(text, str) for text in selectors.get(selector).check(OPTIONS.get(selector, {})))


def test_random_reads_no_state() -> None:
    odd = {name: {"nodes_free": 0, "cost": "text"} for name in STATES}
    for seed in range(20):
        assert select(REQUEST, verdicts(), odd, seed=seed) == select(REQUEST, verdicts(), {}, seed=seed)


def test_random_over_seeds_is_uniform() -> None:
    wins = [choose("random", verdicts(), seed=seed).cluster for seed in range(6000)]
    assert all(abs(wins.count(name) - 500) < 100 for name in STATES)


def test_random_with_options_warns() -> None:
    assert list(selectors.get("random").check({"x": 1})) == ["random takes no options: x is not used"]


def test_unknown_selector_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownPlugin, match="constraint, random") as caught:
        choose("cheapest", verdicts())
    assert isinstance(caught.value, RainbowError)


def test_constraint_without_candidates_still_refuses_bad_options() -> None:
    with pytest.raises(SelectionError):
        select(REQUEST, [], {}, selector="constraint", options={})
