"""Values that are computed once: attributes, modules, a cache with a limit, and a list in which little changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import compress, count
from operator import is_not
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class cached_property(Generic[T]):  # noqa: N801 - it stands where functools' own stood
    """A property worked out once and kept in the instance's dictionary.

    That of functools in Python 3.11 holds one lock for all instances of a class while it works one value out: while a
    search for one job runs, every other thread waits. Here no lock is held; two threads that ask at once may both
    work it out, and the value of the first to finish is kept.

    >>> class Square:
    ...     @cached_property
    ...     def area(self) -> int:
    ...         print("once")
    ...         return 4
    >>> square = Square()
    >>> square.area + square.area
    once
    8
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Note under which name the value is kept."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> cached_property[T] | T:
        """Return the value; a stored one is found before this is called."""
        if instance is None:
            return self
        result: T = instance.__dict__.setdefault(self._name, self._work_out(instance))
        return result


class LazyModule:
    """A stand-in for a module that is slow to import, until one of its attributes is used.

    >>> LazyModule("math").floor(2.5)
    2
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the module, and store it."""
        result = vars(self)[name] = getattr(import_module(self._name), name)
        return result


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


class LruCache(Generic[K, V]):
    """At most `most` values. Threads may share one; at worst two of them compute a value twice."""

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

    def forget(self, key: K) -> None:
        """Forget a value, if it is kept."""
        self._kept.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()

    def values(self) -> Iterable[V]:
        """All values, the least recently used first."""
        return self._kept.values()

    def items(self) -> list[tuple[K, V]]:
        """All keys with their values, the least recently used first."""
        return list(self._kept.items())

    def __len__(self) -> int:
        """How many values are kept."""
        return len(self._kept)


MOST_OTHERS = 64  # places in which an overlay differs from its base; with more it gets a base of its own


class Overlay(Sequence[V]):
    """A tuple in which few places hold others; the next one is made without a look at the rest."""

    __slots__ = ("_base", "_others")

    def __init__(self, base: Iterable[V], others: Mapping[int, V] | None = None) -> None:
        self._base = base if isinstance(base, tuple) else tuple(base)
        self._others = others or {}

    def with_others(self, others: Mapping[int, V]) -> Overlay[V]:
        """Return a list with others at some places."""
        made = Overlay(self._base, {**self._others, **others})
        return made if len(made._others) <= MOST_OTHERS else Overlay(made)

    def __len__(self) -> int:
        """As many as the base has."""
        return len(self._base)

    @overload
    def __getitem__(self, at: int) -> V: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[V]: ...
    def __getitem__(self, at: int | slice) -> V | Sequence[V]:
        """Return the item at a place, or those of a slice."""
        if isinstance(at, slice):
            return tuple(self)[at]
        at = at + len(self) if at < 0 else at
        return self._others[at] if at in self._others else self._base[at]

    def __iter__(self) -> Iterator[V]:
        """Yield each."""
        whole = [*self._base]
        for at, one in self._others.items():
            whole[at] = one
        return iter(whole)

    def differing(self, other: Sequence[Any]) -> Iterator[int]:
        """Yield the places at which another list of this length holds another object."""
        if isinstance(other, Overlay) and other._base is self._base:
            among = self._others.keys() | other._others.keys()
            return (at for at in sorted(among) if self[at] is not other[at])
        return compress(count(), map(is_not, self, other))
