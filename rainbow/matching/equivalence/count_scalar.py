"""The recurrence for one cluster, class by class: children before parents, each state once.

state      (kind, inherited, within): the needs met by what hangs above, and whether a worker contains it
satisfied  for each need of the request, the rows that meet it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rainbow.cache import cached_property
from rainbow.matching.equivalence.count_recurrence import CountRecurrence
from rainbow.matching.model.budget import FREE, Meter
from rainbow.matching.model.conditions import least_met
from rainbow.matching.needs import NearMiss, ask, no_subsystem, nothing_hung

if TYPE_CHECKING:
    from rainbow.jobspec import Constraint, Need, Resource
    from rainbow.matching.equivalence.cluster_class import ClusterClass
    from rainbow.matching.equivalence.subtree_classes import ClassRun, Pool, SubtreeClass


Nearest = tuple["NearMiss | None", ...]  # one for each need, None: it is met


class ClassCounts:
    """Counts of one variant; `passes` tells the kinds of workers that satisfy the constraint."""

    def __init__(
        self,
        rooted: ClusterClass,
        resources: tuple[Resource, ...],
        satisfied: Satisfied,
        passes: Callable[[SubtreeClass], bool] | None,
        meter: Meter = FREE,
        constraint: Constraint | None = None,
    ) -> None:
        self.rooted = rooted
        self.meter = meter
        self.constraint = constraint
        self.resources = resources
        self.satisfied = satisfied
        self.passes = passes
        self.worker_type = rooted.worker_type
        self._asked: dict[int, dict[ClassRun, NearMiss | None]] = {}  # by number of the need
        self._tallies: dict[tuple[bool, bool], ScalarCount] = {}

    def tally(self, constrained: bool = True, needs: bool = True) -> ScalarCount:
        """Return the tally with or without the constraint and the needs."""
        key = (constrained and self.passes is not None, needs and bool(self.satisfied))
        if key not in self._tallies:
            self._tallies[key] = ScalarCount(
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

    def unmet(self) -> str:
        """Return which part of the constraint fewest workers satisfy, in words."""
        kinds = [(kind, many) for kind, many in self.rooted.many.items() if self.rooted.is_worker(kind)]
        return least_met(self.constraint, [(kind.facts, many) for kind, many in kinds], self.meter)

    def offering(self, kind: str, child: Resource) -> int:
        """Return how many vertices of a type offer all of `child`, its needs aside."""
        tally = self.tally(needs=False)
        states = [state for state in tally.of_type(kind) if tally.below_one(child, state) >= child.count.min]
        return sum(tally.many[state] for state in states)

    def content(self, place: str, pool: Pool) -> int:
        """Return the most base units of a pool in one vertex of a type, or in the cluster if there is none."""
        kinds = [kind for kind in self.rooted.closure if kind.type == place] or [self.rooted.kind]
        return max(kind.content.get(pool, 0) for kind in kinds)

    def sizes_of(self, type_: str) -> frozenset[tuple[int, str, bool]]:
        """Return (size, unit, whether it contains nothing) of the vertices of a type."""
        return self.rooted.sizes_of(type_)

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

    def _inside(self, needs: tuple[Need, ...]) -> dict[SubtreeClass, Nearest]:
        """How near what is attached to a kind or inside it comes to every need."""
        result: dict[SubtreeClass, Nearest] = {}
        for kind in self.rooted.closure:
            self.meter.step()
            result[kind] = self._own(kind, needs)
            for below in kind.children:
                result[kind] = _nearer(result[kind], result[below])
        return result

    def _own(self, kind: SubtreeClass, needs: tuple[Need, ...]) -> Nearest:
        return tuple(self._nearest(need, kind) for need in needs)

    def _nearest(self, need: Need, kind: SubtreeClass) -> NearMiss | None:
        if need.subsystem not in self.rooted.tables:
            return no_subsystem(need, tuple(self.rooted.tables))
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

    def _standing(
        self, needs: tuple[Need, ...], inside: dict[SubtreeClass, Nearest]
    ) -> Iterator[tuple[SubtreeClass, int, Nearest]]:
        """Yield kinds with how many there are below different things, and how near what hangs above comes."""
        standing: dict[SubtreeClass, dict[Nearest, int]] = {self.rooted.kind: {self._own(self.rooted.kind, needs): 1}}
        for kind in reversed(self.rooted.closure):
            for above, many in standing.get(kind, {}).items():
                yield kind, many, above
                for below, times in kind.children.items():
                    there = standing.setdefault(below, {})
                    near = _nearer(above, self._own(below, needs))
                    there[near] = there.get(near, 0) + many * times


def _nearer(one: Nearest, other: Nearest) -> Nearest:
    return tuple(None if a is None or b is None else a.nearer(b) for a, b in zip(one, other, strict=True))


Satisfied = dict[int, frozenset["ClassRun"]]  # by number of the need


class CountState(NamedTuple):
    """A kind where it stands: `inherited` has the numbers of needs met above it."""

    number: int  # of the kind: children are smaller than what contains them
    within: bool
    inherited: frozenset[int]


class PartialCount:
    """A vertex of one state, as columns ask about it."""

    __slots__ = (
        "amount",
        "inherited",
        "is_leaf",
        "is_worker",
        "kind",
        "loose",
        "pool",
        "satisfied",
        "type",
        "unit",
        "within",
    )

    def __init__(
        self,
        kind: SubtreeClass,
        is_worker: bool,
        within: bool,
        loose: bool,
        inherited: frozenset[int],
        satisfied: Satisfied,
    ) -> None:
        self.kind = kind
        self.type: str = kind.type
        self.unit: str = kind.unit
        self.pool: Pool = kind.pool
        self.is_leaf: bool = kind.is_leaf
        self.amount: int = kind.amount
        self.is_worker = is_worker
        self.within = within
        self.loose = loose
        self.inherited = inherited
        self.satisfied = satisfied

    def own(self, need: Need) -> int:
        """How many rows attached to it meet a need; all needs are met where `satisfied` says nothing of them."""
        rows = self.satisfied.get(need.number)
        return 1 if rows is None else len(rows & self.kind.rows)

    def inherits(self, need: Need) -> bool:
        """Return whether something hung above it meets a need."""
        return need.number in self.inherited


class ScalarCount:
    """Counts one variant of a request over one cluster that nothing is taken of."""

    def __init__(
        self,
        rooted: ClusterClass,
        resources: tuple[Resource, ...],
        satisfied: Satisfied,
        passes: Callable[[SubtreeClass], bool] | None = None,
        meter: Meter = FREE,
    ) -> None:
        self.rooted = rooted
        self.meter = meter
        self.columns = CountRecurrence(resources, rooted)
        self.satisfied = satisfied  # without needs in it, they count as met
        self.passes = passes
        self.wanted = frozenset(r.type for top in resources for r in top.walk()) | {rooted.worker_type}
        self.found: dict[CountState, list[int]] = {}
        self._offers: dict[CountState, list[tuple[int, int]]] = {}  # the columns that are not 0
        self.start = CountState(rooted.kind.number, False, frozenset())
        self.kinds: dict[CountState, SubtreeClass] = {}
        self._count()
        self.root = self.found[self.start]

    def available(self, top: int) -> int:
        """Count the units of a top-level request."""
        at = self.here(self.rooted.kind, self.start)
        return int(self.columns.available(self.columns.tops[top], at, self.root))

    def _count(self) -> None:
        """Count the columns of every state that may offer something, what is contained first."""
        self._find_states()
        for state in sorted(self.kinds, key=lambda s: s.number):
            kind = self.kinds[state]
            self.meter.step(1 + len(kind.children))
            results = self.found[state] = self.counted(kind, state, self.sums(kind, state))
            self._offers[state] = [(column, units) for column, units in enumerate(results) if units]

    def _find_states(self) -> None:
        stack = [(self.rooted.kind, self.start)]
        while stack:
            kind, state = stack.pop()
            self.meter.step()
            if state not in self.kinds:
                self.kinds[state] = kind
                stack.extend(
                    (child, self.child(kind, state, child))
                    for child in kind.children
                    if (child.hung and self.satisfied) or not self.wanted.isdisjoint(child.types)
                )

    def child(self, kind: SubtreeClass, state: CountState, child: SubtreeClass) -> CountState:
        """Return the state of a child."""
        within = state.within or self.rooted.is_worker(kind)
        inherited = state.inherited
        if kind.rows and self.satisfied:
            inherited |= {need for need, rows in self.satisfied.items() if not rows.isdisjoint(kind.rows)}
        return CountState(child.number, within, inherited)

    def counted(self, kind: SubtreeClass, state: CountState, sums: list[int]) -> list[int]:
        """Return the columns of a kind by the sums of its children's."""
        here = self.here(kind, state)
        return self.columns.barred(here, sums) if self._is_barred(here) else self.columns.local(here, sums)

    def judged(self, kind: SubtreeClass, state: CountState, passes: bool) -> list[int]:
        """Return the columns of a worker that passes the constraint, or does not, whatever its kind does."""
        here, sums = self.here(kind, state), self.sums(kind, state)
        return self.columns.local(here, sums) if passes else self.columns.barred(here, sums)

    def columns_of(self, state: CountState) -> list[int]:
        """The columns of a state; of one that offers nothing, zeros."""
        return self.found.get(state) or self.columns.zeros()

    def sums(self, kind: SubtreeClass, state: CountState) -> list[int]:
        """The sums of the columns of a kind's children."""
        sums = self.columns.zeros()
        for child, many in kind.children.items():
            for column, units in self._offers.get(self.child(kind, state, child), ()):
                sums[column] += many * units
        return sums

    def _is_barred(self, here: PartialCount) -> bool:
        return here.is_worker and not self.passes_kind(here.kind)

    def passes_kind(self, kind: SubtreeClass) -> bool:
        """Return whether workers of a kind, names aside, satisfy the constraint."""
        return self.passes is None or self.passes(kind)

    def here(self, kind: SubtreeClass, state: CountState) -> PartialCount:
        """Return a vertex of a state."""
        is_worker = not state.within and self.rooted.is_worker(kind)
        loose = not state.within and kind.number in self.rooted.loose
        return PartialCount(kind, is_worker, state.within or is_worker, loose, state.inherited, self.satisfied)

    # ── single places, for explanations ──

    def open(self) -> Iterator[CountState]:
        """Yield the states that occur outside of workers that fail the constraint, each once."""
        stack, seen = [self.start], {self.start}
        while stack:
            state = stack.pop()
            kind = self.kinds[state]
            if self._is_barred(self.here(kind, state)):
                continue
            yield state
            for child in kind.children:
                below = self.child(kind, state, child)
                if below in self.found and below not in seen:
                    seen.add(below)
                    stack.append(below)

    @cached_property
    def many(self) -> dict[CountState, int]:
        """How many vertices there are of every open state."""
        result = {self.start: 1}
        states = set(self.open())
        for state in sorted(states, key=lambda s: s.number, reverse=True):  # what contains others has larger numbers
            for child, times in self.kinds[state].children.items():
                below = self.child(self.kinds[state], state, child)
                if below in states:
                    result[below] = result.get(below, 0) + result[state] * times
        return result

    def of_type(self, type_: str) -> Iterator[CountState]:
        """Yield the open states of a type."""
        return (state for state in self.open() if self.kinds[state].type == type_)

    def workers(self) -> Iterator[CountState]:
        """Yield the open states of workers."""
        return (state for state in self.open() if self.here(self.kinds[state], state).is_worker)

    def below_one(self, r: Resource, state: CountState) -> int:
        """Units of a request strictly below one vertex."""
        kind = self.kinds[state]
        part, sums = self.columns.part_of[r.number], self.sums(kind, state)
        return int(self.columns.below(part, self.here(kind, state), sums, self.found[state]))

    def inside(self, r: Resource, state: CountState) -> int:
        """Units of a request in the subtree of one vertex."""
        return int(self.columns.units(self.columns.part_of[r.number], self.found[state]))
