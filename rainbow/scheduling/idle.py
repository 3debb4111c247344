"""The idle workers of a round, by kind, in their natural order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import merge
from itertools import islice

from rainbow.scheduling.census import Place
from rainbow.scheduling.ranked import Ranked


class Idle:
    """Workers to be taken; beginning and taking one cost the same however many there are."""

    def __init__(self, kinds: Mapping[str, Ranked[Place]]) -> None:
        self._kinds = {kind: ranked.items() for kind, ranked in kinds.items()}
        self._left = sum(map(len, self._kinds.values()))
        self._begin = dict.fromkeys(self._kinds, 0)  # before it everything is taken
        self._taken: set[str] = set()

    def __len__(self) -> int:
        return self._left

    def __iter__(self) -> Iterator[str]:
        return self.of_kinds(self._kinds)

    def of_kinds(self, kinds: Collection[str]) -> Iterator[str]:
        """Yield the workers of these kinds in order."""
        known = [kind for kind in kinds if kind in self._kinds]
        if len(known) == 1:
            return (name for _, name in self._of_kind(known[0]))
        return (name for _, name in merge(*map(self._of_kind, known)))

    def _of_kind(self, kind: str) -> Iterator[Place]:
        found, begin = self._kinds[kind], self._begin[kind]
        while begin < len(found) and found[begin][1] in self._taken:
            begin += 1
        self._begin[kind] = begin
        return (found[k] for k in range(begin, len(found)) if found[k][1] not in self._taken)

    def first(self, kinds: Collection[str], count: int) -> list[str]:
        """Return the first so many workers of these kinds."""
        return list(islice(self.of_kinds(kinds), count))

    def count(self, kinds: Collection[str]) -> int:
        """Count the workers of these kinds."""
        return self._left if self._kinds.keys() <= set(kinds) else sum(1 for _ in self.of_kinds(kinds))

    def has(self, worker: str) -> bool:
        """Return whether a worker that was idle at first has not been taken."""
        return worker not in self._taken

    def give(self, workers: Collection[str]) -> None:
        """Put workers back that were taken."""
        self._taken.difference_update(workers)
        self._left += len(workers)
        self._begin = dict.fromkeys(self._kinds, 0)

    def take(self, workers: Collection[str]) -> None:
        """Take workers out."""
        self._taken.update(workers)
        self._left -= len(workers)
