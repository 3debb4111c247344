"""Requestor expressions that can be trusted to answer: a match that never ends would end every cluster's steps.

    bits   the logarithm of how many ways there are to match 200 letters, which is as long as a requestor gets:
           7.7 for what repeats without end, 1 for what may be there or not, 1 for a choice of two

What repeats inside a repetition, and a choice inside one, have ways that double with every letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import log2
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LONGEST = 1_000  # letters of an expression
LETTERS = 200  # of a requestor
MOST = 24.0  # bits: three repetitions without end and a choice of two; a fraction of a second at worst
REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


class Slow(ValueError):
    """The expression may take too long."""


def fault_of(expression: Any) -> str:
    """Say what is wrong with an expression; an empty text if nothing is.

    >>> fault_of("(CI|jenkins)-.*"), fault_of("(a+)+")
    ('', 'it repeats what itself repeats or chooses')
    """
    if not isinstance(expression, str) or len(expression) > LONGEST:
        return f"it is no text of at most {LONGEST} letters"
    try:
        re.compile(expression)
        bits = _bits(parser.parse(expression))
    except (re.error, OverflowError, RecursionError) as fault:
        return f"not a regular expression: {fault}"
    except Slow as fault:
        return str(fault)
    return "it can match in too many ways: fewer parts may repeat" if bits > MOST else ""


def _bits(parts: Iterable[Any]) -> float:
    return sum(_of(str(kind), value) for kind, value in parts)


def _of(kind: str, value: Any) -> float:
    """Return the bits of one part of a parsed expression."""
    if kind in REPEATS:
        return _repeat(*value)
    if kind == "BRANCH":
        return log2(len(value[1])) + max(map(_bits, value[1]))
    if kind == "SUBPATTERN":
        return _bits(value[3])
    if kind in ("ASSERT", "ASSERT_NOT"):
        return _bits(value[1])
    if kind == "ATOMIC_GROUP":
        return _bits(value)
    if kind == "GROUPREF_EXISTS":
        return 1 + sum(_bits(part) for part in value[1:] if part)
    return 0.0


def _repeat(least: int, most: Any, inner: Iterable[Any]) -> float:
    bits = _bits(inner)
    times = min(int(most), LETTERS)
    if times > 1 and bits:
        raise Slow("it repeats what itself repeats or chooses")
    return bits + log2(max(1, times - least + 1))
