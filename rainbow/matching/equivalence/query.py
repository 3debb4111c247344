"""A request as classes are asked, and the workers it names by host or rank.

Named workers are judged one by one, all others by their kind.

    spot   one vertex: its entry in the cluster's outline and its numbers among the copies of templates

Only the columns along the ways from the root to workers judged unlike their kind are counted again.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from rainbow.jobspec.request import PROPERTIES
from rainbow.matching.equivalence.cluster_class import BY_FIELD
from rainbow.matching.equivalence.subtree_classes import HIDDEN, classify
from rainbow.matching.model.budget import FREE, Meter
from rainbow.matching.model.conditions import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rainbow.graph import Cluster
    from rainbow.jobspec import Condition, Need, Request
    from rainbow.matching.equivalence.cluster_class import ClusterClass
    from rainbow.matching.equivalence.count_scalar import CountState, Satisfied, ScalarCount
    from rainbow.matching.equivalence.subtree_classes import SubtreeClass


Spot = tuple[int, tuple[int, ...]]


class Names:
    """Where the workers of a cluster are, by name and by rank."""

    def __init__(self, cluster: Cluster) -> None:
        self.outline = cluster.outline
        self.spots: dict[str | int, list[Spot]] = {}
        self.facts: dict[Spot, dict[str, Any]] = {}
        kinds, _ = classify(cluster)
        entries = [e for e, fields in enumerate(self.outline.fields) if fields.type == cluster.worker_type] or [0]
        for entry in entries:
            properties, kind = self.outline.fields[entry].properties, kinds[entry]
            for place, copy in enumerate(self.outline.copies(entry)):
                spot = (entry, tuple(map(int, copy.numbers.split(".")[1:])))
                rank = self.outline.rank_of(entry, place)
                self.facts[spot] = {**kind.facts, "properties": properties, "name": copy.name, "rank": rank}
                for called in (copy.name, rank):
                    if called is not None:
                        self.spots.setdefault(called, []).append(spot)

    def named(self, rule: Rule) -> set[Spot]:
        """Return the workers that a constraint names; goes over the fewer of its names and ours."""
        if len(rule.named) <= len(self.spots):
            return {spot for called in rule.named for spot in self.spots.get(called, ())}
        return {spot for called, spots in self.spots.items() if called in rule.named for spot in spots}

    def above(self, spot: Spot) -> Spot:
        """Return the vertex that contains another one."""
        entry, numbers = spot
        return self.outline.parents[entry], numbers[:-1] if self.outline.counts[entry] else numbers


_names: WeakKeyDictionary[Cluster, Names] = WeakKeyDictionary()


def names_in(cluster: Cluster) -> Names:
    """Return where a cluster's workers are, found at the first call and kept as long as the cluster."""
    if cluster not in _names:
        _names[cluster] = Names(cluster)
    return _names[cluster]


