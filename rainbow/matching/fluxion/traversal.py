"""Matching under strict levels, as the traverser of Fluxion (flux-sched 0.54) does it.

    above     vertices no request has matched yet; only these may be left out of a request
    stand     a vertex that a request matches, with what its children found below it
    slots     cut from whole vertices below one vertex; everything in them is exclusive
    full      vertices taken exclusively: nobody enters them any more
    touched   vertices that some job uses, or something in them: nobody takes them exclusively any more

Greedy from end to end, lowest first, and never goes back: what Fluxion refuses is refused here, although
another choice would do. Units of amounts are not read. What a slot needs of a subsystem, which Fluxion does not
know, is asked of the vertex the slot is cut below, or of the workers in the slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rainbow.matching.model.budget import FREE, Meter
from rainbow.matching.model.conditions import Rule
from rainbow.matching.model.layout import asks_workers, host_needs
from rainbow.matching.needs import needs_met

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rainbow.jobspec import Constraint, Count, Need, Resource
    from rainbow.matching.model.layout import Layout


CONSTRAINED = ("node", "storage_node")  # the types a constraint is read at; whatever the cluster's workers are


@dataclass(frozen=True, slots=True)
class TraversalResult:
    """A vertex that `request` matches, or one slot cut below it, and what was chosen below."""

    request: Resource
    position: int
    units: int
    exclusive: bool
    below: tuple[TraversalResult, ...]


@dataclass(frozen=True, slots=True)
class Shortage:
    """A request that was not met below the vertex at `position`: only `units` of it were found."""

    request: Resource
    position: int
    units: int

    @property
    def nearness(self) -> float:
        """How much of what is wanted was found, 0 to 1."""
        return self.units / self.request.count.min


@dataclass(slots=True)
class TraversalState:
    """What jobs hold of a cluster; both sets are of positions, `touched` is closed upwards."""

    full: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)

    def take(self, results: tuple[TraversalResult, ...], layout: Layout) -> None:
        """Charge one copy; what it shares is touched too, with all that contains it."""
        stack = list(results)
        while stack:
            hit = stack.pop()
            self.touch(hit.position, layout)
            stack.extend(hit.below)
        self.full.update(i for i, _ in exclusive(results))

    def fill(self, i: int, layout: Layout) -> None:
        """Take one vertex exclusively."""
        self.full.add(i)
        self.touch(i, layout)

    def touch(self, i: int, layout: Layout) -> None:
        """Use a vertex, or something in it, beside others."""
        for at in layout.up(i):
            if at in self.touched:
                return
            self.touched.add(at)


def exclusive(results: tuple[TraversalResult, ...]) -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield the positions taken exclusively, containers first, with the slot each is in: (number, label).

    Slots are numbered from 1; (0, "") is outside of all.
    """
    slots = 0
    stack = [(hit, (0, "")) for hit in reversed(results)]
    while stack:
        hit, slot = stack.pop()
        if hit.request.is_slot:
            slots += 1
            slot = (slots, hit.request.label)
        elif hit.exclusive:
            yield hit.position, slot
        stack.extend((below, slot) for below in reversed(hit.below))


