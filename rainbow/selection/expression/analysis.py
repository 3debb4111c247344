"""The bounds and the trend of an expression, by interval arithmetic over its tree.

    bounds    (least, most) of an expression, where every variable is 0 or more unless something else is known of it
    narrowed  what is known of variables where a condition holds, or where it does not
    never     whether a condition cannot hold

Bounds are never too narrow; they may be too wide: a - a lies between the infinities.

The trend says whether an expression rises or falls with costs: RISES, FALLS, or UNCLEAR; None if it reads no cost.

A variable is a cost by its name (SAYS_COST), or because a calc made it from one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import exp, floor, inf, isfinite, isnan, log, sqrt

Bounds = tuple[float, float]
Known = Mapping[str, Bounds]

SIZE: Bounds = (0.0, inf)  # of a variable of which nothing is known: a number of things, a price
TRUTH: Bounds = (0.0, 1.0)
ANY: Bounds = (-inf, inf)


def bounds(node: ast.AST, known: Known) -> Bounds:
    """Return the least and the most an expression can be.

    >>> from rainbow.selection.expression.compiler import compile_expression
    >>> bounds(compile_expression("min(100, memory_per_node - 100)").tree, {})
    (-100.0, 100.0)
    >>> bounds(compile_expression("memory_per_node - 100").tree, {"memory_per_node": (128.0, inf)})
    (28.0, inf)
    """
    match node:
        case ast.Constant(value=bool() | str()):
            return TRUTH
        case ast.Constant(value=int() | float() as value):
            return _exactly(value)
        case ast.Name(id=name):
            return known.get(name, SIZE)
        case ast.BinOp(op=ast.Pow()):
            return _power(bounds(node.left, known), node.right, known)
        case ast.BinOp():
            return _OPERATIONS[type(node.op)](bounds(node.left, known), bounds(node.right, known))
        case ast.UnaryOp(op=ast.USub()):
            least, most = bounds(node.operand, known)
            return -most, -least
        case ast.UnaryOp(op=ast.UAdd()):
            return bounds(node.operand, known)
        case ast.IfExp():
            there = narrowed(node.test, known, holds=True), narrowed(node.test, known, holds=False)
            return _hull([bounds(node.body, there[0]), bounds(node.orelse, there[1])])
        case ast.Call(func=ast.Name(id=name)):
            return _call(name, [bounds(argument, known) for argument in node.args])
    return TRUTH  # a comparison, and, or, not


# ── operators ───────────────────────────────────────────────────────────────────────────────────────────────


def _exactly(value: float) -> Bounds:
    try:
        return float(value), float(value)
    except OverflowError:  # a little more than the largest float
        return (inf, inf) if value > 0 else (-inf, -inf)


def _sane(least: float, most: float) -> Bounds:
    """Give up a bound that came of infinity less infinity."""
    return -inf if isnan(least) else least, inf if isnan(most) else most


def _hull(many: Sequence[Bounds]) -> Bounds:
    return min(least for least, _ in many), max(most for _, most in many)


def _corners(left: Bounds, right: Bounds, apply: Callable[[float, float], float]) -> Bounds:
    results = [apply(a, b) for a in left for b in right]
    return (min(results), max(results)) if not any(map(isnan, results)) else ANY


def _add(left: Bounds, right: Bounds) -> Bounds:
    return _sane(left[0] + right[0], left[1] + right[1])


def _subtract(left: Bounds, right: Bounds) -> Bounds:
    return _sane(left[0] - right[1], left[1] - right[0])


def _multiply(left: Bounds, right: Bounds) -> Bounds:
    # nothing times however much is nothing: bounds that are infinite stand for numbers that are not
    return _corners(left, right, lambda a, b: 0.0 if 0.0 in (a, b) else a * b)


def _divide(left: Bounds, right: Bounds) -> Bounds:
    """Divide by the positive and by the negative part: nothing is divided by 0."""
    least, most = right
    parts = []
    if most > 0:
        parts.append((1 / most, 1 / least if least > 0 else inf))
    if least < 0:
        parts.append((1 / most if most < 0 else -inf, 1 / least))
    return _hull([_multiply(left, part) for part in parts]) if parts else ANY


def _floor_divide(left: Bounds, right: Bounds) -> Bounds:
    return _whole(_divide(left, right))


def _whole(result: Bounds) -> Bounds:
    least, most = result
    return float(floor(least)) if isfinite(least) else least, most


def _remainder(_: Bounds, right: Bounds) -> Bounds:
    return min(0.0, right[0]), max(0.0, right[1])  # it has the sign of the divisor


_OPERATIONS: Mapping[type[ast.operator], Callable[[Bounds, Bounds], Bounds]] = {
    ast.Add: _add,
    ast.Sub: _subtract,
    ast.Mult: _multiply,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _remainder,
}


def _power(base: Bounds, exponent: ast.AST, known: Known) -> Bounds:
    even = isinstance(exponent, ast.Constant) and isinstance(exponent.value, int) and exponent.value % 2 == 0
    if base[0] < 0:
        return (0.0, inf) if even else ANY
    least = bounds(exponent, known)[0]
    return (1.0 if base[0] >= 1 and least >= 0 else 0.0), inf


# ── functions ───────────────────────────────────────────────────────────────────────────────────────────────


def _call(name: str, inputs: Sequence[Bounds]) -> Bounds:
    least, most = inputs[0]
    match name:
        case "min":
            return min(one[0] for one in inputs), min(one[1] for one in inputs)
        case "max":
            return max(one[0] for one in inputs), max(one[1] for one in inputs)
        case "coalesce":
            return _hull(inputs)
        case "abs":
            return (max(0.0, least, -most), max(-least, most))
        case "sqrt":
            return sqrt(max(0.0, least)), inf
        case "exp":
            return exp(least) if least < 700 else inf, inf
        case "log":
            return (log(least), inf) if least > 0 and len(inputs) == 1 else ANY
    return _whole((least, most + 1))  # round, ceil, floor


# ── conditions ──────────────────────────────────────────────────────────────────────────────────────────────

_OPPOSITE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.NotEq: ast.Eq,
}
_MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
}


def narrowed(test: ast.AST, known: Known, holds: bool) -> Known:
    """Return what is known where a condition holds, or does not; of comparisons with a variable on one side."""
    for part, true in _facts(test, holds):
        for name, sign, (least, most) in _bounded(part, known, true):
            low, high = known.get(name, SIZE)
            low = max(low, least) if sign in (ast.Gt, ast.GtE, ast.Eq) else low
            high = min(high, most) if sign in (ast.Lt, ast.LtE, ast.Eq) else high
            known = {**known, name: (low, max(low, high))}
    return known


def _facts(test: ast.AST, holds: bool) -> Iterator[tuple[ast.Compare, bool]]:
    """Yield the comparisons of which it is certain whether they hold: those under a true `and`, a false `or`."""
    match test:
        case ast.Compare() if holds or len(test.ops) == 1:
            yield test, holds
        case ast.UnaryOp(op=ast.Not()):
            yield from _facts(test.operand, not holds)
        case ast.BoolOp() if isinstance(test.op, ast.And) is holds:
            for value in test.values:
                yield from _facts(value, holds)


def never(test: ast.AST, known: Known) -> bool:
    """Return whether a condition holds for no values within the bounds.

    >>> from rainbow.selection.expression.compiler import compile_expression
    >>> never(compile_expression("nodes_free < 0").tree, {}), never(compile_expression("nodes_free < 1").tree, {})
    (True, False)
    """
    match test:
        case ast.Constant(value=bool() as value):
            return not value
        case ast.Compare():
            pairs = zip(pairwise([test.left, *test.comparators]), test.ops, strict=True)
            return any(_apart(left, right, type(op), known) for (left, right), op in pairs)
        case ast.BoolOp(op=ast.And()):
            known = narrowed(test, known, holds=True)
            return any(never(value, known) for value in test.values)
        case ast.BoolOp():
            return all(never(value, known) for value in test.values)
    return False


def _apart(left: ast.AST, right: ast.AST, sign: type[ast.cmpop], known: Known) -> bool:
    """Return whether two values never compare like this; texts may."""
    if isinstance(right, ast.Tuple) or any(isinstance(getattr(one, "value", 0), str | bool) for one in (left, right)):
        return False
    least, most = _subtract(bounds(left, known), bounds(right, known))
    checks: Mapping[type[ast.cmpop], bool] = {
        ast.Lt: least >= 0,
        ast.LtE: least > 0,
        ast.Gt: most <= 0,
        ast.GtE: most < 0,
        ast.Eq: least > 0 or most < 0,
    }
    return checks.get(sign, False)


def _bounded(test: ast.Compare, known: Known, holds: bool) -> Iterator[tuple[str, type[ast.cmpop] | None, Bounds]]:
    for (left, right), op in zip(pairwise([test.left, *test.comparators]), test.ops, strict=True):
        sign = type(op) if holds else _OPPOSITE.get(type(op))
        if sign is None or isinstance(right, ast.Tuple):
            continue
        if isinstance(left, ast.Name) and _straight(right):
            yield left.id, sign, bounds(right, known)
        if isinstance(right, ast.Name) and _straight(left):
            yield right.id, _MIRRORED.get(sign), bounds(left, known)


def _straight(node: ast.AST) -> bool:
    """Return whether there is no condition inside: nested ones would take twice as long at every level."""
    return not any(isinstance(part, ast.IfExp) for part in ast.walk(node))


SAYS_COST = ("cost", "price")
RISES, FALLS, UNCLEAR = 1, -1, 0
OF_ONE = frozenset(["round", "ceil", "floor", "sqrt", "log", "exp"])  # of one argument: never fall as it rises
OF_MANY = frozenset(["min", "max", "coalesce"])

Trend = int | None


def trend(node: ast.AST, known: Known, computed: Mapping[str, Trend]) -> Trend:
    """Tell how an expression goes with cost; `computed`: how the variables go that a calc made.

    >>> from rainbow.selection.expression.compiler import compile_expression
    >>> [trend(compile_expression(text).tree, {}, {}) for text in ("2 * cost", "1 / (1 + cost)", "nodes_free")]
    [1, -1, None]
    """
    match node:
        case ast.Name(id=name):
            return _of_name(name, computed)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv()):
            return _operation(node, known, computed)
        case ast.UnaryOp(op=ast.USub()):
            return _turned(trend(node.operand, known, computed), FALLS)
        case ast.IfExp():
            branches = _together(trend(branch, known, computed) for branch in (node.body, node.orelse))
            return branches if trend(node.test, known, computed) is None else UNCLEAR
        case ast.Call(func=ast.Name(id=name)) if name in OF_MANY or (name in OF_ONE and len(node.args) == 1):
            return _together(trend(argument, known, computed) for argument in node.args)
        case ast.Call():
            inside = [trend(argument, known, computed) for argument in node.args]  # node.func is no variable
        case _:
            inside = [trend(child, known, computed) for child in ast.iter_child_nodes(node)]
    return UNCLEAR if any(one is not None for one in inside) else None


def _of_name(name: str, computed: Mapping[str, Trend]) -> Trend:
    """Return how a variable goes; one that says it is a cost is one, unless its calc clearly made another thing."""
    says = any(word in name.lower() for word in SAYS_COST)
    made = computed.get(name)
    return RISES if says and not made else made


def _operation(node: ast.BinOp, known: Known, computed: Mapping[str, Trend]) -> Trend:
    left, right = trend(node.left, known, computed), trend(node.right, known, computed)
    match node.op:
        case ast.Add():
            return _together([left, right])
        case ast.Sub():
            return _together([left, _turned(right, FALLS)])
        case ast.Mult():
            return _together([_turned(left, _sign(node.right, known)), _turned(right, _sign(node.left, known))])
    if right is not None and bounds(node.right, known)[0] < 0:
        return UNCLEAR  # a divisor that passes zero turns everything round
    return _together([_turned(left, _sign(node.right, known)), _turned(right, -_sign(node.left, known))])


def _sign(node: ast.AST, known: Known) -> int:
    least, most = bounds(node, known)
    return RISES if least >= 0 else FALLS if most <= 0 else UNCLEAR


def _turned(one: Trend, by: int) -> Trend:
    return None if one is None else one * by


def _together(many: Iterable[Trend]) -> Trend:
    """Return what goes the same way in all parts that read a cost."""
    results = {one for one in many if one is not None}
    return None if not results else results.pop() if len(results) == 1 else UNCLEAR
