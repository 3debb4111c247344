"""The workers that a request takes next, lowest first, as a heap.

A request that takes everything from workers, one after another, needs no search over the cluster: each of its units
goes to the lowest worker whose state offers it. What a worker in some state offers is found once for all alike.

    unit   what one worker serves: one vertex of the worker type, or some of the slots (or amounts) wanted
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from rainbow.certificate.document import Row as CertificateRow
from rainbow.jobspec import Count
from rainbow.matching.model.layout import parts_above, pools_of
from rainbow.matching.model.verdict import Take
from rainbow.matching.solution import differ, is_divisible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rainbow.jobspec import Resource
    from rainbow.matching.equivalence.cluster_class import ClusterClass
    from rainbow.matching.equivalence.subtree_classes import SubtreeClass
    from rainbow.matching.model.layout import Layout
    from rainbow.matching.workers.worker_use import Slots, TakenAmounts, UseState, WorkerUse


class RequestShape(NamedTuple):
    """A request as units on workers: `wanted` of `unit`; each worker gives one of them, or as many as it has."""

    unit: Resource
    wanted: int
    packs: bool
    per_slot: int  # units that make one slot; 0: they make no slot, or are slots themselves


def shape_of(resources: tuple[Resource, ...], rooted: ClusterClass) -> RequestShape | None:
    """Read a request as units on workers, None if it is more than that."""
    if len(resources) != 1:
        return None
    top, worker = resources[0], rooted.worker_type
    if top.type == worker and _is_one_each(top, rooted):
        return RequestShape(replace(top, count=Count()), top.count.min, False, 0)
    if top.is_slot:
        above = parts_above(top, worker, rooted.worker_level_types, hosted=False)
        host = above.spread[0] if len(above.spread) == 1 and not above.placed else None
        if host is not None and host.type == worker and _is_one_each(host, rooted):
            unit = replace(top, count=Count(), needs=(), children=(replace(host, count=Count()),))
            return RequestShape(unit, top.count.min * host.count.min, False, host.count.min)
        inside = not above.spread and above.placed and not any(rooted.has_outside(r.type) for r in above.placed)
        return RequestShape(top, top.count.min, True, 0) if inside else None
    divisible = not (top.children or top.exclusive or top.needs or top.type in rooted.compound)
    pools = list(pools_of(top, rooted.pools))
    # one unit of a larger measure may lie on two workers: 1 GB on two of 750 MB
    if divisible and [each for _, each in pools] == [1] and not rooted.has_outside(top.type):
        return RequestShape(top, top.count.min, True, 0)
    return None


def _is_one_each(r: Resource, rooted: ClusterClass) -> bool:
    """Return whether each unit of a request for workers is one worker, and all workers serve it alike."""
    mixed = rooted.worker_type in rooted.compound and rooted.worker_type in rooted.leaves
    return rooted.single(rooted.worker_type) and bool(r.children or r.exclusive or not mixed)


class Offer(NamedTuple):
    """What a worker in some state gives: so many units, the part they are, that part in words, and by slot."""

    part: TakenAmounts
    units: int
    take: Take
    slots: Slots


Chosen = tuple[int, Offer]  # the worker, and what it gives


class CandidateHeap:
    """What workers in their states give to one request, each question asked once."""

    def __init__(
        self, shape: RequestShape, passes: Callable[[SubtreeClass], bool] | None, kinds: frozenset[str] | None = None
    ) -> None:
        self.shape = shape
        self._passes = passes
        self._kinds = kinds
        self._most: dict[int, int] = {}  # by number of the state: no more units than this
        self._found: dict[tuple[int, int], Offer | None] = {}  # by state and units wanted
        self._least: dict[WorkerUse, Mapping[str, int]] = {}
        self._loose: dict[WorkerUse, bool] = {}

    def passes(self, stand: WorkerUse) -> bool:
        """Return whether workers may be asked at all."""
        return (self._kinds is None or str(stand.kind.number) in self._kinds) and (
            self._passes is None or self._passes(stand.kind)
        )

    def offer(self, state: UseState, demand: int) -> Offer | None:
        """The part a worker in some state gives of `demand` units, and how many it is."""
        if state.number not in self._most:
            self._most[state.number] = self._bound(state)
        key = (state.number, min(demand, self._most[state.number]))
        if key not in self._found:
            self._found[key] = self._fresh(state, key[1])
        return self._found[key]

    def forget(self) -> None:
        """Forget what states offer."""
        self._most.clear()
        self._found.clear()

    def _bound(self, state: UseState) -> int:
        if 0 in state.whole or not self.passes(state.stand):
            return 0
        if state.stand.is_whole(self.shape.unit):
            return state.stand.most(self.shape.unit, state, 1)
        most = self.shape.wanted if self.shape.packs else 1
        least = self.amounts_on(state.stand)
        most = min([most, *(state.free.get(type_, 0) // amount for type_, amount in least.items() if amount)])
        if most <= 0 or self.is_loose(state.stand):
            return max(most, 0)
        return state.stand.most(replace(self.shape.unit, count=Count(most, most)), state, most)

    def amounts_on(self, stand: WorkerUse) -> Mapping[str, int]:
        """Return what one unit takes at least of a worker, by type: where it is not free, no search is needed."""
        if stand not in self._least:
            self._least[stand] = least_amounts(self.shape.unit, stand.layout)
        return self._least[stand]

    def is_loose(self, stand: WorkerUse) -> bool:
        """Return whether a unit is nothing but amounts of leaves: then amounts say whether it fits."""
        if stand not in self._loose:
            unit, layout = self.shape.unit, stand.layout
            parts = unit.children if unit.is_slot else (unit,)
            loose = self.shape.packs and not unit.needs and bool(parts) and is_divisible(parts, layout)
            self._loose[stand] = loose and differ(parts) and len(self.amounts_on(stand)) == len(parts)
        return self._loose[stand]

    def _fresh(self, state: UseState, most: int) -> Offer | None:
        """Take as many units as the worker gives at once."""
        if self.is_loose(state.stand):
            return _loose_offer(self.shape.unit, self.amounts_on(state.stand), state, most) if most else None
        for units in range(most, 0, -1):
            result = state.stand.find(replace(self.shape.unit, count=Count(units, units)), state)
            if result is not None:
                return Offer(result[0], units, result[1], result[2])
        return None

    def lowest(self, workers: Iterable[int], states: Sequence[UseState]) -> list[Chosen] | None:
        """Serve all units from some workers in their states, in their order; None if they are too few."""
        chosen: list[Chosen] = []
        remaining = self.shape.wanted
        for worker in workers:
            offer = self.offer(states[worker], remaining)
            if offer is not None:
                chosen.append((worker, offer))
                remaining -= offer.units
                if not remaining:
                    return chosen
        return None


def _loose_offer(unit: Resource, amounts: Mapping[str, int], state: UseState, units: int) -> Offer | None:
    """Give units that are amounts of leaves: the lowest leaves, shared out among the slots in their order."""
    part = state.stand.loose(state, {type_: units * amount for type_, amount in amounts.items()})
    if part is None:
        return None
    each = amounts if unit.is_slot else {type_: units * amount for type_, amount in amounts.items()}
    slots: list[dict[tuple[int, bool], int]] = [{} for _ in range(units if unit.is_slot else 1)]
    done = dict.fromkeys(each, 0)
    for i, amount, _ in part.amounts:
        type_ = state.stand.layout.types[i]
        while amount:
            grants = min(amount, each[type_] - done[type_] % each[type_])
            slots[done[type_] // each[type_]][i, False] = grants
            done[type_] += grants
            amount -= grants
    placed = tuple((unit.label, {"0": dict(each)}) for _ in slots)
    rows: list[CertificateRow] = []
    requests = {child.type: child.place for child in unit.children} if unit.is_slot else {unit.type: unit.place}
    for own in slots:
        up = len(rows) if unit.is_slot else -1
        if unit.is_slot:
            rows.append(CertificateRow(unit.place, -1, "at", "0", 0))
        held = sorted((requests[state.stand.layout.types[i]], i, amount) for (i, _), amount in own.items())
        rows.extend(CertificateRow(request, up, "of", str(i), amount) for request, i, amount in held)
    take = Take(placed, {str(i): amount for i, amount, _ in part.amounts}, tuple(rows))
    parts = (part,) if len(slots) == 1 else tuple(map(state.stand.part, slots))
    return Offer(part, units, take, tuple((unit.label, own) for own in parts))


def least_amounts(unit: Resource, layout: Layout) -> dict[str, int]:
    """Sum what one unit of a request takes at least by type, in base units; types of several pools are left out."""
    amounts: dict[str, int] = {}
    stack = [(replace(unit, count=Count()), 1)]
    while stack:
        part, times = stack.pop()
        times *= part.count.min
        stack.extend((child, times) for child in part.children)
        if part.children or part.is_slot:
            continue
        pools = list(pools_of(part, layout.pools))
        if part.type in layout.compound:
            if part.type not in layout.leaves and layout.single(part.type):
                amounts[part.type] = amounts.get(part.type, 0) + times
        elif len(pools) == 1 and sum(type_ == part.type for type_, _ in layout.pools) == 1:
            amounts[part.type] = amounts.get(part.type, 0) + times * pools[0][1]
    return amounts


class Allocator:
    """The workers that may serve one request: a heap of those that may be in a state that offers a unit."""

    def __init__(self, offers: CandidateHeap, states: list[UseState], closed: set[int]) -> None:
        self.offers = offers
        self.shape = offers.shape
        self.states = states
        self.closed = closed
        self._heap = list(range(len(states)))
        self._queued = bytearray(b"\1") * len(states)

    def changed(self, worker: int) -> None:
        """Hear that a worker is in another state; what that offers is looked at when its turn comes."""
        if not self._queued[worker]:
            heappush(self._heap, worker)
            self._queued[worker] = 1

    def take(self) -> list[Chosen] | None:
        """Choose workers and parts for all units, the lowest workers first; None if they are too few."""
        chosen: list[Chosen] = []
        remaining = self.shape.wanted
        skipped: list[int] = []
        while remaining and self._heap:
            worker = self._heap[0]
            offer = None if worker in self.closed else self.offers.offer(self.states[worker], remaining)
            if offer is None:
                self._queued[heappop(self._heap)] = 0
                continue
            chosen.append((worker, offer))
            remaining -= offer.units
            if remaining:  # one visit a worker: it gave what it has, or its one unit
                skipped.append(heappop(self._heap))
        for worker in skipped:
            heappush(self._heap, worker)
        return None if remaining else chosen
