"""`constraint` beside a model of it, written from the contract as plainly as can be.

It has no columns, no caches, and tells nothing. Only the value of one expression for one cluster is taken from the
product; that has tests of its own.
"""

from __future__ import annotations

import random
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection import Choice, select
from rainbow.selection.expression.compiler import Fault, compile_expression
from tests.conftest import examples
from tests.unit.selection.expressions import evaluate

State = dict[str, Any]
NAMES = ["c1", "c2", "c3", "c4", "c9", "c10", "d1", "d20"]  # in natural order, which is not that of the letters


class Model:
    """One decision, by the words of the contract."""

    def __init__(self, states: dict[str, State], parameters: State, options: State, nodes: int, seed: int) -> None:
        self.states = states
        stated = {variable for state in states.values() for variable in state}
        self.parameters = {name: value for name, value in parameters.items() if name not in stated}  # state wins
        self.options = options
        self.nodes = nodes
        self.rng = random.Random(seed)

    def winner(self) -> str | None:
        can = [name for name in NAMES if name in self.states and self.may_be_booked(self.states[name])]
        for priority in sorted(self.options["priorities"], key=lambda one: one["priority"]):
            group = self.options["groups"].get(priority.get("group"), ["*"])
            mine = [name for name in can if any(fnmatchcase(name, pattern) for pattern in group)]
            if mine and (won := self.tried(priority["steps"], mine)):
                return won
        return None

    def may_be_booked(self, state: State) -> bool:
        if state.get("state.age", 0) > self.options.get("stale_after", 1e9):
            return False
        free = state.get("nodes_free", self.nodes)
        return isinstance(free, int | float) and free >= self.nodes

    def tried(self, steps: list[dict[str, str]], remaining: list[str]) -> str | None:
        self.computed: dict[str, State] = {name: {} for name in self.states}
        self.skipped: set[str] = set()
        for step in [*steps, {"select": "first"}]:  # a priority without select ends with first
            [(kind, argument)] = step.items()
            remaining = getattr(self, kind.partition("_")[0])(argument, remaining, kind)
            if not remaining:
                return None
            if kind == "select":
                return remaining[0]
        raise AssertionError("a select ends it")

    def value(self, text: str, name: str) -> Any:
        state = self.states[name]
        return evaluate(text, {**self.parameters, **state, "matched.nodes": self.nodes, **self.computed[name]})

    def uninformed(self, text: str) -> bool:
        """Tell whether a variable is read that no candidate's state has, and neither the job."""
        inputs = {variable for state in self.states.values() for variable in state} | {
            *self.parameters,
            "matched.nodes",
        }
        inputs = (inputs | {variable for made in self.computed.values() for variable in made}) - self.skipped
        return any(variable not in inputs for variable in compile_expression(text).names)

    def filter(self, text: str, remaining: list[str], _: str) -> list[str]:
        results = {name: self.value(text, name) for name in remaining}
        return [name for name in remaining if not isinstance(results[name], Fault | str) and results[name]]

    def calc(self, text: str, remaining: list[str], _: str) -> list[str]:
        variable, _, expression = text.partition("=")
        if self.uninformed(expression):
            self.skipped.add(variable)
            for made in self.computed.values():
                made.pop(variable, None)
            return remaining
        results = {name: self.value(expression, name) for name in remaining}
        remaining = [name for name in remaining if not isinstance(results[name], Fault)]
        for made in self.computed.values():
            made.pop(variable, None)
        for name in remaining:
            self.computed[name][variable] = results[name]
        self.skipped.discard(variable)
        return remaining

    def sort(self, text: str, remaining: list[str], kind: str) -> list[str]:
        if self.uninformed(text):
            text = self.options.get("uninformed_sort", "cost_per_node_hour")
            if self.uninformed(text):
                return remaining
        results = {name: self.value(text, name) for name in remaining}
        remaining = [name for name in remaining if not isinstance(results[name], Fault | str)]
        return sorted(  # stable: ties by the sort before, at first by name
            remaining,
            key=lambda name: results[name] if kind.endswith("ascending") and "desc" not in kind else -results[name],
        )

    def select(self, mode: str, remaining: list[str], _: str) -> list[str]:
        if mode == "random":
            ordered = sorted(remaining, key=NAMES.index)
            return [ordered[self.rng.randrange(len(ordered))]]
        return [remaining[0 if mode == "first" else -1]]


