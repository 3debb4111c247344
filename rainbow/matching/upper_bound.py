"""The upper bound of the units a subtree can give to a request, and when it is exact.

The bound ignores the request's siblings. Two requests collide if one takes, whole or by contents, a type the other
names. Where no two siblings collide, at any level, the bound is the answer and no search is needed; elsewhere a
bound that is too small means no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rainbow.jobspec.quantities import quantity
from rainbow.matching.model.budget import FREE, Meter
from rainbow.matching.model.conditions import least_met
from rainbow.matching.model.layout import OUTSIDE, host_needs, parts, pools_of
from rainbow.matching.needs import misses, needs_met
from rainbow.matching.trail import Trail

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Set

    from rainbow.jobspec import Constraint, Need, Resource
    from rainbow.matching.model.layout import Layout, Parts, Pool, Pools
    from rainbow.matching.needs import NearMiss


def bound_is_exact(resources: tuple[Resource, ...], forms: Forms, meter: Meter = FREE) -> bool:
    """Return whether the counted bound of a request decides it on a cluster with vertices of these forms."""
    every = [r for top in resources for r in top.walk()]
    in_slots = (child for r in every if r.is_slot for child in r.children)
    if any(for_one_slot(child, forms) is None for child in in_slots):
        return False
    levels = [resources, *(r.children for r in every)]
    return all(_is_plain(r, forms) for r in every if not r.is_slot) and all(
        _are_apart(level, forms, meter) for level in levels if len(level) > 1
    )


def _is_plain(r: Resource, forms: Forms) -> bool:
    """Return whether the vertices of a request's type are of one form: all whole or all divisible."""
    if r.type in forms.nested:
        return False
    if r.children:
        return True
    mixed = r.type in forms.compound and r.type in forms.leaves
    return r.exclusive or not (mixed or len(list(pools_of(r, forms.pools))) > 1)


def _are_apart(siblings: tuple[Resource, ...], forms: Forms, meter: Meter) -> bool:
    """Return whether no sibling takes a type that another one names; what is named is taken too."""
    named: dict[str, int] = {}
    for place, r in enumerate(siblings):
        meter.step()
        if any(named.setdefault(type_, place) != place for type_ in _names(r)):
            return False
    for place, r in enumerate(siblings):
        meter.step()
        if any(named.get(type_, place) != place for type_ in _takes(r, forms)):
            return False
    return True


def _names(r: Resource) -> set[str]:
    return {part.type for part in r.walk() if not part.is_slot}


def _takes(r: Resource, forms: Forms) -> set[str]:
    """The types a request takes: its own, and everything in what it takes whole."""
    taken: set[str] = set()
    for part in r.walk():
        if not part.is_slot:
            taken.add(part.type)
        if part.exclusive or (not part.children and part.type in forms.compound):
            taken |= forms.inside.get(part.type, frozenset())
    return taken


PLENTY = 2**62  # what a request that takes nothing can be given; no amount of a cluster is as large


