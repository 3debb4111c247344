"""The expression language: what it means, what it refuses, that nothing gets out, that columns agree."""

from __future__ import annotations

import ast
import math
import struct
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rainbow.errors import SelectionError
from rainbow.selection.arithmetic import PRIMITIVES
from rainbow.selection.columns import PRIMITIVES as COLUMN_PRIMITIVES
from rainbow.selection.columns import evaluate_columns, read_column
from rainbow.selection.expression import Expression, Fault, compile_expression, evaluate, split_calc
from rainbow.selection.grammar import MAX_DEPTH, MAX_LENGTH, parse

VARIABLES: dict[str, Any] = {"a": 3, "b": 4.5, "zero": 0, "yes": True, "no": False, "text": "spack", "x.y": 7}


# ── meaning ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 - 2 - 1", 4),
        ("8 / 2 / 2", 2.0),
        ("7 // 2", 3),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("- - 3", 3),
        ("+a", 3),
        (".5 + 5. + 1e2", 105.5),
        ("x.y + 1", 8),
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("a == 3.0", True),
        ("a != 3", False),
        ("text == 'spack'", True),
        ('text == "spack"', True),
        ("text < 'tar'", True),
        ("text == 3", False),
        ("text != 3", True),
        ("yes == 1", False),
        ("yes == true", True),
        ("yes and no", False),
        ("yes && !no", True),
        ("no || yes && no", False),
        ("not a == 3", False),
        ("!(a > 5)", True),
        ("not not yes", True),
        ("yes or nowhere", True),
        ("no and nowhere", False),
        ("a and b", True),
        ("zero or no", False),
        ("a in (1, 2, 3)", True),
        ("a not in (1, 2, 3,)", False),
        ("text in ['a', 'spack']", True),
        ("a in ()", False),
        ("yes in (1, 2)", False),
        ("1 < a in (3, 4)", True),
        ("a > 1 ? 'big' : 'small'", "big"),
        ("'big' if a > 5 else 'small'", "small"),
        ("no ? 1 : no ? 2 : 3", 3),
        ("1 if yes else nowhere", 1),
        ("yes ? a : nowhere", 3),
        ("min(3, 1.5, 2) + max(1, 4)", 5.5),
        ("abs(-3) + round(2.5) + ceil(1.1) + floor(1.9)", 8),
        ("round(2.345, 1)", 2.3),
        ("sqrt(16) + exp(0) + log(1)", 5.0),
        ("log(8, 2)", 3.0),
        ("coalesce(nowhere, elsewhere, a)", 3),
        ("coalesce(nowhere + 1, 'none')", "none"),
        (r"'it\'s' == " + '"it\'s"', True),
        ("'a && b ? c : d' == 'a && b ? c : d'", True),
        ("min\n(1,\t2)", 1),
        ("3 if true else 4", 3),
        ("class_ + lambda", None),
    ],
)
def test_expression_of_the_language_has_its_value(text: str, value: Any) -> None:
    found = evaluate(text, {**VARIABLES, "class_": 1, "lambda": 2})
    expected = 3 if value is None else value  # words of Python are names like others
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nowhere > 1", "nowhere is not known"),
        ("coalesce(nowhere, elsewhere)", "nowhere is not known"),
        ("a / zero", "division by zero"),
        ("a // 0.0", "division by zero"),
        ("a % zero", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("coalesce(a / zero, 1)", "division by zero"),
        ("text + 1", "+ needs a number, not the text 'spack'"),
        ("text * 3", "* needs a number, not the text 'spack'"),
        ("'a' + 'b'", "+ needs a number, not the text 'a'"),
        ("-text", "- needs a number, not the text 'spack'"),
        ("text < 3", "< needs a number, not the text 'spack'"),
        ("yes + 1", "+ needs a number, not true"),
        ("no < 1", "< needs a number, not false"),
        ("min(1, text)", "min needs a number, not the text 'spack'"),
        ("text and yes", "a condition cannot be the text 'spack'"),
        ("text ? 1 : 2", "a condition cannot be the text 'spack'"),
        ("1e308 * 10", "the result is not a finite number"),
        ("1e308 * 10 > 5", "the result is not a finite number"),
        ("10 ** 10 ** 10", "the exponent of an integer is at most 1024"),
        ("10 ** 1000", "the result is too large"),
        ("2 ** 1000 * 2 ** 1000", "the result is too large"),
        ("2.0 ** 5000", "the result is too large"),
        ("exp(1000)", "the result is too large"),
        ("(0 - 8) ** 0.5", "the result is not a real number"),
        ("sqrt(0 - 1)", "the result is not a real number"),
        ("log(0)", "the result is not a real number"),
        ("round(5, 0 - 1000000000)", "round takes a whole number of digits, at most 308"),
        ("nan + 1", "nan is not a finite number"),
        ("inf > 1", "inf is not a finite number"),
        ("huge > 1", "huge is too large"),
        ("list > 1", "list is not a number, text or truth value"),
    ],
)
def test_expression_without_value_says_why(text: str, reason: str) -> None:
    odd = {"nan": math.nan, "inf": math.inf, "huge": 10**400, "list": [1]}
    found = evaluate(text, {**VARIABLES, **odd})
    assert isinstance(found, Fault)
    assert found.reason == reason


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", 1, "a value is expected here, not the end"),
        ("1 +", 4, "not the end"),
        ("1 + * 2", 5, "not '*'"),
        ("(1 + 2", 7, "')' is expected"),
        ("1 2", 3, "'2' is not expected here"),
        ("60gb", 3, "'gb' is not expected here"),
        ("a = 3", 3, "to compare write =="),
        ("2 ^ 3", 3, "for powers write **"),
        ("a & b", 3, "write && or and"),
        ("a.b.", 4, "means nothing here"),
        ("(a).b", 4, "means nothing here"),
        ("a[0]", 2, "'[' is not expected here"),
        ("a in 3", 6, "a list in parentheses"),
        ("a in (1) == true", 10, "not expected here"),
        ("1 + not a", 5, "a value is expected here"),
        ("a ? 1", 6, "':' is expected"),
        ("1 if a", 7, "'else' is expected"),
        ("'open", 1, "this text has no end"),
        ("__import__('os')", 1, "underscore"),
        ("a._b", 1, "underscore"),
        ("open('x')", 1, "open is not a function"),
        ("a(1)", 1, "a is not a function"),
        ("min(1)(2)", 7, "not expected here"),
        ("min()", 1, "min takes at least 1 argument"),
        ("sqrt(1, 2)", 1, "sqrt takes 1 argument, not 2"),
        ("round(1, 2, 3)", 1, "round takes 1 to 2 arguments, not 3"),
        ("min(a=1)", 6, "to compare write =="),
        ("1e999", 1, "this number is too large"),
        ("9" * 400, 1, "this number is too large"),
        ("lambda: 1", 7, "not expected here"),
        ("[x for x in (1,)]", 1, "a value is expected here"),
        ("a; b", 2, "means nothing here"),
        ("a # b", 3, "means nothing here"),
        ("f'{a}'", 2, "not expected here"),
        ("a\\b", 2, "means nothing here"),
        ("x" * (MAX_LENGTH + 1), MAX_LENGTH + 1, "at most 4096"),
        ("(" * 2000, MAX_DEPTH + 1, "deeper than 64"),
        ("-" * 2000 + "1", 2 * MAX_DEPTH + 1, "deeper than 64"),
        ("!" * 2000 + "a", 2 * MAX_DEPTH + 1, "deeper than 64"),
        ("-" * 65 + "1", None, "deeper than 64"),
        ("0 or 0 and 0 < 0 + 0 * (" * 60, None, "deeper than 64"),
        ("2**" * 1000 + "2", None, "deeper than 64"),
        ("a?" * 1000, 2 * MAX_DEPTH + 1, "deeper than 64"),
        ("1" + "+1" * 2000, None, "deeper than 64"),
    ],
)
def test_expression_outside_the_language_is_refused_with_its_column(text: str, column: int | None, says: str) -> None:
    with pytest.raises(SelectionError) as caught:
        compile_expression(text)
    assert says in caught.value.message
    assert column is None or caught.value.column == column


