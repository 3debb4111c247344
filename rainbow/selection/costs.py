"""Whether an expression rises or falls with what things cost: RISES, FALLS, or UNCLEAR; None if it reads no cost.

A variable is a cost by its name (SAYS_COST), or because a calc made it from one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from rainbow.selection.bounds import Known, bounds

SAYS_COST = ("cost", "price")
RISES, FALLS, UNCLEAR = 1, -1, 0
OF_ONE = frozenset(["round", "ceil", "floor", "sqrt", "log", "exp"])  # of one argument: never fall as it rises
OF_MANY = frozenset(["min", "max", "coalesce"])

Trend = int | None


def trend(node: ast.AST, known: Known, computed: Mapping[str, Trend]) -> Trend:
    """Tell how an expression goes with cost; `computed`: how the variables go that a calc made.

    >>> from rainbow.selection.expression import compile_expression
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
    found = {one for one in many if one is not None}
    return None if not found else found.pop() if len(found) == 1 else UNCLEAR