class UpperBound:
    """Counts on what is not taken. `ask_needs` False counts as if every need were met."""

    def __init__(self, layout: Layout, taken: Trail, ask_needs: bool = True, meter: Meter = FREE) -> None:
        self.layout = layout
        self.meter = meter
        self.taken = taken
        self.ask_needs = ask_needs
        self._met: dict[tuple[tuple[int, ...], int], bool] = {}
        self._for_one: dict[int, int | None] = {}
        self._divided: dict[tuple[int, bool, bool], Parts] = {}
        self._hosted: dict[
            tuple[int, int, bool], bool
        ] = {}  # (request, kind, outside): equal subtrees are asked once

    def available(self, r: Resource, scope: int, first: int, outside: bool = False, enough: int = PLENTY) -> int:
        """Count the units of `r` at `first` and after it below `scope`; counting may stop at `enough`."""
        if r.is_slot:
            return self._slots(r, scope, first, outside, enough)
        if r.children:
            return self._count((1 for _ in self.hosts(r, scope, first, outside)), enough)
        pooled = 0 if r.exclusive or r.needs else self.pooled(r, scope, outside)
        return pooled + self._count(
            (self.units(r, i) for i in self.pieces(r, scope, first, outside)), enough - pooled
        )

    def hosts(self, r: Resource, scope: int, first: int, outside: bool) -> Iterator[int]:
        """Yield the vertices that a request with children can stand on."""
        for i in self._of_type(r.type, scope, first, outside):
            if self.can_host(r, i, outside):
                yield i

    def can_host(self, r: Resource, i: int, outside: bool) -> bool:
        """Return whether each child of `r` can be met below position `i`, taken one by one."""
        if i in self.taken.held or (r.exclusive and not self.taken.untouched(i)):
            return False
        if not self.meets(host_needs(r, self.layout.worker_type), i):
            return False
        if not self.taken.like_its_kind(i) or any(part.needs for part in r.walk()):
            return self._holds_children(r, i, outside)
        key = (r.number, self.layout.kinds[i], outside)
        if key not in self._hosted:
            self._hosted[key] = self._holds_children(r, i, outside)
        return self._hosted[key]

    def _holds_children(self, r: Resource, i: int, outside: bool) -> bool:
        requirements = ((child, child.count.min) for child in r.children)
        return all(self.available(child, i, i + 1, outside, n) >= n for child, n in requirements)

    def pieces(self, r: Resource, scope: int, first: int, outside: bool) -> Iterator[int]:
        """Yield the vertices a request without children chooses one by one: whole ones, and leaves with needs."""
        if not (r.exclusive or r.needs or r.type in self.layout.compound):
            return
        for i in self._of_type(r.type, scope, first, outside):
            whole = r.exclusive or not self.layout.is_leaf(i)
            if (whole or r.needs) and (not whole or self.taken.untouched(i)) and self.meets(r.needs, i):
                yield i

    def units(self, r: Resource, i: int) -> int:
        """How many units of `r` one vertex gives: what is left of it, or of a whole one as many as are wanted."""
        is_leaf = self.layout.is_leaf(i)
        number = self.whole_units(r, i)
        if number and is_leaf and not r.exclusive:
            pool = self.layout.pool(i)
            each = quantity(r.unit)[1] if r.unit else self.layout.pools[pool]
            return self.taken.headroom(i, pool) // each
        return min(number, r.count.min)

    def whole_units(self, r: Resource, i: int) -> int:
        """How many units of `r` a whole vertex has."""
        return units_of(r, self.layout.sizes[i], self.layout.units[i], self.layout.is_leaf(i), self.layout)

    def pooled(self, r: Resource, scope: int, outside: bool) -> int:
        """How many units the divisible leaves below `scope` give together."""
        return sum(self.in_pool(pool, scope, outside) // factor for pool, factor in pools_of(r, self.layout.pools))

    def in_pool(self, pool: tuple[str, str], scope: int, outside: bool) -> int:
        """How much of one pool the leaves below `scope` give, in base units."""
        most = 0 if self.taken.lost(scope) else self.taken.headroom(scope, pool)
        if outside and most:
            leaves = self.layout.outside(pool, scope)
            most = min(most, sum(self.taken.room(i, pool) for i in leaves if self.taken.open(i, scope)))
        return most

    def meets(self, needs: tuple[Need, ...], i: int) -> bool:
        """Return whether position `i` has all that `needs` want; remembered."""
        if not needs or not self.ask_needs:
            return True
        key = (tuple(need.number for need in needs), i)
        if key not in self._met:
            self._met[key] = needs_met(needs, self.layout, i)
        return self._met[key]

    def capacity(self, placed: tuple[Resource, ...], place: int, outside: bool, enough: int) -> int:
        """How many times one place (a worker, or what lies outside all) gives what slots take there."""
        return self._times(placed, place, place, outside, enough)

    def _slots(self, slot: Resource, scope: int, first: int, outside: bool, enough: int) -> int:
        divided = self.divided(slot, scope, first > scope)
        most = self._times(divided.spread, scope, first, outside, enough)
        if not divided.has_place or not most:
            return most
        places = self.places(divided.placed, divided.needs, scope, first, outside)
        return min(most, self._count((self.capacity(divided.placed, p, out, most) for p, out in places), most))

    def divided(self, slot: Resource, scope: int, hosted: bool) -> Parts:
        """Divide a slot found below `scope`, see layout.py; equal questions get the same requests."""
        key = (slot.number, hosted and self.layout.worker[scope] != OUTSIDE, hosted)
        if key not in self._divided:
            self._divided[key] = parts(slot, self.layout, scope, hosted)
        return self._divided[key]

    def _times(self, children: tuple[Resource, ...], scope: int, first: int, outside: bool, enough: int) -> int:
        for child in children:
            self.meter.step()
            n = self.for_one_slot(child) or child.count.min
            enough = min(enough, self.available(child, scope, first, outside, enough * n) // n)
        return enough

    def for_one_slot(self, child: Resource) -> int | None:
        """Return the units of a request that one slot takes, see depth_first.py; remembered."""
        if child.number not in self._for_one:
            self._for_one[child.number] = for_one_slot(child, self.layout)
        return self._for_one[child.number]

    def places(
        self, placed: tuple[Resource, ...], needs: tuple[Need, ...], scope: int, first: int, outside: bool
    ) -> Iterator[tuple[int, bool]]:
        """Yield the places of slots below `scope`: (worker, False) in order, then (scope, True) for the outside.

        A slot that takes nothing may be where everything is taken.
        """
        if not outside:
            for i in self.layout.workers_between(first, self.layout.last[scope]):
                self.meter.step()
                is_open = self.taken.open(i, scope) if placed else i not in self.taken.barred
                if is_open and self.meets(needs, i):
                    yield i, False
        if self.layout.has_outside(scope) and self.meets(needs, 0):
            yield scope, True

    def _of_type(self, kind: str, scope: int, first: int, outside: bool) -> Iterator[int]:
        for i in self.layout.of_type(kind, first, self.layout.last[scope]):
            self.meter.step()
            if self.taken.open(i, scope) and not (outside and self.layout.worker[i] >= 0):
                yield i

    @staticmethod
    def _count(amounts: Iterator[int], enough: int) -> int:
        total = 0
        for amount in amounts:
            total += amount
            if total >= enough:
                break
        return total


class Forms(Protocol):
    """What the vertices of a cluster are like, by type."""

    @property
    def compound(self) -> Collection[str]:
        """The types of which some vertex contains others."""

    @property
    def pools(self) -> Pools:
        """Every pool there is, with the largest unit its leaves are counted in."""

    @property
    def nested(self) -> Collection[str]:
        """The types of which some vertex contains another of the same type."""

    @property
    def leaves(self) -> Collection[str]:
        """The types of which some vertex contains nothing."""

    @property
    def inside(self) -> Mapping[str, Set[str]]:
        """Every type, with the types that vertices of it contain."""

    def sizes_of(self, type_: str) -> frozenset[tuple[int, str, bool]]:
        """Return (size, unit, whether it contains nothing) of the vertices of a type."""


def may_take_whole(request: Resource, compound: Collection[str]) -> bool:
    """Return whether a request without children takes vertices with all they contain."""
    return not (request.is_slot or request.children) and (request.exclusive or request.type in compound)


def for_one_slot(request: Resource, forms: Forms) -> int | None:
    """Return the units of a request that one slot takes, a multiple of what each vertex gives it.

    A vertex that is taken whole serves one slot, so that a slot that wants 3 cores takes 2 vertices of 2 cores. None
    where vertices give a slot unequal amounts: then only a search can say which ones it takes.
    """
    requirement = request.count.min
    if not may_take_whole(request, forms.compound):
        return requirement
    sizes = forms.sizes_of(request.type)
    inputs = {min(each, requirement) for each in (units_of(request, *size, forms) for size in sizes) if each} or {1}
    may_divide = not request.exclusive and any(is_leaf for _, _, is_leaf in sizes)
    if len(inputs) > 1 or (may_divide and inputs != {1}):
        return None
    step = inputs.pop()
    return -(-requirement // step) * step


def units_of(request: Resource, size: int, unit: str, is_leaf: bool, forms: Forms) -> int:
    """Return how many units of a request a whole vertex has; 0 where its unit cannot be compared."""
    measured, factor = quantity(unit)
    if request.unit:
        requirement, each = quantity(request.unit)
        return size * factor // each if requirement == measured else 0
    return size * factor // (forms.pools.get((request.type, measured), factor) if is_leaf else factor)


class VertexCounts:
    """Counts on what is not taken; `taken` knows the workers that the constraint bars."""

    def __init__(
        self, layout: Layout, taken: Trail, meter: Meter = FREE, constraint: Constraint | None = None
    ) -> None:
        self.layout = layout
        self.meter = meter
        self.constraint = constraint
        self.taken = taken
        self.worker_type = layout.worker_type
        self._bounds: dict[tuple[bool, bool], UpperBound] = {}

    def units(self, r: Resource, constrained: bool = True, needs: bool = True) -> int:
        """Count a top-level request, with or without the constraint and the needs; stops at what is wanted."""
        return self._bound(constrained, needs).available(r, 0, 0, enough=r.count.min)

    def _bound(self, constrained: bool, needs: bool) -> UpperBound:
        key = (constrained or not self.taken.barred, needs)
        if key not in self._bounds:
            self._bounds[key] = UpperBound(
                self.layout, self.taken if key[0] else Trail(self.layout), needs, self.meter
            )
        return self._bounds[key]

    def most(self, part: Resource, child: Resource) -> tuple[int, str]:
        """Return the most of `child` that one place of `part` offers, needs aside, and what the place is called."""
        bound, layout = self._bound(True, needs=False), self.layout
        places, called = layout.by_type.get(part.type, []), part.type
        if part.is_slot:
            placed = child.type in layout.worker_level_types
            places, called = (layout.workers, layout.worker_type) if placed else ([0], "cluster")
        inside = 0 if part.is_slot else 1
        open_ones = (i for i in places if layout.worker[i] not in self.taken.barred)
        return max((bound.available(child, i, i + inside) for i in open_ones), default=0), called

    def content(self, place: str, pool: Pool) -> int:
        """Return the most base units of a pool in one vertex of a type, or in the cluster if there is none."""
        return max(self.layout.content[i].get(pool, 0) for i in self.layout.by_type.get(place) or [0])

    def meeting(self, needs: tuple[Need, ...], type_: str) -> tuple[int, int, NearMiss | None]:
        """How many vertices of a type there are, how many meet all needs, and the nearest miss if none does."""
        candidates = self.layout.by_type.get(type_) or [0]
        meeting = sum(1 for i in candidates if misses(needs, self.layout, iter([i])) is None)
        return len(candidates), meeting, misses(needs, self.layout, iter(candidates))

    def workers(self) -> tuple[int, int]:
        """How many workers there are, and how many pass the constraint."""
        return len(self.layout.workers), len(self.layout.workers) - len(self.taken.barred)

    def unmet(self) -> str:
        """Return which part of the constraint fewest workers satisfy, in words."""
        return least_met(self.constraint, [(self.layout.facts(i), 1) for i in self.layout.workers], self.meter)

    def offering(self, kind: str, child: Resource) -> int:
        """Return how many vertices of a type offer all of `child`, its needs aside."""
        bound, requirement = self._bound(True, needs=False), child.count.min
        places = self.layout.by_type.get(kind, [])
        open_ones = (i for i in places if self.layout.worker[i] not in self.taken.barred)
        return sum(1 for i in open_ones if bound.available(child, i, i + 1, enough=requirement) >= requirement)

    def sizes_of(self, type_: str) -> frozenset[tuple[int, str, bool]]:
        """Return (size, unit, whether it contains nothing) of the vertices of a type."""
        return self.layout.sizes_of(type_)
