"""At which times an item could start, as far as each worker alone knows."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from rainbow.scheduling.policy import SlotsView
from rainbow.scheduling.priority.allocation import ONE_WORKER
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.model import Environment, Item, Need, Spot
from rainbow.scheduling.priority.search import Room, alone, enough
from rainbow.scheduling.profile import Profile


class Times:
    """The times worth trying for one item in one environment."""

    def __init__(self, lines: Lines, item: Item, environment: Environment) -> None:
        self.lines = lines
        self.timeline = lines.timeline
        self.item = item
        self.environment = environment
        self.reachable = lines.reachable(item, environment)
        self.now = lines.view.now

    def events(self) -> list[float]:
        """Return every time after now at which anything changes that the item needs."""
        found = {time for use in self._uses() for time, _ in use.steps_from(self.now)}
        return sorted(time for time in found if self.now < time < inf)

    def candidates(self, count: int) -> Iterator[float]:
        """Yield, ascending, times at which an item of `count` slots could start; its earliest start is among them."""
        if not self.item.groups:
            return iter((self.now, *self.timeline.ends(after=self.now)))
        k = max(range(len(self.item.groups)), key=lambda g: self.item.groups[g].least)
        wanted = count if len(self.item.groups) == 1 else self.item.groups[k].least
        if self.plain and len(self.reachable.spots) == 1 and not self.item.groups[k].apart:
            return alone(self._room(k, self.reachable.spots, 1), wanted, self.now, self.item.duration)
        return self._together(k, wanted)

    @property
    def plain(self) -> bool:
        """Tell whether nothing but the workers' lines decides: one group, one queue on each worker."""
        single = len(self.item.groups) == 1 and not self.item.asks.master_queues
        return single and len(self.reachable.by_worker) == len(self.reachable.spots)

    def _together(self, k: int, wanted: int) -> Iterator[float]:
        """Yield the times at which the workers together have room for a group's slots."""
        group, duration = self.item.groups[k], self.item.duration
        first = self._bound(group, wanted)
        if first == inf:
            return
        if self.plain:
            yield first
        extra = () if self.plain else (first, *(time for time in self.events() if time > first))
        one = self.environment.rule == ONE_WORKER
        rooms = [self._room(k, own, wanted if one else 1) for own in self.reachable.by_worker.values()]
        yield from enough(rooms, 1 if one else wanted, 1 if one or group.apart else wanted, first, duration, extra)

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
        found = (self.timeline.lines.get(line, {}).get(kind) for line, kind in lines)
        return [use for use in found if use]

    def _needs(self, spot: Spot) -> Iterator[Need]:
        for k in range(len(self.item.groups)):
            wanted = self.lines.wanted(self.item, k, spot, self.environment)
            yield from (*wanted.each, *wanted.per_worker, *wanted.per_job)

    def _room(self, k: int, spots: list[Spot], times: int) -> Room:
        """Return the lines that every slot on a worker needs, whichever of its queues it lies in."""
        each = [self.lines.wanted(self.item, k, spot, self.environment).each for spot in spots]
        common = each[0] if len(each) == 1 else tuple(set(each[0]).intersection(*each[1:]))
        room = []
        for line, kind, amount, _ in common:
            use = self.timeline.lines.get(line, {}).get(kind) or NOTHING
            room.append((use, self.timeline.capacity.get(line, {}).get(kind, 0), amount * times))
        return room


NOTHING = Profile()  # of a line nobody uses
