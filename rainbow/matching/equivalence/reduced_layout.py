"""A layout with only as many equal siblings as the request can touch.

What a request can do with a thousand equal nodes it can do with as many of them as it touches, the lowest ones.
A search on the reduced layout therefore finds what a search on the whole cluster would, in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.jobspec.request import PROPERTIES
from rainbow.matching.equivalence.subtree_classes import ClassRun
from rainbow.matching.model.budget import FREE, Meter
from rainbow.matching.model.layout import Layout, Pools, pools_of
from rainbow.matching.model.verdict import Take
from rainbow.matching.upper_bound import units_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import networkx as nx

    from rainbow.graph import Cluster
    from rainbow.graph.outline import Copy
    from rainbow.jobspec import Resource
    from rainbow.matching.equivalence.cluster_class import ClusterClass
    from rainbow.matching.equivalence.subtree_classes import Pool, SubtreeClass


class Step(NamedTuple):
    """Where a position is: what contains it, and its place among all siblings there."""

    above: int
    place: int


class Placed(NamedTuple):
    """One copy of the job by positions, and the steps from the root to each of them."""

    take: Take
    steps: Mapping[int, Step]

    @classmethod
    def of(cls, take: Take, reduced: Reduced) -> Placed:
        """Keep of a layout only the ways to what is taken."""
        steps: dict[int, Step] = {}
        workers = (int(worker) for _, held in take.placed for worker in held if worker)
        for at in (*map(int, take.vertices), *workers, *(int(row.vertex) for row in take.rows if row.vertex)):
            for i in reduced.up(at):
                if i == 0 or i in steps:
                    break
                steps[i] = Step(reduced.parents[i], reduced.places[i])
        return cls(take, steps)

    def inside(self, cluster: Cluster, variant: int) -> Take:
        """Say what the copy is in a cluster with the root it was searched on."""
        copies = _Copies(self.steps, cluster)
        return Take(
            tuple((label, {copies.worker(w): n for w, n in held.items()}) for label, held in self.take.placed),
            {copies.of(int(i)).id: amount for i, amount in self.take.vertices.items()},
            tuple(
                row._replace(vertex=copies.of(int(row.vertex)).id) if row.vertex else row for row in self.take.rows
            ),
            variant,
        )


class _Copies:
    """The vertices of a cluster at the positions of a reduced layout."""

    def __init__(self, steps: Mapping[int, Step], cluster: Cluster) -> None:
        self.steps = steps
        self.cluster = cluster
        self._known: dict[int, tuple[int, Copy]] = {0: (0, next(cluster.outline.copies(0)))}

    def of(self, i: int) -> Copy:
        way = []
        while i not in self._known:
            way.append(i)
            i = self.steps[i].above
        for i in reversed(way):
            above, place = self.steps[i]
            self._known[i] = self.cluster.outline.at(*self._known[above], place)
        return self._known[i][1]

    def worker(self, called: str) -> str:
        return self.cluster.worker_names[self.of(int(called)).id] if called else called


class TouchLimit:
    """How many equal siblings `copies` copies of a request can touch."""

    def __init__(self, resources: tuple[Resource, ...], rooted: ClusterClass, copies: int, barring: bool) -> None:
        self.rooted = rooted
        self.barring = barring  # a constraint may keep parts of a vertex above the workers out of use
        self.vertices: dict[str, int] = {}  # {type: units} of what chooses vertices
        self.amounts: dict[Pool, int] = {}
        self.whole: set[str] = set()  # types taken with all they contain
        for resource in resources:
            self._add(resource, copies)
        self._known: dict[int, int] = {}

    def _add(self, top: Resource, times: int) -> None:
        stack = [(top, times)]
        while stack:
            r, above = stack.pop()
            units = above * r.count.min
            chosen = self.rooted.worker_type if r.is_slot else r.type
            self.vertices[chosen] = self.vertices.get(chosen, 0) + -(-units // self._smallest(r))
            if r.exclusive or (not r.children and r.type in self.rooted.compound):
                self.whole.add(r.type)
            for pool, factor in pools_of(r, self.rooted.pools):
                self.amounts[pool] = self.amounts.get(pool, 0) + units * factor
            stack.extend((child, units) for child in r.children)

    def _smallest(self, r: Resource) -> int:
        """The units of a request that every vertex of its type gives."""
        if r.is_slot or r.children:
            return 1
        sizes = (units_of(r, *size, self.rooted) for size in self.rooted.sizes_of(r.type))
        return min((units for units in sizes if units), default=1)

    def __call__(self, kind: SubtreeClass) -> int:
        """How many siblings of a kind may be touched; one at least is kept, to show what there is."""
        if kind.number not in self._known:
            touched = sum(self.vertices.get(type_, 0) for type_ in kind.types)
            for pool, amount in self.amounts.items():
                if pool in kind.content:
                    touched += -(-amount // self._least(kind, pool))
            self._known[kind.number] = max(touched, 1)
        return self._known[kind.number]

    def _least(self, kind: SubtreeClass, pool: Pool) -> int:
        """The least amount of a pool that one sibling of a kind gives to all that may take from it."""
        if self.barring and self.rooted.worker_type in kind.types and kind.type != self.rooted.worker_type:
            return min(k.amount for k in kind.closure() if k.is_leaf and k.pool == pool)
        return min(kind.content[pool], self.rooted.outside[kind.number].get(pool) or kind.content[pool])


class Reduced(Layout):
    """The kept vertices of a root's kind, numbered; a vertex is called by its position."""

    def __init__(self, rooted: ClusterClass, reach: TouchLimit | None, meter: Meter = FREE) -> None:
        self.rooted = rooted
        self.kind_at: list[SubtreeClass] = []
        self.places: list[int] = []  # among all siblings, kept or not
        parents: list[int] = []
        workers: dict[int, str] = {}
        stack: list[tuple[SubtreeClass, int, int, bool, bool]] = [(rooted.kind, -1, 0, False, False)]
        while stack:
            kind, parent, place, within, whole = stack.pop()
            meter.step()
            at = len(self.kind_at)
            self.kind_at.append(kind)
            self.places.append(place)
            parents.append(parent)
            if not within and rooted.is_worker(kind):
                workers[at] = str(at)
            within = within or at in workers
            whole = whole or reach is None or kind.type in reach.whole
            stack.extend((k, at, p, within, whole) for k, p in _kept(kind, None if whole else reach))
        self.name = ""
        self.worker_type = rooted.worker_type
        self.worker_level_types = rooted.worker_level_types
        self.size = rooted.kind.vertices
        super().__init__(
            [kind.type for kind in self.kind_at],
            [kind.size for kind in self.kind_at],
            [kind.unit for kind in self.kind_at],
            parents,
            workers,
        )
        self.kinds = [kind.number for kind in self.kind_at]

    def _pools(self) -> Pools:
        return self.rooted.pools  # one leaf at least of every kind is kept

    def vertex(self, i: int) -> str:
        """The position as text."""
        return str(i)

    def facts(self, i: int) -> Mapping[str, Any]:
        """What a constraint may ask of a kind of worker."""
        return self.kind_at[i].facts

    def rows(self, subsystem: str, i: int) -> Iterator[Mapping[str, Any]] | None:
        """Yield the rows of a subsystem that serve position `i`: attached to it, above it or inside it."""
        if subsystem == PROPERTIES:
            return self.rows_of_worker(i)
        if subsystem not in self.rooted.tables:
            return None
        return (row.vertex for row in self.serving(i) if row.subsystem == subsystem)

    def serving(self, i: int) -> frozenset[ClassRun]:
        """The rows attached to position `i`, above it or inside it."""
        above = (self.kind_at[at].rows for at in self.up(i))
        return frozenset[ClassRun]().union(*above, *(kind.rows for kind in self.kind_at[i].closure()))

    def subsystem(self, name: str) -> nx.DiGraph[str] | None:
        """No graph: only matchers that do not look at one are asked here."""
        return None

    def weight(self, i: int) -> int:
        """How much the whole subtree contains, what is not kept included."""
        return sum(self.kind_at[i].content.values())


def _kept(kind: SubtreeClass, reach: Callable[[SubtreeClass], int] | None) -> list[tuple[SubtreeClass, int]]:
    """The children to keep with their places, last first; all of them without `reach`."""
    stored: list[tuple[SubtreeClass, int]] = []
    first = 0
    for child, many in kind.runs:
        stored.extend((child, first + n) for n in range(min(many, reach(child)) if reach else many))
        first += many
    return stored[::-1]
