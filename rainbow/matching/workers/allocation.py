"""The next workers of a request, as a heap.

One request under occupancy: which workers it takes next, lowest first.

A request that takes everything from workers, one after another, needs no search over the cluster: each of its units
goes to the lowest worker whose state offers it. What a worker in some state offers is found once for all alike.

    unit   what one worker serves: one vertex of the worker type, or some of the slots (or amounts) wanted
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from rainbow.jobspec import Count
from rainbow.matching.model.layout import parts_above, pools_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rainbow.jobspec import Resource
    from rainbow.matching.equivalence.cluster_class import Rooted
    from rainbow.matching.equivalence.subtree_classes import Kind
    from rainbow.matching.model.verdict import Take
    from rainbow.matching.workers.worker_use import Part, Stand, State


class Shape(NamedTuple):
    """A request as units on workers: `wanted` of `unit`; each worker gives one of them, or as many as it has."""

    unit: Resource
    wanted: int
    packs: bool
    per_slot: int  # units that make one slot; 0: they make no slot, or are slots themselves


def shape_of(resources: tuple[Resource, ...], rooted: Rooted) -> Shape | None:
    """Read a request as units on workers, None if it is more than that."""
    if len(resources) != 1:
        return None
    top, worker = resources[0], rooted.worker_type
    if top.type == worker and _is_one_each(top, rooted):
        return Shape(replace(top, count=Count()), top.count.min, False, 0)
    if top.is_slot:
        above = parts_above(top, worker, rooted.worker_level_types, hosted=False)
        host = above.spread[0] if len(above.spread) == 1 and not above.placed else None
        if host is not None and host.type == worker and _is_one_each(host, rooted):
            unit = replace(top, count=Count(), needs=(), children=(replace(host, count=Count()),))
            return Shape(unit, top.count.min * host.count.min, False, host.count.min)
        inside = not above.spread and above.placed and not any(rooted.has_outside(r.type) for r in above.placed)
        return Shape(top, top.count.min, True, 0) if inside else None
    divisible = not (top.children or top.exclusive or top.needs or top.type in rooted.compound)
    pools = list(pools_of(top, rooted.pools))
    # one unit of a larger measure may lie on two workers: 1 GB on two of 750 MB
    if divisible and [each for _, each in pools] == [1] and not rooted.has_outside(top.type):
        return Shape(top, top.count.min, True, 0)
    return None


def _is_one_each(r: Resource, rooted: Rooted) -> bool:
    """Tell whether each unit of a request for workers is one worker, and all workers serve it alike."""
    mixed = rooted.worker_type in rooted.compound and rooted.worker_type in rooted.leaves
    return rooted.single(rooted.worker_type) and bool(r.children or r.exclusive or not mixed)


class Offer(NamedTuple):
    """What a worker in some state gives: so many units, the part they are, and that part in words."""

    part: Part
    units: int
    take: Take


Chosen = tuple[int, Offer, "State"]  # the worker, what it gives, and its state before


class Offers:
    """What workers in their states give to one request, each question asked once."""

    def __init__(self, shape: Shape, passes: Callable[[Kind], bool] | None) -> None:
        self.shape = shape
        self.passes = passes
        self._most: dict[int, int] = {}  # by number of the state: no more units than this
        self._found: dict[tuple[int, int], Offer | None] = {}  # by state and units wanted

    def offer(self, state: State, wanted: int) -> Offer | None:
        """The part a worker in some state gives of `wanted` units, and how many it is."""
        if state.number not in self._most:
            self._most[state.number] = self._bound(state)
        key = (state.number, min(wanted, self._most[state.number]))
        if key not in self._found:
            self._found[key] = self._fresh(state, key[1])
        return self._found[key]

    def forget(self) -> None:
        """Forget what states offer."""
        self._most.clear()
        self._found.clear()

    def _bound(self, state: State) -> int:
        if self.passes is not None and not self.passes(state.stand.kind):
            return 0
        most = self.shape.wanted if self.shape.packs else 1
        return state.stand.most(replace(self.shape.unit, count=Count(most, most)), state, most)

    def _fresh(self, state: State, most: int) -> Offer | None:
        """Take as many units as the worker gives at once."""
        for units in range(most, 0, -1):
            found = state.stand.find(replace(self.shape.unit, count=Count(units, units)), state)
            if found is not None:
                return Offer(found[0], units, found[1])
        return None

    def lowest(self, workers: Iterable[int], stands: Sequence[Stand]) -> list[tuple[int, Take]] | None:
        """Serve all units from unused workers, in their order; None if they are too few."""
        chosen: list[tuple[int, Take]] = []
        left = self.shape.wanted
        for worker in workers:
            offer = self.offer(stands[worker].fresh, left)
            if offer is not None:
                chosen.append((worker, offer.take))
                left -= offer.units
                if not left:
                    return chosen
        return None


class Filling:
    """The workers that may serve one request: a heap of those that could when they were last looked at."""

    def __init__(self, offers: Offers, states: list[State]) -> None:
        self.offers = offers
        self.shape = offers.shape
        self.states = states
        self._serves: dict[int, bool] = {}
        self._heap = [worker for worker, state in enumerate(states) if self.serves(state)]
        heapify(self._heap)
        self._queued = bytearray(len(states))
        for worker in self._heap:
            self._queued[worker] = 1

    def serves(self, state: State) -> bool:
        """Tell whether a worker in some state offers a unit."""
        known = self._serves.get(state.number)
        if known is None:
            known = self._serves[state.number] = self.offers.offer(state, self.shape.wanted) is not None
        return known

    def forget(self) -> None:
        """Forget which states offer a unit."""
        self._serves.clear()
        self.offers.forget()

    def changed(self, worker: int, state: State) -> None:
        """Hear that a worker is in another state."""
        if not self._queued[worker] and self.serves(state):
            heappush(self._heap, worker)
            self._queued[worker] = 1

    def take(self) -> list[Chosen] | None:
        """Choose workers and parts for all units, each with the state before; None (and no change) if too few."""
        chosen: list[Chosen] = []
        left = self.shape.wanted
        skipped: list[int] = []
        while left and self._heap:
            worker = self._heap[0]
            state = self.states[worker]
            offer = self.offers.offer(state, left)
            if offer is None:
                self._queued[heappop(self._heap)] = 0
                continue
            chosen.append((worker, offer, state))
            self.states[worker] = state.plus(offer.part)
            left -= offer.units
            if left:  # one visit a worker: it gave what it has, or its one unit
                skipped.append(heappop(self._heap))
        for worker in skipped:
            heappush(self._heap, worker)
        if left:
            for worker, _, state in chosen:
                self.states[worker] = state
            return None
        return chosen
