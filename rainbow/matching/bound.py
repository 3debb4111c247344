"""The counted bound: how many units of a request a subtree can give, its siblings left out of account.

Where siblings cannot collide the bound is the answer; elsewhere a bound that is too small means no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.jobspec.units import quantity
from rainbow.matching.budget import FREE, Meter
from rainbow.matching.demand import for_one_slot, pools_of, units_of
from rainbow.matching.layout import OUTSIDE
from rainbow.matching.needs import needs_met
from rainbow.matching.slots import host_needs, parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rainbow.jobspec import Need, Resource
    from rainbow.matching.layout import Layout
    from rainbow.matching.slots import Parts
    from rainbow.matching.taken import Taken

PLENTY = 10**15  # what a request that takes nothing can be given


class Bound:
    """Counts on what is not taken. `ask_needs` False counts as if every need were met."""

    def __init__(self, layout: Layout, taken: Taken, ask_needs: bool = True, meter: Meter = FREE) -> None:
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
        """Tell whether each child of `r` can be met below position `i`, taken one by one."""
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
        wanted = ((child, child.count.min) for child in r.children)
        return all(self.available(child, i, i + 1, outside, n) >= n for child, n in wanted)

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
        given = units_of(r, self.layout.sizes[i], self.layout.units[i], is_leaf, self.layout)
        if given and is_leaf and not r.exclusive:
            pool = self.layout.pool(i)
            each = quantity(r.unit)[1] if r.unit else self.layout.pools[pool]
            return self.taken.headroom(i, pool) // each
        return min(given, r.count.min)

    def pooled(self, r: Resource, scope: int, outside: bool) -> int:
        """How many units the divisible leaves below `scope` give together."""
        return sum(self.in_pool(pool, scope, outside) // factor for pool, factor in pools_of(r, self.layout.pools))

    def in_pool(self, pool: tuple[str, str], scope: int, outside: bool) -> int:
        """How much of one pool the leaves below `scope` give, in base units."""
        most = self.taken.headroom(scope, pool)
        if outside and most:
            leaves = self.layout.outside(pool, scope)
            most = min(most, sum(self.taken.room(i, pool) for i in leaves if self.taken.open(i, scope)))
        return most

    def meets(self, needs: tuple[Need, ...], i: int) -> bool:
        """Tell whether position `i` has all that `needs` want; remembered."""
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
        places = self.places(divided.needs, scope, first, outside)
        return min(most, self._count((self.capacity(divided.placed, p, out, most) for p, out in places), most))

    def divided(self, slot: Resource, scope: int, hosted: bool) -> Parts:
        """Divide a slot found below `scope`, see slots.py; equal questions get the same requests."""
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
        """Return the units of a request that one slot takes, see demand.py; remembered."""
        if child.number not in self._for_one:
            self._for_one[child.number] = for_one_slot(child, self.layout)
        return self._for_one[child.number]

    def places(self, needs: tuple[Need, ...], scope: int, first: int, outside: bool) -> Iterator[tuple[int, bool]]:
        """Yield the places of slots below `scope`: (worker, False) in order, then (scope, True) for the outside."""
        if not outside:
            for i in self.layout.workers_between(first, self.layout.last[scope]):
                self.meter.step()
                if self.taken.open(i, scope) and self.meets(needs, i):
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
