"""The earliest start of each gang in a given order, over a matrix of what is free: time × worker × type.

    step      a row of the matrix: from its time until the next one's, so much is free of every worker
    copies    how many slots of a gang a worker has room for; of a window of steps, the least of them
    bound     a gang that wants as much for as long as one before it starts no earlier: nothing is given back here

What lies outside all workers is one more column, under the worker "".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from rainbow.forecast.room import Use
from rainbow.scheduling import GangView, JobView, SlotsView, View
from rainbow.scheduling.snapshot import Placement
from rainbow.state_machine import WorkerState

Cells = NDArray[np.int64]
BLOCK = 32  # steps whose copies are counted at once
BOUNDS = 64  # gangs whose starts bound those of others
MOST = 30_000_000  # numbers in a matrix: what is left then is not placed


@dataclass(frozen=True, slots=True)
class Part:
    """Slots of a gang: how many, what each takes of the matrix's types, whether each wants a worker of its own."""

    count: int
    amounts: Cells
    outside: Cells
    apart: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a gang wants: its slots on some of the workers, for so long."""

    parts: tuple[Part, ...]
    kinds: frozenset[str]
    seconds: float

    def as_much_as(self, other: Wanted) -> bool:
        """Return whether this is at least as much for at least as long, on the same workers."""
        return (
            self.seconds >= other.seconds
            and self.kinds == other.kinds
            and len(self.parts) == len(other.parts)
            and all(map(_covers, self.parts, other.parts))
        )


def _covers(one: Part, other: Part) -> bool:
    enough = one.count >= other.count and one.apart == other.apart
    return enough and bool((one.amounts >= other.amounts).all() and (one.outside >= other.outside).all())


class Matrix:
    """What is free of a view's workers from `now` on, beside what holds space."""

    def __init__(self, view: View, uses: Iterable[Use]) -> None:
        self.view = view
        self.uses = [use for use in uses if use.end > view.now]
        self.booked: list[Use] = []
        ready = [worker for worker in view.workers if worker.state is WorkerState.READY]
        self.names = [*(worker.id for worker in ready), ""]
        self._columns = {name: k for k, name in enumerate(self.names)}
        self._kinds = [worker.kind for worker in ready]
        whole: list[Mapping[str, int]] = [*(worker.capacity for worker in ready), self._outside()]
        self.types = sorted({kind for amounts in whole for kind in amounts})
        self._masks: dict[frozenset[str], NDArray[np.intp]] = {}
        self._bounds: deque[tuple[Wanted, float]] = deque(maxlen=BOUNDS)
        now = view.now
        edges = np.unique([now, *(max(now, t) for use in self.uses for t in (use.start, use.end) if t < inf)])
        self.count = len(edges)
        self.times, self.free = (
            edges,
            np.repeat(np.array([self._cells(of) for of in whole])[None], self.count, axis=0),
        )
        for use in self.uses:
            first, until = np.searchsorted(edges, [max(now, use.start), use.end])
            self._take(use.placement, int(first), int(until))

    def _outside(self) -> dict[str, int]:
        """Count what lies outside all workers: what is free of it and what is held."""
        outside = dict(self.view.consumables)
        for use in self.uses:
            if use.start <= self.view.now:
                for kind, amount in use.placement.get("", {}).items():
                    outside[kind] = outside.get(kind, 0) + amount
        return outside

    def _cells(self, amounts: Mapping[str, int]) -> Cells:
        return np.array([amounts.get(kind, 0) for kind in self.types], np.int64)

    def _take(self, placement: Placement, first: int, until: int) -> None:
        for name, amounts in placement.items():
            if name in self._columns:
                self.free[first:until, self._columns[name]] -= self._cells(amounts)

    @property
    def full(self) -> bool:
        """Whether it is too large to grow."""
        return self.free.size > MOST

    # ── what a gang wants ──

    def wanted(self, gang: GangView, seconds: float) -> Wanted | None:
        """Say what a gang wants; None: no worker could take it."""
        groups = gang.slots or self._as_matched(gang)
        known = set(self.types)
        if not groups or any(kind not in known for one in groups for kind in (*one.amounts, *one.outside)):
            return None
        parts = tuple(
            Part(one.least, self._cells(one.amounts), self._cells(one.outside), one.apart) for one in groups
        )
        return Wanted(parts, self.view.hosts(gang.demand), seconds)

    def _as_matched(self, gang: GangView) -> list[SlotsView]:
        """Say what only the matcher can place by what it would hold on the empty cluster, each worker apart."""
        hosts = self.view.hosts(gang.demand)
        able = [name for name, kind in zip(self.names, self._kinds, strict=False) if kind in hosts]
        take = self.view.place(gang.demand, able) if able else None
        held: dict[str, dict[str, int]] = {}
        for _, placed in take.placed if take else ():
            for worker, amounts in placed.items():
                of = held.setdefault(worker, {})
                for kind, amount in amounts.items():
                    of[kind] = of.get(kind, 0) + amount
        return [SlotsView("", amounts, apart=True) for worker, amounts in held.items() if worker and amounts]

    def _able(self, kinds: frozenset[str]) -> NDArray[np.intp]:
        if kinds not in self._masks:
            self._masks[kinds] = np.array([k for k, kind in enumerate(self._kinds) if kind in kinds], np.intp)
        return self._masks[kinds]

    # ── the earliest start ──

    def place(self, wanted: Wanted) -> tuple[float, Placement] | None:
        """Book a gang at its earliest start; None: there is none."""
        least = max((start for other, start in self._bounds if wanted.as_much_as(other)), default=self.view.now)
        able = self._able(wanted.kinds)
        for step in self._candidates(wanted.parts[0], able, int(np.searchsorted(self.times[: self.count], least))):
            start = float(self.times[step])
            until = int(np.searchsorted(self.times[: self.count], start + wanted.seconds))
            placement = self._fitted(wanted, able, self.free[step : max(until, step + 1)].min(axis=0))
            if placement is not None:
                self._book(placement, start, start + wanted.seconds)
                self._bounds.append((wanted, start))
                return start, placement
        return None

    def _candidates(self, part: Part, able: NDArray[np.intp], first: int) -> Iterator[int]:
        """Yield the steps at whose beginning there is room for a part, in order."""
        for begin in range(first, self.count, BLOCK):
            block = self.free[begin : min(begin + BLOCK, self.count)]
            there = _copies(block[:, able], part).sum(axis=-1) >= part.count
            yield from (begin + np.flatnonzero(there)).tolist()

    def _fitted(self, wanted: Wanted, able: NDArray[np.intp], free: Cells) -> Placement | None:
        """Return where the slots lie, the first workers first; None if not all of them fit."""
        placement: dict[str, dict[str, int]] = {}
        for part in wanted.parts:
            copies = _copies(free[able], part)
            if copies.sum() < part.count or (free[-1] < part.count * part.outside).any():
                return None
            before = np.cumsum(copies) - copies
            for at in np.flatnonzero((copies > 0) & (before < part.count)):
                taken = int(min(copies[at], part.count - before[at]))
                self._hold(placement, free, int(able[at]), taken * part.amounts)
            if part.outside.any():
                self._hold(placement, free, len(self.names) - 1, part.count * part.outside)
        return placement

    def _hold(self, placement: dict[str, dict[str, int]], free: Cells, column: int, cells: Cells) -> None:
        free[column] -= cells
        of = placement.setdefault(self.names[column], {})
        for kind, amount in zip(self.types, cells.tolist(), strict=True):
            if amount:
                of[kind] = of.get(kind, 0) + amount

    def _book(self, placement: Placement, start: float, end: float) -> None:
        first = self._edge(start)
        until = self._edge(end) if end < inf else self.count
        self._take(placement, first, until)
        self.booked.append(Use(placement, start, end))

    def _edge(self, time: float) -> int:
        """Return the step that begins at a time, made if there is none."""
        at = int(np.searchsorted(self.times[: self.count], time))
        if at < self.count and self.times[at] == time:
            return at
        if self.count == len(self.times):
            self.times = np.concatenate([self.times, np.empty_like(self.times)])
            self.free = np.concatenate([self.free, np.empty_like(self.free)])
        self.times[at + 1 : self.count + 1] = self.times[at : self.count]
        self.free[at + 1 : self.count + 1] = self.free[at : self.count]
        self.times[at] = time
        self.free[at] = self.free[at - 1]
        self.count += 1
        return at


