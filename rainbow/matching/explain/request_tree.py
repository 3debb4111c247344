"""The tree of a request with what a cluster offers at each of its requests.

place     where units of a request are looked for: the vertices of the request above it; for what a slot takes of
          worker level one worker, or what lies outside all of them; else the cluster
where     how much how many places offer, the most first: "core: 36 in each of 10 nodes"

Each request is looked at alone, on the empty cluster: that it is offered enough does not mean that all of them are
met together. Where the search stopped is said by the verdict's reason.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rainbow.cache import cached_property
from rainbow.jobspec.quantities import quantity
from rainbow.matching.explain.edits import question
from rainbow.matching.model.budget import Meter, OutOfBudgetError
from rainbow.matching.model.conditions import barred
from rainbow.matching.model.layout import OUTSIDE, called, layout
from rainbow.matching.model.verdict import MOST_ALTERNATIVES
from rainbow.matching.needs import needs_met

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Need, Request, Resource
    from rainbow.matching.model.layout import ClusterLayout
    from rainbow.matching.model.verdict import Reason, Verdict


CLUSTER = "the cluster"
LOOSE = "outside every worker"
ALTERNATIVE = "alternative"
MOST_WHERE = 4  # kinds of places shown for one request


@dataclass(frozen=True, slots=True)
class Where:
    """`places` vertices called `place` offer `amount` each."""

    amount: int
    place: str
    places: int

    @property
    def text(self) -> str:
        """The offer in words."""
        if self.place == CLUSTER:
            return f"{self.amount} in the cluster"
        if self.place == LOOSE:
            return f"{self.amount} {LOOSE}"
        if self.places == 1:
            return f"{self.amount} in one {self.place}"
        return f"{self.amount} in each of {self.places} {self.place}s"


@dataclass(frozen=True, slots=True)
class RequestNode:
    """One request: `wanted` of it in each place and `in_all`, `offered` by the whole cluster."""

    name: str
    type: str
    wanted: int
    in_all: int
    unit: str
    offered: int | None  # None: a slot is no vertex, it offers nothing of its own
    where: tuple[Where, ...] = ()
    levels: tuple[str, ...] = ()  # the types of what contains the first of them, the root first
    needs: tuple[str, ...] = ()
    meeting: int | None = None  # vertices that have what is needed; None: nothing is needed of them
    short: bool = False  # no place offers as much as is wanted, or too few meet the needs
    stopped: bool = False  # the refusal is about this request
    children: tuple[RequestNode, ...] = ()

    def walk(self) -> Iterator[RequestNode]:
        """Yield this request and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def text(self) -> str:
        """What was looked for and found, in one line."""
        if self.type == ALTERNATIVE:
            return self.name
        parts = [f"{self.name} × {self.wanted} {self.unit}".strip()]
        if self.in_all != self.wanted:
            parts.append(f" ({self.in_all} in all)")
        if self.offered is not None:
            shown = [where.text for where in self.where[:MOST_WHERE]]
            more = ["..."] if len(self.where) > MOST_WHERE else []
            parts.append(f": {', '.join(shown + more) or 'none'}")
        if self.meeting is not None:
            parts.append(f"; {self.meeting} with {', '.join(self.needs)}")
        return "".join(parts)

    def document(self) -> dict[str, Any]:
        """Write the tree as JSON."""
        where = [{"amount": w.amount, "place": w.place, "places": w.places} for w in self.where[:MOST_WHERE]]
        needs = {"needs": list(self.needs), "meeting": self.meeting} if self.needs else {}
        offer = {"offered": self.offered, "where": where, "levels": list(self.levels)}
        return {
            "name": self.name,
            "type": self.type,
            "wanted": self.wanted,
            "in_all": self.in_all,
            **({"unit": self.unit} if self.unit else {}),
            **(offer if self.offered is not None else {}),
            **needs,
            "short": self.short,
            "stopped": self.stopped,
            "text": self.text,
            "with": [child.document() for child in self.children],
        }


