"""The contract of a selector, over every one that is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from rainbow.errors import RainbowError, SelectionError
from rainbow.plugins import UnknownPlugin
from rainbow.selection import select, selectors
from rainbow.testing import SelectorContract
from rainbow.testing.selectors import REQUEST, STATES, verdicts


class TestRandom(SelectorContract):
    name = "random"


class TestConstraint(SelectorContract):
    name = "constraint"
    options: ClassVar[Mapping[str, Any]] = {
        "priorities": "- {priority: 1, steps: [{sort_ascending: cost}, {select: random}]}"
    }


def test_selectors_are_all_covered_here() -> None:
    assert {one.name for one in SelectorContract.__subclasses__()} >= set(selectors)


def test_random_reads_no_state() -> None:
    odd = {name: {"nodes_free": 0, "cost": "text"} for name in STATES}
    for seed in range(20):
        assert select(REQUEST, verdicts(), odd, seed=seed) == select(REQUEST, verdicts(), {}, seed=seed)


def test_random_over_seeds_is_uniform() -> None:
    wins = [select(REQUEST, verdicts(), STATES, seed=seed).cluster for seed in range(6000)]
    assert all(abs(wins.count(name) - 500) < 100 for name in STATES)


def test_random_with_options_warns() -> None:
    assert list(selectors.get("random").check({"x": 1})) == ["random takes no options: x is not used"]


def test_unknown_selector_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownPlugin, match="constraint, random") as caught:
        select(REQUEST, verdicts(), STATES, selector="cheapest")
    assert isinstance(caught.value, RainbowError)


def test_constraint_without_candidates_still_refuses_bad_options() -> None:
    with pytest.raises(SelectionError):
        select(REQUEST, [], {}, selector="constraint", options={})