def _copies(free: Cells, part: Part) -> Cells:
    """Return how many slots of a part each worker has room for: of the last axis but one."""
    asked = np.flatnonzero(part.amounts)
    counts: Cells = np.maximum((free[..., asked] // part.amounts[asked]).min(axis=-1), 0)
    return np.minimum(counts, 1) if part.apart else counts


@dataclass(frozen=True, slots=True)
class Pass:
    """When each job starts and ends, infinite for what fits nowhere; and what that books."""

    starts: Mapping[str, float]
    ends: Mapping[str, float]
    booked: Sequence[Use]


def one_pass(
    view: View,
    seconds: Callable[[JobView, GangView], float],
    order: Iterable[tuple[JobView, GangView]],
    uses: Iterable[Use],
) -> Pass:
    """Place gangs one after the other, each at its earliest start beside what holds space and those before it.

    `seconds` says how long each runs.
    """
    matrix = Matrix(view, uses)
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    for job, gang in order:
        if matrix.full:
            break
        length = seconds(job, gang)
        wanted = matrix.wanted(gang, length)
        found = matrix.place(wanted) if wanted else None
        start = found[0] if found else inf
        starts[job.id] = min(starts.get(job.id, inf), start)
        ends[job.id] = max(ends.get(job.id, 0.0), start + length)
    return Pass(starts, ends, matrix.booked)


def by_submission(view: View) -> Iterator[tuple[JobView, GangView]]:
    """Yield the gangs that wait, those of a higher priority first, then by submission."""
    for job in sorted(view.jobs, key=attrgetter("priority"), reverse=True):
        yield from ((job, gang) for gang in job.gangs)
