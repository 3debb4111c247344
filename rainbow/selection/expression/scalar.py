"""Operators and functions of an expression over single values.

Three kinds of value: numbers (int, float), text, truth values. A truth value is no number: `true + 1` cannot be
evaluated. A condition takes truth values and numbers (0 is false), never text; `and`, `or`, `not` answer true or
false. Values of different kinds are unequal, and only values of one kind, numbers or text, have an order.

Every number is finite: a variable or a result that is infinite or no number breaks the expression, as do an
integer beyond 1024 bits, which no float could hold, and a text of more than 4,096 characters. So no expression can be
slow or large.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from rainbow.selection.choice import Scalar, is_number

MAX_BITS = 1024  # of an integer; the largest float has as many
MAX_EXPONENT = 1024  # of an integer power
SUMMABLE = 1e290  # a billion billion of these are no infinity yet
MAX_TEXT = 4096  # characters of a variable; an expression may compare it a thousand times
MAX_DIGITS = 308  # that round may be asked for; floats have no more
PLAIN = frozenset([int, float])  # the types of numbers, without that of truth values, which Python counts among them
SAFE = 2**53  # what is nearer to zero is finite and small; above, floats skip integers

Number = int | float
Thunk = Callable[[], Any]


class NoValueError(Exception):
    """The expression has no value here; the text says why. Never leaves the package."""


class Unknown(NoValueError):
    """A variable is not known here; carries its name."""


# ── kinds ───────────────────────────────────────────────────────────────────────────────────────────────────


def shown(value: Any) -> str:
    """Write a value for people, on one short line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() <= 64:
        return str(value)
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    return f"a large {type(value).__name__}"


def describe(value: Any) -> str:
    """Name a value with its kind."""
    kind = "the text " if isinstance(value, str) else "the number " if is_number(value) else ""
    return kind + shown(value)


def admit(name: str, value: Any) -> Scalar:
    """Return a variable's value if an expression may use it."""
    if type(value) in PLAIN and -SAFE < value < SAFE:  # nearly always, so asked first
        return value  # type: ignore[no-any-return]  # PLAIN are two of Scalar
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise NoValueError(f"{name} is too long a text")
    if isinstance(value, bool | str):
        return value
    if not isinstance(value, int | float):
        raise NoValueError(f"{name} is not a number, text or truth value")
    if isinstance(value, float) and not math.isfinite(value):
        raise NoValueError(f"{name} is not a finite number")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise NoValueError(f"{name} is too large")
    return value


def summable(value: Any) -> float | None:
    """Return a number as it may be summed, None for anything else and for what would sum to infinity.

    >>> summable(3), summable(True), summable(2**1023)
    (3.0, None, None)
    """
    return float(value) if is_number(value) and -SUMMABLE < value < SUMMABLE else None


def _numbers(sign: str, *values: Any) -> None:
    for value in values:
        if not is_number(value):
            raise NoValueError(f"{sign} requires a number, got {describe(value)}")


def _bounded(result: Any) -> Any:
    if type(result) in PLAIN and -SAFE < result < SAFE:
        return result
    if isinstance(result, int):
        if result.bit_length() > MAX_BITS:
            raise NoValueError("the result is too large")
    elif isinstance(result, complex):
        raise NoValueError("the result is not a real number")
    elif not math.isfinite(result):
        raise NoValueError("the result is not a finite number")
    return result


def truth(value: Any) -> bool:
    """Read a value as a condition."""
    if isinstance(value, str):
        raise NoValueError(f"a condition cannot be {describe(value)}")
    return bool(value)


# ── operators ───────────────────────────────────────────────────────────────────────────────────────────────


