"""Distinct items in order, for many readers and few changes between them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

Item = TypeVar("Item", bound=tuple[Any, ...])
FEW = 64  # changes that are searched for one by one; more are sorted in at once


class Ranked(Generic[Item]):
    """A sorted list. A change costs a search; very many changes together cost one sort.

    What is added is not there, what is taken out is: whoever changes it knows.

    >>> ranked = Ranked([(2, "b"), (1, "a")])
    >>> ranked.add((0, "c"))
    >>> ranked.discard((2, "b"))
    >>> ranked.items(), len(ranked)
    ([(0, 'c'), (1, 'a')], 2)
    """

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items = sorted(items)
        self._new: set[Item] = set()
        self._gone: set[Item] = set()

    def __len__(self) -> int:
        return len(self._items) + len(self._new) - len(self._gone)

    def add(self, item: Item) -> None:
        """Put one in."""
        if item in self._gone:
            self._gone.discard(item)
        else:
            self._new.add(item)

    def discard(self, item: Item) -> None:
        """Take one out."""
        if item in self._new:
            self._new.discard(item)
        else:
            self._gone.add(item)

    def items(self) -> list[Item]:
        """Return all in order. The list is this object's own: it is read, never changed."""
        if len(self._new) + len(self._gone) > FEW:
            self._items = sorted([one for one in self._items if one not in self._gone] + list(self._new))
        else:
            for one in self._gone:
                del self._items[bisect_left(self._items, one)]
            for one in self._new:
                insort(self._items, one)
        if self._new or self._gone:
            self._new, self._gone = set(), set()
        return self._items
