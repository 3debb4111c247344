"""What a round leaves free on shared workers, and who has room for how much.

stream   the workers of one kind that had room for certain amounts when the round began, in their natural order.
         What is free only shrinks in a round, so nobody else comes to have room, and each is looked at once
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import merge
from itertools import islice

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

    def roomiest(self, kind: str, unit: str, most: int) -> list[Place]:
        """Return the workers of a kind that had most of a unit free when the round began, so many of them."""
        rooms = sorted(self._census.rooms.get(kind, {}).items(), key=lambda room: -dict(room[0]).get(unit, 0))
        return list(islice((place for _, ranked in rooms for place in ranked.items()), most))

    def total(self, kinds: Collection[str], unit: str) -> int:
        """Count how much of a unit the workers of these kinds have free."""
        names = (name for kind in kinds if kind in self._census.kinds for _, name in self._census.kinds[kind].items())
        return sum(max(0, self.free(name).get(unit, 0)) for name in names)

    def begin(self) -> None:
        """Look at all workers again: something was given back."""
        self._streams.clear()


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
