"""`attributes.system.elastic`: true or {min, max, threads}, a job whose slots are shares that come and go.

A range for the count of its slots says how many at least and at most: {min: 2, max: 8, operator: "+", operand: 1} are
eight shares of which two are enough to work. Without a range all slots are shares, and one is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.request import Count, Elastic, Request, Resource

MOST = 2**31 - 1
KEYS = {"min", "max", "threads"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is written of an elastic job, and how many slots its counts ask for at least (0: no range says so)."""

    given: Mapping[str, int]
    least: int
    at: str

    def shares(self, slots: int) -> Elastic:
        """Say how many shares it works with, of so many slots."""
        given = self.given
        least, most = given.get("min", max(1, self.least)), given.get("max", max(1, slots))
        if not least <= most <= max(1, slots):
            raise JobspecError(f"min is no more than max, and max no more than the {slots} slots", pointer=self.at)
        return Elastic(least, most, given.get("threads", 1))


def wanted(request: Request, system: Mapping[str, Any], at: str) -> Wanted | None:
    """Read what is asked of shares; None if the job is not elastic."""
    if "elastic" not in system:
        return None
    given = {} if system["elastic"] is True else system["elastic"]
    if not isinstance(given, Mapping) or not set(given) <= KEYS:
        raise JobspecError("elastic is true, or a mapping of min, max and threads", pointer=at)
    for key, number in given.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST:
            raise JobspecError(f"{key} is a whole number from 1 to {MOST}", pointer=f"{at}/{key}")
    least, most = (sum(_slots(tree, which) for tree in request.resources) for which in (_least, _most))
    return Wanted(given, least if least < most else 0, at)


def stretched(request: Request, at: str) -> Request:
    """Return the request with as many slots as its ranges allow."""
    variants = tuple(tuple(_stretched(tree, at) for tree in trees) for trees in request.variants)
    return replace(request, variants=variants)


def _stretched(tree: Resource, at: str) -> Resource:
    if not any(part.is_slot for part in tree.walk()):
        return tree
    count = tree.count
    if count.max is None:
        raise JobspecError("a count without a max does not say how many shares there may be", pointer=at)
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
    return MOST if count.max is None else count.max
