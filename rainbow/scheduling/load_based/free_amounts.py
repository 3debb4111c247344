"""What is free by amounts alone: the same interface as that of vertices, for a view that knows none.

    template   what a gang holds when its workers are empty, as the matcher says: {worker: amounts}
    room       a worker has it for a part of a template if it has that much of everything free
    stream     the workers of one kind that had room for certain amounts when the round began, in their natural order.
               What is free only shrinks in a round, so nobody else comes to have room, and each is looked at once

What a template has on one worker stays on one worker, of the same kind: then the matcher's answer holds there too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import TYPE_CHECKING

from rainbow.scheduling.cluster_index import ClusterIndex, Place
from rainbow.scheduling.interface import Taken, View, Wait

if TYPE_CHECKING:
    from rainbow.matching import Take

Amounts = Mapping[str, int]
Template = Mapping[str, Amounts]
Kinds = frozenset[str]
MOST_SIZES = 4  # sizes of workers that are told apart for a gang on several of them
FRACTIONS = range(1, MOST_SIZES + 1)


class FreeAmounts:
    """The free amounts of one round."""

    def __init__(self, view: View, census: ClusterIndex) -> None:
        self._view = view
        self._census = census
        self._touched: dict[str, dict[str, int]] = {}
        self._log: list[tuple[str, Amounts]] = []  # what was taken of which worker; what was given back is negative
        self._streams: dict[tuple[str, frozenset[tuple[str, int]]], WorkerQueue] = {}
        self._templates: dict[str, list[tuple[Kinds, Template]]] = {}

    # ── take ──

    def take(
        self, demand: str, *, among: Collection[str] | None = None, kinds: frozenset[str] | None = None
    ) -> Taken | None:
        """Take what a gang asks for of these workers or kinds alone; None if it does not fit."""
        result = self._found(demand, among, kinds)
        if result is None:
            return None
        for worker, amounts in result.by_worker.items():
            self._book(worker, amounts)
        placements = tuple(self._view.divide(demand, result))
        return Taken(result, placements, (None,) * len(placements), len(self._log))

    def _found(self, demand: str, among: Collection[str] | None, kinds: frozenset[str] | None) -> Take | None:
        if among is not None:
            return self._checked(demand, sorted(among))
        for own, template in self._parts(demand):
            if kinds is None or own <= kinds:
                result = self._checked(demand, list(template)) or self._checked(demand, self._mapped(template))
                if result:
                    return result
        empty = self._empty() if kinds is None else []
        return self._view.place(demand, empty) if empty else None

    def _parts(self, demand: str) -> list[tuple[Kinds, Template]]:
        if demand not in self._templates:
            self._templates[demand] = templates(self._view, self._census, demand)
        return self._templates[demand]

    def _checked(self, demand: str, chosen: list[str]) -> Take | None:
        """Ask the matcher about the chosen workers, and whether they have room for what it says."""
        take = self._view.place(demand, chosen) if chosen else None
        return take if take and all(self._has(*part) for part in take.by_worker.items()) else None

    def _mapped(self, template: Template) -> list[str]:
        """Choose a worker with room for every part of a template; none if one has none."""
        chosen: list[str] = []
        for worker, amounts in template.items():
            name = next(self._with_room(self._kind_of(worker), amounts, chosen), None)
            if name is None:
                return []
            chosen.append(name)
        return chosen

    def _empty(self) -> list[str]:
        places = merge(*(ranked.items() for ranked in self._census.idle.values()))
        return [name for _, name in places if name not in self._touched]

    def _with_room(self, kind: str, amounts: Amounts, but: Collection[str]) -> Iterator[str]:
        """Yield the workers of a kind with so much room, in order."""
        key = kind, frozenset(amounts.items())
        if key not in self._streams:
            self._streams[key] = WorkerQueue(self._had_room(kind, amounts))
        stream = self._streams[key]
        while (first := stream.at(0)) is not None and not self._has(first, amounts):
            stream.drop()
        yield from (name for name in stream.ahead() if name not in but and self._has(name, amounts))

    def _had_room(self, kind: str, amounts: Amounts) -> Iterator[Place]:
        rooms = self._census.rooms.get(kind, {})
        return merge(*(ranked.items() for free, ranked in rooms.items() if _holds(dict(free), amounts)))

    def _has(self, worker: str, amounts: Amounts) -> bool:
        return _holds(self.amounts(worker), amounts)

    def _kind_of(self, worker: str) -> str:
        return self._census.workers[worker].kind if worker in self._census.workers else ""

    # ── book ──

    def _book(self, worker: str, amounts: Amounts) -> None:
        self._log.append((worker, amounts))
        free = self._touched.setdefault(worker, dict(self._census.workers[worker].free))
        free.update({kind: free.get(kind, 0) - amount for kind, amount in amounts.items()})

    def keep(self, worker: str, amounts: Amounts) -> int:
        """Keep amounts of a worker; the number to give them back by."""
        self._book(worker, amounts)
        return len(self._log)

    def give_back(self, number: int) -> None:
        """Give back what was kept."""
        self._give(*self._log[number - 1])

    def release(self, tasks: Iterable[str]) -> None:
        """Continue as if these tasks had ended."""
        for task in tasks:
            for worker, amounts in self._census.runs[task].placement.items():
                if worker:
                    self._give(worker, amounts)

    def _give(self, worker: str, amounts: Amounts) -> None:
        self._streams.clear()  # more workers may have room than when they were looked through
        self._book(worker, {kind: -amount for kind, amount in amounts.items()})

    def mark(self) -> int:
        """Return a point to come back to."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Take everything back since a mark."""
        for worker, amounts in reversed(self._log[mark:]):
            self._give(worker, amounts)
        del self._log[mark:]

    def amounts(self, worker: str) -> Amounts:
        """Return what is free of a worker by type."""
        return self._touched.get(worker) or self._census.workers[worker].free

    def why(self, _demand: str) -> Wait | None:
        """Return None: amounts say all that is known."""
        return None


