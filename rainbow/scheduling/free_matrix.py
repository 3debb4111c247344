"""Free amounts over time and workers, as arrays.

The resource diagram once more, for questions about many workers at once: one operation on an array in place of one
question to the profile of every worker.

    times    the moments at which anything changes, ascending; the first is now
    rows     where the amounts of each moment lie: rows are only appended, so that entering a moment moves no amounts
    plane    what is free of one type: row x worker
    window   the rows of [start, end): their minimum is free for the whole time
    giving   how many slots each worker of a group gives under a rule: never more, the less is free

The earliest start is the first moment whose window gives enough: nothing is freed between moments. Three bounds keep
most windows from being counted. Together the workers must have enough at every moment of a window; the windows left
are counted in blocks; and what asks for as much, for as long as something placed before, starts no earlier than that.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Change = tuple[float, str, str, int]  # from when on, of which worker, of which type, how much more is in use

CHUNK = 256  # moments looked through at a time
BLOCKS = (1, 4, 32)  # windows counted at once: first, and then; two of three starts are the first
BOUNDS = 64  # starts remembered for each group and rule
LARGEST = 1 << 22  # amounts read at once


@dataclass(frozen=True, slots=True)
class Slots:
    """Equal slots that are wanted together; `each`: a worker gives exactly so many or none; 0: any number."""

    amounts: tuple[tuple[str, int], ...]  # of one slot: (type, more than 0)
    count: int
    each: int = 0
    apart: bool = False  # no two on one worker

    def giving(self, copies: Ints) -> Ints:
        """Return how many slots workers give that have room for so many."""
        if self.each:
            return np.where(copies >= self.each, self.each, 0) if not self.apart or self.each < 2 else copies * 0
        return np.minimum(copies, 1 if self.apart else self.count)

    def given(self, free: Mapping[str, Ints], shape: tuple[int, ...]) -> Ints:
        """Return how many slots workers give that have so much free of each type."""
        copies: Ints | int = self.each or self.count
        for kind, amount in self.amounts:
            copies = np.minimum(free[kind] if amount == 1 else free[kind] // amount, copies)
        return self.giving(np.maximum(copies, 0) if self.amounts else np.full(shape, copies, np.int64))

    @property
    def rule(self) -> tuple[int, bool]:
        """Name how they may lie; -1: all on one worker."""
        return -1 if self.each == self.count else self.each, self.apart

    def covers(self, other: Slots) -> bool:
        """Return whether whatever has room for these slots has room for the other ones, of the same rule."""
        if self.count < other.count or self.amounts == other.amounts:
            return self.count >= other.count
        mine = dict(self.amounts)
        return all(mine.get(kind, 0) >= amount for kind, amount in other.amounts)


@dataclass(slots=True, eq=False)
class Group:
    """Workers among which slots are wanted, in the order they are asked; and starts found among them."""

    names: tuple[str, ...]
    columns: Ints
    are_first: bool  # they are the first columns, in order
    found: dict[tuple[int, bool], list[tuple[float, float, Slots]]] = field(default_factory=dict)

    def left(self, counts: Ints) -> dict[str, int]:
        """Return how many slots each worker that gives any gives."""
        some = counts.nonzero()[0]
        return {self.names[at]: count for at, count in zip(some.tolist(), counts[some].tolist(), strict=True)}

    def bound(self, slots: Slots, duration: float) -> float:
        """Return a time before which slots cannot start."""
        known = reversed(self.found.get(slots.rule, ()))
        return next((start for start, lasts, other in known if lasts <= duration and slots.covers(other)), -inf)

    def note(self, slots: Slots, duration: float, start: float) -> None:
        """Remember a start; of many the latest are worth most."""
        known = self.found.setdefault(slots.rule, [])
        insort(known, (start, duration, slots), key=itemgetter(0))
        if len(known) > BOUNDS:
            del known[0]


class FreeMatrix:
    """What is free of every type on some workers from now on."""

    def __init__(
        self,
        workers: Sequence[str],
        capacity: Mapping[str, Mapping[str, int]],
        changes: Iterable[Change],
        now: float,
    ) -> None:
        self.workers = {name: column for column, name in enumerate(workers)}
        self._capacity = capacity
        self._changes: dict[str, list[tuple[float, int, int]]] = {}  # by type: when, in which column, how much more
        steps = set[float]()
        for time, worker, kind, amount in changes:
            if time < inf and (column := self.workers.get(worker)) is not None:
                self._changes.setdefault(kind, []).append((time, column, amount))
                steps.add(time)
        steps = {time for time in steps if time > now}
        self._size = len(steps) + 1
        self._times = np.full(2 * self._size + 64, inf)
        self._times[: self._size] = [now, *sorted(steps)]
        self._rows = np.zeros(len(self._times), np.int64)
        self._rows[: self._size] = np.arange(self._size)
        self._planes: dict[str, Ints] = {}
        self._totals: dict[str, Ints] = {}  # of each row: what its workers have together
        self._groups: list[Group] = []

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return self._size * len(self.workers) * max(1, len(self._planes))

    def group(self, names: Sequence[str]) -> Group:
        """Return some of the workers, to be asked in this order."""
        columns = np.array([self.workers[name] for name in names], np.int64)
        are_first = bool((columns == np.arange(len(columns))).all())
        self._groups.append(Group(tuple(names), columns, are_first))
        return self._groups[-1]

    # ── questions ──

    def free_over(self, group: Group, slots: Slots, start: float, end: float) -> Ints | None:
        """Return how many slots each worker of a group gives for the whole of [start, end); None: not enough."""
        low, high = self._between(start, end)
        for kind, amount in slots.amounts:
            self._plane(kind)
            if self._totals[kind][self._rows[low]] < amount * slots.count:
                return None
        free = {kind: self._read(kind, group, self._rows[low:high]).min(axis=0) for kind, _ in slots.amounts}
        counts = slots.given(free, (len(group.columns),))
        return counts if counts.sum() >= slots.count else None

    def least(self, kind: str, start: float, end: float) -> Ints:
        """Return how much of a type every worker has free for the whole of [start, end)."""
        low, high = self._between(start, end)
        result: Ints = self._plane(kind)[self._rows[low:high]].min(axis=0)
        return result

    def short(self, group: Group, slots: Slots, start: float, end: float) -> bool:
        """Return whether a group has too little for some slots at a moment of [start, end), wherever it lies."""
        low, high = self._between(start, end)
        rows = self._rows[low:high]
        return any(self._read(kind, group, rows).sum(axis=1).min() < n * slots.count for kind, n in slots.amounts)

    def gain(self, worker: str, kind: str) -> float | None:
        """Return when a worker first has more of a type than just before; None: not one of these workers."""
        if (column := self.workers.get(worker)) is None:
            return None
        plane = self._plane(kind)
        for begin in range(0, self._size, CHUNK):
            free = plane[self._rows[begin : min(begin + CHUNK + 1, self._size)], column]
            more = (free[1:] > free[:-1]).nonzero()[0]
            if len(more):
                return float(self._times[begin + more[0] + 1])
        return inf

    def _between(self, start: float, end: float) -> tuple[int, int]:
        """Return the first moment of a window and the one after its last."""
        times = self._times[: self._size]
        low = max(int(times.searchsorted(start, "right")) - 1, 0)
        return low, max(int(times.searchsorted(end, "left")), low + 1)

    def earliest(self, group: Group, slots: Slots, duration: float) -> tuple[float, Ints] | None:
        """Return the first start at which a group gives all slots for a duration, and what each gives."""
        return next(self.starts(group, slots, duration), None)

    def starts(self, group: Group, slots: Slots, duration: float) -> Iterator[tuple[float, Ints]]:
        """Yield the starts, ascending, at which a group gives all slots for a duration, and what each gives then."""
        if slots.count <= 0 or (slots.each and slots.count % slots.each):
            return
        noted = False
        at = max(int(self._times[: self._size].searchsorted(group.bound(slots, duration), "left")), 0)
        for windows in self._blocks(slots, at, duration):
            counts = self._over(group, slots, windows, duration)
            for k in (counts.sum(axis=1) >= slots.count).nonzero()[0]:
                start = float(self._times[windows[k]])
                if not noted:
                    group.note(slots, duration, start)
                noted = True
                yield start, counts[k]

    def _blocks(self, slots: Slots, at: int, duration: float) -> Iterator[Ints]:
        """Yield, in blocks, the moments from one on over whose windows all workers together have enough."""
        tried = 0
        for begin in range(at, self._size, CHUNK):
            possible = self._possible(slots, begin, min(begin + CHUNK, self._size), duration)
            while len(possible):
                most = BLOCKS[min(tried, len(BLOCKS) - 1)]
                yield possible[:most]
                possible, tried = possible[most:], tried + 1

    def _possible(self, slots: Slots, begin: int, end: int, duration: float) -> Ints:
        """Return the moments of a chunk over whose windows, as far as the chunk goes, the totals are enough."""
        rows = self._rows[begin:end]
        enough: NDArray[np.bool_] | np.bool_ = np.True_
        for kind, amount in slots.amounts:
            self._plane(kind)
            enough = enough & (self._totals[kind].take(rows) >= amount * slots.count)
        times = self._times[begin:end]
        short = np.where(enough, inf, times)  # the next moment with too little, from each on
        short = np.minimum.accumulate(short[::-1])[::-1]
        return (enough & (times + duration <= short)).nonzero()[0] + begin

    def _over(self, group: Group, slots: Slots, windows: Ints, duration: float) -> Ints:
        """Return what each worker gives over each window (one row each); they start at these moments, ascending."""
        ends = self._times[: self._size].searchsorted(self._times[windows] + duration, "left")
        ends = np.maximum(ends, windows + 1)
        free = {kind: self._least(kind, group, windows, ends) for kind, _ in slots.amounts}
        return slots.given(free, (len(windows), len(group.columns)))

    def _least(self, kind: str, group: Group, windows: Ints, ends: Ints) -> Ints:
        """Return what each worker has free of a type for the whole of each window."""
        low, high = int(windows[0]), int(ends.max())
        if len(windows) == 1 or (high - low) * len(group.columns) > LARGEST:
            spans = zip(windows.tolist(), ends.tolist(), strict=True)
            return np.array([self._read(kind, group, self._rows[a:b]).min(axis=0) for a, b in spans])
        free = self._read(kind, group, self._rows[low : high + 1])  # one more, for windows that end with the last
        pairs = np.empty(2 * len(windows), np.int64)
        pairs[::2], pairs[1::2] = windows - low, ends - low
        return np.asarray(np.minimum.reduceat(free, pairs, axis=0)[::2])

    def _read(self, kind: str, group: Group, rows: Ints) -> Ints:
        """Return what a group has free of a type in some rows; neighbours are copied faster than single amounts."""
        plane, columns = self._plane(kind), group.columns
        return plane.take(rows, 0)[:, : len(columns)] if group.are_first else plane[rows[:, None], columns]

    # ── changes ──

    def add(self, placement: Mapping[str, Mapping[str, int]], start: float, end: float) -> None:
        """Enter a booking over [start, end); negative amounts give back."""
        start = max(start, float(self._times[0]))
        taken = self._columns(placement)
        if not start < end or not taken:
            return
        for kind in taken:
            self._plane(kind)
        begin = self._cut(start)
        rows = self._rows[begin : self._cut(end)].copy()
        for kind, held in taken.items():
            columns, amounts = np.array(list(held), np.int64), np.array(list(held.values()), np.int64)
            plane, at = self._planes[kind], (rows[:, None], columns)
            before = plane[at]
            plane[at] = after = before - amounts
            self._totals[kind][rows] -= (np.maximum(before, 0) - np.maximum(after, 0)).sum(axis=1)
            if min(held.values()) < 0:
                self._forget()

    def _forget(self) -> None:
        """Forget the starts found before, as something may start earlier now."""
        for group in self._groups:
            group.found.clear()

    def _columns(self, placement: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
        """Return a placement on these workers by type and column."""
        result: dict[str, dict[int, int]] = {}
        for worker, amounts in placement.items():
            if (column := self.workers.get(worker)) is not None:
                for kind, amount in amounts.items():
                    result.setdefault(kind, {})[column] = amount
        return result

    def _cut(self, time: float) -> int:
        """See to it that a moment begins at a time; return which."""
        at = int(self._times[: self._size].searchsorted(time, "left"))
        if time == inf or (at < self._size and self._times[at] == time):
            return at
        if self._size + 2 > len(self._times):
            self._grow()
        new, like = self._size, self._rows[at - 1]
        for of in (*self._planes.values(), *self._totals.values()):
            of[new] = of[like]
        self._times[at + 1 : new + 1] = self._times[at:new].copy()
        self._rows[at + 1 : new + 1] = self._rows[at:new].copy()
        self._times[at], self._rows[at] = time, new
        self._size += 1
        return at

    def _grow(self) -> None:
        more = len(self._times)
        self._times = np.concatenate([self._times, np.full(more, inf)])
        self._rows = np.concatenate([self._rows, np.zeros(more, np.int64)])
        for of in (self._planes, self._totals):
            for kind, held in of.items():
                of[kind] = np.concatenate([held, np.zeros_like(held)])

    def _plane(self, kind: str) -> Ints:
        """Return the plane of a type, drawn when it is first asked for."""
        if kind in self._planes:
            return self._planes[kind]
        capacity = [self._capacity.get(name, {}).get(kind, 0) for name in self.workers]
        plane: Ints = np.tile(np.array(capacity, np.int64), (len(self._times), 1))
        if kind in self._changes:
            times, columns, amounts = zip(*self._changes[kind], strict=True)
            at = self._times[: self._size].searchsorted(times, "right") - 1
            more = np.zeros((self._size, len(self.workers)), np.int64)
            np.add.at(more, (np.maximum(at, 0), columns), amounts)
            plane[self._rows[: self._size]] -= more.cumsum(axis=0)
        self._planes[kind] = plane
        self._totals[kind] = np.maximum(plane, 0).sum(axis=1)
        return plane
