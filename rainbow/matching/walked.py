"""What a cluster offers to the parts of a request, counted by walking its vertices: the Counts of `networkx`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.matching.bound import Bound
from rainbow.matching.budget import FREE, Meter
from rainbow.matching.needs import misses
from rainbow.matching.taken import Taken

if TYPE_CHECKING:
    from rainbow.jobspec import Need, Resource
    from rainbow.matching.layout import Layout
    from rainbow.matching.needs import NearMiss


class Walked:
    """Counts on what is not taken; `taken` knows the workers that the constraint bars."""

    def __init__(self, layout: Layout, taken: Taken, meter: Meter = FREE) -> None:
        self.layout = layout
        self.meter = meter
        self.taken = taken
        self.worker_type = layout.worker_type
        self._bounds: dict[tuple[bool, bool], Bound] = {}

    def units(self, r: Resource, constrained: bool = True, needs: bool = True) -> int:
        """Count a top-level request, with or without the constraint and the needs; stops at what is wanted."""
        return self._bound(constrained, needs).available(r, 0, 0, enough=r.count.min)

    def _bound(self, constrained: bool, needs: bool) -> Bound:
        key = (constrained or not self.taken.barred, needs)
        if key not in self._bounds:
            self._bounds[key] = Bound(self.layout, self.taken if key[0] else Taken(self.layout), needs, self.meter)
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

    def meeting(self, needs: tuple[Need, ...], type_: str) -> tuple[int, int, NearMiss | None]:
        """How many vertices of a type there are, how many meet all needs, and the nearest miss if none does."""
        candidates = self.layout.by_type.get(type_) or [0]
        meeting = sum(1 for i in candidates if misses(needs, self.layout, iter([i])) is None)
        return len(candidates), meeting, misses(needs, self.layout, iter(candidates))

    def workers(self) -> tuple[int, int]:
        """How many workers there are, and how many pass the constraint."""
        return len(self.layout.workers), len(self.layout.workers) - len(self.taken.barred)
