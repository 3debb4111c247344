"""A cache bounded by the number of its entries: the least recently used one goes first."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Generic, TypeVar


class Same:
    """A key that is equal only to a key of the same object, which it keeps alive.

    The address of an object (`id`) is no key: once the object is gone, another one may have it.
    """

    __slots__ = ("of",)

    def __init__(self, of: object) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        """Return whether both are keys of the same object."""
        return isinstance(other, Same) and self.of is other.of

    def __hash__(self) -> int:
        """Return the hash of the object's identity, whether it has a hash of its own or not."""
        return object.__hash__(self.of)


K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """At most `most` values. Threads may share one: what two of them do at once is at worst done twice."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return a value, None if it is not known."""
        value = self._kept.pop(key, None)
        if value is not None:
            self._kept[key] = value  # at the end: the least recently used stand first
        return value

    def __contains__(self, key: K) -> bool:
        """Return whether a value is kept, None included."""
        return key in self._kept

    def put(self, key: K, value: V) -> V:
        """Keep a value, and return it."""
        self._kept[key] = value
        if len(self._kept) > self.most:
            with suppress(RuntimeError, StopIteration):  # another thread is at it too
                self._kept.pop(next(iter(self._kept)), None)
        return value

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()

    def values(self) -> Iterable[V]:
        """All values, the least recently used first."""
        return self._kept.values()

    def __len__(self) -> int:
        """How many values are kept."""
        return len(self._kept)
