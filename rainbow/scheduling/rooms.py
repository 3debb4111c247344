"""What a round leaves free on shared workers, and who has room for how much.

stream   the workers of one kind that had room for certain amounts when the round began, in their natural order.
         What is free only shrinks in a round, so nobody else comes to have room, and each is looked at once
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import merge

from rainbow.scheduling.census import Census, Place

Amounts = Mapping[str, int]


class Rooms:
    """The free amounts of one round: those of the census, less what was taken."""

    def __init__(self, census: Census) -> None:
        self._census = census
        self._touched: dict[str, dict[str, int]] = {}
        self._streams: dict[tuple[str, frozenset[tuple[str, int]]], Stream] = {}

    def free(self, worker: str) -> Amounts:
        """Return what is free on a worker."""
        return self._touched.get(worker) or self._census.workers[worker].free

    def has(self, worker: str, amounts: Amounts) -> bool:
        """Tell whether a worker has so much free."""
        return _holds(self.free(worker), amounts)

    def take(self, worker: str, amounts: Amounts) -> None:
        """Take amounts of a worker; negative ones are given back."""
        free = self._touched.setdefault(worker, dict(self._census.workers[worker].free))
        free.update({kind: free.get(kind, 0) - amount for kind, amount in amounts.items()})

    def empty(self) -> list[str]:
        """Name the workers that hold nothing."""
        places = merge(*(ranked.items() for ranked in self._census.idle.values()))
        return [name for _, name in places if name not in self._touched]

    def with_room(self, kind: str, amounts: Amounts, but: Collection[str]) -> Iterator[str]:
        """Yield the workers of a kind with so much room, in order."""
        key = kind, frozenset(amounts.items())
        if key not in self._streams:
            self._streams[key] = Stream(self._had_room(kind, amounts))
        stream = self._streams[key]
        while (first := stream.at(0)) is not None and not self.has(first, amounts):
            stream.drop()
        k = 0
        while (name := stream.at(k)) is not None:
            k += 1
            if name not in but and self.has(name, amounts):
                yield name

    def _had_room(self, kind: str, amounts: Amounts) -> Iterator[Place]:
        rooms = self._census.rooms.get(kind, {})
        return merge(*(ranked.items() for free, ranked in rooms.items() if _holds(dict(free), amounts)))

    def roomiest(self, kind: str, unit: str) -> str:
        """Name the worker of a kind with most of a unit free, the first of several."""
        rooms = self._census.rooms[kind].items()
        found = ((-dict(free).get(unit, 0), place) for free, ranked in rooms for place in self._first(ranked.items()))
        touched = ((-free.get(unit, 0), self._census.place_of(name)) for name, free in self._touched.items())
        own = (one for one in touched if self._census.workers[one[1][1]].kind == kind)
        return min([*found, *own])[1][1]

    def _first(self, places: list[Place]) -> list[Place]:
        """Return the first of these nothing was taken of."""
        first = next((place for place in places if place[1] not in self._touched), None)
        return [] if first is None else [first]


class Stream:
    """A row of workers, read as far as somebody has looked."""

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

    def drop(self) -> None:
        """Look at the first no more."""
        self._begin += 1


def _holds(free: Amounts, wanted: Amounts) -> bool:
    return all(free.get(kind, 0) >= amount for kind, amount in wanted.items())
