"""One kind of worker in every state of use: what a request would take of it, remembered by state.

stand   workers of one kind below equal things: alike until something is taken
used    {position: base units taken} of leaves, and the positions taken whole; positions count within the worker
part    what a request takes of one worker; two states and a part between them are found once
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from rainbow.matching.bound import Bound
from rainbow.matching.reduced import Reduced
from rainbow.matching.taken import Taken
from rainbow.matching.verdict import Reason
from rainbow.matching.walk import search

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rainbow.jobspec import Resource
    from rainbow.matching.kinds import Kind, Row
    from rainbow.matching.rooted import Rooted
    from rainbow.matching.verdict import Take

_numbers = count()
Amounts = tuple[tuple[int, int, bool], ...]  # (position, base units, whole)


class Part:
    """What is taken of one worker."""

    __slots__ = ("amounts", "number")

    def __init__(self, amounts: Amounts) -> None:
        self.number = next(_numbers)
        self.amounts = amounts


class State:
    """One state of use of a stand."""

    __slots__ = ("after", "before", "number", "stand", "used", "whole")

    def __init__(self, stand: Stand, used: Mapping[int, int], whole: frozenset[int]) -> None:
        self.number = next(_numbers)
        self.stand = stand
        self.used = used
        self.whole = whole
        self.after: dict[int, State] = {}  # by number of the part taken
        self.before: dict[int, State] = {}  # by number of the part given back

    def plus(self, part: Part) -> State:
        """The state after a part is taken."""
        if part.number not in self.after:
            used = dict(self.used)
            for i, amount, whole in part.amounts:
                if not whole:
                    used[i] = used.get(i, 0) + amount
            self.after[part.number] = self.stand.state(used, self.whole | _wholes(part))
        return self.after[part.number]

    def minus(self, part: Part) -> State:
        """The state after a part is given back."""
        if part.number not in self.before:
            used = dict(self.used)
            for i, amount, whole in part.amounts:
                if not whole:
                    used[i] -= amount
            self.before[part.number] = self.stand.state(used, self.whole - _wholes(part))
        return self.before[part.number]


def _wholes(part: Part) -> frozenset[int]:
    return frozenset(i for i, _, whole in part.amounts if whole)


class WorkerLayout(Reduced):
    """One worker, read as part of its cluster: pools and compound types are the cluster's, and what hangs above."""

    def __init__(self, kind: Kind, above: frozenset[Row], whole_cluster: Rooted) -> None:
        super().__init__(whole_cluster.below(kind), None)
        self.pools = whole_cluster.pools
        self.compound = set(whole_cluster.compound)
        self.above = above
        self.cluster_tables = whole_cluster.tables

    def rows(self, subsystem: str, i: int) -> Iterator[Mapping[str, Any]] | None:
        """Yield the rows that serve position `i`, those above the worker included."""
        if subsystem not in self.cluster_tables:
            return None
        return (row.vertex for row in self.above | self.serving(i) if row.subsystem == subsystem)


class Stand:
    """Workers of one kind below equal things; `layout` is one of them."""

    def __init__(self, kind: Kind, above: frozenset[Row], whole_cluster: Rooted) -> None:
        self.kind = kind
        self.layout = WorkerLayout(kind, above, whole_cluster)
        self._states: dict[Any, State] = {}
        self._parts: dict[Amounts, Part] = {}
        self.fresh = self.state({}, frozenset())

    def state(self, used: Mapping[int, int], whole: frozenset[int]) -> State:
        """Return the one state of such use."""
        left = {i: amount for i, amount in used.items() if amount}
        key = (frozenset(left.items()), whole)
        return self._states.get(key) or self._states.setdefault(key, State(self, left, whole))

    def part(self, amounts: Amounts) -> Part:
        """Return the one part of such amounts."""
        return self._parts.get(amounts) or self._parts.setdefault(amounts, Part(amounts))

    def forget(self) -> None:
        """Forget the states on the way; workers keep the ones they are in."""
        for state in self._states.values():
            state.after.clear()
            state.before.clear()
        self._parts.clear()
        self._states = {(frozenset(), frozenset()): self.fresh}

    @property
    def size(self) -> int:
        """How many states are remembered."""
        return len(self._states)

    def find(self, resource: Resource, state: State) -> tuple[Part, Take] | None:
        """Choose what a request takes of a worker in some state, lowest first."""
        if 0 in state.whole:
            return None
        taken = self._taken(state)
        if Bound(self.layout, taken).available(resource, 0, 0, enough=resource.count.min) < resource.count.min:
            return None
        found = search((resource,), self.layout, taken)
        if isinstance(found, Reason):
            return None
        take, pieces = found
        amounts: dict[tuple[int, bool], int] = {}
        for piece in pieces:
            key = (piece.position, piece.whole)
            amounts[key] = amounts.get(key, 0) + piece.amount
        return self.part(tuple((i, n, whole) for (i, whole), n in sorted(amounts.items()))), take

    def most(self, resource: Resource, state: State, enough: int) -> int:
        """Bound how many units of a request a worker in some state gives."""
        return (
            0 if 0 in state.whole else Bound(self.layout, self._taken(state)).available(resource, 0, 0, enough=enough)
        )

    def _taken(self, state: State) -> Taken:
        taken = Taken(self.layout)
        for i in sorted(state.whole):
            taken.take_whole(i)
        for i, amount in state.used.items():
            taken.promise(i, self.layout.pool(i), amount)
        taken.keep()
        return taken
