"""Which requestor expressions are accepted, and that those answer in time."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling.expressions import fault_of

GOOD = [
    "land.*",
    "^CI.*",
    "(CI|jenkins|ktf)-.*",
    "[ab]*",
    "a{2,5}b?",
    "(x|y)*z",
    "(ab){3}",
    "",
    "(?i:ci).*",
    "a.*|b.*|c.*|d.*",
]
BAD = [
    "(a+)+",
    "(a|ab)*c",
    "(a?){30}a{30}",
    "a?" * 30 + "a" * 30,
    ".*.*.*.*x",
    "((a*)b)*",
    "(",
    "a" * 1001,
    None,
    5,
    ["a"],
]


@pytest.mark.parametrize("expression", GOOD)
def test_ordinary_expression_is_accepted(expression):
    assert fault_of(expression) == ""


@pytest.mark.parametrize("expression", BAD, ids=repr)
def test_expression_that_may_not_end_is_refused(expression):
    assert fault_of(expression)


parts = st.sampled_from(["a", "b", ".", "[ab]", "(a|b)", "(ab|a)", "a*", "a+", "b?", "a{0,9}", "(a*)", "(a?b?)"])
suffixes = st.sampled_from(["", "", "*", "+", "?", "{5}", "{2,30}"])


@settings(deadline=None)
@given(st.lists(st.tuples(parts, suffixes), max_size=8))
def test_whatever_is_accepted_answers_soon(chosen):
    expression = "".join(f"(?:{part}){suffix}" for part, suffix in chosen) + "c"
    if not fault_of(expression):
        began = time.process_time()
        re.compile(expression).fullmatch("a" * 200)
        assert time.process_time() - began < 5
