"""The contract of a selector."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection import Choice, select, selectors

STATES: dict[str, dict[str, Any]] = {f"c{n}": {"cost": n % 3, "nodes_free": 9} for n in range(12)}
REQUEST = Request(variants=((),), tasks=(), parameters={"seconds_per_gb": 2})


def verdicts(names: Any = STATES) -> list[Verdict]:
    """Return a match on each of these clusters."""
    return [Verdict(name, True, fits=1, totals={"nodes": 2}) for name in names]


class SelectorContract:
    """Tests of the selector called `name`, with the `options` that it needs to decide anything.

    The twelve candidates have the variables `cost` and `nodes_free`.
    """

    name: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture
    def selector(self) -> str:
        """Return the selector's name."""
        return self.name

    def choose(self, selector: str, candidates: list[Verdict], **more: Any) -> Choice:
        """Let the selector choose among candidates."""
        return select(REQUEST, candidates, STATES, selector=selector, options=self.options or None, **more)

    def test_selector_among_candidates_picks_one_and_says_why(self, selector: str) -> None:
        choice = self.choose(selector, verdicts())
        assert choice.cluster in STATES
        assert choice.selector == selector
        assert choice.reason

    def test_selector_without_candidates_picks_none_and_says_why(self, selector: str) -> None:
        refused = [Verdict(name, False) for name in STATES]
        for none in ([], refused):
            assert self.choose(selector, none) == Choice(None, selector, reason="no cluster matches")

    def test_selector_never_picks_a_cluster_that_does_not_match(self, selector: str) -> None:
        mixed = [Verdict(name, name == "c7", totals={"nodes": 2}) for name in STATES]
        assert {self.choose(selector, mixed, seed=seed).cluster for seed in range(20)} == {"c7"}

    def test_selector_of_equal_input_chooses_equally_whatever_the_order(self, selector: str) -> None:
        shuffled = verdicts()
        random.Random(5).shuffle(shuffled)  # a fixed order that is not the one of names
        for seed in (0, 7, "job-1", "3f1c"):
            assert self.choose(selector, verdicts(), seed=seed) == self.choose(selector, shuffled, seed=seed)

    def test_selector_changes_nothing_it_is_given(self, selector: str) -> None:
        states, options, inputs = copy.deepcopy(STATES), copy.deepcopy(dict(self.options)), verdicts()
        self.choose(selector, inputs)
        assert (states, options, inputs) == (STATES, self.options, verdicts())

    def test_selector_draws_only_from_its_generator(self, selector: str) -> None:
        before = random.getstate()
        self.choose(selector, verdicts())
        assert random.getstate() == before

    def test_selector_steps_name_only_candidates(self, selector: str) -> None:
        choice = self.choose(selector, verdicts())
        assert all({*step.survivors, *step.values, *step.dropped} <= STATES.keys() for step in choice.steps)

    def test_selector_check_of_its_options_gives_texts(self, selector: str) -> None:
        assert all(isinstance(text, str) for text in selectors.get(selector).check(self.options))