def test_deepest_expressions_allowed_are_compiled_and_evaluated() -> None:
    assert evaluate("(" * 63 + "1" + ")" * 63, {}) == 1
    assert evaluate("a?" * 30 + "1" + ":2" * 30, {"a": True}) == 1
    assert evaluate("min(" * 63 + "1" + ")" * 63, {}) == 1
    assert evaluate("(1*" * 63 + "1" + ")" * 63, {}) == 1
    assert evaluate("1<" * 2000 + "1", {}) is False  # one chain is one node


@pytest.mark.parametrize(
    ("text", "name", "body"),
    [
        ("x=1", "x", "1"),
        ("big = a >= 4", "big", "a >= 4"),
        ("same=a==b", "same", "a==b"),
        ("x=a!=b", "x", "a!=b"),
    ],
)
def test_calc_splits_at_the_first_lone_equals_sign(text: str, name: str, body: str) -> None:
    found, expression = split_calc(text)
    assert (found, expression.text) == (name, body)


@pytest.mark.parametrize(
    "text", ["a >= 1", "a == b", "=1", "1=2", "_x=1", "if=1", "true=1", "a.b=1", "x=", "x==1", "a b=1"]
)
def test_calc_that_names_no_variable_is_refused(text: str) -> None:
    with pytest.raises(SelectionError):
        split_calc(text)


