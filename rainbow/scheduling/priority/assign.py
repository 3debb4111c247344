"""Find space for one item: now, or at the earliest time there is some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from rainbow.scheduling.priority import slot_range
from rainbow.scheduling.priority.allocation import ONE_WORKER, admissible
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.matched import place_matched
from rainbow.scheduling.priority.model import Environment, Grant, Item, Need, Spot
from rainbow.scheduling.priority.room import Ledger, Placer, Wanted
from rainbow.scheduling.priority.search import Room, alone, backwards, earliest, enough
from rainbow.scheduling.profile import Profile
from rainbow.scheduling.timeline import Timeline


class Assigner:
    """Answers where an item fits at a time, and when first; books nothing."""

    def __init__(self, lines: Lines, settings: Mapping[str, Any], experience: Mapping[str, float]) -> None:
        self.lines = lines
        self.timeline: Timeline = lines.timeline
        self.settings = settings
        self.now = lines.view.now
        self.experience = dict(experience)
        self.probes = 0

    def now_for(self, item: Item, spots: Sequence[Spot]) -> Grant | None:
        """Return the largest grant that starts now, of the environments that match the best one."""
        return self._best(item, spots, self.now, item.counts)

    def later_for(self, item: Item, spots: Sequence[Spot]) -> Grant | None:
        """Return the grant with the earliest start: first the fewest slots, then as many as fit at that time."""
        found: Grant | None = None
        for environment in item.environments:
            counts = admissible(environment.rule, item.counts)
            if not counts:
                continue
            grant = self._earliest(item, environment, spots, counts[0])
            if grant is not None and (
                found is None or (grant.start, grant.violations) < (found.start, found.violations)
            ):
                found = grant
        if found is None or len(item.counts) == 1:
            return found
        return self._most(item, found.environment, spots, found.start, item.counts) or found

    def _best(self, item: Item, spots: Sequence[Spot], start: float, counts: Sequence[int]) -> Grant | None:
        found: Grant | None = None
        for environment in item.environments:
            grant = self._most(item, environment, spots, start, counts)
            if grant and (found is None or (-grant.count, grant.violations) < (-found.count, found.violations)):
                found = grant
        return found

    def _most(
        self, item: Item, environment: Environment, spots: Sequence[Spot], start: float, counts: Sequence[int]
    ) -> Grant | None:
        """Return the grant with the most slots at a time."""
        possible = admissible(environment.rule, counts)
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
        """Return a grant of exactly `count` slots at a time, or None."""
        self.probes += 1
        end = start + item.duration
        if not item.groups:
            return place_matched(self.lines, item, spots, start, end)
        by_worker: dict[str, list[Spot]] = {}
        for spot in spots:
            by_worker.setdefault(spot.worker, []).append(spot)
        ledger = Ledger(self.timeline, start, end)

        def wanted(k: int, spot: Spot) -> Wanted:
            return self.lines.wanted(item, item.groups[k], spot, environment)

        placer = Placer(item, ledger, environment, by_worker, wanted)
        return placer.grant() if placer.place(count) else None

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
        lines = {
            need[:2]
            for k, _ in enumerate(item.groups)
            for spot in spots
            for need in self._needs(item, k, spot, environment)
        }
        if not item.groups:
            lines = {(spot.worker, kind) for spot in spots for kind in self.timeline.lines.get(spot.worker, {})}
        found = (self.timeline.lines.get(line, {}).get(kind) for line, kind in lines)
        return [use for use in found if use]

    def _needs(self, item: Item, k: int, spot: Spot, environment: Environment) -> tuple[Need, ...]:
        wanted = self.lines.wanted(item, item.groups[k], spot, environment)
        return (*wanted.each, *wanted.per_worker, *wanted.per_job)

    def _candidates(self, item: Item, environment: Environment, spots: Sequence[Spot], count: int) -> Iterator[float]:
        """Yield the times at which an item could start, as far as its largest group and each worker alone know."""
        k = max(range(len(item.groups)), key=lambda g: item.groups[g].least)
        group = item.groups[k]
        wanted = count if len(item.groups) == 1 else group.least
        together = environment.rule == ONE_WORKER
        by_worker: dict[str, list[Spot]] = {}
        for spot in spots:
            by_worker.setdefault(spot.worker, []).append(spot)
        rooms = [self._room(item, k, own, environment, wanted if together else 1) for own in by_worker.values()]
        if len(rooms) == 1 and len(item.groups) == 1 and len(spots) == 1:
            return alone(rooms[0], 1 if together else wanted, self.now, item.duration)
        plain = len(item.groups) == 1 and len(by_worker) == len(spots)
        extra = () if plain else [self.now, *self._events(item, environment, spots)]
        most = 1 if together or group.apart else inf
        return enough(rooms, 1 if together else wanted, most, self.now, item.duration, extra)

    def _room(self, item: Item, k: int, spots: Sequence[Spot], environment: Environment, times: int) -> Room:
        """Return the lines that every slot on a worker needs, whichever of its queues it lies in."""
        each = [set(self.lines.wanted(item, item.groups[k], spot, environment).each) for spot in spots]
        room = []
        for line, kind, amount, _ in sorted(set.intersection(*each)):
            use = self.timeline.lines.get(line, {}).get(kind) or Profile()
            room.append((use, self.timeline.capacity.get(line, {}).get(kind, 0), amount * times))
        return room
