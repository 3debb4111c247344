"""What the service remembers between two calls: each memory is declared, with its size and why it is true.

    table     values by key, of bounded size; one is used while it is valid (see Validity), and may be forgotten at
              any time: RAINBOW_MEMORY=off lets all tables forget at once
    picture   of what is stored, followed change by change; it says itself what makes it true
    place     where a loop has got to, or what only this process knows: nothing of it is stored

What a transaction puts into a table only that transaction sees, until it has committed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from rainbow.store.engine import once_stored, pending_here

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
Kind = TypeVar("Kind", bound=type)

IS_OFF = os.environ.get("RAINBOW_MEMORY") == "off"


class Validity(NamedTuple):
    """Why a value that is remembered is still true."""

    text: str
    holds: Callable[[Any, Any], bool]  # by the mark it was put with, and that of now


# the key says all there is to know: a digest, or an id with a revision
IMMUTABLE = Validity("immutable", lambda then, now: True)
# the mark is a number, or anything else, that changes with what the value was made of
VERSION = Validity("version", lambda then, now: bool(then == now))


def age(seconds: float) -> Validity:
    """Return the validity of what may be so old; the marks are times by one clock, which may be set back."""
    return Validity(f"age {seconds:g} s", lambda then, now: 0 <= now - then < seconds)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One memory: its kind, how much of what it holds at most, and why that is true."""

    name: str
    kind: str
    most: str
    why: str


DECLARED: dict[type, Declaration] = {}


class _Entry(NamedTuple):
    value: Any
    mark: Any
    weight: int


class Table(Generic[K, V]):
    """Values by key, the least recently used forgotten first. Threads share one."""

    most: int
    valid: Validity

    def __init_subclass__(cls, *, name: str, most: int, valid: Validity, key: str) -> None:
        super().__init_subclass__()
        cls.most, cls.valid = most, valid
        DECLARED[cls] = Declaration(name, "table", f"{most:,}", f"{valid.text}: {key}")

    def __init__(self) -> None:
        self._entries: dict[K, _Entry] = {}
        self._lock = threading.Lock()
        self._weight = 0
        self.hits = self.misses = 0

    def get(self, key: K, mark: Any = None) -> V | None:
        """Return a value that is still true; None if there is none. `mark`: the version or the time of now."""
        entry = self._find(key)
        if entry is None or not self.valid.holds(entry.mark, mark):
            self.misses += 1
            return None
        self.hits += 1
        value: V = entry.value
        return value

    def put(self, key: K, value: V, mark: Any = None, weight: int = 1) -> V:
        """Remember a value, and return it."""
        if IS_OFF:
            return value
        entry = _Entry(value, mark, weight)
        if (pending := pending_here()) is None:
            self._keep(key, entry)
        else:
            pending.seen[self, key] = entry
            once_stored(partial(self._keep, key, entry))
        return value

    def forget(self, key: K) -> None:
        """Forget a value, if there is one."""
        if (pending := pending_here()) is not None:
            pending.seen.pop((self, key), None)
        with self._lock:
            if (entry := self._entries.pop(key, None)) is not None:
                self._weight -= entry.weight

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._weight = 0

    def __len__(self) -> int:
        """How many values there are."""
        return len(self._entries)

    def _find(self, key: K) -> _Entry | None:
        pending = pending_here()
        if pending is not None and (seen := pending.seen.get((self, key))) is not None:
            return seen  # type: ignore[no-any-return]
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._entries[key] = entry  # at the end: the least recently used stand first
        return entry

    def _keep(self, key: K, entry: _Entry) -> None:
        with self._lock:
            if (before := self._entries.pop(key, None)) is not None:
                self._weight -= before.weight
            self._entries[key] = entry
            self._weight += entry.weight
            while self._weight > self.most and len(self._entries) > 1:
                self._weight -= self._entries.pop(next(iter(self._entries))).weight


SHARED: list[object] = []  # tables of a process: their keys are the same whatever service asks


def shared(kind: type[T]) -> T:
    """Return the one table of its kind that all services of a process share."""
    table = kind()
    SHARED.append(table)
    return table


def _declared(kind: str, name: str, most: str, why: str) -> Callable[[Kind], Kind]:
    def declare(cls: Kind) -> Kind:
        DECLARED[cls] = Declaration(name, kind, most, why)
        return cls

    return declare


def picture(name: str, *, most: str, true: str) -> Callable[[Kind], Kind]:
    """Declare a class whose one object is a picture of what is stored; `true`: what makes it so."""
    return _declared("picture", name, most, true)


def place(name: str, *, most: str, of: str) -> Callable[[Kind], Kind]:
    """Declare a class whose one object says where a loop has got to, or what only this process knows."""
    return _declared("place", name, most, of)


class ByCluster(dict[str, V]):
    """What is remembered by cluster id; what is of a cluster goes with it."""


class Row(NamedTuple):
    """One memory of a process as it is now; hits and misses of tables alone."""

    name: str
    kind: str
    entries: int
    most: str
    why: str
    hits: int | None
    misses: int | None


def rows(states: Iterable[object]) -> list[Row]:
    """Return what is declared, by name, with the figures of the objects that there are of it."""
    known = {type(one): one for one in (*states, *SHARED)}
    results = []
    for cls, declaration in DECLARED.items():
        one: Any = known.get(cls)
        entries = len(one) if hasattr(one, "__len__") else int(one is not None)
        counts = (getattr(one, "hits", 0), getattr(one, "misses", 0)) if issubclass(cls, Table) else (None, None)
        results.append(Row(declaration.name, declaration.kind, entries, declaration.most, declaration.why, *counts))
    return sorted(results)
