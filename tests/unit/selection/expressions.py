"""Expressions of selection, evaluated with the values of variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.selection.choice import Scalar
from rainbow.selection.expression.compiler import Expression, Fault, compile_expression, evaluate_with
from rainbow.selection.expression.scalar import Unknown, admit


def evaluate(expression: Expression | str, variables: Mapping[str, Any]) -> Scalar | Fault:
    """Return the value of an expression, or a Fault that says why it has none.

    >>> evaluate("cost * min(hours, 24)", {"cost": 3, "hours": 30})
    72
    >>> evaluate("cost / hours", {"cost": 3, "hours": 0})
    Fault(reason='division by zero', name='')
    >>> evaluate("cost > 1", {})
    Fault(reason='cost is not known', name='cost')
    """
    if isinstance(expression, str):
        expression = compile_expression(expression)

    def get(name: str) -> Scalar:
        try:
            value = variables[name]
        except KeyError:
            raise Unknown(name) from None
        return admit(name, value)

    return evaluate_with(expression, get)