class Traversal:
    """One walk down what is not held; `visits` counts the vertices looked at."""

    def __init__(
        self, layout: Layout, constraint: Constraint | None, held: TraversalState, meter: Meter = FREE
    ) -> None:
        self.meter = meter
        self.layout = layout
        self.worker_type = layout.worker_type
        self.rule = Rule(constraint, any_of_none=False) if constraint else None
        self.held = held
        self.visits = 0
        self.shortest: Shortage | None = None
        self._passed: dict[int, bool] = {}
        self._types: dict[int, set[str]] = {}  # of what each contains directly
        self._met: dict[tuple[tuple[int, ...], int], bool] = {}

    def find(self, resources: tuple[Resource, ...]) -> tuple[TraversalResult, ...] | None:
        """Choose the vertices of one copy, None if there is none."""
        results: list[list[TraversalResult]] = [[] for _ in resources]
        i = 0
        while i < len(self.layout.types) and not _enough(resources, results, 1):
            inside = self._above(i, resources, results)
            i = i + 1 if inside else self.layout.last[i]
        return self._chosen(resources, results, 0)

    def _above(self, i: int, resources: tuple[Resource, ...], results: list[list[TraversalResult]]) -> bool:
        """Look at one vertex above which nothing matched; return whether to look inside it."""
        self.meter.step(len(resources))
        fitting = [k for k, r in enumerate(resources) if r.is_slot or r.type == self.layout.types[i]]
        if not self._may_enter(i) or len(fitting) > 1:  # 2.1: siblings that fit one vertex fail it
            return False
        for k in fitting:
            r = resources[k]
            if r.is_slot and self._holds_types(r, i):
                results[k].extend(self._slots(r, i))
                return False  # 2.6: below the highest level that has the types nothing is looked at
            if not r.is_slot:
                results[k].extend(self._stand(r, i, False))
                return False
        return True

    def _may_enter(self, i: int) -> bool:
        self.visits += 1
        self.meter.step()
        if i in self.held.full:
            return False
        if self.rule is None or self.layout.types[i] not in CONSTRAINED:
            return True
        if i not in self._passed:
            self._passed[i] = self.rule.passes(self.layout.facts(i), self.meter)
        return self._passed[i]

    def _below(
        self, i: int, requests: tuple[Resource, ...], exclusive: bool, times: int | None = 1
    ) -> list[list[TraversalResult]]:
        """Match the vertices directly below one; a level that no request names ends the way (2.4).

        Enough is enough when every request could be met `times` (None: as often as possible).
        """
        result: list[list[TraversalResult]] = [[] for _ in requests]
        for v in self._children(i):
            if _enough(requests, result, times):
                break
            self.meter.step(len(requests))
            fitting = [k for k, r in enumerate(requests) if r.type == self.layout.types[v]]
            if len(fitting) == 1 and self._may_enter(v):
                result[fitting[0]].extend(self._stand(requests[fitting[0]], v, exclusive))
        return result

    def _children(self, i: int) -> Iterator[int]:
        v = i + 1
        while v < self.layout.last[i]:
            yield v
            v = self.layout.last[v]

    def _stand(self, r: Resource, i: int, exclusive: bool) -> Iterator[TraversalResult]:
        """Yield the vertex if all children of the request are met below it."""
        if exclusive and r.shared:  # a conflict to Fluxion
            return
        exclusive = exclusive or r.exclusive
        if (exclusive and i in self.held.touched) or not self._meets(host_needs(r, self.worker_type), i):
            return
        if any(child.is_slot for child in r.children):
            below = self._slots_of(r, i)
        else:
            below = self._chosen(r.children, self._below(i, r.children, exclusive), i)
        if below is not None:
            yield TraversalResult(r, i, self.layout.sizes[i], exclusive, below)

    def _slots_of(self, r: Resource, i: int) -> tuple[TraversalResult, ...] | None:
        """Cut a request's slots: what is cut are the last one's, and they must do for the others too (2.2)."""
        if not all(child.is_slot for child in r.children):
            return None
        cut = [list(self._slots(slot, i)) if self._holds_types(slot, i) else [] for slot in r.children]
        chosen = [self._choose(slot, cut[-1], i) for slot in r.children]
        return chosen[-1] if all(cut) and all(chosen) else None

    def _holds_types(self, slot: Resource, i: int) -> bool:
        """Return whether every type a slot holds is directly below the vertex (2.2)."""
        if i not in self._types:
            self._types[i] = {self.layout.types[v] for v in self._children(i)}
        types = self._types[i]
        return bool(slot.children) and all(child.type in types for child in slot.children)

    def _slots(self, slot: Resource, i: int) -> Iterator[TraversalResult]:
        """Cut slots from whole vertices, lowest first, until one kind runs out."""
        children = self._with_needs(slot)
        if children is slot.children and not self._meets(slot.needs, i):
            return
        results = self._below(i, children, True, slot.count.max)
        # 2, "Ranges in slots": the count is fixed over all units below, before the first slot is cut
        counts = [largest(child.count, _units(hits)) for child, hits in zip(children, results, strict=True)]
        rest = [iter(hits) for hits in results]
        self._note(children, counts, results, i)
        while all(counts):
            parts = [_pack(hits, count) for hits, count in zip(rest, counts, strict=True)]
            if not all(parts):
                return
            yield TraversalResult(slot, i, 1, True, tuple(hit for part in parts for hit in part))

    def _with_needs(self, slot: Resource) -> tuple[Resource, ...]:
        """Return a slot's children; workers among them take over what the slot needs."""
        if not slot.needs or not asks_workers(slot, self.worker_type):
            return slot.children
        return tuple(
            replace(c, needs=c.needs + slot.needs) if c.type == self.worker_type else c for c in slot.children
        )

    def _chosen(
        self, requests: tuple[Resource, ...], results: list[list[TraversalResult]], i: int
    ) -> tuple[TraversalResult, ...] | None:
        """Choose for every request; None if one of them is left without."""
        chosen = [self._choose(r, hits, i) for r, hits in zip(requests, results, strict=True)]
        return tuple(hit for hits in chosen for hit in hits) if all(chosen) else None

    def _choose(self, r: Resource, hits: list[TraversalResult], i: int) -> tuple[TraversalResult, ...]:
        count = largest(r.count, _units(hits))
        self._note((r,), [count], [hits], i)
        return _pack(iter(hits), count)

    def _note(
        self, requests: tuple[Resource, ...], counts: list[int], results: list[list[TraversalResult]], i: int
    ) -> None:
        """Keep the nearest miss."""
        for r, count, hits in zip(requests, counts, results, strict=True):
            short = Shortage(r, i, _units(hits))
            if not count and (self.shortest is None or short.nearness > self.shortest.nearness):
                self.shortest = short

    def _meets(self, needs: tuple[Need, ...], i: int) -> bool:
        if not needs:
            return True
        key = (tuple(need.number for need in needs), i)
        if key not in self._met:
            self._met[key] = needs_met(needs, self.layout, i)
        return self._met[key]


