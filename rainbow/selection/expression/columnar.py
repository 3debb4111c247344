"""The values of an expression for many clusters, one numpy operation for each operator.

Row by row the answers are those of scalar.py, to the last bit and with integers staying integers. That
holds because columns only do what IEEE 754 fixes (exp, log and powers are left to the single evaluation: numpy
may round them differently), and because a row that leaves the safe ground is marked `doubt` and evaluated alone
afterwards: a variable that is missing, text or a truth value, a divisor of zero, a number that is infinite, none,
or as large as 2**53, above which floats skip integers.

The compiled code is the one that serves one cluster, bound to columns:

values of a variable ── read_column ──► Numbers ── the expression over columnar.py ──► values, rows in doubt
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rainbow.selection.choice import Scalar
from rainbow.selection.expression.compiler import Expression, bind
from rainbow.selection.expression.scalar import SAFE

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Thunk = Callable[[], Any]


class NotColumnar(Exception):
    """The expression uses something columns cannot do; evaluate cluster by cluster."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number per row; `whole` where it is an integer."""

    value: Floats
    whole: Bools
    doubt: Bools

    def rows(self, rows: Sequence[int] | NDArray[np.int64]) -> Numbers:
        """Return these rows, in this order."""
        return Numbers(self.value[rows], self.whole[rows], self.doubt[rows])


@dataclass(frozen=True, slots=True)
class Truths:
    """A truth value per row."""

    value: Bools
    doubt: Bools


Column = Numbers | Truths


# ── kinds ───────────────────────────────────────────────────────────────────────────────────────────────────


def unsafe(value: Floats) -> Bools:
    """Tell which rows have left the safe ground."""
    return ~(np.abs(value) < SAFE)  # so that no number is unsafe too


def as_column(value: Any) -> Column:
    """Return a constant as a column of one row, which goes with any."""
    if isinstance(value, Numbers | Truths):
        return value
    if isinstance(value, bool):
        return Truths(np.array(value), np.array(False))
    if isinstance(value, str):
        raise NotColumnar
    if isinstance(value, int) and abs(value) >= SAFE:
        raise NotColumnar
    number = np.array(float(value))
    return Numbers(number, np.array(isinstance(value, int)), unsafe(number))


def _number(value: Any) -> Numbers:
    column = as_column(value)
    if isinstance(column, Truths):
        raise NotColumnar
    return column


def _truth(value: Any) -> Truths:
    column = as_column(value)
    return column if isinstance(column, Truths) else Truths(column.value != 0, column.doubt)


def _result(value: Floats, whole: Bools, doubt: Bools) -> Numbers:
    # integers know no -0.0, and -0.0 + 0.0 is 0.0
    return Numbers(np.where(whole, value + 0.0, value), whole, doubt | unsafe(value))


# ── operators ───────────────────────────────────────────────────────────────────────────────────────────────


def _binary(apply: Callable[[Any, Any], Any], keeps_whole: bool = True, divides: bool = False) -> Callable[..., Any]:
    def operate(left: Any, right: Any) -> Numbers:
        a, b = _number(left), _number(right)
        doubt = a.doubt | b.doubt
        if divides:
            doubt = doubt | (b.value == 0)
        return _result(apply(a.value, b.value), a.whole & b.whole & keeps_whole, doubt)

    return operate


def _negate(value: Any) -> Numbers:
    a = _number(value)
    return _result(-a.value, a.whole, a.doubt)


def _invert(value: Any) -> Truths:
    a = _truth(value)
    return Truths(~a.value, a.doubt)


def _equal(left: Column, right: Column) -> Bools:
    if type(left) is not type(right):  # different kinds are unequal
        return np.zeros(np.broadcast_shapes(left.value.shape, right.value.shape), dtype=np.bool_)
    return np.equal(left.value, right.value)


def _ordered(apply: Callable[[Any, Any], Any]) -> Callable[[Column, Any], Truths]:
    def compare(left: Column, right: Any) -> Truths:
        a, b = _number(left), _number(right)
        return Truths(apply(a.value, b.value), a.doubt | b.doubt)

    return compare


def _is(left: Column, right: Any) -> Truths:
    b = as_column(right)
    return Truths(_equal(left, b), left.doubt | b.doubt)


def _is_in(remaining: Column, options: tuple[Any, ...]) -> Truths:
    columns = [as_column(option) for option in options]
    results = (_equal(remaining, column) for column in columns)  # one at a time: there may be thousands
    doubts = (column.doubt for column in columns)
    return Truths(reduce(np.logical_or, results, np.array(False)), reduce(np.logical_or, doubts, remaining.doubt))


COMPARISONS: Mapping[str, Callable[[Column, Any], Truths]] = {
    "<": _ordered(np.less),
    "<=": _ordered(np.less_equal),
    ">": _ordered(np.greater),
    ">=": _ordered(np.greater_equal),
    "==": _is,
    "!=": lambda left, right: _invert(_is(left, right)),
    "in": _is_in,
    "not in": lambda left, options: _invert(_is_in(left, options)),
}


def _relate(left: Any, sign: str, right: Any) -> Truths:
    return COMPARISONS[sign](as_column(left), right)


