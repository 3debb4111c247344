"""Find space for one item: now, or at the earliest time there is some."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from rainbow.scheduling.priority import slot_range
from rainbow.scheduling.priority.allocation import ONE_WORKER, admissible
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.matched import place_matched
from rainbow.scheduling.priority.model import Environment, Grant, Item, Need, Spot
from rainbow.scheduling.priority.room import Ledger, Placer, Wanted
from rainbow.scheduling.priority.search import Room, alone, backwards, earliest, enough
from rainbow.scheduling.priority.soft import violations
from rainbow.scheduling.profile import Profile


class Assigner:
    """Answers where an item fits at a time, and when first; books nothing.

    `alive` is the skip list turned round: where a category may still start now. Nothing is freed during a run, so
    a spot without room now has none later in it.
    """

    def __init__(self, lines: Lines, settings: Mapping[str, Any], experience: Mapping[str, float]) -> None:
        self.lines = lines
        self.timeline = lines.timeline
        self.settings = settings
        self.now = lines.view.now
        self.experience = dict(experience)
        self.alive: dict[Hashable, list[Spot]] = {}
        self.searches = 0

    def now_for(self, item: Item) -> Grant | None:
        """Return the largest grant that starts now; of equal ones that with the fewest violations."""
        self.searches += 1
        found: Grant | None = None
        for environment in item.environments:
            spots = self._alive(item, environment)
            if self._single(item, environment):
                grant = self._one(item, environment, spots)
            else:
                spots[:] = [s for s in spots if not item.groups or self._any_free(item, environment, s)]
                grant = self._most(item, environment, spots, self.now)
            if grant and (found is None or (-grant.count, grant.violations) < (-found.count, found.violations)):
                found = grant
        return found

    def later_for(self, item: Item) -> Grant | None:
        """Return the grant with the earliest start: first the fewest slots, then as many as fit at that time."""
        self.searches += 1
        found: Grant | None = None
        for environment in item.environments:
            counts = admissible(environment.rule, item.counts)
            spots = self.lines.reachable(item, environment)
            grant = self._earliest(item, environment, spots, counts[0]) if counts else None
            if grant and (found is None or (grant.start, grant.violations) < (found.start, found.violations)):
                found = grant
        if found is None or len(item.counts) == 1:
            return found
        spots = self.lines.reachable(item, found.environment)
        return self._most(item, found.environment, spots, found.start) or found

    # ── at one time ──

    def _alive(self, item: Item, environment: Environment) -> list[Spot]:
        """Return where an item may still start, most suitable last."""
        key = (item.category, environment.name)
        if key not in self.alive:
            self.alive[key] = list(reversed(self.lines.reachable(item, environment)))
        return self.alive[key]

    def _single(self, item: Item, environment: Environment) -> bool:
        """Tell whether an item is one slot that may lie anywhere."""
        single = item.counts == (1,) and len(item.groups) == 1 and not item.asks.master_queues
        return single and bool(admissible(environment.rule, item.counts))

    def _one(self, item: Item, environment: Environment, spots: list[Spot]) -> Grant | None:
        """Return a grant of one slot at the first spot with room, and forget the spots before it."""
        end = self.now + item.duration
        free = self.timeline.free
        while spots:
            needs = self._needs(item, environment, spots[-1])
            if all(free(line, kind, self.now, end) >= amount for line, kind, amount, _ in needs):
                ledger = Ledger(self.timeline, self.now, end)
                placer = Placer(item, ledger, environment, {}, self._wanted(item, environment))
                placer.given.append((0, spots[-1], 1))
                return self._judged(item, placer.grant())
            spots.pop()
        return None

    def _any_free(self, item: Item, environment: Environment, spot: Spot) -> bool:
        """Tell whether a spot has room for a slot of any group at this moment."""
        free = self.timeline.free_at
        groups = (self._wanted(item, environment)(k, spot).each for k in range(len(item.groups)))
        return any(all(free(line, kind, self.now) >= n for line, kind, n, _ in needs) for needs in groups)

    def _most(self, item: Item, environment: Environment, spots: Sequence[Spot], start: float) -> Grant | None:
        """Return the grant with the most slots at a time."""
        possible = admissible(environment.rule, item.counts)
        if len(possible) < 2:
            return self.at(item, environment, spots, start, possible[0]) if possible else None
        way = self.settings["slot_search"]
        way = slot_range.choose(self.experience) if way == "auto" else way
        found = slot_range.largest(possible, lambda n: self.at(item, environment, spots, start, n), way)
        self.experience = slot_range.learn(self.experience, possible, found.count if found else 0)
        return found

    def at(
        self, item: Item, environment: Environment, spots: Sequence[Spot], start: float, count: int
    ) -> Grant | None:
        """Return a grant of exactly `count` slots at a time, or None; `spots` have the most suitable last if now."""
        end = start + item.duration
        ordered = spots[::-1] if spots is self.alive.get((item.category, environment.name)) else spots
        if not item.groups:
            return place_matched(self.lines, item, ordered, start, end)
        masters: list[Spot] | None = None
        if (able := self.lines.masters(item, environment)) is not None:
            masters = [spot for spot in ordered if spot in able]
            ordered = self.lines.slaves(item, environment, ordered)
        ledger = Ledger(self.timeline, start, end)
        placer = Placer(item, ledger, environment, _by_worker(ordered), self._wanted(item, environment), masters)
        return self._judged(item, placer.grant()) if placer.place(count) else None

    def _judged(self, item: Item, grant: Grant) -> Grant:
        """Count the soft requests a grant does not meet."""
        if not item.asks.soft and not item.asks.soft_queues:
            return grant
        return replace(grant, violations=sum(violations(item, spot, self.lines) for spot, _ in grant.spots))

    def _wanted(self, item: Item, environment: Environment) -> Callable[[int, Spot], Wanted]:
        return lambda k, spot: self.lines.wanted(item, item.groups[k], spot, environment)

    # ── the earliest time ──

    def _earliest(self, item: Item, environment: Environment, spots: Sequence[Spot], count: int) -> Grant | None:
        def fits(start: float) -> Grant | None:
            return self.at(item, environment, spots, start, count)

        if self.settings["search"] == "backwards":
            return backwards(self._events(item, environment, spots), fits)
        if not item.groups:
            return earliest([self.now, *self.timeline.ends(after=self.now)], fits)
        return earliest(self._candidates(item, environment, spots, count), fits)

    def _events(self, item: Item, environment: Environment, spots: Sequence[Spot]) -> list[float]:
        """Return every time after now at which anything changes that the item needs."""
        found = {time for use in self._uses(item, environment, spots) for time, _ in use.steps_from(self.now)}
        return sorted(time for time in found if self.now < time < inf)

    def _uses(self, item: Item, environment: Environment, spots: Sequence[Spot]) -> list[Profile]:
        if item.groups:
            lines = {need[:2] for spot in spots for need in self._needs(item, environment, spot)}
        else:
            lines = {(spot.worker, kind) for spot in spots for kind in self.timeline.lines.get(spot.worker, {})}
        found = (self.timeline.lines.get(line, {}).get(kind) for line, kind in lines)
        return [use for use in found if use]

    def _needs(self, item: Item, environment: Environment, spot: Spot) -> Iterator[Need]:
        for k in range(len(item.groups)):
            wanted = self._wanted(item, environment)(k, spot)
            yield from (*wanted.each, *wanted.per_worker, *wanted.per_job)

    def _candidates(self, item: Item, environment: Environment, spots: Sequence[Spot], count: int) -> Iterator[float]:
        """Yield the times at which an item could start, as far as its largest group and each worker alone know."""
        k = max(range(len(item.groups)), key=lambda g: item.groups[g].least)
        group = item.groups[k]
        wanted = count if len(item.groups) == 1 else group.least
        together = environment.rule == ONE_WORKER
        by_worker = _by_worker(spots)
        rooms = [self._room(item, k, own, environment, wanted if together else 1) for own in by_worker.values()]
        plain = len(item.groups) == 1 and len(by_worker) == len(spots) and not item.asks.master_queues
        if len(rooms) == 1 and plain and not group.apart:
            return alone(rooms[0], 1 if together else wanted, self.now, item.duration)
        extra = () if plain else [self.now, *self._events(item, environment, spots)]
        most = 1 if together or group.apart else inf
        return enough(rooms, 1 if together else wanted, most, self.now, item.duration, extra)

    def _room(self, item: Item, k: int, spots: Sequence[Spot], environment: Environment, times: int) -> Room:
        """Return the lines that every slot on a worker needs, whichever of its queues it lies in."""
        each = [set(self._wanted(item, environment)(k, spot).each) for spot in spots]
        room = []
        for line, kind, amount, _ in sorted(set.intersection(*each), key=lambda need: need[:2]):
            use = self.timeline.lines.get(line, {}).get(kind) or Profile()
            room.append((use, self.timeline.capacity.get(line, {}).get(kind, 0), amount * times))
        return room


def _by_worker(spots: Iterable[Spot]) -> dict[str, list[Spot]]:
    found: dict[str, list[Spot]] = {}
    for spot in spots:
        found.setdefault(spot.worker, []).append(spot)
    return found
