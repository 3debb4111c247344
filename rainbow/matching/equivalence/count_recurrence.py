"""The upper bound as a recurrence over classes: what a subtree offers to each part of a request.

    column   a number every vertex has: the sum of its children's, changed by what the vertex itself is
    top      units that vertices of a part's type give one by one, the topmost of them on every way down
    pool     divisible amount in base units
    places   slots that the workers in the subtree have room for
    out      the same two counted only outside every worker, for slots that find their place there
    met      how many rows hung in the subtree meet a need

The rules are those of upper_bound.py, which walks vertices; here nothing is taken yet. Every operation works on a
number and on an array alike, so that one vertex or ten thousand are done by the same lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from rainbow.jobspec.quantities import quantity
from rainbow.matching.model.layout import host_needs, parts_above, pools_of
from rainbow.matching.upper_bound import PLENTY, for_one_slot

if TYPE_CHECKING:
    from rainbow.jobspec import Need, Resource
    from rainbow.matching.equivalence.cluster_class import ClusterClass
    from rainbow.matching.equivalence.subtree_classes import Pool


Number = Any  # an int, or an array of them
Least = Callable[[Number, Number], Number]


class Vertex(Protocol):
    """A vertex, or many of one type that are alike in all but amounts."""

    type: str
    unit: str
    pool: Pool
    is_leaf: bool
    is_worker: bool
    within: bool  # lies in a worker, or is one
    amount: Number  # in base units
    loose: Number  # whether it contains a leaf outside every worker

    def own(self, need: Need) -> Number:
        """How many rows attached to it meet a need."""

    def inherits(self, need: Need) -> Number:
        """Whether something hung above it meets a need."""


@dataclass(slots=True)
class CountedPart:
    """One request of the tree. `units`: how many of it the request above wants."""

    request: Resource
    units: int
    for_one: int  # units that one slot takes, see depth_first.py
    needs: tuple[Need, ...]
    children: tuple[CountedPart, ...] = ()
    placed: tuple[CountedPart, ...] = ()  # of a slot, see layout.py
    spread: tuple[CountedPart, ...] = ()
    has_place: bool = False
    pieces: bool = False
    top: int = -1
    places: int = -1
    pools: list[tuple[int, Pool, int]] = field(default_factory=list)  # (column, pool, base units per unit)
    outside: CountedPart | None = None  # the same part counted outside every worker
    out: bool = False


class CountRecurrence:
    """The columns of one variant of a request over clusters that agree in compound types and pools."""

    def __init__(self, resources: tuple[Resource, ...], rooted: ClusterClass, least: Least = min) -> None:
        self.rooted = rooted
        self.least = least
        self.width = 0
        self.by_pool: dict[Pool, list[tuple[int, bool]]] = {}
        self.needs: dict[int, tuple[Need, int]] = {}  # by number: the need and its column
        self.by_type: dict[str, list[CountedPart]] = {}
        self.slots: list[CountedPart] = []  # those that look for places
        self.part_of: dict[int, CountedPart] = {}  # by number of the request
        self.tops = [self._part(r, hosted=False, out=False) for r in resources]

    # ── the parts of a request ──

    def _column(self) -> int:
        self.width += 1
        return self.width - 1

    def _known(self, needs: tuple[Need, ...]) -> tuple[Need, ...]:
        for need in needs:
            if need.number not in self.needs:
                self.needs[need.number] = (need, self._column())
        return needs

    def _part(self, r: Resource, hosted: bool, out: bool) -> CountedPart:
        if r.is_slot:
            return self._slot(r, hosted, out)
        children = tuple(self._part(child, hosted=True, out=out) for child in r.children)
        needs = host_needs(r, self.rooted.worker_type) if children else r.needs
        for_one = for_one_slot(r, self.rooted) or r.count.min
        part = CountedPart(r, r.count.min, for_one, self._known(needs), children, top=self._column(), out=out)
        if not children:
            part.pieces = bool(r.exclusive or r.needs or r.type in self.rooted.compound)
            if not (r.exclusive or r.needs):
                part.pools = [(self._column(), pool, factor) for pool, factor in pools_of(r, self.rooted.pools)]
                for column, pool, _ in part.pools:
                    self.by_pool.setdefault(pool, []).append((column, out))
        self.by_type.setdefault(r.type, []).append(part)
        if not out:
            self.part_of[r.number] = part
        return part

    def _slot(self, r: Resource, hosted: bool, out: bool) -> CountedPart:
        """Lay out a slot, its children no slots; in a worker they are spread, outside some have one place."""
        above = parts_above(r, self.rooted.worker_type, self.rooted.worker_level_types, hosted)
        placed = tuple(self._part(child, hosted=False, out=out) for child in above.placed)
        spread = tuple(self._part(child, hosted=True, out=out) for child in above.spread)
        needs, children = self._known(above.needs), (*placed, *spread)
        part = CountedPart(r, r.count.min, r.count.min, needs, children, placed, spread, above.has_place, out=out)
        if not out:
            self.part_of[r.number] = part
            self.part_of.update((above.originals[child.request.number], child) for child in children)
        if part.has_place and not out:
            part.places = self._column()
            self.slots.append(part)
        if part.has_place:
            for child in placed:
                child.outside = child if out else self._part(child.request, hosted=False, out=True)
        return part

    def types_with_needs(self) -> frozenset[str]:
        """The types of the vertices that needs are asked of."""
        parts = (part for parts in self.by_type.values() for part in parts)
        results = {part.request.type for part in parts if part.needs}
        return frozenset(results | {self.rooted.worker_type for slot in self.slots if slot.needs})

    # ── one step up ──

    def zeros(self) -> list[Number]:
        """The columns of what offers nothing."""
        return [0] * self.width

    def barred(self, at: Vertex, sums: Sequence[Number]) -> list[Number]:
        """The columns of a worker that fails the constraint: what is attached to it still serves what is above."""
        columns = self.zeros()
        for need, column in self.needs.values():
            columns[column] = sums[column] + at.own(need)
        return columns

    def local(self, at: Vertex, sums: Sequence[Number]) -> list[Number]:
        """Return the columns of a vertex from the sums of its children's."""
        columns = list(sums)
        for need, column in self.needs.values():
            columns[column] = columns[column] + at.own(need)
        if at.is_leaf:
            for column, out in self.by_pool.get(at.pool, ()):
                if not (out and at.within):
                    columns[column] = at.amount
        for part in self.by_type.get(at.type, ()):
            columns[part.top] = 0 if part.out and at.within else self._weight(part, at, sums, columns)
        if at.is_worker:
            for slot in self.slots:
                met = self.meets(slot.needs, at, columns)
                columns[slot.places] = met * self._capacity(slot.placed, columns)
        return columns

    def _weight(self, part: CountedPart, at: Vertex, sums: Sequence[Number], columns: Sequence[Number]) -> Number:
        """Units one vertex of a part's type gives: one to stand on, or its size if it is taken whole."""
        if part.children:
            met = self.meets(part.needs, at, columns)
            for child in part.children:
                met = met & (self.below(child, at, sums, columns) >= child.units)
            return met * 1
        whole = part.request.exclusive or not at.is_leaf
        if not part.pieces or not (whole or part.needs):
            return 0
        measured, own = quantity(at.unit)
        if at.is_leaf:
            own = self.rooted.pools[at.pool]
        requirement, each = quantity(part.request.unit) if part.request.unit else (measured, own)
        if requirement != measured:
            return 0
        units = at.amount // each
        return self.meets(part.needs, at, columns) * (self.least(units, part.units) if whole else units)

    def meets(self, needs: tuple[Need, ...], at: Vertex, columns: Sequence[Number]) -> Number:
        """Whether what is attached to a vertex, above it or inside it meets all needs."""
        met: Number = True
        for need in needs:
            met = met & ((columns[self.needs[need.number][1]] > 0) | at.inherits(need))
        return met

    def below(self, part: CountedPart, at: Vertex, sums: Sequence[Number], columns: Sequence[Number]) -> Number:
        """Units of a part strictly below the vertex it is hosted by."""
        if not part.request.is_slot:
            return self.units(part, sums)
        if at.within:
            return self._times(part.children, sums)
        return self._slots(part, at, sums, columns)

    def _slots(self, slot: CountedPart, at: Vertex, sums: Sequence[Number], columns: Sequence[Number]) -> Number:
        """Slots below a vertex above the workers: as many as have places, and find what is not of one place."""
        most = self._times(slot.spread, sums)
        if not slot.has_place:
            return most
        met = self.meets(slot.needs, at, columns)  # a slot with needs of its own has no host: this is the root
        number = at.loose * met * self._capacity(slot.placed, columns, out=True)
        if not slot.out:
            number = number + sums[slot.places]
        return self.least(most, number if slot.placed else (number > 0) * PLENTY)

    def _capacity(self, placed: Sequence[CountedPart], columns: Sequence[Number], out: bool = False) -> Number:
        """How many times one place gives what slots take there; 1 where they take nothing."""
        if not placed:
            return 1
        return self._times([part.outside or part for part in placed] if out else placed, columns)

    def _times(self, parts: Sequence[CountedPart], columns: Sequence[Number]) -> Number:
        return reduce(self.least, (self.units(part, columns) // part.for_one for part in parts), PLENTY)

    def units(self, part: CountedPart, columns: Sequence[Number]) -> Number:
        """Units of a part in a subtree, by its columns."""
        result = columns[part.top]
        for column, _, factor in part.pools:
            result = result + columns[column] // factor
        return result

    def available(self, part: CountedPart, root: Vertex, columns: Sequence[Number]) -> Number:
        """Units of a part of the request that nothing stands above, by the root's columns."""
        return self._slots(part, root, columns, columns) if part.request.is_slot else self.units(part, columns)
