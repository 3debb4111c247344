"""Expressions for many clusters at once: the compiled code that serves one cluster, bound to columns.

values of a variable ── read_column ──► Numbers ── the expression over columns.py ──► values, rows in doubt
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rainbow.selection.arithmetic import SAFE
from rainbow.selection.choice import Scalar
from rainbow.selection.columns import PRIMITIVES, Column, NotColumnar, Numbers, Truths, as_column, unsafe
from rainbow.selection.expression import Expression, bind


def read_column(values: Sequence[Any]) -> Numbers:
    """Return a column of these values, those that are no safe number in doubt."""
    kinds = set(map(type, values))
    if not kinds <= {int, float}:
        values = [value if type(value) in (int, float) else np.nan for value in values]
    try:
        value = np.frombuffer(array("d", values))  # twice as fast as np.array of Python's integers
    except OverflowError:  # an integer no float can hold
        value = np.array([v if abs(v) < SAFE else np.nan for v in values], dtype=np.float64)
    if len(kinds) == 1:
        whole = np.full(len(values), kinds == {int})
    else:
        whole = np.array([type(v) is int for v in values], dtype=np.bool_)
    return Numbers(value, whole, unsafe(value))


def evaluate_columns(
    expression: Expression, column: Callable[[str], Column | Scalar], rows: int
) -> tuple[list[Scalar], list[int]] | None:
    """Return the value of every row and the rows in doubt, whose value means nothing; None if not columnar."""
    try:
        with np.errstate(all="ignore"):  # what overflows or divides by zero is in doubt
            result = as_column(_columnar(expression)(column))
    except NotColumnar:
        return None
    doubt = np.flatnonzero(np.broadcast_to(result.doubt, rows)).tolist()
    return _values(result, rows), doubt


@lru_cache(maxsize=256)
def _columnar(expression: Expression) -> Callable[[Callable[[str], Column | Scalar]], Any]:
    return bind(expression.code, PRIMITIVES)


def _values(result: Column, rows: int) -> list[Scalar]:
    value = np.broadcast_to(result.value, rows)
    if isinstance(result, Truths) or not result.whole.any():
        return value.tolist()  # type: ignore[no-any-return]  # numpy cannot say what tolist gives
    safe = np.where(result.doubt, 0.0, value)
    if result.whole.all():
        return safe.astype(np.int64).tolist()  # type: ignore[no-any-return]  # as above
    whole = np.broadcast_to(result.whole, rows).tolist()
    return [int(v) if w else v for v, w in zip(safe.tolist(), whole, strict=True)]
