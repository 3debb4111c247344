"""What a cluster offers to the parts of a request, counted over kinds: the Counts of `index`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rainbow.matching.budget import FREE, Meter
from rainbow.matching.needs import NearMiss, ask, no_subsystem, nothing_hung
from rainbow.matching.tally import Tally

if TYPE_CHECKING:
    from rainbow.jobspec import Need, Resource
    from rainbow.matching.kinds import Kind, Row
    from rainbow.matching.rooted import Rooted
    from rainbow.matching.tally import Satisfied

Nearest = tuple["NearMiss | None", ...]  # one for each need, None: it is met


class Tallied:
    """Counts of one variant; `passes` tells the kinds of workers that satisfy the constraint."""

    def __init__(
        self,
        rooted: Rooted,
        resources: tuple[Resource, ...],
        satisfied: Satisfied,
        passes: Callable[[Kind], bool] | None,
        meter: Meter = FREE,
    ) -> None:
        self.rooted = rooted
        self.meter = meter
        self.resources = resources
        self.satisfied = satisfied
        self.passes = passes
        self.worker_type = rooted.worker_type
        self._asked: dict[int, dict[Row, NearMiss | None]] = {}  # by number of the need
        self._tallies: dict[tuple[bool, bool], Tally] = {}

    def tally(self, constrained: bool = True, needs: bool = True) -> Tally:
        """Return the tally with or without the constraint and the needs."""
        key = (constrained and self.passes is not None, needs and bool(self.satisfied))
        if key not in self._tallies:
            self._tallies[key] = Tally(
                self.rooted,
                self.resources,
                self.satisfied if key[1] else {},
                self.passes if key[0] else None,
                self.meter,
            )
        return self._tallies[key]

    def units(self, r: Resource, constrained: bool = True, needs: bool = True) -> int:
        """Count a top-level request, with or without the constraint and the needs."""
        place = next(place for place, top in enumerate(self.resources) if top is r)
        return self.tally(constrained, needs).available(place)

    def most(self, part: Resource, child: Resource) -> tuple[int, str]:
        """Return the most of `child` that one place of `part` offers, needs aside, and what the place is called."""
        tally = self.tally(needs=False)
        if not part.is_slot:
            return max((tally.below_one(child, state) for state in tally.of_type(part.type)), default=0), part.type
        if child.type not in self.rooted.worker_level_types:
            return tally.inside(child, tally.start), "cluster"
        return max((tally.inside(child, state) for state in tally.workers()), default=0), self.worker_type

    def workers(self) -> tuple[int, int]:
        """How many workers there are, and how many pass the constraint."""
        workers = [(kind, many) for kind, many in self.rooted.many.items() if self.rooted.is_worker(kind)]
        passing = sum(many for kind, many in workers if self.passes is None or self.passes(kind))
        return sum(many for _, many in workers), passing

    def meeting(self, needs: tuple[Need, ...], type_: str) -> tuple[int, int, NearMiss | None]:
        """How many vertices of a type there are, how many meet all needs, and the nearest miss if none does."""
        candidates = meeting = 0
        nearest: NearMiss | None = None
        inside = self._inside(needs)
        for kind, many, above in self._standing(needs, inside):
            if kind.type != type_ and not (type_ not in self.rooted.kind.types and kind is self.rooted.kind):
                continue
            near = _nearer(above, inside[kind])
            miss = next((miss for miss in near if miss is not None), None)
            candidates += many
            meeting += many * (miss is None)
            if miss is not None:
                nearest = nearest.nearer(miss) if nearest else miss
        return candidates, meeting, None if meeting else nearest

    def _inside(self, needs: tuple[Need, ...]) -> dict[Kind, Nearest]:
        """How near what hangs on a kind or inside it comes to every need."""
        found: dict[Kind, Nearest] = {}
        for kind in self.rooted.closure:
            self.meter.step()
            found[kind] = self._own(kind, needs)
            for below in kind.children:
                found[kind] = _nearer(found[kind], found[below])
        return found

    def _own(self, kind: Kind, needs: tuple[Need, ...]) -> Nearest:
        return tuple(self._nearest(need, kind) for need in needs)

    def _nearest(self, need: Need, kind: Kind) -> NearMiss | None:
        if need.subsystem not in self.rooted.tables:
            return no_subsystem(need)
        nearest, known = nothing_hung(need), self._asked.setdefault(need.number, {})
        for row in kind.rows:
            if row.subsystem == need.subsystem:
                if row not in known:
                    known[row] = ask(need.conditions, row.vertex, None)
                miss = known[row]
                if miss is None:
                    return None
                if miss.met >= nearest.met:
                    nearest = nearest.nearer(miss)
        return nearest

    def _standing(self, needs: tuple[Need, ...], inside: dict[Kind, Nearest]) -> Iterator[tuple[Kind, int, Nearest]]:
        """Yield kinds with how many there are below different things, and how near what hangs above comes."""
        standing: dict[Kind, dict[Nearest, int]] = {self.rooted.kind: {self._own(self.rooted.kind, needs): 1}}
        for kind in reversed(self.rooted.closure):
            for above, many in standing.get(kind, {}).items():
                yield kind, many, above
                for below, times in kind.children.items():
                    there = standing.setdefault(below, {})
                    near = _nearer(above, self._own(below, needs))
                    there[near] = there.get(near, 0) + many * times


def _nearer(one: Nearest, other: Nearest) -> Nearest:
    return tuple(None if a is None or b is None else a.nearer(b) for a, b in zip(one, other, strict=True))