def sought_in_time(
    request: Request, cluster: Cluster, verdict: Verdict, meter: Meter
) -> tuple[tuple[RequestNode, ...], bool]:
    """Return the trees of the variant that matches, else of all, and whether the time was enough for them.

    What the refusal is about is marked.
    """
    view = _View(request, layout(cluster), meter)
    trees, is_whole = view.forest(request.resources)
    for forest in request.variants[1:] if verdict.matched and _any_short(trees) else ():
        other, is_whole = view.forest(forest)
        trees = trees if _any_short(other) else other
    if not verdict.matched and len(request.variants) > 1:
        trees, is_whole = _alternatives(view, request.variants[:MOST_ALTERNATIVES])
    if verdict.matched is not False or verdict.reason is None or not is_whole:
        return trees, is_whole
    stopped = _stopped(trees, verdict.reason)
    return tuple(_marked(tree, stopped) for tree in trees), is_whole


def _alternatives(view: _View, variants: Sequence[tuple[Resource, ...]]) -> tuple[tuple[RequestNode, ...], bool]:
    """Look for each of a request's alternatives: one node for each, with its requests below."""
    results = [view.forest(forest) for forest in variants]
    nodes = (
        RequestNode(f"{ALTERNATIVE} {k}", ALTERNATIVE, 1, 1, "", offered=None, children=trees)
        for k, (trees, _) in enumerate(results, 1)
    )
    return tuple(nodes), all(is_whole for _, is_whole in results)


def _any_short(trees: Sequence[RequestNode]) -> bool:
    return any(part.short for tree in trees for part in tree.walk())


def _stopped(trees: Sequence[RequestNode], reason: Reason) -> RequestNode:
    """Find the request that a refusal is about: by name, and among several of that name one that is short."""
    every = [part for tree in trees for part in tree.walk()]
    subjects = set(reason.subject.split(", "))
    named = [part for part in every if part.name in subjects or part.type in subjects]
    needing = [part for part in every if any(_asks(need, subject) for need in part.needs for subject in subjects)]
    candidates = named or needing or every
    return next((part for part in candidates if part.short), candidates[0])


def _asks(question: str, subsystem: str) -> bool:
    return f"{question.partition(' on ')[2]}.".startswith(f"{subsystem}.")


def _marked(tree: RequestNode, stopped: RequestNode) -> RequestNode:
    children = tuple(_marked(child, stopped) for child in tree.children)
    return replace(tree, stopped=tree is stopped, children=children)


