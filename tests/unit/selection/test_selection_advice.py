"""What warnings are made of: bounds that hold for every value, trends that hold for every cost."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rainbow.selection.expression.analysis import ANY, FALLS, RISES, UNCLEAR, bounds, narrowed, never, trend
from rainbow.selection.expression.compiler import Fault, compile_expression
from tests.conftest import examples
from tests.unit.selection.expressions import evaluate
from tests.unit.selection.test_expression_columns import compound

names = st.sampled_from(["a", "b", "cost"])
literals = st.sampled_from(["0", "1", "2", "3.5", "100", "-4", "0.25", "1e9", "1e308", "1e-308"])
EXPRESSIONS = st.recursive(names | literals, compound, max_leaves=8)
SIZES = st.integers(0, 6) | st.floats(0, 1e6) | st.sampled_from([0, 1, 100])
STATES = st.fixed_dictionaries({"a": SIZES, "b": SIZES, "cost": SIZES})


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@settings(max_examples=examples(500), deadline=None)
@given(EXPRESSIONS, STATES)
def test_every_value_lies_within_the_bounds(text: str, state: dict[str, Any]) -> None:
    value = evaluate(text, state)
    if is_number(value):
        least, most = bounds(compile_expression(text).tree, {})
        slack = 1e-9 * max(1.0, abs(value))
        assert least - slack <= value <= most + slack


@settings(max_examples=examples(400), deadline=None)
@given(EXPRESSIONS, STATES)
def test_where_a_condition_is_true_values_lie_within_what_is_known_then(text: str, state: dict[str, Any]) -> None:
    value, tree = evaluate(text, state), compile_expression(text).tree
    if not isinstance(value, bool):
        return
    assert not (value and never(tree, {}))
    for name, (least, most) in narrowed(tree, {}, holds=value).items():
        assert least - 1e-9 <= state[name] <= most * (1 + 1e-9)


@settings(max_examples=examples(500), deadline=None)
@given(EXPRESSIONS, STATES, SIZES)
def test_value_goes_with_cost_as_its_trend_says(text: str, state: dict[str, Any], more: Any) -> None:
    goes = trend(compile_expression(text).tree, {}, {})
    assume(goes in (RISES, FALLS, None))
    cheap, dear = evaluate(text, state), evaluate(text, {**state, "cost": state["cost"] + more})
    if not is_number(cheap) or not is_number(dear):
        return
    slack = 1e-9 * max(1.0, abs(cheap), abs(dear))
    if goes is None:
        assert cheap == dear
    else:
        assert (dear - cheap) * goes >= -slack


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("memory - 100", -100, float("inf")),
        ("memory > 100 ? memory - 100 : 0", 0, float("inf")),
        ("memory < 100 ? 0 : memory - 100", 0, float("inf")),
        ("not (memory < 100 or yes) ? memory - 100 : 0", 0, float("inf")),
        ("100 < memory <= 200 ? memory - 100 : 0", 0, 100),
        ("max(0, memory - 100)", 0, float("inf")),
        ("abs(memory - 100) + 1", 1, float("inf")),
        ("(memory - 100) ** 2", 0, float("inf")),
        ("5 - 3", 2, 2),
        ("10 / -(1 + memory)", -10, 0),
        ("memory % 7 - 7", -7, 0),
        ("round(memory / 3)", 0, float("inf")),
    ],
)
def test_bounds_are_no_wider_than_this(text: str, least: float, most: float) -> None:
    assert bounds(compile_expression(text).tree, {}) == (least, most)


def test_bounds_of_a_division_by_nothing_but_zero_are_any() -> None:
    assert bounds(compile_expression("memory / 0").tree, {}) == ANY


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("cost * hours", RISES),
        ("cost_per_node_hour * (memory * seconds) / 3600", RISES),
        ("0 - price", FALLS),
        ("nodes_free / cost", FALLS),
        ("(memory - 100) * cost", UNCLEAR),
        ("cost - price", UNCLEAR),
        ("cost > 3 ? 1 : 0", UNCLEAR),
        ("yes ? cost : 2 * price", RISES),
        ("log(2, cost)", UNCLEAR),
        ("min(cost, 5)", RISES),
        ("total", RISES),
        ("spare", FALLS),
        ("nodes_free - 1", None),
    ],
)
def test_trend_of(text: str, goes: int | None) -> None:
    assert trend(compile_expression(text).tree, {}, {"total": RISES, "spare": FALLS}) == goes


NESTED = [
    "a > (" * 30 + "1" + " ? 1 : 2)" * 30,
    "(" * 30 + "cost" + " ? 1 : 2)" * 30,
    "a > (b > 1 ? a : " * 30 + "1" + ")" * 30,
    "(a < b ? " * 30 + "cost" + " : cost - 1)" * 30,
    "min(cost - (" * 25 + "1" + "), a)" * 25,
    "a and " * 680 + "a",
    "a < 3 and b > 2 and (" * 30 + "a" + ")" * 30,
    "a<" * 2040 + "a",
    "1 / (a - " * 30 + "cost" + ")" * 30,
]


@pytest.mark.parametrize("text", NESTED, ids=lambda text: text[:12])
def test_advice_about_the_worst_expressions_takes_little_time(text: str) -> None:
    tree = compile_expression(text).tree
    start = time.thread_time()
    bounds(tree, {}), never(tree, {}), narrowed(tree, {}, holds=False), trend(tree, {}, {})
    assert time.thread_time() - start < 1


@pytest.mark.parametrize(
    "text",
    [
        str(2**1024 - 1),
        f"-{2**1024 - 1} + {2**1024 - 1} * a",
        "round(exp(800))",
        "1e308 * 10 - 1e308 * 10",
        "floor(1e308 * 10)",
        "1 / 5e-324 - 1 / 5e-324",
        "sqrt(1e308 * 10 - 1e308 * 10)",
        "log(1e308 * 10)",
        "floor(1e308) * floor(1e308) + 0.5",
        "2 ** 5000 * 2 ** a",
        "(0 - 1e308) * 1e308 // 1",
        "0 * (1e308 * 10)",
        "1 % (1e308 * 10) // 0",
    ],
)
def test_numbers_beyond_all_floats_have_bounds(text: str) -> None:
    tree = compile_expression(text).tree
    least, most = bounds(tree, {})
    assert least <= most
    assert isinstance(never(tree, {}), bool)
    trend(tree, {}, {})


def test_fault_is_no_value() -> None:
    """What the properties above leave out is only what has no value at all."""
    assert isinstance(evaluate("a / 0", {"a": 1}), Fault)
