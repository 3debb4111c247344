"""What was looked for and found where: the tree of a request with what a cluster offers at each of its requests.

place     where units of a request are looked for: the vertices of the request above it, for a slot's children
          of worker level the workers, else the cluster
where     how much how many places offer, the most first: "core: 36 in each of 10 nodes"

Each request is looked at alone, on the empty cluster: that it is offered enough does not mean that all of them are
met together. Where the search stopped is said by the verdict's reason.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rainbow.matching.constraints import passes
from rainbow.matching.edits import called, question
from rainbow.matching.layout import OUTSIDE, layout
from rainbow.matching.needs import needs_met
from rainbow.matching.units import quantity

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource
    from rainbow.matching.layout import Layout
    from rainbow.matching.verdict import Reason, Verdict

CLUSTER = "the cluster"
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
        if self.places == 1:
            return f"{self.amount} in one {self.place}"
        return f"{self.amount} in each of {self.places} {self.place}s"


@dataclass(frozen=True, slots=True)
class Sought:
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
    children: tuple[Sought, ...] = ()

    def walk(self) -> Iterator[Sought]:
        """Yield this request and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def text(self) -> str:
        """What was looked for and found, in one line."""
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


def sought(request: Request, cluster: Cluster, verdict: Verdict) -> tuple[Sought, ...]:
    """Return the trees of the preferred variant; of a refused one the request that the refusal is about is marked."""
    view = _View(request, layout(cluster))
    trees = tuple(view.look(resource, None, 1) for resource in request.resources)
    if verdict.matched or verdict.reason is None:
        return trees
    stopped = _stopped(trees, verdict.reason)
    return tuple(_marked(tree, stopped) for tree in trees)


def _stopped(trees: Sequence[Sought], reason: Reason) -> Sought:
    """Find the request that a refusal is about: by name, and among several of that name one that is short."""
    every = [part for tree in trees for part in tree.walk()]
    subjects = set(reason.subject.split(", "))
    named = [part for part in every if part.name in subjects or part.type in subjects]
    needing = [part for part in every if any(_asks(need, subject) for need in part.needs for subject in subjects)]
    candidates = named or needing or every
    return next((part for part in candidates if part.short), candidates[0])


def _asks(question: str, subsystem: str) -> bool:
    return f"{question.partition(' on ')[2]}.".startswith(f"{subsystem}.")


def _marked(tree: Sought, stopped: Sought) -> Sought:
    children = tuple(_marked(child, stopped) for child in tree.children)
    return replace(tree, stopped=tree is stopped, children=children)


class _View:
    """Looks at a cluster for the parts of one request; workers that fail its constraint offer nothing."""

    def __init__(self, request: Request, laid_out: Layout) -> None:
        self.layout = laid_out
        self.worker_type = laid_out.cluster.worker_type
        constraint = request.constraint
        self.barred = {i for i in laid_out.workers if constraint and not passes(constraint, laid_out, i)}

    def look(self, resource: Resource, above: str | None, times: int) -> Sought:
        """Look for one request below vertices of type `above` (None: anywhere), and for all below it."""
        times *= resource.count.min
        place = None if resource.is_slot else self._place(resource, above)
        below = above if resource.is_slot else resource.type
        found = Sought(
            called(resource),
            resource.type,
            resource.count.min,
            times,
            resource.unit,
            offered=None,
            needs=tuple(question(need, condition) for need in resource.needs for condition in need.conditions),
            meeting=self._meeting(resource, above) if resource.needs else None,
            children=tuple(self.look(child, below, times) for child in resource.children),
        )
        if not resource.is_slot:
            amounts = self._amounts(resource, place)
            found = replace(
                found, offered=sum(amounts), where=_grouped(amounts, place or CLUSTER), levels=self._levels(resource)
            )
        return replace(found, short=_is_short(found))

    def _place(self, resource: Resource, above: str | None) -> str | None:
        """Name the type of vertices that a request is looked for in."""
        if above is not None:
            return above
        if resource.type in self.layout.cluster.worker_level_types and self.worker_type in self.layout.by_type:
            return self.worker_type
        return None

    def _amounts(self, resource: Resource, place: str | None) -> list[int]:
        """Sum the units each place holds, in order; places that hold none are left out."""
        tops = [0] if place is None else list(self.layout.of_type(place, 0, len(self.layout.vertices)))
        sums: dict[int, int] = {}
        for i in self.layout.of_type(resource.type, 0, len(self.layout.vertices)):
            at = bisect_right(tops, i) - 1
            inside = at >= 0 and i < self.layout.last[tops[at]]
            if self.layout.worker[i] not in self.barred:
                key = tops[at] if inside else OUTSIDE
                sums[key] = sums.get(key, 0) + self._units(resource, i)
        return [amount for key, amount in sums.items() if amount and (key != OUTSIDE or place is None)]

    def _levels(self, resource: Resource) -> tuple[str, ...]:
        """Name the types that contain the first vertex of a type, runs of one type once."""
        first = self.layout.by_type.get(resource.type, [])[:1]
        above = [self.layout.types[i] for i in self.layout.up(first[0])] if first else []
        return tuple(kind for kind, _ in groupby(reversed(above)))

    def _units(self, resource: Resource, i: int) -> int:
        measured, factor = quantity(self.layout.units[i])
        wanted, each = quantity(resource.unit) if resource.unit else (measured, factor)
        return self.layout.amount(i) // each if wanted == measured else 0

    def _meeting(self, resource: Resource, above: str | None) -> int:
        """Count the vertices that have what is needed: a slot's needs belong to where it stands."""
        kind = (above or self.worker_type) if resource.is_slot else resource.type
        candidates = self.layout.by_type.get(kind, [0] if resource.is_slot else [])
        open_ones = (i for i in candidates if self.layout.worker[i] not in self.barred)
        return sum(1 for i in open_ones if needs_met(resource.needs, self.layout, i))


def _grouped(amounts: list[int], place: str) -> tuple[Where, ...]:
    counted = sorted(Counter(amounts).items(), reverse=True)
    return tuple(Where(amount, place, places) for amount, places in counted)


def _is_short(found: Sought) -> bool:
    most = max((where.amount for where in found.where), default=0)
    too_little = found.offered is not None and (most < found.wanted or found.offered < found.in_all)
    return too_little or found.meeting == 0
