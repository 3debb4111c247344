"""Many clusters at once give what each of them gives alone, to the last bit."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rainbow.matching import Verdict
from rainbow.selection.expression.columnar import PRIMITIVES as COLUMN_PRIMITIVES
from rainbow.selection.expression.columnar import evaluate_columns, read_column, scalars
from rainbow.selection.expression.compiler import compile_expression
from rainbow.selection.expression.scalar import PRIMITIVES
from rainbow.selection.variables import FEW_CLUSTERS, Variables
from tests.conftest import examples
from tests.unit.selection.expressions import evaluate

names = st.sampled_from(["a", "b", "c", "d"])
literals = st.sampled_from(["0", "1", "2", "3.5", "0.1", "100", "9007199254740992", "1e300", "true", "'t'"])
UNARY = ["-({})", "+({})", "!({})", "abs({})", "floor({})", "ceil({})", "round({})", "sqrt({})", "exp({})", "log({})"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!=", "&&", "||"]
TERNARY = ["({}) ? ({}) : ({})", "({}) < ({}) <= ({})", "({}) in (({}), ({}))", "({}) not in (({}), ({}))"]
TERNARY += ["min(({}), ({}), ({}))", "max(({}), ({}), ({}))", "coalesce(({}), ({}), ({}))", "({}) == ({}) != ({})"]


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.builds(str.format, st.sampled_from(UNARY), inner)
    two = st.builds(lambda a, sign, b: f"({a}) {sign} ({b})", inner, st.sampled_from(BINARY), inner)
    three = st.builds(str.format, st.sampled_from(TERNARY), inner, inner, inner)
    return one | two | three


expressions = st.recursive(names | literals, compound, max_leaves=8)
NUMBERS = (
    st.integers(-5, 5)
    | st.floats(-10, 10)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.integers(2**53 - 2, 2**53 + 2)
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([10**400, -0.0, 0.5, 1.5, 2.5, -2.5])
)
VALUES = NUMBERS | st.booleans() | st.sampled_from(["t", "text", None])
columns = st.integers(1, 6).flatmap(
    lambda rows: st.fixed_dictionaries(
        {name: st.lists(NUMBERS | VALUES, min_size=rows, max_size=rows) for name in "abcd"}
    )
)


def exactly(value: Any) -> Any:
    """Make floats equal only if every bit is, and numbers only if their kind is."""
    return (type(value), struct.pack("d", value) if isinstance(value, float) else value)


@settings(max_examples=examples(400), deadline=None)
@given(expressions, columns)
@example("(a // b) * c + a % b", {"a": [-7, 7], "b": [2, -2.0], "c": [1.5, 1], "d": [0, 0]})
@example("0 * a * 1.5", {"a": [-5], "b": [0], "c": [0], "d": [0]})
def test_columns_row_by_row_agree_with_single_evaluation(text: str, table: dict[str, list[Any]]) -> None:
    expression = compile_expression(text)
    rows = len(table["a"])
    results = evaluate_columns(expression, lambda name: read_column(table[name]), rows)
    if results is None:
        return
    values, doubt = scalars(results[0]), results[1]
    assert len(values) == rows
    for row in set(range(rows)) - set(doubt):
        alone = evaluate(expression, {name: column[row] for name, column in table.items()})
        assert exactly(values[row]) == exactly(alone)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.integers(-1000, 1000) | st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_columns_of_plain_numbers_are_never_in_doubt(values: list[Any]) -> None:
    results = evaluate_columns(
        compile_expression("min(100, a - 100) * 2 / 60 > 0.5 || a != 3"), lambda _: read_column(values), len(values)
    )
    assert results is not None
    assert results[1] == []


def test_columns_of_a_constant_have_every_row() -> None:
    results = evaluate_columns(compile_expression("2 * 3"), read_column, 3)
    assert results is not None
    assert (scalars(results[0]), results[1]) == ([6, 6, 6], [])


def test_primitives_of_both_kinds_are_the_same() -> None:
    assert PRIMITIVES.keys() == COLUMN_PRIMITIVES.keys()


# ── whole states: what is known, what is not, and what is of the wrong kind ─────────────────────────────────

CLUSTERS = FEW_CLUSTERS + 8  # enough for columns
ODD = st.sampled_from([0, 0.0, -0.0, "text", "", True, 2**63, -(2**63) - 1, 2**64 + 1, 2**2000, 5e-324, 1e308])
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
STATES = st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(-3, 3) | FLOATS | ODD), min_size=1, max_size=6)


def agree(text: str, states: list[dict[str, Any]], parameters: dict[str, Any]) -> None:
    """Every cluster among many has the value, or the reason why it has none, that it has alone."""
    expression = compile_expression(text)
    rows = {f"c{n:02}": states[n % len(states)] for n in range(CLUSTERS)}
    verdicts = [Verdict(name, True) for name in rows]
    values, faults = Variables(verdicts, rows, parameters).evaluate(expression, range(CLUSTERS))
    stated = {name for state in states for name in state}
    given_by_job = {name: value for name, value in parameters.items() if name not in stated}
    for row, state in enumerate(rows.values()):
        alone = evaluate(expression, {**given_by_job, **state})
        if row in values:
            assert exactly(values[row]) == exactly(alone)
        else:
            assert faults[row].name == alone.name
            assert alone.name or faults[row] == alone
    assert len(values) + len(faults) == CLUSTERS


@settings(max_examples=examples(400), deadline=None)
@given(expressions, STATES, st.dictionaries(st.sampled_from("abcd"), st.integers(-3, 3) | FLOATS | ODD))
@example("a < b", [{"a": 2**63, "b": 2.0**63}, {"a": 2**63 + 1, "b": 2.0**63}], {})
@example("a == b", [{"a": 2**53, "b": 2**53 + 1}, {"a": 2.0**53, "b": 2**53 + 1}], {})
@example("c", [{"a": 1}], {})
@example("1 + c > a", [{"a": 1}], {"c": 2**64})
@example("coalesce(a, b, 3) / c", [{"a": 1}, {"b": "text"}, {}], {"c": 0})
def test_clusters_among_many_have_what_each_has_alone(
    text: str, states: list[dict[str, Any]], parameters: dict[str, Any]
) -> None:
    agree(text, states, parameters)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, deadline=None)
@given(expressions, STATES, st.dictionaries(st.sampled_from("abcd"), st.integers(-3, 3) | FLOATS | ODD))
def test_clusters_among_many_have_what_each_has_alone_campaign(
    text: str, states: list[dict[str, Any]], parameters: dict[str, Any]
) -> None:
    agree(text, states, parameters)