def decided(states: dict[str, State], parameters: State, options: State, nodes: int, seed: int) -> Choice:
    verdicts = [Verdict(name, True, fits=1, totals={"nodes": nodes}) for name in states]
    request = Request(variants=((),), tasks=(), parameters=parameters)
    return select(request, verdicts, states, selector="constraint", options=options, seed=seed)


# ── random configurations ───────────────────────────────────────────────────────────────────────────────────

NUMBERS = [
    "a",
    "b",
    "a+b",
    "b/a",
    "-a",
    "x",
    "x*2-a",
    "m",
    "a*m",
    "y",
    "1",
    "a > 1 ? a : b",
    "x+y",
    "matched.nodes*a",
]
CONDITIONS = [
    "a > 1",
    "b >= a",
    "x > 0",
    "m == 2",
    "a",
    "not a > 2",
    "a in (1, 2)",
    "y < 3",
    "nodes_free > 3",
    "a && b",
]
STEP = st.one_of(
    st.sampled_from(CONDITIONS).map(lambda text: {"filter": text}),
    st.builds(lambda name, text: {"calc": f"{name}={text}"}, st.sampled_from("xy"), st.sampled_from(NUMBERS)),
    st.sampled_from(NUMBERS).map(lambda text: {"sort_ascending": text}),
    st.sampled_from(NUMBERS).map(lambda text: {"sort_descending": text}),
    st.sampled_from(["first", "last", "random"]).map(lambda mode: {"select": mode}),
)
PRIORITY = st.fixed_dictionaries(
    {"priority": st.integers(1, 3), "steps": st.lists(STEP, min_size=1, max_size=5)},
    optional={"group": st.sampled_from(["few", "cs"])},
)
OPTIONS = st.fixed_dictionaries(
    {
        "priorities": st.lists(PRIORITY, min_size=1, max_size=4),
        "groups": st.just({"few": ["c2", "d20"], "cs": ["c*"]}),
    },
    optional={"stale_after": st.sampled_from([5, 50]), "uninformed_sort": st.sampled_from(["a", "m", "-b"])},
)
VALUE = st.integers(0, 3) | st.sampled_from([1.5, "text", -1])
STATE = st.fixed_dictionaries(
    {},
    optional={"a": VALUE, "b": VALUE, "cost_per_node_hour": st.integers(0, 2)}
    | {"nodes_free": st.integers(0, 6), "state.age": st.sampled_from([0, 10, 100])},
)
STATES = st.dictionaries(st.sampled_from(NAMES), STATE, min_size=1)
PARAMETERS = st.dictionaries(st.sampled_from("abm"), st.integers(0, 3))
DEAREST = {"priority": 1, "steps": [{"calc": "x=a*m"}, {"sort_descending": "x"}, {"select": "first"}]}


def check(states: dict[str, State], parameters: State, options: State, nodes: int, seed: int) -> None:
    choice = decided(states, parameters, options, nodes, seed)
    assert choice.cluster == Model(states, parameters, options, nodes, seed).winner()
    if choice.cluster is None:
        assert choice.drops.keys() == states.keys(), "every cluster has the step that dropped it"


@settings(max_examples=examples(600), deadline=None)
@given(STATES, PARAMETERS, OPTIONS, st.integers(1, 4), st.integers(0, 3))
@example({"c9": {"a": 1}, "c10": {"a": 1}}, {"m": 2}, {"priorities": [DEAREST], "groups": {}}, 1, 0)
@example({"c9": {"a": 1}, "c10": {"cost_per_node_hour": 1}}, {}, {"priorities": [DEAREST], "groups": {}}, 1, 0)
def test_any_configuration_decides_as_the_contract_says(
    states: dict[str, State], parameters: State, options: State, nodes: int, seed: int
) -> None:
    check(states, parameters, options, nodes, seed)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, deadline=None)
@given(STATES, PARAMETERS, OPTIONS, st.integers(1, 4), st.integers(0, 3))
def test_any_configuration_decides_as_the_contract_says_campaign(
    states: dict[str, State], parameters: State, options: State, nodes: int, seed: int
) -> None:
    check(states, parameters, options, nodes, seed)
