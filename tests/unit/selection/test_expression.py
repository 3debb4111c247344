"""The expression language: what it means and what it refuses."""

from __future__ import annotations

import ast
import math
from typing import Any

import pytest

from rainbow.errors import SelectionError
from rainbow.selection.expression.compiler import Fault, compile_expression, split_calc
from rainbow.selection.expression.grammar import MAX_DEPTH, MAX_LENGTH, parse
from tests.unit.selection.expressions import evaluate

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
    result = evaluate(text, {**VARIABLES, "class_": 1, "lambda": 2})
    expected = 3 if value is None else value  # words of Python are names like others
    assert result == expected
    assert type(result) is type(expected)


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
        ("text + 1", "+ requires a number, got the text 'spack'"),
        ("text * 3", "* requires a number, got the text 'spack'"),
        ("'a' + 'b'", "+ requires a number, got the text 'a'"),
        ("-text", "- requires a number, got the text 'spack'"),
        ("text < 3", "< requires a number, got the text 'spack'"),
        ("yes + 1", "+ requires a number, got true"),
        ("no < 1", "< requires a number, got false"),
        ("min(1, text)", "min requires a number, got the text 'spack'"),
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
    result = evaluate(text, {**VARIABLES, **odd})
    assert isinstance(result, Fault)
    assert result.reason == reason


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", 1, "expected a value, got the end"),
        ("1 +", 4, "got the end"),
        ("1 + * 2", 5, "got '*'"),
        ("(1 + 2", 7, "expected ')'"),
        ("1 2", 3, "unexpected '2'"),
        ("60gb", 3, "unexpected 'gb'"),
        ("a = 3", 3, "to compare write =="),
        ("2 ^ 3", 3, "for powers write **"),
        ("a & b", 3, "write && or and"),
        ("a.b.", 4, "means nothing here"),
        ("(a).b", 4, "means nothing here"),
        ("a[0]", 2, "unexpected '['"),
        ("a in 3", 6, "a list in parentheses"),
        ("a in (1) == true", 10, "unexpected"),
        ("1 + not a", 5, "expected a value, got"),
        ("a ? 1", 6, "expected ':'"),
        ("1 if a", 7, "expected 'else'"),
        ("'open", 1, "unterminated string, or an escape other than \\\\' \\\\\" \\\\\\\\"),
        ("__import__('os')", 1, "underscore"),
        ("a._b", 1, "underscore"),
        ("open('x')", 1, "open is not a function"),
        ("a(1)", 1, "a is not a function"),
        ("min(1)(2)", 7, "unexpected"),
        ("min()", 1, "min takes at least 1 argument"),
        ("sqrt(1, 2)", 1, "sqrt takes 1 argument, not 2"),
        ("round(1, 2, 3)", 1, "round takes 1 to 2 arguments, not 3"),
        ("min(a=1)", 6, "to compare write =="),
        ("1e999", 1, "this number is too large"),
        ("9" * 400, 1, "this number is too large"),
        ("lambda: 1", 7, "unexpected"),
        ("[x for x in (1,)]", 1, "expected a value, got"),
        ("a; b", 2, "means nothing here"),
        ("a # b", 3, "means nothing here"),
        ("f'{a}'", 2, "unexpected"),
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
    result, expression = split_calc(text)
    assert (result, expression.text) == (name, body)


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


def test_parse_positions_are_those_of_the_text() -> None:
    assert [node.col_offset for node in ast.walk(parse("ab + cd")) if isinstance(node, ast.Name)] == [0, 5]