def test_needs_of_coalesce_is_one_of_its_arguments() -> None:
    expression = compile_expression("coalesce(a, b) + c * min(d, 1)")
    assert expression.needs(lambda name: name in "bcd") == ()
    assert expression.needs(lambda name: name in "c") == ("a", "b", "d")


def test_equal_texts_are_compiled_once() -> None:
    assert compile_expression("a + 12345") is compile_expression("a + 12345")


# ── nothing gets out ────────────────────────────────────────────────────────────────────────────────────────

PIECES = [
    *"()[]{}.,:;=!?+-*/%<>&|^~@#\\'\" \n\t_",
    *["and", "or", "not", "in", "if", "else", "for", "lambda", "import", "yield", "await", "is", ":=", "**", "//"],
    *["a", "b", "x.y", "nowhere", "__class__", "__import__", "os", "eval", "exec", "open", "get", "chain", "self"],
    *["1", "0", "2.5", "1e308", "9" * 300, "1j", "0x1f", "'t'", '"t"', "f'{a}'", "b''", "true", "false", "None"],
    *["min(", "max(", "coalesce(", "round(", "log(", "exp(", "getattr(", "a.__class__", "().__class__", "2**9**9"],
]
OURS = {"get", *PRIMITIVES}


def calls_and_attributes(expression: Expression) -> set[str]:
    """Return every global name and attribute that the compiled code, and the code inside it, can touch."""
    names: set[str] = set()
    codes = [expression.code]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes.extend(constant for constant in code.co_consts if hasattr(constant, "co_names"))
    return names


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map(lambda pieces: " ".join(pieces)) | st.text(max_size=60))
@example("().__class__.__bases__[0].__subclasses__()")
@example("get('a').__globals__")
@example("a if a else __builtins__")
@example("(1).real")
@example("'{0.__class__}'.format(a)")
@example("min.__self__")
def test_any_text_is_refused_or_stays_inside(text: str) -> None:
    try:
        expression = compile_expression(text)
    except SelectionError as refusal:
        column = refusal.column or 0
    else:
        column = 1
        assert calls_and_attributes(expression) <= OURS
        assert isinstance(evaluate(expression, VARIABLES), int | float | str | bool | Fault)
    assert 1 <= column <= len(text) + 1


def test_primitives_of_both_kinds_are_the_same() -> None:
    assert PRIMITIVES.keys() == COLUMN_PRIMITIVES.keys()


