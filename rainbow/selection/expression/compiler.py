"""The compiler of expressions: a tree, checked node by node, → code.

    text ── grammar ──► syntax tree ── _translate ──► calls of primitives ── compile ──► function of `get`

The tree is not run as it stands. Every node of it is on the list below, or the text is refused, and becomes
a call of a primitive (scalar.py for one cluster, columnar.py for many); a name becomes get("name"). So
no name a user writes ever reaches Python, whatever it spells.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any

from rainbow.selection.choice import Scalar
from rainbow.selection.expression.grammar import RESERVED, invalid, parse
from rainbow.selection.expression.scalar import ARITIES, MAX_BITS, PRIMITIVES, NoValueError, Unknown

Get = Callable[[str], Any]

_ASSIGNMENT = re.compile(r"(?<![=<>!])=(?!=)")

_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "power",
    ast.USub: "negate",
    ast.UAdd: "plus",
    ast.Not: "invert",
    ast.And: "all_of",
    ast.Or: "any_of",
}
_SIGNS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.In: "in",
    ast.NotIn: "not in",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an expression has no value for one cluster; `name` is set if a variable is not known there."""

    reason: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression. `names`: the variables it reads, in order of appearance."""

    text: str
    names: tuple[str, ...]
    tree: ast.expr = field(compare=False, repr=False)
    code: CodeType = field(compare=False, repr=False)
    scalar: Callable[[Get], Scalar] = field(compare=False, repr=False)
    size: int = field(compare=False, repr=False)  # nodes of the tree: what one evaluation costs, about

    def needs(self, known: Callable[[str], bool]) -> tuple[str, ...]:
        """Name the variables it cannot do without and that are not known.

        coalesce needs only one of its arguments; every other part needs all of its variables.

        >>> compile_expression("a * coalesce(b, 1)").needs({"c"}.__contains__)
        ('a',)
        """
        if all(known(name) for name in self.names):
            return ()
        return tuple(dict.fromkeys(_needs(self.tree, known)))


@lru_cache(maxsize=4096)  # as many as one request's priorities may have
def compile_expression(text: str) -> Expression:
    """Check and compile an expression; SelectionError names the column of the first fault.

    >>> compile_expression("nodes_free > matched.nodes").names
    ('nodes_free', 'matched.nodes')
    """
    tree = parse(text)
    names: dict[str, None] = {}
    body = _translate(tree, names)
    code = compile(ast.fix_missing_locations(ast.Expression(_thunk(body, "get"))), "<expression>", "eval")
    size = sum(1 for _ in ast.walk(tree))
    return Expression(text.strip(), tuple(names), tree, code, bind(code, PRIMITIVES), size)


def bind(code: CodeType, primitives: Mapping[str, Callable[..., Any]]) -> Callable[[Get], Any]:
    """Return the compiled expression as a function of `get` that computes with these primitives."""
    function: Callable[[Get], Any] = eval(code, {"__builtins__": {}, **primitives})  # noqa: S307  # what _translate built, no text
    return function


def evaluate_with(expression: Expression, get: Get) -> Scalar | Fault:
    """Evaluate with variables from a function, which raises Unknown for those that are not known."""
    try:
        return expression.scalar(get)
    except Unknown as error:
        return Fault(f"{error} is not known", str(error))
    except NoValueError as error:
        return Fault(str(error))
    except ZeroDivisionError:
        return Fault("division by zero")
    except OverflowError:
        return Fault("the result is too large")
    except ValueError:  # sqrt and log outside their domain
        return Fault("the result is not a real number")


# ── the list of nodes ───────────────────────────────────────────────────────────────────────────────────────


def _translate(node: ast.expr, names: dict[str, None]) -> ast.expr:
    """Turn a node into a call of a primitive; a node that is not listed here is refused."""
    match node:
        case ast.Constant():
            return _constant(node)
        case ast.Name():
            names[node.id] = None
            return _call("get", ast.Constant(node.id))
        case ast.BinOp():
            return _call(_OPERATORS[type(node.op)], _translate(node.left, names), _translate(node.right, names))
        case ast.UnaryOp():
            return _call(_OPERATORS[type(node.op)], _translate(node.operand, names))
        case ast.BoolOp():
            return _call(_OPERATORS[type(node.op)], *[_thunk(_translate(value, names)) for value in node.values])
        case ast.IfExp():
            branches = [_thunk(_translate(branch, names)) for branch in (node.body, node.orelse)]
            return _call("choose", _translate(node.test, names), *branches)
        case ast.Compare():
            return _comparison(node, names)
        case ast.Call():
            return _function(node, names)
    raise invalid(f"{type(node).__name__} is not part of the language", getattr(node, "col_offset", 0) + 1)


def _constant(node: ast.Constant) -> ast.expr:
    value = node.value
    if (isinstance(value, int) and value.bit_length() > MAX_BITS) or value in (float("inf"), float("-inf")):
        raise invalid("this number is too large", node.col_offset + 1)
    return ast.Constant(value)


def _comparison(node: ast.Compare, names: dict[str, None]) -> ast.expr:
    left = _translate(node.left, names)
    signs: list[ast.expr] = [ast.Constant(_SIGNS[type(op)]) for op in node.ops]
    rights = [_options(right, names) for right in node.comparators]
    if len(signs) == 1:  # as nearly always: neither a chain nor thunks are needed
        return _call("relate", left, signs[0], rights[0])
    return _call("chain", left, ast.Tuple(signs, ast.Load()), *map(_thunk, rights))


def _options(node: ast.expr, names: dict[str, None]) -> ast.expr:
    """Translate the right side of a comparison: a list after in, or a value."""
    if isinstance(node, ast.Tuple):
        return ast.Tuple([_translate(option, names) for option in node.elts], ast.Load())
    return _translate(node, names)


def _function(node: ast.Call, names: dict[str, None]) -> ast.expr:
    name = _function_name(node)
    fewest, most = ARITIES[name]
    number = len(node.args)
    if number < fewest or (most is not None and number > most):
        target = f"{fewest}" if fewest == most else f"at least {fewest}" if most is None else f"{fewest} to {most}"
        raise invalid(
            f"{name} takes {target} argument{'' if target == '1' else 's'}, not {number}", node.col_offset + 1
        )
    arguments = [_translate(argument, names) for argument in node.args]
    return _call(name, *(map(_thunk, arguments) if name == "coalesce" else arguments))


def _function_name(node: ast.Call) -> str:
    name = node.func.id if isinstance(node.func, ast.Name) else "this"
    if name not in ARITIES:
        raise invalid(f"{name} is not a function; there are {', '.join(sorted(ARITIES))}", node.col_offset + 1)
    return name


def _call(primitive: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(primitive, ast.Load()), list(arguments), [])


def _thunk(body: ast.expr, *parameters: str) -> ast.expr:
    arguments = [ast.arg(parameter) for parameter in parameters]
    return ast.Lambda(ast.arguments([], arguments, None, [], [], None, []), body)


# ── which variables, and how a calc is written ──────────────────────────────────────────────────────────────


def _needs(node: ast.AST, known: Callable[[str], bool]) -> list[str]:
    if isinstance(node, ast.Name):
        return [] if known(node.id) else [node.id]
    if isinstance(node, ast.Call):
        lacking = [_needs(argument, known) for argument in node.args]  # not node.func, which is no variable
        if isinstance(node.func, ast.Name) and node.func.id == "coalesce" and not all(lacking):
            return []
    else:
        lacking = [_needs(child, known) for child in ast.iter_child_nodes(node)]
    return [name for names in lacking for name in names]


def split_calc(text: str) -> tuple[str, Expression]:
    """Split "variable=expression" at the first = that is not part of ==, >=, <= or !=.

    >>> name, expression = split_calc("big = nodes >= 4")
    >>> name, expression.text
    ('big', 'nodes >= 4')
    """
    assignment = _ASSIGNMENT.search(text)
    if not assignment:
        raise invalid("a calc is written variable=expression", 1)
    name = text[: assignment.start()].strip()
    if not name.isidentifier() or name.startswith("_") or name in RESERVED or name in ARITIES:
        raise invalid(f"{name!r} cannot be the name of a computed variable", 1)
    # spaces in the place of the variable, so that columns are those of the whole step
    return name, compile_expression(" " * assignment.end() + text[assignment.end() :])