def _chain(left: Any, signs: tuple[str, ...], *rights: Thunk) -> Truths:
    held = Truths(np.array(True), np.array(False))
    before: Any = as_column(left)
    for sign, thunk in zip(signs, rights, strict=True):
        right = thunk()  # a tuple after in, which stands last
        held = _both(held, COMPARISONS[sign](before, right))
        before = right if isinstance(right, tuple) else as_column(right)
    return held


# ── conditions: a row is in doubt only for what its own evaluation reaches ──────────────────────────────────


def _both(left: Truths, right: Truths) -> Truths:
    return Truths(left.value & right.value, left.doubt | (left.value & right.doubt))


def _either(left: Truths, right: Truths) -> Truths:
    return Truths(left.value | right.value, left.doubt | (~left.value & right.doubt))


def _choose(test: Any, body: Thunk, orelse: Thunk) -> Column:
    condition, a, b = _truth(test), as_column(body()), as_column(orelse())
    value = np.where(condition.value, a.value, b.value)
    doubt = condition.doubt | np.where(condition.value, a.doubt, b.doubt)
    if isinstance(a, Numbers) and isinstance(b, Numbers):
        return Numbers(value, np.where(condition.value, a.whole, b.whole), doubt)
    if isinstance(a, Truths) and isinstance(b, Truths):
        return Truths(value, doubt)
    raise NotColumnar


# ── functions ───────────────────────────────────────────────────────────────────────────────────────────────


def _extreme(better: Callable[[Any, Any], Any]) -> Callable[..., Numbers]:
    def pick(best: Numbers, item: Numbers) -> Numbers:
        take = better(item.value, best.value)
        value, whole = np.where(take, item.value, best.value), np.where(take, item.whole, best.whole)
        return Numbers(value, whole, best.doubt | item.doubt)

    return lambda *values: reduce(pick, map(_number, values))


def _to_whole(apply: Callable[[Any], Any]) -> Callable[[Any], Numbers]:
    def convert(value: Any) -> Numbers:
        a = _number(value)
        return _result(apply(a.value), np.ones_like(a.whole), a.doubt)

    return convert


def _round(value: Any, *digits: Any) -> Numbers:
    if digits:
        raise NotColumnar
    return _to_whole(np.rint)(value)


def _abs(value: Any) -> Numbers:
    a = _number(value)
    return Numbers(np.abs(a.value), a.whole, a.doubt)


def _sqrt(value: Any) -> Numbers:
    a = _number(value)
    return _result(np.sqrt(a.value), np.zeros_like(a.whole), a.doubt | (a.value < 0))


def _left_alone(*_: Any) -> Column:
    raise NotColumnar


PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "add": _binary(np.add),
    "subtract": _binary(np.subtract),
    "multiply": _binary(np.multiply),
    "divide": _binary(np.true_divide, keeps_whole=False, divides=True),
    "floor_divide": _binary(np.floor_divide, divides=True),
    "remainder": _binary(np.remainder, divides=True),
    "power": _left_alone,
    "negate": _negate,
    "plus": _number,
    "invert": _invert,
    "relate": _relate,
    "chain": _chain,
    "all_of": lambda *operands: reduce(_both, (_truth(operand()) for operand in operands)),
    "any_of": lambda *operands: reduce(_either, (_truth(operand()) for operand in operands)),
    "choose": _choose,
    "coalesce": lambda first, *_: first(),  # where the first is not known, the row is in doubt
    "min": _extreme(np.less),
    "max": _extreme(np.greater),
    "abs": _abs,
    "round": _round,
    "ceil": _to_whole(np.ceil),
    "floor": _to_whole(np.floor),
    "sqrt": _sqrt,
    "log": _left_alone,
    "exp": _left_alone,
}


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
) -> tuple[Column, list[int]] | None:
    """Return the values of all rows and the rows in doubt, whose value means nothing; None if not columnar."""
    try:
        with np.errstate(all="ignore"):  # what overflows or divides by zero is in doubt
            result = as_column(_columnar(expression)(column))
    except NotColumnar:
        return None
    doubt = np.broadcast_to(result.doubt, rows)
    value: Any = np.broadcast_to(result.value, rows)
    whole: Column = Truths(value, doubt)
    if isinstance(result, Numbers):
        whole = Numbers(value, np.broadcast_to(result.whole, rows), doubt)
    return whole, np.flatnonzero(doubt).tolist()


@lru_cache(maxsize=256)
def _columnar(expression: Expression) -> Callable[[Callable[[str], Column | Scalar]], Any]:
    return bind(expression.code, PRIMITIVES)


def scalars(column: Column) -> list[Scalar]:
    """Return the values of a column as Python's."""
    if isinstance(column, Truths) or not column.whole.any():
        return column.value.tolist()  # type: ignore[no-any-return]  # numpy cannot say what tolist gives
    safe = np.where(column.doubt, 0.0, column.value)
    if column.whole.all():
        return safe.astype(np.int64).tolist()  # type: ignore[no-any-return]  # as above
    return [int(v) if w else v for v, w in zip(safe.tolist(), column.whole.tolist(), strict=True)]
