"""Which tasks of a job wait, in the order in which they should start."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

SLACK = 1_000  # places of tasks that have started, kept in front


class Order:
    """The longest expected first, else as the jobspec has them. A change costs a search, however many wait.

    >>> order = Order([0, 1, 2], {1: 9.0})
    >>> order.discard(0)
    >>> order.add(0)
    >>> list(order)
    [1, 0, 2]
    """

    def __init__(self, indexes: Iterable[int], expected: Mapping[int, float]) -> None:
        self._expected = dict(expected)
        self._items = array("i", sorted(indexes, key=self._rank) if expected else sorted(indexes))
        self._begin = 0  # tasks start from the front: what is before it has gone

    def __len__(self) -> int:
        return len(self._items) - self._begin

    def __getitem__(self, k: int) -> int:
        return self._items[self._begin + k]

    def __iter__(self) -> Iterator[int]:
        return (self._items[k] for k in range(self._begin, len(self._items)))

    def has(self, index: int) -> bool:
        """Tell whether a task waits."""
        return self._find(index)[1]

    def expected(self, index: int) -> float:
        """Return how many seconds a task is expected to take, 0: unknown."""
        return self._expected.get(index, 0.0)

    def add(self, index: int) -> None:
        """Let a task wait (again)."""
        at, there = self._find(index)
        if there:
            return
        if at == self._begin > 0:
            self._begin -= 1
            self._items[self._begin] = index
        else:
            self._items.insert(at, index)

    def discard(self, index: int) -> None:
        """Let a task wait no more."""
        at, there = self._find(index)
        if not there:
            return
        if at > self._begin:
            del self._items[at]
            return
        self._begin += 1
        if self._begin > SLACK and self._begin > len(self):
            del self._items[: self._begin]
            self._begin = 0

    def _rank(self, index: int) -> tuple[float, int]:
        return -self._expected.get(index, 0.0), index

    def _find(self, index: int) -> tuple[int, bool]:
        if self._expected:
            at = bisect_left(self._items, self._rank(index), lo=self._begin, key=self._rank)
        else:
            at = bisect_left(self._items, index, lo=self._begin)
        return at, at < len(self._items) and self._items[at] == index
