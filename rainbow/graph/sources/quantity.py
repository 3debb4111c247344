"""Quantities of Kubernetes: "8", "7910m", "32Gi", "12e6"."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.document import LARGEST

_FORM = re.compile(r"\+?([0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?")
_SUFFIXES = {
    **{letter: Fraction(1, 1000**power) for power, letter in enumerate("mun", 1)},
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}


def quantity(value: Any, pointer: str) -> Fraction:
    """Return a quantity exactly; GraphError if it is none, is negative or is more than 2**53.

    >>> quantity("7910m", ""), quantity("32Gi", "") == 32 * 2**30, quantity(8, "")
    (Fraction(791, 100), True, Fraction(8, 1))
    """
    given = str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST else value
    found = _FORM.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise GraphError('a quantity reads like "8", "7910m" or "32Gi"', pointer=pointer)
    amount = Fraction(found[1]) * _factor(found[2] or "")
    if amount > LARGEST:
        raise GraphError(f"a quantity must not be more than {LARGEST}", pointer=pointer)
    return amount


def _factor(suffix: str) -> Fraction:
    return _SUFFIXES[suffix] if suffix in _SUFFIXES else Fraction(10) ** int(suffix[1:] or 0)
