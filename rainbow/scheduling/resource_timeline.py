"""The resource diagram: what is in use over time, as one profile for each line.

A profile is how much of one thing is in use over time:

    step    (time, level): `level` is in use from `time` until the next step
    block   up to LARGEST steps that lie together; `lift` is added to all its levels, `high` and `low` bound them

Intervals are half-open: what ends at a time is not in use at that time. Before the first step nothing is in use.
No two neighbouring steps have the same level, so equal use over time is an equal list of steps.

The one idea: a change touches the steps inside two blocks and only the `lift` of those between, so every
operation costs about the square root of the number of steps, and little more than a list while there are few.

The diagram has the profiles of every worker and of the cluster as a whole:

    line      one Profile for every (worker, type); what belongs to no worker stands under the worker ""
    amounts   {type: amount}
    placement {worker: amounts}

Running tasks, reservations, advance reservations and closed hours are all entered the same way, so that one
question answers for all of them: is this much free here for the whole of that time?
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Self

from rainbow.scheduling.free_matrix import Change, FreeMatrix

LARGEST = 256


class Block:
    """Neighbouring steps."""

    __slots__ = ("high", "levels", "lift", "low", "times")

    def __init__(self, times: list[float], levels: list[int], lift: int = 0) -> None:
        self.times = times
        self.levels = levels
        self.lift = lift
        self.measure()

    def measure(self) -> None:
        """Find the bounds of the levels again."""
        self.high = max(self.levels)
        self.low = min(self.levels)


class Profile:
    """A step function of time with whole levels.

    >>> use = Profile()
    >>> use.add(0, 10, 3); use.add(5, 20, 1)
    >>> list(use)
    [(0, 3), (5, 4), (10, 1), (20, 0)]
    >>> use.most(10, 20), use.first_fit(0, 5, limit=3)
    (1, 0)
    """

    __slots__ = ("_blocks", "_starts")

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._starts: list[float] = []  # first time of each block

    @classmethod
    def total(cls, profiles: Iterable[Profile]) -> Profile:
        """Return the sum of some profiles."""
        changes: dict[float, int] = {}
        for profile in profiles:
            last = 0
            for time, level in profile:
                changes[time] = changes.get(time, 0) + level - last
                last = level
        return cls.of(changes)

    @classmethod
    def of(cls, changes: Mapping[float, int]) -> Self:
        """Return the use that grows (or shrinks) by so much at each time: many bookings entered at once."""
        made, level, half = cls(), 0, max(1, LARGEST // 2)
        steps: list[tuple[float, int]] = []
        for time in sorted(changes):
            if changes[time]:
                level += changes[time]
                steps.append((time, level))
        for k in range(0, len(steps), half):
            part = steps[k : k + half]
            made._blocks.append(Block([time for time, _ in part], [level for _, level in part]))
            made._starts.append(part[0][0])
        return made

    def __iter__(self) -> Iterator[tuple[float, int]]:
        for block in self._blocks:
            for time, level in zip(block.times, block.levels, strict=True):
                yield time, level + block.lift

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Profile) and list(self) == list(other)

    def __bool__(self) -> bool:
        return bool(self._blocks)

    __hash__ = None  # type: ignore[assignment]

    # ── questions ──

    def level(self, time: float) -> int:
        """How much is in use at a time."""
        at = bisect_right(self._starts, time) - 1
        if at < 0:
            return 0
        block = self._blocks[at]
        return block.levels[bisect_right(block.times, time) - 1] + block.lift

    def most(self, start: float, end: float) -> int:
        """The largest use at any time in [start, end); 0 if that is empty."""
        if not start < end or not self._blocks:
            return 0
        if len(self._blocks) == 1:  # the ordinary case, and asked very often
            block = self._blocks[0]
            low, high = bisect_right(block.times, start) - 1, bisect_left(block.times, end)
            if high - low == 1 and low >= 0:
                return block.levels[low] + block.lift
            most = max(block.levels[max(low, 0) : high], default=-block.lift) + block.lift
            return most if low >= 0 else max(0, most)  # before its first step nothing is in use
        first, last = bisect_right(self._starts, start) - 1, bisect_left(self._starts, end) - 1
        if last < 0:
            return 0
        most = self.level(start)
        for at in range(max(first, 0), last + 1):
            block = self._blocks[at]
            if block.high + block.lift > most:
                low = bisect_left(block.times, start) if at == first else 0
                high = bisect_left(block.times, end) if at == last else len(block.times)
                most = max(most, max(block.levels[low:high], default=most - block.lift) + block.lift)
        return most

    def first_fit(self, earliest: float, duration: float, limit: int) -> float:
        """The first time from `earliest` on when at most `limit` is in use for the whole duration; inf: never."""
        start = earliest
        while start < inf:
            blocked = self._first(start, start + duration, above=limit)
            if blocked == inf:
                return start
            start = self._first(blocked, inf, below=limit)
        return inf

    def ends_after(self, time: float) -> Iterator[float]:
        """Yield the times after `time` at which use goes down: the only ones where more can fit than before."""
        last = self.level(time)
        for at, level in self.steps_from(time):
            if level < last and at > time:
                yield at
            last = level

    def steps_from(self, time: float) -> Iterator[tuple[float, int]]:
        """Yield the steps at and after a time."""
        at = max(bisect_right(self._starts, time) - 1, 0)
        for block in self._blocks[at:]:
            for k in range(bisect_left(block.times, time), len(block.times)):
                yield block.times[k], block.levels[k] + block.lift

    def _first(self, start: float, end: float, above: int | None = None, below: int | None = None) -> float:
        """The first time in [start, end) with a level above (or not above) a bound; inf if there is none."""
        level = self.level(start)
        if (above is not None and level > above) or (below is not None and level <= below):
            return start if start < end else inf
        for at in range(max(bisect_right(self._starts, start) - 1, 0), len(self._blocks)):
            block = self._blocks[at]
            if block.times[0] >= end:
                break
            if above is not None and block.high + block.lift <= above:
                continue
            if below is not None and block.low + block.lift > below:
                continue
            for k in range(bisect_left(block.times, start), len(block.times)):
                level = block.levels[k] + block.lift
                if (above is not None and level > above) or (below is not None and level <= below):
                    return block.times[k] if block.times[k] < end else inf
        return inf

    # ── changes ──

    def add(self, start: float, end: float, amount: int) -> None:
        """Use this much more in [start, end); a negative amount takes use away."""
        if not start < end or not amount:
            return
        self._split(start)
        self._split(end)
        first, last = bisect_right(self._starts, start) - 1, bisect_left(self._starts, end) - 1
        for at in range(first, last + 1):
            block = self._blocks[at]
            low = bisect_left(block.times, start) if at == first else 0
            high = bisect_left(block.times, end) if at == last else len(block.times)
            if high - low == len(block.times):
                block.lift += amount
            else:
                block.levels[low:high] = [level + amount for level in block.levels[low:high]]
                block.measure()
        self._merge(end)
        self._merge(start)

    def remove(self, start: float, end: float, amount: int) -> None:
        """Take away what `add` added."""
        self.add(start, end, -amount)

    def _split(self, time: float) -> None:
        """Ensure a step at a time."""
        if not self._blocks:
            self._blocks, self._starts = [Block([time], [0])], [time]
            return
        at = max(bisect_right(self._starts, time) - 1, 0)
        block = self._blocks[at]
        k = bisect_left(block.times, time)
        if k < len(block.times) and block.times[k] == time:
            return
        level = block.levels[k - 1] if k else -block.lift
        block.times.insert(k, time)
        block.levels.insert(k, level)
        block.high, block.low = max(block.high, level), min(block.low, level)
        self._starts[at] = block.times[0]
        if len(block.times) > LARGEST:
            half = len(block.times) // 2
            right = Block(block.times[half:], block.levels[half:], block.lift)
            del block.times[half:], block.levels[half:]
            block.measure()
            self._blocks.insert(at + 1, right)
            self._starts.insert(at + 1, right.times[0])

    def _merge(self, time: float) -> None:
        """Drop the step at a time if the level before it is the same."""
        at = bisect_right(self._starts, time) - 1
        block = self._blocks[at]
        k = bisect_left(block.times, time)
        if k:
            before = block.levels[k - 1] + block.lift
        else:
            before = self._blocks[at - 1].levels[-1] + self._blocks[at - 1].lift if at else 0
        if block.levels[k] + block.lift != before:
            return
        del block.times[k], block.levels[k]
        if block.times:
            block.measure()
            self._starts[at] = block.times[0]
        else:
            del self._blocks[at], self._starts[at]


Amounts = Mapping[str, int]
Booking = tuple[Mapping[str, Amounts], float, float]  # what is held of each worker over [start, end)
Line = tuple[str, str]


class Timeline:
    """Use over time against capacities."""

    def __init__(self, capacity: Mapping[str, Amounts]) -> None:
        self.capacity = {worker: dict(amounts) for worker, amounts in capacity.items()}
        self._lines: dict[str, dict[str, Profile]] = {worker: {} for worker in capacity}
        self._filled: list[Booking] = []  # entered nowhere so far
        self._late: list[Booking] = []  # entered in the arrays alone so far
        self._sums: dict[tuple[str, frozenset[str]], tuple[Profile, int]] = {}
        self._matrix: FreeMatrix | None = None

    @property
    def lines(self) -> dict[str, dict[str, Profile]]:
        """What is in use of each line, by worker and type."""
        if self._filled or self._late:
            filled, self._filled = self._filled, []
            late, self._late = self._late, []
            self._enter_all(filled)
            for booking in late:
                self._enter(*booking)
        return self._lines

    # ── changes ──

    def add(self, placement: Mapping[str, Amounts], start: float, end: float) -> None:
        """Enter a booking over [start, end)."""
        if self._matrix is None:
            self._enter(placement, start, end)
        else:  # profiles can wait until somebody looks at one
            self._matrix.add(placement, start, end)
            self._late.append((placement, start, end))

    def _enter(self, placement: Mapping[str, Amounts], start: float, end: float) -> None:
        for worker, amounts in placement.items():
            lines = self._lines.setdefault(worker, {})
            for kind, amount in amounts.items():
                if not amount:
                    continue
                if kind not in lines:
                    lines[kind] = Profile()
                lines[kind].add(start, end, amount)
                for (summed, workers), (use, _) in self._sums.items():
                    if summed == kind and worker in workers:
                        use.add(start, end, amount)

    def fill(self, bookings: Iterable[Booking]) -> None:
        """Enter many bookings at once, cheaper than one by one; profiles can wait until one is read."""
        if self._matrix is not None:
            self._matrix, self._lines = None, self.lines
        self._filled += [one for one in bookings if one[1] < one[2]]
        self._sums.clear()

    def _enter_all(self, bookings: Iterable[Booking]) -> None:
        changes: dict[Line, dict[float, int]] = {}
        for time, worker, kind, amount in _changes(bookings):
            line = changes.setdefault((worker, kind), {})
            line[time] = line.get(time, 0) + amount
        for (worker, kind), line in changes.items():
            lines = self._lines.setdefault(worker, {})
            before = [lines[kind]] if kind in lines else []
            lines[kind] = Profile.total([*before, Profile.of(line)]) if before else Profile.of(line)

    def remove(self, placement: Mapping[str, Amounts], start: float, end: float) -> None:
        """Take a booking out again."""
        self.add({w: {kind: -amount for kind, amount in a.items()} for w, a in placement.items()}, start, end)

    def copy(self) -> Timeline:
        """Return a diagram of its own with the same use; capacities stay common to both."""
        made = Timeline({})
        made.capacity = self.capacity
        made._lines = {w: {kind: Profile.total([use]) for kind, use in of.items()} for w, of in self.lines.items()}
        return made

    # ── questions ──

    def used(self, worker: str, kind: str, start: float, end: float) -> int:
        """The largest use at any time in [start, end)."""
        line = self.lines.get(worker, {}).get(kind)
        return line.most(start, end) if line else 0

    def free(self, worker: str, kind: str, start: float, end: float) -> int:
        """How much is free for the whole of [start, end)."""
        capacity, lines = self.capacity.get(worker), self.lines.get(worker)
        line = lines.get(kind) if lines else None
        return (capacity.get(kind, 0) if capacity else 0) - (line.most(start, end) if line is not None else 0)

    def free_at(self, worker: str, kind: str, time: float) -> int:
        """How much is free at one moment."""
        line = self.lines.get(worker, {}).get(kind)
        return self.capacity.get(worker, {}).get(kind, 0) - (line.level(time) if line else 0)

    def gain(self, worker: str, kind: str, now: float) -> float:
        """Return the first time after now at which more is free than just before; inf: never."""
        result = self._matrix.gain(worker, kind) if self._matrix is not None and self._late else None
        if result is not None:
            return result
        line = self.lines.get(worker, {}).get(kind)
        return next(line.ends_after(now), inf) if line else inf

    def copies(self, worker: str, amounts: Amounts, start: float, end: float) -> float:
        """How many times these amounts are free for the whole of [start, end); inf if they are nothing."""
        most = inf
        for kind, amount in amounts.items():
            if amount:
                most = min(most, max(0, self.free(worker, kind, start, end)) // amount)
                if most == 0:
                    break
        return most

    def room_for(self, placement: Mapping[str, Amounts], start: float, end: float) -> dict[str, dict[str, int]]:
        """Return as much of a placement as is free for the whole of [start, end)."""
        return {
            worker: {kind: max(0, min(n, self.free(worker, kind, start, end))) for kind, n in amounts.items()}
            for worker, amounts in placement.items()
        }

    def fits(self, placement: Mapping[str, Amounts], start: float, end: float) -> bool:
        """Return whether all of a placement is free for the whole of [start, end)."""
        return all(self.copies(worker, amounts, start, end) >= 1 for worker, amounts in placement.items())

    def earliest(self, placement: Mapping[str, Amounts], after: float, duration: float) -> float:
        """The first time from `after` on when a placement fits for the whole duration; inf: never."""
        start, settled = after, False
        while not settled and start < inf:
            settled = True
            for worker, amounts in placement.items():
                for kind, amount in amounts.items():
                    fits = self._first_fit(worker, kind, amount, start, duration)
                    settled = settled and fits == start
                    start = fits
        return start

    def _first_fit(self, worker: str, kind: str, amount: int, after: float, duration: float) -> float:
        limit = self.capacity.get(worker, {}).get(kind, 0) - amount
        if limit < 0:
            return inf if amount else after
        line = self.lines.get(worker, {}).get(kind)
        return line.first_fit(after, duration, limit) if line else after

    def sum_over(self, workers: frozenset[str], kind: str) -> tuple[Profile, int]:
        """Return the use of a type summed over workers, and their capacity; kept up to date once it was asked for."""
        own = self.lines
        if (kind, workers) not in self._sums:
            lines = (own.get(worker, {}).get(kind) for worker in workers)
            capacity = sum(self.capacity.get(worker, {}).get(kind, 0) for worker in workers)
            self._sums[kind, workers] = Profile.total(line for line in lines if line), capacity
        return self._sums[kind, workers]

    def matrix(self, workers: Sequence[str], now: float) -> FreeMatrix:
        """Return what is free of workers from now on, as arrays; kept up to date once it was asked for."""
        if self._matrix is None:
            self._matrix = FreeMatrix(workers, self.capacity, self._every_change(), now)
        return self._matrix

    def _every_change(self) -> Iterator[Change]:
        """Yield every change of use, of what profiles do not know yet, too."""
        yield from _changes(self._filled)
        for worker, lines in self._lines.items():
            for kind, line in lines.items():
                last = 0
                for time, level in line:
                    yield time, worker, kind, level - last
                    last = level

    def ends(self, workers: Mapping[str, Amounts] | None = None, after: float = -inf) -> list[float]:
        """Times after `after` at which something becomes free, ascending; only on some workers if named."""
        lines = self.lines if workers is None else {w: self.lines.get(w, {}) for w in workers}
        results = {t for by_kind in lines.values() for line in by_kind.values() for t in line.ends_after(after)}
        return sorted(results - {inf})

    def entries(self) -> Iterator[tuple[Line, Profile]]:
        """Yield the lines that hold anything, by worker, then type."""
        for worker in sorted(self.lines):
            for kind in sorted(self.lines[worker]):
                if self.lines[worker][kind]:
                    yield (worker, kind), self.lines[worker][kind]

    # ── for people ──

    def text(self, now: float = 0.0) -> str:
        """Print one line for every worker and type: use from each time on (seconds from `now`), of the capacity."""
        rows = []
        for (worker, kind), line in self.entries():
            levels = {_whole(time - now): level for time, level in line}  # of several in one second, the last holds
            steps = "  ".join(f"{seconds}:{level}" for seconds, level in levels.items())
            rows.append(f"{worker or '(cluster)'} {kind} of {self.capacity.get(worker, {}).get(kind, 0)}  {steps}")
        return "\n".join(rows)


def _changes(bookings: Iterable[Booking]) -> Iterator[Change]:
    """Yield the changes of use that bookings are."""
    for placement, start, end in bookings:
        for worker, amounts in placement.items():
            for kind, amount in amounts.items():
                if amount:
                    yield start, worker, kind, amount
                    yield end, worker, kind, -amount


def _whole(seconds: float) -> str:
    return str(round(seconds)) if isfinite(seconds) else str(seconds)
