"""Formulas of load values: sums of values with a factor and of numbers, as in "$np_load_avg*2+0.1".

A term is a number, or a name with "$" before it or not, or a name times a number; terms are joined by + and -.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_TERM = re.compile(r"([+-]?)(?:(\d+(?:\.\d+)?)|\$?([A-Za-z_][\w.]*)(?:\*(-?\d+(?:\.\d+)?))?)", re.ASCII)
Formula = tuple[tuple[str, float], ...]  # (name, factor); the name "" stands for 1


class FormulaFault(ValueError):
    """The text is not a formula."""


def read_formula(text: str, names: Collection[str] | None = None) -> Formula:
    """Read a formula; with `names`, no others may stand in it.

    >>> read_formula("$num_proc*0.5+1", {"num_proc"})
    (('num_proc', 0.5), ('', 1.0))
    """
    terms: list[tuple[str, float]] = []
    at, text = 0, text.replace(" ", "")
    while at < len(text):
        found = _TERM.match(text, at)
        if not found or (terms and not found[1]):
            raise FormulaFault(f"cannot read {text[at:]!r}")
        sign = -1.0 if found[1] == "-" else 1.0
        name = found[3] or ""
        if name and names is not None and name not in names:
            raise FormulaFault(f"there is no value {name!r}")
        terms.append((name, sign * float((found[4] or 1) if name else found[2])))
        at = found.end()
    if not terms:
        raise FormulaFault("a formula is not empty")
    return tuple(terms)


def evaluate(formula: Formula, values: Mapping[str, float]) -> float:
    """Return the sum; a value that is not known counts as 0."""
    return sum(factor * (values.get(name, 0.0) if name else 1.0) for name, factor in formula)
