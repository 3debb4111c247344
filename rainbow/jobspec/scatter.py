"""`attributes.system.scatter: true`: a bag of independent tasks, every slot a task of its own.

An elastic job is such a bag, whose tasks a policy may start and stop as it likes (elastic.py). A service is one too
(`attributes.system.service`): every slot is an instance, and one that ends is started again.

What the slots of a jobspec ask for once is then asked for by each task: `count: 1000` of a slot is a thousand tasks
of one slot, not one task over a thousand. A cluster that can host one of them can run them all, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.elastic import stretched, wanted
from rainbow.jobspec.request import Count, Request, Resource, TaskSpec

ONE = Count(1, 1)


def scattered(request: Request, system: Mapping[str, Any], at: str) -> Request:
    """Write a request's slots out as copies of its tasks, if it asks for that; `at` points at `system`."""
    if not isinstance(system.get("scatter", False), bool):
        raise JobspecError("scatter is true or false", pointer=f"{at}/scatter")
    shares = wanted(request, system, f"{at}/elastic")
    if not (shares or request.service or system.get("scatter")):
        return request
    if "scatter" in system and not system["scatter"]:
        raise JobspecError(
            "elastic jobs and services are bags: scatter is true, or not said", pointer=f"{at}/scatter"
        )
    whole = stretched(request, f"{at}/elastic") if shares else request
    slots = _slots(whole, f"{at}/scatter")
    tasks = tuple(_copies(task, slots, f"{at}/scatter") for task in whole.tasks)
    variants = tuple(tuple(_each_slot(trees)) for trees in whole.variants)
    elastic = shares.shares(sum(task.replicas for task in tasks)) if shares else None
    return replace(whole, variants=variants, tasks=tasks, together=False, elastic=elastic)


def _slots(request: Request, at: str) -> dict[str, int]:
    """Count the slots of every label, in the first variant that has it."""
    slots: dict[str, int] = {}
    for trees in request.variants:
        found = [counted for tree in trees for counted in _counted(tree, 1)]
        labels = [label for label, _ in found]
        if len(labels) != len(set(labels)):
            raise JobspecError("scatter needs slots of different labels", pointer=at)
        slots = {**dict(found), **slots}
    return slots


def _counted(tree: Resource, copies: int) -> list[tuple[str, int]]:
    copies *= tree.count.min
    if tree.is_slot:
        return [(tree.label, copies)]
    return [counted for child in tree.children for counted in _counted(child, copies)]


def _copies(task: TaskSpec, slots: Mapping[str, int], at: str) -> TaskSpec:
    labels = [label for label in task.slots if label in slots] or list(slots)
    if not labels or (not task.slots and len(labels) > 1):
        raise JobspecError(f"scatter: {task.name} names none of the slots", pointer=at)
    copies = max(1, slots[labels[0]])
    if task.total is not None and task.total % copies:
        raise JobspecError(
            f"scatter: {task.name} processes {task.total} do not divide into {copies} tasks", pointer=at
        )
    per_slot = task.per_slot if task.total is None else task.total // copies
    chosen = tuple(task.slots) or (labels[0],)
    return replace(task, slots=chosen, replicas=task.replicas * copies, per_slot=per_slot, total=None)


def _each_slot(trees: tuple[Resource, ...]) -> list[Resource]:
    """Return one tree for every slot, with one of everything on the way down to it; other trees as they are."""
    found: list[Resource] = []
    for tree in trees:
        labels = [part.label for part in tree.walk() if part.is_slot]
        found.extend(_alone(tree, label) for label in labels)
        if not labels:
            found.append(tree)
    return found


def _alone(tree: Resource, label: str) -> Resource:
    if tree.is_slot:
        return replace(tree, count=ONE)
    kept = [child for child in tree.children if not _holds_slot(child) or _holds(child, label)]
    children = tuple(_alone(child, label) if _holds(child, label) else child for child in kept)
    return replace(tree, count=ONE, children=children)


def _holds(tree: Resource, label: str) -> bool:
    return any(part.is_slot and part.label == label for part in tree.walk())


def _holds_slot(tree: Resource) -> bool:
    return any(part.is_slot for part in tree.walk())
