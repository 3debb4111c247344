"""The earliest time at which an item can start.

gaps        the true earliest start: times ascend, every gap before a reservation is looked into
    backwards   Grid Engine's: times descend, and the first that does not fit ends the search

Only `now` and times at which something is given back can be the earliest start, because nothing is freed between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf, isfinite
from typing import TypeVar

from rainbow.scheduling.priority.model import ONE_WORKER, Environment, Item, Need, QueueInstance
from rainbow.scheduling.priority.placement.lines import ResourceLines
from rainbow.scheduling.resource_timeline import Profile
from rainbow.scheduling.snapshot import SlotsView

T = TypeVar("T")
Room = Sequence[tuple[Profile, int, int]]  # its lines: (use, capacity, amount of one copy)


def earliest(times: Iterable[float], fits: Callable[[float], T | None]) -> T | None:
    """Return the answer at the first time, ascending, that has one."""
    return next((answer for time in times if (answer := fits(time)) is not None), None)


def backwards(times: Sequence[float], fits: Callable[[float], T | None]) -> T | None:
    """Return the answer at the last time reached, descending, before one that has none."""
    result = None
    for time in reversed(times):
        answer = fits(time)
        if answer is None:
            break
        result = answer
    return result


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


class Times:
    """The times worth trying for one item in one environment."""

    def __init__(self, lines: ResourceLines, item: Item, environment: Environment) -> None:
        self.lines = lines
        self.timeline = lines.timeline
        self.item = item
        self.environment = environment
        self.reachable = lines.reachable(item, environment)
        self.now = lines.view.now

    def events(self) -> list[float]:
        """Return every time after now at which anything changes that the item needs."""
        results = {time for use in self._uses() for time, _ in use.steps_from(self.now)}
        return sorted(time for time in results if self.now < time < inf)

    def candidates(self, count: int) -> Iterator[float]:
        """Yield, ascending, times at which an item of `count` slots could start; its earliest start is among them."""
        if not self.item.groups:
            return iter((self.now, *self.timeline.ends(after=self.now)))
        k = max(range(len(self.item.groups)), key=lambda g: self.item.groups[g].least)
        requirement = count if len(self.item.groups) == 1 else self.item.groups[k].least
        if self.plain and len(self.reachable.spots) == 1 and not self.item.groups[k].apart:
            return alone(self._room(k, self.reachable.spots, 1), requirement, self.now, self.item.duration)
        return self._together(k, requirement)

    @property
    def plain(self) -> bool:
        """Return whether nothing but the workers' lines decides: one group, one queue on each worker."""
        single = len(self.item.groups) == 1 and not self.item.asks.master_queues
        return single and len(self.reachable.by_worker) == len(self.reachable.spots)

    def _together(self, k: int, demand: int) -> Iterator[float]:
        """Yield the times at which the workers together have room for a group's slots."""
        group, duration = self.item.groups[k], self.item.duration
        first = self._bound(group, demand)
        if first == inf:
            return
        if self.plain:
            yield first
        extra = () if self.plain else (first, *(time for time in self.events() if time > first))
        one = self.environment.rule == ONE_WORKER
        rooms = [self._room(k, own, demand if one else 1) for own in self.reachable.by_worker.values()]
        yield from enough(rooms, 1 if one else demand, 1 if one or group.apart else demand, first, duration, extra)

    def _bound(self, group: SlotsView, count: int) -> float:
        """The first time at which the workers together have enough, wherever on them: no start is earlier."""
        if self.item.asks.reservation or self.lines.settings["consumables"]:
            return self.now  # other lines, or amounts that are not taken by every slot
        workers = self.reachable.workers
        sums = [(*self.timeline.sum_over(workers, kind), n) for kind, n in group.amounts.items() if n]
        start, settled = self.now, False
        while not settled and start < inf:
            settled = True
            for use, capacity, amount in sums:
                fits = use.first_fit(start, self.item.duration, capacity - amount * count)
                settled = settled and fits == start
                start = fits
        return start

    def _uses(self) -> list[Profile]:
        spots = self.reachable.spots
        if self.item.groups:
            lines = {need[:2] for spot in spots for need in self._needs(spot)}
        else:
            lines = {(spot.worker, kind) for spot in spots for kind in self.timeline.lines.get(spot.worker, {})}
        results = (self.timeline.lines.get(line, {}).get(kind) for line, kind in lines)
        return [use for use in results if use]

    def _needs(self, spot: QueueInstance) -> Iterator[Need]:
        for k in range(len(self.item.groups)):
            requirement = self.lines.wanted(self.item, k, spot, self.environment)
            yield from (*requirement.each, *requirement.per_worker, *requirement.per_job)

    def _room(self, k: int, spots: list[QueueInstance], times: int) -> Room:
        """Return the lines that every slot on a worker needs, whichever of its queues it lies in."""
        each = [self.lines.wanted(self.item, k, spot, self.environment).each for spot in spots]
        common = each[0] if len(each) == 1 else tuple(set(each[0]).intersection(*each[1:]))
        room = []
        for line, kind, amount, _ in common:
            use = self.timeline.lines.get(line, {}).get(kind) or NOTHING
            room.append((use, self.timeline.capacity.get(line, {}).get(kind, 0), amount * times))
        return room


NOTHING = Profile()  # of a line nobody uses
