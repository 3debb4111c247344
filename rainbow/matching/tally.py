"""The columns of one cluster, kind by kind: children before parents, each state once.

state      (kind, inherited, within): the needs met by what hangs above, and whether a worker contains it
satisfied  for each need of the request, the rows that meet it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rainbow.matching.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from rainbow.jobspec import Need, Resource
    from rainbow.matching.kinds import Kind, Pool, Row
    from rainbow.matching.rooted import Rooted

Satisfied = dict[int, frozenset["Row"]]  # by id of the need


class State(NamedTuple):
    """A kind where it stands: `inherited` has the ids of needs met above it."""

    number: int  # of the kind: children are smaller than what contains them
    within: bool
    inherited: frozenset[int]


class Here:
    """A vertex of one state, as columns ask about it."""

    __slots__ = (
        "_met",
        "_root_met",
        "amount",
        "is_leaf",
        "is_worker",
        "kind",
        "loose",
        "pool",
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
        met: Callable[[tuple[Need, ...]], bool],
        root_met: Callable[[tuple[Need, ...]], bool],
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
        self._met = met
        self._root_met = root_met

    def meets(self, needs: tuple[Need, ...]) -> bool:
        """Tell whether what hangs on it, above it or inside it meets all needs."""
        return not needs or self._met(needs)

    def root_meets(self, needs: tuple[Need, ...]) -> bool:
        """Tell whether the root does."""
        return not needs or self._root_met(needs)


class Tally:
    """Counts one variant of a request over one cluster that nothing is taken of."""

    def __init__(
        self,
        rooted: Rooted,
        resources: tuple[Resource, ...],
        satisfied: Satisfied,
        passes: Callable[[Kind], bool] | None = None,
        ask_needs: bool = True,
    ) -> None:
        self.rooted = rooted
        self.columns = Columns(resources, rooted)
        self.satisfied = satisfied if ask_needs else {}
        self.passes = passes
        self.ask_needs = ask_needs
        self.wanted = frozenset(r.type for top in resources for r in top.walk()) | {rooted.worker_type}
        self.found: dict[State, list[int]] = {}
        self.start = State(rooted.kind.number, False, frozenset())
        self._kinds: dict[State, Kind] = {}
        self.root = self.count(rooted.kind, self.start)

    def available(self, top: int) -> int:
        """Count the units of a top-level request."""
        at = self.here(self.rooted.kind, self.start)
        return int(self.columns.available(self.columns.tops[top], at, self.root))

    def count(self, kind: Kind, state: State) -> list[int]:
        """Return the columns of a kind in a state."""
        states = self._states(kind, state)
        for key in sorted(states, key=lambda s: s.number):
            self.found[key] = self._columns(states[key], key)
        return self.found[state]

    def _states(self, kind: Kind, state: State) -> dict[State, Kind]:
        """Find the states below one that are not counted yet and may offer something."""
        states: dict[State, Kind] = {}
        stack = [(kind, state)]
        while stack:
            kind, state = stack.pop()
            if state not in self.found and state not in states:
                states[state] = kind
                stack.extend(
                    (child, self.below(kind, state, child))
                    for child in kind.children
                    if not self.wanted.isdisjoint(child.types)
                )
        return states

    def below(self, kind: Kind, state: State, child: Kind) -> State:
        """Return the state of a child."""
        within = state.within or self.rooted.is_worker(kind)
        inherited = state.inherited
        if kind.rows and self.satisfied:
            inherited |= {need for need, rows in self.satisfied.items() if not rows.isdisjoint(kind.rows)}
        return State(child.number, within, inherited)

    def _columns(self, kind: Kind, state: State) -> list[int]:
        here = self.here(kind, state)
        if here.is_worker and self.passes and not self.passes(kind):
            return self.columns.zeros()
        sums = self.columns.zeros()
        for child, many in kind.children.items():
            found = self.found.get(self.below(kind, state, child))
            if found is not None:
                sums = [total + many * units for total, units in zip(sums, found, strict=True)]
        return self.columns.local(here, sums)

    def here(self, kind: Kind, state: State) -> Here:
        """Return a vertex of a state."""
        is_worker = not state.within and self.rooted.is_worker(kind)
        loose = not state.within and kind.number in self.rooted.loose

        def met(needs: tuple[Need, ...]) -> bool:
            return not self.ask_needs or self._met(needs, kind, state.inherited)

        def root_met(needs: tuple[Need, ...]) -> bool:
            return not self.ask_needs or self._met(needs, self.rooted.kind, frozenset())

        return Here(kind, is_worker, state.within or is_worker, loose, met, root_met)

    def _met(self, needs: tuple[Need, ...], kind: Kind, inherited: frozenset[int]) -> bool:
        return all(
            id(need) in inherited or not self.satisfied[id(need)].isdisjoint(kind.rows_inside) for need in needs
        )