class WorkerQueue:
    """A row of workers, read as far as a caller has looked."""

    def __init__(self, places: Iterator[Place]) -> None:
        self._places = places
        self._seen: list[str] = []
        self._begin = 0

    def at(self, k: int) -> str | None:
        """Name the k-th worker that was not dropped; None after the last."""
        while len(self._seen) <= self._begin + k:
            place = next(self._places, None)
            if place is None:
                return None
            self._seen.append(place[1])
        return self._seen[self._begin + k]

    def ahead(self) -> Iterator[str]:
        """Yield those that were not dropped."""
        k = 0
        while (name := self.at(k)) is not None:
            yield name
            k += 1

    def drop(self) -> None:
        """Look at the first no more."""
        self._begin += 1


def templates(view: View, census: ClusterIndex, demand: str) -> list[tuple[Kinds, Template]]:
    """Return what a gang may hold, and of which kinds of workers: on one of each kind, else on several together."""
    hosts = [kind for kind in sorted(view.hosts(demand)) if kind in census.kinds]
    choices = [(frozenset([kind]), [census.kinds[kind].items()[0][1]]) for kind in hosts]
    if not any(view.place(demand, names) for _, names in choices):
        choices = [(kinds, _ready(census, kinds)) for kinds in smallest_first(census, hosts)] if hosts else []
    return [(kinds, take.by_worker) for kinds, names in choices if (take := view.place(demand, names))]


def smallest_first(census: ClusterIndex, kinds: Sequence[str]) -> list[Kinds]:
    """Return ever more of some kinds, the smaller workers before the larger; the last are all.

    A whole node for a small part should be a small node: the search takes the lowest, whatever its size.
    """
    sizes = {kind: sum(census.workers[census.kinds[kind].items()[0][1]].capacity.values()) for kind in kinds}
    steps = sorted(set(sizes.values()))
    chosen = steps if len(steps) <= MOST_SIZES else [steps[len(steps) * k // MOST_SIZES - 1] for k in FRACTIONS]
    return [frozenset(kind for kind in kinds if sizes[kind] <= size) for size in chosen]


def _ready(census: ClusterIndex, kinds: Kinds) -> list[str]:
    if kinds >= census.kinds.keys():
        return census.everyone()
    return [name for _, name in merge(*(census.kinds[kind].items() for kind in sorted(kinds)))]


def _holds(free: Amounts, amounts: Amounts) -> bool:
    return all(free.get(kind, 0) >= amount for kind, amount in amounts.items())
