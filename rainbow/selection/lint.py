"""Warnings about priorities.

Warnings about priorities that can be used but may not mean what their author thinks.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rainbow.selection.expression.analysis import RISES, SIZE, Known, Trend, bounds, narrowed, never, trend
from rainbow.selection.options import OPTIONS, UNINFORMED_SORT, Instruction, Priority, Settings, nearest, unused
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


@dataclass
class _Before:
    """What the steps before one have made true."""

    known: Known = field(default_factory=dict)
    computed: dict[str, Trend] = field(default_factory=dict)  # variable → how it goes with cost
    sort: Instruction | None = None  # the last one

    def add(self, step: Instruction) -> None:
        """Carry out a step."""
        tree = step.expression.tree if step.expression else None
        if tree and step.kind == "filter":
            self.known = narrowed(tree, self.known, holds=True)
        elif tree and step.variable:
            self.computed[step.variable] = trend(tree, self.known, self.computed)
            self.known = {**self.known, step.variable: bounds(tree, self.known)}
        elif step.kind.startswith("sort"):
            self.sort = step


def _about_priority(priority: Priority) -> Iterator[str]:
    before = _Before()
    for at, step in enumerate(priority.steps):
        where = f"priority {priority.number}, step {at + 1} ({step.kind})"
        for name, warning in _about_names(step, before.computed):
            yield f"{where}, column {_column(step, name)}: {warning}"
        for warning in _about_step(step, before):
            yield f"{where}: {warning}"
        before.add(step)
        if step.kind == "select" and at + 1 < len(priority.steps):
            yield f"{where}: the steps after it are never reached"
            return
    if priority.steps[-1].kind != "select":
        yield from (f"priority {priority.number}: {text}" for text in _about_end("first", before))


def _about_step(step: Instruction, before: _Before) -> Iterator[str]:
    if step.kind == "select":
        yield from _about_end(step.argument, before)
    elif step.kind == "calc" and step.expression and bounds(step.expression.tree, before.known)[0] < 0:
        below = [name for name in step.expression.names if before.known.get(name, SIZE)[0] < 0]
        yield f"{step.variable} can be negative" + (f", as {below[0]} can" if below else "")
    elif step.kind == "filter" and step.expression:
        yield from _about_filter(step.expression.tree, before.known)


def _about_filter(tree: ast.expr, known: Known) -> Iterator[str]:
    if isinstance(tree, ast.BinOp):
        yield "this is a number, and every number but 0 passes, negative ones too"
    elif never(tree, known):
        yield "no cluster can pass this after the steps before it, unless a variable is negative"


def _about_end(mode: str, before: _Before) -> Iterator[str]:
    last = before.sort
    if not last or not last.expression:
        return
    if mode == "random":
        yield "random ignores the sort before it: it draws from all that are left"
    rising = trend(last.expression.tree, before.known, before.computed)
    if not rising:  # no cost, or nobody can say
        return
    what = f"{last.kind} of {last.expression.text}"
    dearest_first = (last.kind == "sort_descending") is (rising == RISES)
    if mode == "last" and not dearest_first:
        yield f"{what} and last takes the dearest; for the cheapest use first"
    if mode != "last" and dearest_first:
        other = "sort_ascending" if last.kind == "sort_descending" else "sort_descending"
        yield f"{what} and first takes the dearest; for the cheapest use {other}"


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────


def _about_names(step: Instruction, computed: Collection[str]) -> Iterator[tuple[str, str]]:
    known = USUAL_NAMES | set(computed)
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