@pytest.mark.parametrize(
    "source", ["a.b", "a[0]", "[x for x in a]", "lambda: 1", "f'{a}'", "(a := 1)", "{1: 2}", "a.b(1)", "(1, 2)"]
)
def test_node_that_is_not_listed_is_refused(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the grammar let such a tree through, the list of nodes would not."""
    monkeypatch.setattr("rainbow.selection.expression.parse", lambda _: ast.parse(source, mode="eval").body)
    with pytest.raises(SelectionError):
        compile_expression.__wrapped__("anything")


HEAVY = [
    "9**9**9",
    "2**1000*" * 60 + "1",
    "round(1.5, 308)",
    "(" * 30 + "2**31" + ")**31" * 30,
    "min(" + ",".join(["2**1000"] * 400) + ")",
    "1<" * 2000 + "1",
    "a in (" + "1," * 2000 + ")",
    "log(2**1000)*" * 60 + "1",
    "1 < (" * 30 + "a" + ") < 2" * 30,
]


@pytest.mark.parametrize("text", HEAVY)
def test_heavy_expression_evaluates_in_little_time_and_memory(text: str) -> None:
    expression = compile_expression(text)
    best = min(_seconds(expression) for _ in range(5))
    tracemalloc.start()
    evaluate(expression, VARIABLES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert best < 0.010
    assert peak < 10_000_000


@pytest.mark.parametrize("text", [*HEAVY, "a in (" + "a," * 1900 + ")", "a<" * 1900 + "a", "a+" * 30 + "a"])
def test_heavy_expression_over_1000_clusters_takes_little_memory(text: str) -> None:
    expression, column = compile_expression(text), read_column([1.5] * 1000)
    tracemalloc.start()
    evaluate_columns(expression, lambda _: column, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


def _seconds(expression: Expression) -> float:
    start = time.perf_counter()
    evaluate(expression, VARIABLES)
    return time.perf_counter() - start


def _worst(operands: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Combine operands by whatever could grow: powers, products, long lists and long chains."""
    signs = st.sampled_from(["**", "*", "+", "-", "/", "//", "%", "<", "&&", "=="])
    two = st.builds(lambda a, sign, b: f"({a}) {sign} ({b})", operands, signs, operands)
    names = st.sampled_from(["min", "max", "round", "abs", "exp", "sqrt", "floor", "coalesce", "log"])
    called = st.builds(lambda name, a, b: f"{name}({a}, {b})", names, operands, operands)
    one = st.builds(lambda name, a: f"{name}({a})", names, operands)
    many = st.builds(lambda a, n: f"({a}) in ({', '.join([a] * n)})", operands, st.integers(1, 40))
    chain = st.builds(lambda a, sign, n: f" {sign} ".join([f"({a})"] * n), operands, signs, st.integers(2, 40))
    return two | called | one | many | chain


HUGE = ["2**1000", "9**300", "a", "x.y", "1e308", "-1", "0.5", "'text'", "'" + "t" * 500 + "'", "1024", "1000000"]


@settings(max_examples=400, deadline=None)
@given(st.recursive(st.sampled_from(HUGE), _worst, max_leaves=6))
def test_any_expression_that_is_accepted_runs_in_10_ms_and_10_mb(text: str) -> None:
    try:
        expression = compile_expression(text)
    except SelectionError:
        return
    tracemalloc.start()
    evaluate(expression, VARIABLES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000
    assert min(_processor_seconds(expression) for _ in range(3)) < 0.010


def _processor_seconds(expression: Expression) -> float:
    start = time.thread_time()
    evaluate(expression, VARIABLES)
    return time.thread_time() - start


# ── columns agree with single evaluation ────────────────────────────────────────────────────────────────────

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


@settings(max_examples=1200, deadline=None)
@given(expressions, columns)
@example("(a // b) * c + a % b", {"a": [-7, 7], "b": [2, -2.0], "c": [1.5, 1], "d": [0, 0]})
@example("0 * a * 1.5", {"a": [-5], "b": [0], "c": [0], "d": [0]})
def test_columns_row_by_row_agree_with_single_evaluation(text: str, table: dict[str, list[Any]]) -> None:
    expression = compile_expression(text)
    rows = len(table["a"])
    found = evaluate_columns(expression, lambda name: read_column(table[name]), rows)
    if found is None:
        return
    values, doubt = found
    assert len(values) == rows
    for row in set(range(rows)) - set(doubt):
        alone = evaluate(expression, {name: column[row] for name, column in table.items()})
        assert exactly(values[row]) == exactly(alone)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(-1000, 1000) | st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_columns_of_plain_numbers_are_never_in_doubt(values: list[Any]) -> None:
    found = evaluate_columns(
        compile_expression("min(100, a - 100) * 2 / 60 > 0.5 || a != 3"), lambda _: read_column(values), len(values)
    )
    assert found is not None
    assert found[1] == []


def test_columns_of_a_constant_have_every_row() -> None:
    assert evaluate_columns(compile_expression("2 * 3"), read_column, 3) == ([6, 6, 6], [])


def test_parse_positions_are_those_of_the_text() -> None:
    assert [node.col_offset for node in ast.walk(parse("ab + cd")) if isinstance(node, ast.Name)] == [0, 5]