class NamedHosts:
    """Counts the root of a tally again, each named worker judged by itself; `kinds` are those of the entries."""

    def __init__(self, tally: ScalarCount, names: Names, kinds: Sequence[SubtreeClass], rule: Rule) -> None:
        self.tally = tally
        self.names = names
        self.kinds = kinds
        self.rule = rule
        self._states: dict[Spot, CountState] = {(0, ()): tally.start}

    def root(self) -> list[int]:
        """Return the columns of the root."""
        changes: dict[Spot, list[int]] = {}  # of the sums of a vertex's children
        for (above, _, passes), spots in self._unlike().items():
            change = [len(spots) * units for units in self._change(spots[0], passes)]
            if spots[0][0] == 0:  # the root is the one worker
                return _sum(self.tally.root, change)
            changes[above] = _sum(changes[above], change) if above in changes else change
        return self._upwards(changes)

    def _unlike(self) -> dict[tuple[Spot, int, bool], list[Spot]]:
        """Return the named workers that are judged unlike their kind, those alike below one vertex together."""
        outline, facts, rule, tally, names = self.names.outline, self.names.facts, self.rule, self.tally, self.names
        unlike: dict[tuple[Spot, int, bool], list[Spot]] = {}
        of_kind: dict[int, tuple[int, bool]] = {}
        for spot in names.named(rule):
            entry, numbers = spot
            if entry not in of_kind:
                of_kind[entry] = (self.kinds[entry].number, tally.passes_kind(self.kinds[entry]))
            kind, like = of_kind[entry]
            passes = rule.passes(facts[spot])
            if passes != like:
                above = (outline.parents[entry], numbers[:-1] if outline.counts[entry] else numbers)
                unlike.setdefault((above, kind, passes), []).append(spot)
        return unlike

    def _change(self, spot: Spot, passes: bool) -> list[int]:
        """By how much the columns of a worker differ from its kind's."""
        kind, state = self.kinds[spot[0]], self._state(spot)
        return _less(self.tally.judged(kind, state, passes), self.tally.columns_of(state))

    def _upwards(self, changes: dict[Spot, list[int]]) -> list[int]:
        heap = [(-entry, numbers) for entry, numbers in changes]
        heapify(heap)
        while heap:  # what is contained stands behind in the outline, and comes first here
            entry, numbers = heappop(heap)
            spot = (-entry, numbers)
            kind, state = self.kinds[spot[0]], self._state(spot)
            new = self.tally.counted(kind, state, _sum(self.tally.sums(kind, state), changes.pop(spot)))
            if spot[0] == 0:
                return new
            above = self.names.above(spot)
            if above not in changes:
                heappush(heap, (-above[0], above[1]))
            change = _less(new, self.tally.columns_of(state))
            changes[above] = _sum(changes[above], change) if above in changes else change
        return self.tally.root

    def _state(self, spot: Spot) -> CountState:
        """The state of a vertex, by those of what contains it."""
        way = []
        while spot not in self._states:
            way.append(spot)
            spot = self.names.above(spot)
        for below in reversed(way):
            state = self.tally.child(self.kinds[spot[0]], self._states[spot], self.kinds[below[0]])
            self._states[below] = state
            spot = below
        return self._states[spot]


def _sum(one: list[int], other: list[int]) -> list[int]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _less(one: list[int], other: list[int]) -> list[int]:
    return [a - b for a, b in zip(one, other, strict=True)]


class Passes(Protocol):
    """Tells whether workers of a kind, names aside, satisfy a constraint."""

    def __call__(self, kind: SubtreeClass, meter: Meter = FREE) -> bool:
        """Return the answer, a known one at no cost."""


class Query:
    """One request, prepared once for all clusters."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.rule = Rule(request.constraint) if request.constraint else None
        every = [r for variant in request.variants for top in variant for r in top.walk()]
        self.needs: list[Need] = [need for r in every for need in r.needs]
        conditions = [condition for need in self.needs for condition in need.conditions]
        self.names_workers = bool(self.rule and self.rule.named)
        asking = (need for need in self.needs if any(one.options.get("field") == "name" for one in need.conditions))
        self.asks_names = frozenset(need.subsystem for need in asking)  # the subsystems whose names are looked at
        # a slot directly in a slot, and what kinds hide or a matcher may look at, are left to the plain search
        nests = any(r.is_slot and any(child.is_slot for child in r.children) for r in every)
        of_workers = any(need.subsystem == PROPERTIES for need in self.needs)
        self.by_kinds = not nests and not of_workers and all(map(_is_by_kind, conditions))
        self.passes = _passing(self.rule) if self.rule else None

    def judge(self, rooted: ClusterClass, meter: Meter) -> None:
        """Ask the constraint of every kind of worker; what is known when the budget ends is known next time."""
        if self.passes is not None:
            for kind in rooted.closure:
                if rooted.is_worker(kind):
                    self.passes(kind, meter)

    def satisfied(self, rooted: ClusterClass) -> Satisfied:
        """Return the rows below a root that meet each need."""
        return {need.number: rooted.meeting(need) for need in self.needs}


def _is_by_kind(condition: Condition) -> bool:
    return condition.matcher in BY_FIELD and condition.options.get("field") not in HIDDEN


def _passing(rule: Rule) -> Passes:
    """Return what tells whether workers of a kind, names aside, satisfy a constraint; asked once for each."""
    known: dict[frozenset[str] | int, bool] = {}

    def passes(kind: SubtreeClass, meter: Meter = FREE) -> bool:
        alike = kind.number if rule.asks_amounts else kind.properties
        if alike not in known:
            known[alike] = rule.passes(kind.facts, meter)
        return known[alike]

    return passes
