"""The idle workers of a round, by kind, in their natural order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import merge
from itertools import islice

from rainbow.scheduling.policy import WorkerView


class Idle:
    """Workers to be taken; taking one costs the same however many there are."""

    def __init__(self, workers: Iterable[WorkerView]) -> None:
        self._kind: dict[str, str] = {}
        self._kinds: dict[str, dict[str, int]] = {}  # kind → worker → its place in the order
        for place, worker in enumerate(workers):
            self._kind[worker.id] = worker.kind
            self._kinds.setdefault(worker.kind, {})[worker.id] = place

    def __len__(self) -> int:
        return len(self._kind)

    def __iter__(self) -> Iterator[str]:
        return self.of_kinds(self._kinds)

    def of_kinds(self, kinds: Collection[str]) -> Iterator[str]:
        """Yield the workers of these kinds in order."""
        found = [((place, name) for name, place in self._kinds[k].items()) for k in kinds if k in self._kinds]
        return (name for _, name in merge(*found))

    def first(self, kinds: Collection[str], count: int) -> list[str]:
        """Return the first so many workers of these kinds."""
        return list(islice(self.of_kinds(kinds), count))

    def take(self, workers: Iterable[str]) -> None:
        """Take workers out."""
        for name in workers:
            del self._kinds[self._kind.pop(name)][name]
