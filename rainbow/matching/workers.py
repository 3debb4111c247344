"""The workers of a cluster in the order of its vertices, and the stand of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from rainbow.lazy import cached_property
from rainbow.matching.kinds import compile_kinds
from rainbow.matching.rooted import rooted
from rainbow.matching.stand import Stand
from rainbow.matching.verdict import Take

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rainbow.graph import Cluster
    from rainbow.graph.outline import Copy
    from rainbow.matching.kinds import Kind, Row


class Spot(NamedTuple):
    """One vertex: its entry in the outline, the copy it is, its kind, and the rows hung on what contains it."""

    entry: int
    copy: Copy
    kind: Kind
    above: frozenset[Row]


class Workers:
    """The workers, depth first; none are numbered where one may lie in another (`are_apart` False)."""

    def __init__(self, cluster: Cluster) -> None:
        self.outline = cluster.outline
        self._named = cluster.workers
        self.kinds, _ = compile_kinds(cluster)
        self.rooted = rooted(cluster, self.kinds[0])
        self.are_apart = not self.rooted.has_nested_workers
        self.spots = list(self._spots()) if self.are_apart else []
        self.names = [cluster.worker_names[spot.copy.id] for spot in self.spots]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        known: dict[tuple[Kind, frozenset[Row]], Stand] = {}
        for spot in self.spots:
            if (spot.kind, spot.above) not in known:
                known[spot.kind, spot.above] = Stand(spot.kind, spot.above, self.rooted)
        self.stands = [known[spot.kind, spot.above] for spot in self.spots]

    def _spots(self) -> Iterator[Spot]:
        outline, root = self.outline, self.rooted
        stack = [Spot(0, next(outline.copies(0)), self.kinds[0], frozenset())]
        while stack:
            spot = stack.pop()
            if root.is_worker(spot.kind):
                yield spot
                continue
            above = spot.above | spot.kind.rows if spot.kind.rows else spot.above
            for entry, first, many in reversed(outline.below[spot.entry]):
                if root.worker_type in self.kinds[entry].types:  # other branches are not entered
                    numbers = range(first + many - 1, first - 1, -1) if outline.counts[entry] else (None,)
                    copies = (outline.copy(entry, spot.copy, number) for number in numbers)
                    stack.extend(Spot(entry, copy, self.kinds[entry], above) for copy in copies)

    @cached_property
    def by_name(self) -> Mapping[str, Kind]:
        """{name: kind} of all workers, those in others too, in natural order of names."""
        outline = self.outline
        entries = [e for e, fields in enumerate(outline.fields) if fields.type == self.rooted.worker_type] or [0]
        kinds = {copy.id: self.kinds[entry] for entry in entries for copy in outline.copies(entry)}
        return {name: kinds[vertex] for name, vertex in self._named.items()}

    def alike(self) -> dict[Stand, list[int]]:
        """{stand: its workers}, stands in the order of their first workers."""
        found: dict[Stand, list[int]] = {}
        for worker, stand in enumerate(self.stands):
            found.setdefault(stand, []).append(worker)
        return found

    def say(self, per_slot: int, parts: Sequence[tuple[int, Take]]) -> Take:
        """Put together what single workers give; `per_slot` of them in turn make one slot, 0: no slot."""
        vertices: dict[str, int] = {}
        placed: list[tuple[str, dict[str, Mapping[str, int]]]] = []
        merged: dict[int, dict[str, Mapping[str, int]]] = {}
        for place, (worker, take) in enumerate(parts):
            name = self.names[worker]
            vertices.update((self._vertex(worker, int(i)), amount) for i, amount in take.vertices.items())
            for number, (label, held) in enumerate(take.placed):
                into: dict[str, Mapping[str, int]] = {}
                if not label or (per_slot and not number):
                    key = place // per_slot if per_slot and label else -1
                    fresh = key not in merged
                    into = merged.setdefault(key, into)
                    if not fresh:
                        into.update((name, amounts) for amounts in held.values())
                        continue
                into.update((name, amounts) for amounts in held.values())
                placed.append((label, into))
        return Take(tuple(sorted(placed, key=lambda slot: slot[0])), vertices)

    def _vertex(self, worker: int, i: int) -> str:
        """The id of the vertex at a position within a worker."""
        inside, way = self.stands[worker].layout, []
        while i:
            way.append(i)
            i = inside.parents[i]
        entry, copy = self.spots[worker].entry, self.spots[worker].copy
        for at in reversed(way):
            entry, copy = self.outline.at(entry, copy, inside.places[at])
        return copy.id


_workers: WeakKeyDictionary[Cluster, Workers] = WeakKeyDictionary()


def workers_of(cluster: Cluster) -> Workers:
    """Return the workers of a cluster, found at the first call and kept as long as the cluster."""
    found = _workers.get(cluster)
    if found is None:
        found = _workers[cluster] = Workers(cluster)
    return found