def _binary(sign: str, apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def operate(left: Any, right: Any) -> Any:
        if not (type(left) in PLAIN and type(right) in PLAIN):  # else asked again, with the reason
            _numbers(sign, left, right)
        return _bounded(apply(left, right))

    return operate


def _power(base: Number, exponent: Number) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        if abs(exponent) > MAX_EXPONENT:
            raise NoValueError(f"the exponent of an integer is at most {MAX_EXPONENT}")
        if base.bit_length() * exponent > 2 * MAX_BITS:  # never even build what would be refused
            raise NoValueError("the result is too large")
    return base**exponent


def _negate(value: Any) -> Any:
    _numbers("-", value)
    return -value


def _plus(value: Any) -> Any:
    _numbers("+", value)
    return value


def _kind(value: Any) -> type:
    return str if isinstance(value, str) else bool if isinstance(value, bool) else float


def equal(left: Any, right: Any) -> bool:
    """Compare for equality; values of different kinds are unequal."""
    return _kind(left) is _kind(right) and bool(left == right)


def _ordered(sign: str, apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        if type(left) in PLAIN and type(right) in PLAIN:  # nearly always, so asked first
            return bool(apply(left, right))
        if not (isinstance(left, str) and isinstance(right, str)):
            _numbers(sign, left, right)
        return bool(apply(left, right))

    return compare


COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": _ordered("<", operator.lt),
    "<=": _ordered("<=", operator.le),
    ">": _ordered(">", operator.gt),
    ">=": _ordered(">=", operator.ge),
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "in": lambda left, options: any(equal(left, option) for option in options),
    "not in": lambda left, options: not any(equal(left, option) for option in options),
}


def relate(left: Any, sign: str, right: Any) -> bool:
    """Carry out one comparison."""
    return COMPARISONS[sign](left, right)


def chain(left: Any, signs: tuple[str, ...], *rights: Thunk) -> bool:
    """Carry out several comparisons; each operand is evaluated once, and only while the chain holds."""
    for sign, thunk in zip(signs, rights, strict=True):
        right = thunk()
        if not COMPARISONS[sign](left, right):
            return False
        left = right
    return True


# ── conditions: operands are thunks, so that what is not reached is not evaluated ───────────────────────────


def _all(*operands: Thunk) -> bool:
    return all(truth(operand()) for operand in operands)


def _any(*operands: Thunk) -> bool:
    return any(truth(operand()) for operand in operands)


def _choose(test: Any, body: Thunk, orelse: Thunk) -> Any:
    return body() if truth(test) else orelse()


def _coalesce(*operands: Thunk) -> Any:
    unknown: list[str] = []
    for operand in operands:
        try:
            return operand()
        except Unknown as error:
            unknown.append(str(error))
    raise Unknown(unknown[0])


# ── functions ───────────────────────────────────────────────────────────────────────────────────────────────


def _function(name: str, apply: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        _numbers(name, *values)
        return _bounded(apply(*values))

    return call


def _round(value: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > MAX_DIGITS:
        raise NoValueError(f"round takes a whole number of digits, at most {MAX_DIGITS}")
    return round(value, digits) if digits else round(value)


ARITIES: Mapping[str, tuple[int, int | None]] = {  # fewest and most arguments
    "min": (1, None),
    "max": (1, None),
    "abs": (1, 1),
    "round": (1, 2),
    "ceil": (1, 1),
    "floor": (1, 1),
    "sqrt": (1, 1),
    "log": (1, 2),
    "exp": (1, 1),
    "coalesce": (1, None),
}

PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "add": _binary("+", operator.add),
    "subtract": _binary("-", operator.sub),
    "multiply": _binary("*", operator.mul),
    "divide": _binary("/", operator.truediv),
    "floor_divide": _binary("//", operator.floordiv),
    "remainder": _binary("%", operator.mod),
    "power": _binary("**", _power),
    "negate": _negate,
    "plus": _plus,
    "invert": lambda value: not truth(value),
    "relate": relate,
    "chain": chain,
    "all_of": _all,
    "any_of": _any,
    "choose": _choose,
    "coalesce": _coalesce,
    "min": _function("min", lambda *values: min(values)),
    "max": _function("max", lambda *values: max(values)),
    "abs": _function("abs", abs),
    "round": _function("round", _round),
    "ceil": _function("ceil", math.ceil),
    "floor": _function("floor", math.floor),
    "sqrt": _function("sqrt", math.sqrt),
    "log": _function("log", math.log),
    "exp": _function("exp", math.exp),
}
