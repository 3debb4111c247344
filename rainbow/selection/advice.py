"""Warnings about priorities that can be used but may not mean what their author thinks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rainbow.selection.expression import Expression
from rainbow.selection.groups import unused
from rainbow.selection.priorities import OPTIONS, UNINFORMED_SORT, Instruction, Priority, Settings, nearest
from rainbow.selection.variables import MATCHED, OURS

QUEUE = ("waiting_tasks", "running_tasks", "idle_workers")
OUR_NAMES = frozenset(
    [*(f"matched.{name}" for name in MATCHED), *(f"queue.{name}" for name in QUEUE), "state.age"],
)
USUAL_NAMES = OUR_NAMES | {UNINFORMED_SORT, "nodes_free", "memory_per_node", "node_memory_gb", "seconds_per_gb"}


def advise(settings: Settings, options: Mapping[str, Any]) -> list[str]:
    """Return what may not be meant, in order of the options and steps."""
    warnings = [
        f"constraint has no option {key!s:.60}{nearest(key, OPTIONS)}" for key in options if key not in OPTIONS
    ]
    used = [priority.group for priority in settings.priorities]
    warnings += [f"no priority is for the group {name:.60}" for name in unused(settings.groups, used)]
    return [*warnings, *_about_priorities(settings.priorities)]


@lru_cache(maxsize=64)  # options are checked at every decision
def _about_priorities(priorities: tuple[Priority, ...]) -> tuple[str, ...]:
    numbers = [priority.number for priority in priorities]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    warnings = [f"priority {number} stands more than once: tried in the order of the list" for number in twice]
    return (*warnings, *(text for priority in priorities for text in _about_priority(priority)))


def _about_priority(priority: Priority) -> Iterator[str]:
    computed: set[str] = set()
    sorts: list[Instruction] = []
    for at, step in enumerate(priority.steps):
        where = f"priority {priority.number}, step {at + 1} ({step.kind})"
        for name, warning in _about_names(step, computed):
            yield f"{where}, column {_column(step, name)}: {warning}"
        for warning in _about_step(step, sorts):
            yield f"{where}: {warning}"
        if step.kind.startswith("sort"):
            sorts.append(step)
        if step.variable:
            computed.add(step.variable)
        if step.kind == "select" and at + 1 < len(priority.steps):
            yield f"{where}: the steps after it are never reached"
            return
    if priority.steps[-1].kind != "select":
        yield from (f"priority {priority.number}: {text}" for text in _about_end("first", sorts))


def _about_step(step: Instruction, sorts: Sequence[Instruction]) -> Iterator[str]:
    if step.kind == "select":
        yield from _about_end(step.argument, sorts)
    elif step.kind == "calc" and step.expression and _can_be_negative(step.expression.tree):
        yield f"{step.variable} can be negative"
    elif step.kind == "filter" and step.expression and isinstance(step.expression.tree, ast.BinOp):
        yield "this is a number, and every number but 0 passes, negative ones too"


def _about_end(mode: str, sorts: Sequence[Instruction]) -> Iterator[str]:
    if not sorts:
        return
    last = sorts[-1]
    if mode == "random":
        yield "random ignores the sort before it: it draws from all that are left"
    if not last.expression or not _is_cost(last.expression):
        return
    what = f"{last.kind} of {last.expression.text}"
    if mode == "last" and last.kind == "sort_ascending":
        yield f"{what} and last takes the dearest; for the cheapest use first"
    if mode != "last" and last.kind == "sort_descending":
        yield f"{what} and first takes the dearest; for the cheapest use sort_ascending"


def _is_cost(expression: Expression) -> bool:
    return any(word in name.lower() for name in expression.names for word in ("cost", "price"))


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────


def _about_names(step: Instruction, computed: set[str]) -> Iterator[tuple[str, str]]:
    known = USUAL_NAMES | computed
    for name in step.expression.names if step.expression else ():
        if name in known:
            continue
        hint = nearest(name, known)
        if name.startswith(OURS):
            yield name, f"nobody gives {name}{hint}"
        elif hint:
            yield name, f"{name} is not a usual variable{hint}"


def _column(step: Instruction, name: str) -> int:
    """Return where in the step's argument a variable stands first, from 1."""
    tree = step.expression.tree if step.expression else ast.Constant(None)
    found = [node.col_offset for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    return min(found) + 1


# ── signs ───────────────────────────────────────────────────────────────────────────────────────────────────


def _can_be_negative(node: ast.AST) -> bool:
    """Tell whether a value can fall below zero although every variable, a size or a price, is zero or more.

    >>> from rainbow.selection.expression import compile_expression
    >>> _can_be_negative(compile_expression("min(100, memory_per_node - 100)").tree)
    True
    >>> _can_be_negative(compile_expression("max(0, memory_per_node - 100)").tree)
    False
    """
    match node:
        case ast.BinOp(op=ast.Sub()) | ast.UnaryOp(op=ast.USub()):
            return True
        case ast.BinOp(op=ast.Mod()):
            return _can_be_negative(node.right)
        case ast.BinOp():
            return _can_be_negative(node.left) or _can_be_negative(node.right)
        case ast.IfExp():
            return _can_be_negative(node.body) or _can_be_negative(node.orelse)
        case ast.Call(func=ast.Name(id="abs" | "sqrt" | "exp")):
            return False
        case ast.Call(func=ast.Name(id="log")):
            return True
        case ast.Call(func=ast.Name(id="max")):
            return all(_can_be_negative(argument) for argument in node.args)
        case ast.Call():
            return any(_can_be_negative(argument) for argument in node.args)
    return False
