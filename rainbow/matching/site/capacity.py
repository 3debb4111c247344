"""How many slots, and how much for the job, one vertex of a kind gives.

slots    how many of the slot lie on it, at least one
shares   of each resource `within: job`, how many units it gives, at least one

In closed form where slots and what is beside them take divisible amounts; else by asking whether that many fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import TYPE_CHECKING

from rainbow.jobspec.handover import model_of
from rainbow.jobspec.request import CONTAINMENT, Condition, Count, Need, Resource
from rainbow.matching.model.layout import pools_of

if TYPE_CHECKING:
    from rainbow.matching.equivalence.subtree_classes import Pool, SubtreeClass
    from rainbow.matching.model.layout import Pools

CORE, SOCKET = "core", "socket"
Point = tuple[int, ...]  # slots, then the share of each resource of the job
Models = Mapping[str, int]  # how many vertices of a type there are of each model
MOST_POINTS = 4_096


@dataclass(frozen=True)
class NodeRequest:
    """What is asked of one node: a slot (or None), what is beside it, and what the job has together.

    `slots` is how many there must be on each node, 0: at least one, as `total` says.
    """

    node: Resource
    slot: Resource | None
    slots: int
    beside: tuple[Resource, ...]
    shares: tuple[Resource, ...]

    @property
    def parts(self) -> tuple[Resource, ...]:
        """Everything that takes something of the node."""
        return (*(self.slot.children if self.slot else ()), *self.beside, *self.shares)

    @property
    def is_flat(self) -> bool:
        """Return whether amounts decide: no part contains others, is taken whole or needs a subsystem."""
        return all(
            not part.children and not part.exclusive and all(need.subsystem == CONTAINMENT for need in part.needs)
            for part in self.parts
        ) and not (self.slot and self.slot.needs)


def with_model(part: Resource, model: str) -> Resource:
    """Return a request for one model; `same` is settled by it."""
    conditions = tuple(
        Condition("match", {"field": key, "value": value}) for key, value in (("type", part.type), ("model", model))
    )
    return replace(part, needs=(*part.needs, Need(CONTAINMENT, conditions)), same="")


class Capacity:
    """What vertices of one kind give to a wish."""

    def __init__(self, wish: NodeRequest, kind: SubtreeClass, pools: Pools) -> None:
        self.wish = wish
        self.kind = kind
        self.pools = pools
        self._models: dict[str, Models] = {}

    def models(self, type_: str) -> Models:
        """Return how many vertices of a type there are of each model."""
        if type_ not in self._models:
            self._models[type_] = dict(_models(self.kind, type_))
        return self._models[type_]

    def cores(self, part: Resource, slots: int) -> int:
        """Return the units that some slots take of a part: hardware threads share their cores."""
        units = part.count.min * slots
        return -(-units // self.kind.threads) if part.cpus else units

    def fits(self, point: Point) -> bool:
        """Return whether one vertex gives these slots and shares."""
        slots, shares = point[0], point[1:]
        wish = self.wish
        need: dict[Pool, int] = {}
        chosen: list[tuple[Resource, int]] = []
        inside = wish.slot.children if wish.slot else ()
        for part, units in (
            *((part, self.cores(part, slots)) for part in inside),
            *((part, self.cores(part, 1)) for part in wish.beside),
            *zip(wish.shares, shares, strict=True),
        ):
            if part.same or part.needs:
                chosen.append((part, units))
            pools = [(pool, factor) for pool, factor in pools_of(part, self.pools) if pool in self.kind.content]
            if not pools:
                return False
            pool, factor = pools[0]
            need[pool] = need.get(pool, 0) + units * factor
        if any(self.kind.content.get(pool, 0) < amount for pool, amount in need.items()):
            return False
        if wish.slot and any(slots > self._most(kind, limit) for kind, limit in wish.slot.at_most):
            return False
        return not chosen or self._models_fit(chosen)

    def _most(self, kind: str, limit: int) -> int:
        """Return how many slots may lie here if there are `limit` at most on each vertex of a type."""
        return limit if kind == self.kind.type else limit * max(1, self.kind.sizes.get(kind, 0))

    def _models_fit(self, chosen: Sequence[tuple[Resource, int]]) -> bool:
        return next(self.assignments(chosen), None) is not None

    def assignments(self, chosen: Sequence[tuple[Resource, int]]) -> Iterator[tuple[str, ...]]:
        """Yield a model for each request that must have one model, so that all fit; "" for what may mix."""
        choices = [
            (model_of(part),) if model_of(part) else tuple(self.models(part.type)) if part.same else ("",)
            for part, _ in chosen
        ]
        for models in product(*choices):
            remaining = {(part.type, model): n for part, _ in chosen for model, n in self.models(part.type).items()}
            for (part, units), model in zip(chosen, models, strict=True):
                if model or part.same:
                    remaining[part.type, model] = remaining.get((part.type, model), 0) - units
            if all(n >= 0 for n in remaining.values()):
                yield models

    def points(self, most: Point) -> list[Point]:
        """Return the largest points that fit, none of them below another, each at most `most`."""
        wish = self.wish
        fixed = wish.slots if wish.slots or wish.slot is None else None  # slots of each node, None: from 1 on
        low = (1 if fixed is None else fixed, *(1 for _ in most[1:]))
        if not self.fits(low):
            return []
        alone = list(low)
        for axis in range(1 if fixed is not None else 0, len(most)):
            alone[axis] = self._largest(low, axis, max(most[axis], low[axis]))
        if self.fits(tuple(alone)):
            return [tuple(alone)]
        result: list[Point] = []
        for shares in islice(product(*(range(high, 0, -1) for high in alone[1:])), MOST_POINTS):
            point = (low[0], *shares)
            if not self.fits(point):
                continue
            if fixed is None:
                point = (self._largest(point, 0, alone[0]), *shares)
            if not any(all(a >= b for a, b in zip(other, point, strict=True)) for other in result):
                result.append(point)
        return result

    def _largest(self, point: Point, axis: int, high: int) -> int:
        """Return the largest number on an axis of a point, which fits, that still fits."""
        low = point[axis]
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.fits((*point[:axis], middle, *point[axis + 1 :]))
            low, high = (middle, high) if fits else (low, middle - 1)
        return low


def _models(kind: SubtreeClass, type_: str) -> Iterator[tuple[str, int]]:
    """Yield how many vertices of a type there are of each model in a subtree."""
    sums: dict[str, int] = {}
    stack = [(kind, 1)]
    while stack:
        one, times = stack.pop()
        if one.type == type_:
            sums[one.model] = sums.get(one.model, 0) + times * one.size
        stack.extend((below, times * many) for below, many in one.children.items() if type_ in below.types)
    yield from sorted(sums.items())


def counted(part: Resource, units: int) -> Resource:
    """Return a request for a number of units of what a part asks for, in plain words."""
    return replace(part, count=Count(units, units), cpus=False, within="", at_most=(), total=False)
