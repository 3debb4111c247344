"""The columns of one cluster, kind by kind: children before parents, each state once.

state      (kind, inherited, within): the needs met by what hangs above, and whether a worker contains it
satisfied  for each need of the request, the rows that meet it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rainbow.matching.budget import FREE, Meter
from rainbow.matching.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rainbow.jobspec import Need, Resource
    from rainbow.matching.kinds import Kind, Pool, Row
    from rainbow.matching.rooted import Rooted

Satisfied = dict[int, frozenset["Row"]]  # by number of the need


class State(NamedTuple):
    """A kind where it stands: `inherited` has the numbers of needs met above it."""

    number: int  # of the kind: children are smaller than what contains them
    within: bool
    inherited: frozenset[int]


class Here:
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
        kind: Kind,
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
        """How many rows hung on it meet a need; all needs are met where `satisfied` says nothing of them."""
        rows = self.satisfied.get(need.number)
        return 1 if rows is None else len(rows & self.kind.rows)

    def inherits(self, need: Need) -> bool:
        """Tell whether something hung above it meets a need."""
        return need.number in self.inherited


class Tally:
    """Counts one variant of a request over one cluster that nothing is taken of."""

    def __init__(
        self,
        rooted: Rooted,
        resources: tuple[Resource, ...],
        satisfied: Satisfied,
        passes: Callable[[Kind], bool] | None = None,
        meter: Meter = FREE,
    ) -> None:
        self.rooted = rooted
        self.meter = meter
        self.columns = Columns(resources, rooted)
        self.satisfied = satisfied  # without needs in it, they count as met
        self.passes = passes
        self.wanted = frozenset(r.type for top in resources for r in top.walk()) | {rooted.worker_type}
        self.found: dict[State, list[int]] = {}
        self._offers: dict[State, list[tuple[int, int]]] = {}  # the columns that are not 0
        self.start = State(rooted.kind.number, False, frozenset())
        self.kinds: dict[State, Kind] = {}
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
            found = self.found[state] = self.counted(kind, state, self.sums(kind, state))
            self._offers[state] = [(column, units) for column, units in enumerate(found) if units]

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

    def child(self, kind: Kind, state: State, child: Kind) -> State:
        """Return the state of a child."""
        within = state.within or self.rooted.is_worker(kind)
        inherited = state.inherited
        if kind.rows and self.satisfied:
            inherited |= {need for need, rows in self.satisfied.items() if not rows.isdisjoint(kind.rows)}
        return State(child.number, within, inherited)

    def counted(self, kind: Kind, state: State, sums: list[int]) -> list[int]:
        """Return the columns of a kind by the sums of its children's."""
        here = self.here(kind, state)
        return self.columns.barred(here, sums) if self._is_barred(here) else self.columns.local(here, sums)

    def judged(self, kind: Kind, state: State, passes: bool) -> list[int]:
        """Return the columns of a worker that passes the constraint, or does not, whatever its kind does."""
        here, sums = self.here(kind, state), self.sums(kind, state)
        return self.columns.local(here, sums) if passes else self.columns.barred(here, sums)

    def columns_of(self, state: State) -> list[int]:
        """The columns of a state; of one that offers nothing, zeros."""
        return self.found.get(state) or self.columns.zeros()

    def sums(self, kind: Kind, state: State) -> list[int]:
        """The sums of the columns of a kind's children."""
        sums = self.columns.zeros()
        for child, many in kind.children.items():
            for column, units in self._offers.get(self.child(kind, state, child), ()):
                sums[column] += many * units
        return sums

    def _is_barred(self, here: Here) -> bool:
        return here.is_worker and not self.passes_kind(here.kind)

    def passes_kind(self, kind: Kind) -> bool:
        """Tell whether workers of a kind, names aside, satisfy the constraint."""
        return self.passes is None or self.passes(kind)

    def here(self, kind: Kind, state: State) -> Here:
        """Return a vertex of a state."""
        is_worker = not state.within and self.rooted.is_worker(kind)
        loose = not state.within and kind.number in self.rooted.loose
        return Here(kind, is_worker, state.within or is_worker, loose, state.inherited, self.satisfied)

    # ── single places, for explanations ──

    def open(self) -> Iterator[State]:
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

    def of_type(self, type_: str) -> Iterator[State]:
        """Yield the open states of a type."""
        return (state for state in self.open() if self.kinds[state].type == type_)

    def workers(self) -> Iterator[State]:
        """Yield the open states of workers."""
        return (state for state in self.open() if self.here(self.kinds[state], state).is_worker)

    def below_one(self, r: Resource, state: State) -> int:
        """Units of a request strictly below one vertex."""
        kind = self.kinds[state]
        part, sums = self.columns.part_of[r.number], self.sums(kind, state)
        return int(self.columns.below(part, self.here(kind, state), sums, self.found[state]))

    def inside(self, r: Resource, state: State) -> int:
        """Units of a request in the subtree of one vertex."""
        return int(self.columns.units(self.columns.part_of[r.number], self.found[state]))