def largest(count: Count, available: int) -> int:
    """Return the largest admissible count that is available, 0 if none is.

    >>> from rainbow.jobspec import Count
    >>> largest(Count(2, 8, "*", 2), 7), largest(Count(1, None), 7), largest(Count(8, 8), 7)
    (4, 7, 0)
    """
    most = available if count.max is None else min(available, count.max)
    if count.listed:
        return max((n for n in count.listed if n <= most), default=0)
    if most < count.min:
        return 0
    if count.operator == "+":
        return most - (most - count.min) % count.operand
    n = count.min
    while (more := _next(count, n, most)) <= most:
        n = more
    return n


def _next(count: Count, n: int, most: int) -> int:
    """Return the admissible count after `n`, or any number above `most` if that is larger."""
    if count.operator == "*":
        return n * count.operand
    return n**count.operand if count.operand <= most.bit_length() else most + 1


def _pack(hits: Iterator[TraversalResult], units: int) -> tuple[TraversalResult, ...]:
    """Take whole vertices until there are `units`; nothing if they do not suffice."""
    packed: list[TraversalResult] = []
    while units > 0:
        hit = next(hits, None)
        if hit is None:
            return ()
        packed.append(hit)
        units -= hit.units
    return tuple(packed)


def _units(hits: list[TraversalResult]) -> int:
    return sum(hit.units for hit in hits)


def _enough(requests: tuple[Resource, ...], results: list[list[TraversalResult]], times: int | None) -> bool:
    """Return whether more vertices could change nothing: each gives a unit at least, and max is all that is taken."""
    if times is None:
        return False
    return all(
        r.count.max is not None and len(hits) >= r.count.max * times
        for r, hits in zip(requests, results, strict=True)
    )