class _View:
    """Looks at a cluster for the parts of one request; workers that fail its constraint offer nothing."""

    def __init__(self, request: Request, laid_out: ClusterLayout, meter: Meter) -> None:
        self.layout = laid_out
        self.meter = meter
        self.worker_type = laid_out.worker_type
        self._held: dict[tuple[str, str, str], dict[int, int]] = {}  # many requests of a job ask for the same
        self._met: dict[tuple[str, str], int] = {}
        self.request = request

    @cached_property
    def barred(self) -> set[int]:
        """The workers that fail the constraint."""
        return set(barred(self.request.constraint, self.layout, self.meter))

    def forest(self, resources: Sequence[Resource]) -> tuple[tuple[RequestNode, ...], bool]:
        """Look for requests while there is time; return whether there was enough."""
        trees: list[RequestNode] = []
        with suppress(OutOfBudgetError):
            for resource in resources:
                self.meter.check()
                trees.append(self.look(resource))
        return tuple(trees), len(trees) == len(resources)

    def look(
        self, resource: Resource, above: str | None = None, in_slot: bool = False, times: int = 1
    ) -> RequestNode:
        """Look for one request below vertices of type `above` (None: anywhere), and for all below it."""
        times *= resource.count.min
        below = above if resource.is_slot else resource.type
        node = RequestNode(
            called(resource),
            resource.type,
            resource.count.min,
            times,
            resource.unit,
            offered=None,
            needs=tuple(question(need, condition) for need in resource.needs for condition in need.conditions),
            meeting=self._meeting(resource, above) if resource.needs else None,
            children=tuple(self.look(child, below, resource.is_slot, times) for child in resource.children),
        )
        if not resource.is_slot:
            where = tuple(self._where(resource, above, in_slot and self._is_placed(resource, above)))
            offered = sum(w.amount * w.places for w in where)
            node = replace(node, offered=offered, where=where, levels=self._levels(resource))
        return replace(node, short=_is_short(node))

    def _is_placed(self, resource: Resource, above: str | None) -> bool:
        """Return whether a slot takes a type from one worker: it does unless it stands inside one."""
        host = self.layout.by_type.get(above or "", [0])[:1]
        inside = above is not None and any(self.layout.worker[i] != OUTSIDE for i in host)
        return resource.type in self.layout.worker_level_types and not inside

    def _where(self, resource: Resource, above: str | None, placed: bool) -> Iterator[Where]:
        """Yield what the places offer, equal ones together, the most first."""
        if placed:
            tops, name = sorted(self.layout.workers), self.worker_type
        else:
            tops, name = ([0], CLUSTER) if above is None else (self._tops(above), above)
        key = (resource.type, resource.unit, name)
        if key not in self._held:
            self._held[key] = self._amounts(resource, tops)
        amounts = dict(self._held[key])
        loose = amounts.pop(OUTSIDE, 0)
        for amount, places in sorted(Counter(amounts.values()).items(), reverse=True):
            yield Where(amount, name, places)
        if placed and loose:
            yield Where(loose, LOOSE, 1)

    def _tops(self, kind: str) -> list[int]:
        return list(self.layout.of_type(kind, 0, len(self.layout.vertices)))

    def _amounts(self, resource: Resource, tops: list[int]) -> dict[int, int]:
        """Sum the units that each place holds, and what lies in none of them under OUTSIDE."""
        sums: dict[int, int] = {}
        for i in self._tops(resource.type):
            self.meter.step()
            units = self._units(resource, i)
            if units and self.layout.worker[i] not in self.barred:
                at = bisect_right(tops, i) - 1
                key = tops[at] if at >= 0 and i < self.layout.last[tops[at]] else OUTSIDE
                sums[key] = sums.get(key, 0) + units
        return sums

    def _levels(self, resource: Resource) -> tuple[str, ...]:
        """Name the types that contain the first vertex of a type, runs of one type once."""
        first = self.layout.by_type.get(resource.type, [])[:1]
        above = [self.layout.types[i] for i in self.layout.up(first[0])] if first else []
        return tuple(kind for kind, _ in groupby(reversed(above)))

    def _units(self, resource: Resource, i: int) -> int:
        measured, factor = quantity(self.layout.units[i])
        requirement, each = quantity(resource.unit) if resource.unit else (measured, factor)
        return self.layout.amount(i) // each if requirement == measured else 0

    def _meeting(self, resource: Resource, above: str | None) -> int:
        """Count the vertices that have what is needed: a slot's needs belong to where it stands."""
        kind = (above or self.worker_type) if resource.is_slot else resource.type
        key = (kind, repr([(need.subsystem, need.conditions) for need in resource.needs]))
        if key not in self._met:
            candidates = self.layout.by_type.get(kind, [0] if resource.is_slot else [])
            self._met[key] = sum(1 for i in candidates if self._has(resource.needs, i))
        return self._met[key]

    def _has(self, needs: tuple[Need, ...], i: int) -> bool:
        self.meter.check()
        return self.layout.worker[i] not in self.barred and needs_met(needs, self.layout, i)


def _is_short(node: RequestNode) -> bool:
    most = max((where.amount for where in node.where), default=0)
    too_little = node.offered is not None and (most < node.wanted or node.offered < node.in_all)
    return too_little or node.meeting == 0
