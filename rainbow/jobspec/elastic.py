"""Elastic jobs, services, and bags of independent tasks.

`attributes.system.elastic`: true or {min, max, threads}, a job whose slots are shares that come and go.

A range for the count of its slots says how many at least and at most: {min: 2, max: 8, operator: "+", operand: 1} are
eight shares of which two are enough to work. Without a range all slots are shares, and one is enough.

`attributes.system.scatter: true`: a bag of independent tasks, every slot a task of its own.

An elastic job is such a bag, whose tasks a policy may start and stop as it likes. A service is one too
(`attributes.system.service`): every slot is an instance, and one that ends is started again.

What the slots of a jobspec ask for once is then asked for by each task: `count: 1000` of a slot is a thousand tasks
of one slot, not one task over a thousand. A cluster that can host one of them can run them all, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.request import Count, Elastic, Request, Resource, TaskSpec

MOST_TASKS = 2**31 - 1
KEYS = {"min", "max", "threads"}


@dataclass(frozen=True, slots=True)
class ElasticCounts:
    """What is written of an elastic job, and how many slots its counts ask for at least (0: no range says so)."""

    given: Mapping[str, int]
    least: int
    at: str

    def shares(self, slots: int) -> Elastic:
        """Say how many shares it works with, of so many slots."""
        options = self.given
        least, most = options.get("min", max(1, self.least)), options.get("max", max(1, slots))
        if not least <= most <= max(1, slots):
            raise JobspecError(f"elastic requires min <= max <= {slots} (the number of slots)", pointer=self.at)
        return Elastic(least, most, options.get("threads", 1))


def wanted(request: Request, system: Mapping[str, Any], at: str) -> ElasticCounts | None:
    """Read what is asked of shares; None if the job is not elastic."""
    if "elastic" not in system:
        return None
    options = {} if system["elastic"] is True else system["elastic"]
    if not isinstance(options, Mapping) or not set(options) <= KEYS:
        raise JobspecError("elastic is true, or a mapping of min, max and threads", pointer=at)
    for key, number in options.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_TASKS:
            raise JobspecError(f"{key} is a whole number from 1 to {MOST_TASKS}", pointer=f"{at}/{key}")
    least, most = (sum(_slots(tree, which) for tree in request.resources) for which in (_least, _most))
    return ElasticCounts(options, least if least < most else 0, at)


def stretched(request: Request, at: str) -> Request:
    """Return the request with as many slots as its ranges allow."""
    variants = tuple(tuple(_stretched(tree, at) for tree in trees) for trees in request.variants)
    return replace(request, variants=variants)


def _stretched(tree: Resource, at: str) -> Resource:
    if not any(part.is_slot for part in tree.walk()):
        return tree
    count = tree.count
    if count.max is None:
        raise JobspecError("an elastic job needs an upper bound: add max to its slot count", pointer=at)
    if count.max > count.min and (count.listed or (count.operator, count.operand) != ("+", 1)):
        raise JobspecError("an elastic job has any number of shares from min to max: no steps between", pointer=at)
    children = tree.children if tree.is_slot else tuple(_stretched(child, at) for child in tree.children)
    return replace(tree, count=Count(count.max, count.max), children=children)


def _slots(tree: Resource, which: Any) -> int:
    """Count the slots of a tree, by the least or the most of its counts."""
    if tree.is_slot:
        return int(which(tree.count))
    return int(which(tree.count)) * sum(_slots(child, which) for child in tree.children)


def _least(count: Count) -> int:
    return count.min


def _most(count: Count) -> int:
    return MOST_TASKS if count.max is None else count.max


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
    slots = _scatter_slots(whole, f"{at}/scatter")
    tasks = tuple(_copies(task, slots, f"{at}/scatter") for task in whole.tasks)
    variants = tuple(tuple(_each_slot(trees)) for trees in whole.variants)
    elastic = shares.shares(sum(task.replicas for task in tasks)) if shares else None
    return replace(whole, variants=variants, tasks=tasks, together=False, elastic=elastic)


def _scatter_slots(request: Request, at: str) -> dict[str, int]:
    """Count the slots of every label, in the first variant that has it."""
    slots: dict[str, int] = {}
    for trees in request.variants:
        results = [counted for tree in trees for counted in _counted(tree, 1)]
        labels = [label for label, _ in results]
        if len(labels) != len(set(labels)):
            raise JobspecError("scatter needs slots of different labels", pointer=at)
        slots = {**dict(results), **slots}
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
    result: list[Resource] = []
    for tree in trees:
        labels = [part.label for part in tree.walk() if part.is_slot]
        result.extend(_alone(tree, label) for label in labels)
        if not labels:
            result.append(tree)
    return result


def _alone(tree: Resource, label: str) -> Resource:
    if tree.is_slot:
        return replace(tree, count=ONE)
    stored = [child for child in tree.children if not _holds_slot(child) or _holds(child, label)]
    children = tuple(_alone(child, label) if _holds(child, label) else child for child in stored)
    return replace(tree, count=ONE, children=children)


def _holds(tree: Resource, label: str) -> bool:
    return any(part.is_slot and part.label == label for part in tree.walk())


def _holds_slot(tree: Resource) -> bool:
    return any(part.is_slot for part in tree.walk())
