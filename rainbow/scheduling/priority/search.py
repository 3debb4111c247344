"""The earliest time at which an item fits.

    gaps        the true earliest start: times ascend, every gap before a reservation is looked into
    backwards   Grid Engine's: times descend, and the first that does not fit ends the search

Only `now` and times at which something is given back can be the earliest start, because nothing is freed between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf, isfinite
from typing import TypeVar

from rainbow.scheduling.profile import Profile

T = TypeVar("T")
Room = Sequence[tuple[Profile, int, int]]  # its lines: (use, capacity, amount of one copy)


def earliest(times: Iterable[float], fits: Callable[[float], T | None]) -> T | None:
    """Return the answer at the first time, ascending, that has one."""
    return next((answer for time in times if (answer := fits(time)) is not None), None)


def backwards(times: Sequence[float], fits: Callable[[float], T | None]) -> T | None:
    """Return the answer at the last time reached, descending, before one that has none."""
    found = None
    for time in reversed(times):
        answer = fits(time)
        if answer is None:
            break
        found = answer
    return found


def alone(room: Room, count: int, after: float, duration: float) -> Iterator[float]:
    """Yield the times from `after` on, ascending, at which one room has enough copies and had not just before."""
    start = after
    while start < inf:
        settled = False
        while not settled and start < inf:
            settled = True
            for use, capacity, amount in room:
                fits = use.first_fit(start, duration, capacity - amount * count)
                settled = settled and fits == start
                start = fits
        if start < inf:
            yield start
        start = min((next(use.ends_after(start), inf) for use, _, _ in room), default=inf)


def enough(
    rooms: Sequence[Room], count: int, most: int, after: float, duration: float, extra: Iterable[float] = ()
) -> Iterator[float]:
    """Yield the times from `after` on, ascending, at which the rooms together have enough copies.

    A room gives at most `most` copies. Copies of rooms are added as if nothing else bound them, so what is not
    yielded cannot be the start, and what is must be tried. Only times at which a room gains are yielded, and those
    in `extra`, at which something else may be given back.
    """
    changes: dict[float, list[tuple[int, int]]] = {time: [] for time in extra}
    drops: dict[float, list[tuple[int, int]]] = {}
    for k, lines in enumerate(rooms):
        for time, at, beyond in _copies(lines, most, after, duration):
            changes.setdefault(time, []).append((k, at))
            if at != beyond:
                drops.setdefault(time, []).append((k, beyond))
    values = [0] * len(rooms)
    total = 0
    for time in sorted(changes):
        more = not changes[time] or any(value > values[k] for k, value in changes[time])
        for k, value in changes[time]:
            total += value - values[k]
            values[k] = value
        if more and total >= count:
            yield time
        for k, value in drops.get(time, ()):
            total += value - values[k]
            values[k] = value


def _copies(lines: Room, most: int, after: float, duration: float) -> Iterator[tuple[float, int, int]]:
    """Yield (time, copies that fit if started at it, copies just after it) wherever that number may change."""
    points = {after}
    for use, _, _ in lines:
        for time, _ in use.steps_from(after):
            points.update(t for t in (time, time - duration) if after < t < inf and isfinite(t))
    ordered = sorted(points)

    def copies(start: float) -> int:
        free = ((capacity - use.most(start, start + duration)) // amount for use, capacity, amount in lines)
        return max(0, min(most, *free)) if lines else most

    for k, time in enumerate(ordered):
        middle = (time + ordered[k + 1]) / 2 if k + 1 < len(ordered) else time + 1
        yield time, copies(time), copies(middle)
