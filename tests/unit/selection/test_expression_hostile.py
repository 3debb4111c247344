"""Expressions whose authors mean ill: nothing gets out, nothing is slow, nothing is large."""

from __future__ import annotations

import ast
import sys
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rainbow.errors import SelectionError
from rainbow.selection.expression.columnar import evaluate_columns, read_column
from rainbow.selection.expression.compiler import Expression, Fault, compile_expression
from rainbow.selection.expression.scalar import MAX_TEXT, PRIMITIVES
from tests.conftest import examples
from tests.unit.selection.expressions import evaluate
from tests.unit.selection.test_expression import VARIABLES

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


@settings(max_examples=examples(1500), deadline=None)
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


@pytest.mark.parametrize(
    "source", ["a.b", "a[0]", "[x for x in a]", "lambda: 1", "f'{a}'", "(a := 1)", "{1: 2}", "a.b(1)", "(1, 2)"]
)
def test_node_that_is_not_listed_is_refused(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the grammar let such a tree through, the list of nodes would not."""
    monkeypatch.setattr("rainbow.selection.expression.compiler.parse", lambda _: ast.parse(source, mode="eval").body)
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


@settings(max_examples=examples(400), deadline=None)
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


def test_long_texts_compared_many_times_take_little_time() -> None:
    longest = "x" * MAX_TEXT
    many = compile_expression("a in (" + "b," * 1900 + ")")
    texts = {"a": longest + "", "b": "".join(longest[:-1]) + "y"}
    best = min(_seconds_of(many, texts) for _ in range(5))
    assert best < 0.010
    assert evaluate("a == 'x'", {"a": longest + "x"}) == Fault("a is too long a text")


def _seconds_of(expression: Expression, variables: dict[str, Any]) -> float:
    start = time.thread_time()
    assert evaluate(expression, variables) is False
    return time.thread_time() - start


# ── what an evaluation does to the machine: nothing ─────────────────────────────────────────────────────────


class Watched(float):
    """A variable's value that notes every attribute that is read of it."""

    read: list[str] = []  # noqa: RUF012 - one list for all, on purpose

    def __getattribute__(self, name: str) -> Any:
        Watched.read.append(name)
        return super().__getattribute__(name)


AUDITED: list[str] = []


def _audit(event: str, _: Any) -> None:
    if AUDITED and AUDITED[0] == "on":
        AUDITED.append(event)


sys.addaudithook(_audit)  # cannot be taken away again, so it is quiet unless it is asked


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=10).map(lambda pieces: " ".join(pieces)))
@example("min(a, b) if a < b else max(a, b) ** 2")
@example("round(a, 1) + floor(b) + coalesce(nowhere, a)")
@example("a.real + a.__class__")
def test_evaluation_reads_no_attribute_and_asks_nothing_of_the_machine(text: str) -> None:
    try:
        expression = compile_expression(text)
    except SelectionError:
        return
    variables = {name: Watched(value) for name, value in (("a", 3.5), ("b", 2.0), ("x.y", 1.0))}
    Watched.read.clear()
    AUDITED[:] = ["on"]
    evaluate(expression, variables)
    events = AUDITED[1:]
    AUDITED.clear()
    assert events == []
    assert {*Watched.read} <= {"__class__"}, "isinstance asks for that one"
