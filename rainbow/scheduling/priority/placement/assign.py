"""Space for one item: by amounts, or as the matcher says.

A gang that only the matcher can place takes free vertices now, next to other gangs; for a time to come, and where
only amounts are known, it takes workers on which nothing runs for the whole time.

Inside an advance reservation those are workers that it keeps whole, and that none of its jobs uses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.scheduling.free_matrix import FreeMatrix, Group, Slots
from rainbow.scheduling.interface import Free
from rainbow.scheduling.priority.model import (
    FILL_UP,
    ONE_WORKER,
    Environment,
    Item,
    Need,
    QueueInstance,
    SlotAssignment,
)
from rainbow.scheduling.priority.placement import slot_allocation
from rainbow.scheduling.priority.placement.earliest_start import Times, backwards, earliest
from rainbow.scheduling.priority.placement.free_space import FreeSpace, SlotPlacer, SlotRequest, add_needs
from rainbow.scheduling.priority.placement.lines import CLUSTER, Reachable, ResourceLines, reserved_line, violations
from rainbow.scheduling.priority.placement.slot_allocation import admissible, allocate

if TYPE_CHECKING:
    from rainbow.matching import Take
    from rainbow.scheduling.snapshot import Placement

TIMES = 64  # lists of workers that are remembered for times to come
FEW_PROMISES = 4  # items promised a time before it pays to draw the diagram as arrays
MANY_WORKERS = 16  # workers from which on it pays for what starts now, after so many looks at all of them in vain:
LOOKS = 1


class Assigner:
    """Answers where an item fits at a time, and when first; books nothing.

    `alive` is the skip list turned round: the spots (or, for many slots, the workers) where a category may still
    start now, the most suitable last. Nothing is freed during a run, so what has no room now has none later in it.
    `later` is the same for the times last promised.
    """

    def __init__(self, lines: ResourceLines, settings: Mapping[str, Any], experience: Mapping[str, float]) -> None:
        self.lines = lines
        self.timeline = lines.timeline
        self.settings = settings
        self.now = lines.view.now
        self.experience = dict(experience)
        self.alive: dict[Hashable, list[Any]] = {}
        self.later: dict[Hashable, list[str]] = {}
        self.searches = 0
        self.promised = 0  # items for which a time to come was searched
        self.visited = 0  # workers looked at in vain
        self.scarce = False  # less is free than the first asks for: one look at all workers will be in vain
        self.tight = False  # something did not fit
        self.groups: dict[Reachable, Group] = {}

    def foresee(self, item: Item) -> None:
        """Note whether the first item asks for more than is free, if that was counted before."""
        census = self.lines.view.census
        if census is not None and len(item.groups) == 1 and len(item.counts) == 1:
            request = item.groups[0].amounts.items()
            self.scarce = any(census.free[kind] < amount * item.counts[0] for kind, amount in request)

    def now_for(self, item: Item) -> SlotAssignment | None:
        """Return the largest grant that starts now; of equal ones that with the fewest violations."""
        self.searches += 1
        result: SlotAssignment | None = None
        for environment in item.environments:
            if self.tight and self._hopeless(item, environment):
                continue
            if self._single(item, environment) and not self._arrays(item, environment):
                grant = self._one(item, environment)
            else:
                grant = self._most(item, environment, self.now)
            if grant and (result is None or (-grant.count, grant.violations) < (-result.count, result.violations)):
                result = grant
        self.tight = self.tight or result is None
        return result

    def lacks(self, item: Item) -> bool:
        """Return whether the workers together have too little now, in each environment of an item."""
        return all(self._lacks(item, environment) for environment in item.environments)

    def _hopeless(self, item: Item, environment: Environment) -> bool:
        """Return whether one look at all workers together saves one at each of them."""
        if self._arrays(item, environment) and len(admissible(environment.rule, item.counts)) == 1:
            return False  # asking for the one count is as cheap
        return self._lacks(item, environment)

    def _lacks(self, item: Item, environment: Environment) -> bool:
        counts = admissible(environment.rule, item.counts)
        if not counts or item.asks.reservation or self.settings["consumables"]:
            return not counts  # other lines, or amounts that are not taken by every slot
        if self._arrays(item, environment):
            end = self.now + item.duration
            return self._matrix.short(*self._asked(item, environment, counts[0]), self.now, end)
        workers, end = self.lines.reachable(item, environment).workers, self.now + item.duration
        for group in item.groups:
            least = counts[0] if len(item.groups) == 1 else group.least
            for kind, amount in group.amounts.items():
                use, capacity = self.timeline.sum_over(workers, kind) if amount else (None, 0)
                if use is not None and use.most(self.now, end) > capacity - amount * least:
                    return True
        return False

    def most_now(self, item: Item) -> float:
        """Return a number of slots of which no more start now for any time, infinite if it takes long to count."""
        environment, most = item.environments[0], inf
        if not self._plain(item) or self._arrays(item, environment):
            return most
        workers = self.lines.reachable(item, environment).workers
        for kind, amount in item.groups[0].amounts.items():
            if amount:
                use, capacity = self.timeline.sum_over(workers, kind)
                most = min(most, (capacity - use.level(self.now)) // amount)
        return most

    def later_for(self, item: Item) -> SlotAssignment | None:
        """Return the grant with the earliest start: first the fewest slots, then as many as fit at that time."""
        self.searches += 1
        self.promised += 1
        result: SlotAssignment | None = None
        for environment in item.environments:
            counts = admissible(environment.rule, item.counts)
            grant = self._earliest(item, environment, counts[0]) if counts else None
            if grant and (result is None or (grant.start, grant.violations) < (result.start, result.violations)):
                result = grant
        if result is None or len(item.counts) == 1:
            return result
        return self._most(item, result.environment, result.start) or result

    # ── at one time ──

    def _single(self, item: Item, environment: Environment) -> bool:
        """Return whether an item is one slot that may lie anywhere."""
        single = item.counts == (1,) and len(item.groups) == 1 and not item.asks.master_queues
        return single and bool(admissible(environment.rule, item.counts))

    def _one(self, item: Item, environment: Environment) -> SlotAssignment | None:
        """Return a grant of one slot at the first spot with room, and forget the spots before it."""
        end = self.now + item.duration
        key = (item.category, environment.name)
        if key not in self.alive:
            self.alive[key] = self.lines.reachable(item, environment).spots[::-1]
        spots = self.alive[key]
        while spots:
            if self._has_room(item, environment, spots[-1], self.now, end, once=True):
                if self._plain(item):
                    return self._given(item, environment, self.now, {spots[-1].worker: 1})
                ledger = FreeSpace(self.timeline, self.now, end)
                placer = SlotPlacer(item, ledger, environment, tuple, {}, self._wanted(item, environment))
                placer.given.append((0, spots[-1], 1))
                return self._judged(item, placer.grant())
            spots.pop()
            self.visited += 1
        return None

    def _has_room(
        self, item: Item, environment: Environment, spot: QueueInstance, start: float, end: float, once: bool = False
    ) -> bool:
        """Return whether a spot has room for a slot of any group over [start, end); `once`: a job's only slot."""
        free = self.timeline.free
        for k in range(len(item.groups)):
            requirement = self.lines.wanted(item, k, spot, environment)
            needs = (
                requirement.each + requirement.per_worker + requirement.per_job
                if once and requirement.fixed
                else requirement.each
            )
            for line, kind, amount, _ in needs:
                if free(line, kind, start, end) < amount:
                    break
            else:
                return True
        return False

    def _living(self, item: Item, environment: Environment, start: float) -> Iterator[str]:
        """Yield the workers that may have room from a time on, the most suitable first; forget those without."""
        by_worker, end = self.lines.reachable(item, environment).by_worker, start + item.duration
        workers = self._alive_at(item, environment, start, by_worker)
        for at in range(len(workers) - 1, -1, -1):
            worker = workers[at]
            if any(self._has_room(item, environment, spot, start, end) for spot in by_worker[worker]):
                yield worker
            else:
                del workers[at]
                self.visited += 1

    def _alive_at(self, item: Item, environment: Environment, start: float, by_worker: Iterable[str]) -> list[str]:
        key: Hashable = (item.category, environment.name)
        known = self.alive
        if start != self.now:
            key, known = (item.category, environment.name, start), self.later
            if len(known) >= TIMES:
                known.clear()
        if key not in known:
            known[key] = list(by_worker)[::-1]
        return known[key]

    def _most(self, item: Item, environment: Environment, start: float) -> SlotAssignment | None:
        """Return the grant with the most slots at a time."""
        possible = admissible(environment.rule, item.counts)
        if len(possible) < 2:
            return self.at(item, environment, start, possible[0]) if possible else None
        way = self.settings["slot_search"]
        way = slot_allocation.choose(self.experience) if way == "auto" else way
        result = slot_allocation.largest(possible, lambda n: self.at(item, environment, start, n), way)
        self.experience = slot_allocation.learn(self.experience, possible, result.count if result else 0)
        return result

    def at(self, item: Item, environment: Environment, start: float, count: int) -> SlotAssignment | None:
        """Return a grant of exactly `count` slots at a time, or None."""
        end = start + item.duration
        if self._arrays(item, environment):
            group, slots = self._asked(item, environment, count)
            grants = self._matrix.free_over(group, slots, start, end)
            return None if grants is None else self._granted(item, environment, slots, start, group.left(grants))
        if (environment.rule == FILL_UP or count == 1) and self._plain(item):
            return self._filled_up(item, environment, start, count)
        reachable = self.lines.reachable(item, environment)
        if not item.groups:
            return place_matched(self.lines, item, reachable.spots, start, end)
        by_worker, masters = reachable.by_worker, None
        if (able := self.lines.masters(item, environment)) is not None:
            masters = [spot for spot in reachable.spots if spot in able]
            by_worker = self.lines.slaves(item, environment)

        def workers() -> Iterable[str]:
            return self._living(item, environment, start) if masters is None else by_worker

        ledger = FreeSpace(self.timeline, start, end)
        placer = SlotPlacer(item, ledger, environment, workers, by_worker, self._wanted(item, environment), masters)
        return self._judged(item, placer.grant()) if placer.place(count) else None

    def _filled_up(self, item: Item, environment: Environment, start: float, count: int) -> SlotAssignment | None:
        """Return the same where workers alone limit an item, and each is used up before the next."""
        by_worker, end = self.lines.reachable(item, environment).by_worker, start + item.duration
        workers, group = self._alive_at(item, environment, start, by_worker), item.groups[0]
        grants: dict[str, int] = {}
        at = len(workers)
        while at and count > 0:
            at -= 1
            copies = self.timeline.copies(workers[at], group.amounts, start, end)
            if copies > 0:
                grants[workers[at]] = taken = min(count, 1 if group.apart else int(min(copies, count)))
                count -= taken
            else:
                del workers[at]
                self.visited += 1
        return None if count > 0 else self._given(item, environment, start, grants)

    def _judged(self, item: Item, grant: SlotAssignment) -> SlotAssignment:
        """Count the soft requests a grant does not meet."""
        if not item.asks.soft and not item.asks.soft_queues:
            return grant
        return replace(grant, violations=sum(violations(item, spot, self.lines) for spot, _ in grant.spots))

    def _wanted(self, item: Item, environment: Environment) -> Callable[[int, QueueInstance], SlotRequest]:
        return lambda k, spot: self.lines.wanted(item, k, spot, environment)

    # ── with the diagram as arrays ──

    def _arrays(self, item: Item, environment: Environment) -> bool:
        """Return whether arrays answer for an item: workers alone limit it, and many ask in this run."""
        there = len(self.lines.workers)
        in_vain = self.scarce or self.visited >= LOOKS * there
        many = self.promised > FEW_PROMISES or (there >= MANY_WORKERS and in_vain)
        return many and self._plain(item)

    def _plain(self, item: Item) -> bool:
        """Return whether workers alone limit an item."""
        plain = self.lines.by_workers and len(item.groups) == 1
        return plain and not (item.groups[0].outside or item.asks.reservation)

    @property
    def _matrix(self) -> FreeMatrix:
        return self.timeline.matrix(list(self.lines.workers), self.now)

    def _asked(self, item: Item, environment: Environment, count: int) -> tuple[Group, Slots]:
        """Return the workers an item may use, and slots of it."""
        reachable = self.lines.reachable(item, environment)
        if reachable not in self.groups:
            self.groups[reachable] = self._matrix.group(list(reachable.by_worker))
        return self.groups[reachable], self._slots(item, environment, count)

    def _slots(self, item: Item, environment: Environment, count: int) -> Slots:
        rule, of = environment.rule, item.groups[0]
        each = count if rule == ONE_WORKER else rule if isinstance(rule, int) else 0
        amounts = tuple((kind, amount) for kind, amount in of.amounts.items() if amount)
        return Slots(amounts, count, each, of.apart)

    def _granted(
        self, item: Item, environment: Environment, slots: Slots, start: float, remaining: dict[str, int]
    ) -> SlotAssignment:
        """Return a grant of slots on workers that give so many each, together enough."""
        grants: dict[str, int] = {}

        def take(worker: str, low: int, high: int) -> int:
            count = min(high, remaining[worker])
            if count < low:
                return 0
            remaining[worker] -= count
            grants[worker] = grants.get(worker, 0) + count
            return count

        allocate(environment.rule, slots.count, remaining, take)
        return self._given(item, environment, start, grants)

    def _given(self, item: Item, environment: Environment, start: float, grants: Mapping[str, int]) -> SlotAssignment:
        """Return a grant of the slots that workers give."""
        by_worker, group = self.lines.reachable(item, environment).by_worker, item.groups[0]
        amounts = {kind: amount for kind, amount in group.amounts.items() if amount}
        spots = tuple((by_worker[worker][0], count) for worker, count in grants.items())
        held: tuple[tuple[str, Placement], ...] = ()
        if start <= self.now:  # of what is kept for later nobody asks which slot lies where
            held = tuple(one for w, count in grants.items() for one in [(group.label, {w: amounts})] * count)
        booking = {w: {kind: n * count for kind, n in amounts.items()} for w, count in grants.items() if amounts}
        count, end = sum(grants.values()), start + item.duration
        return self._judged(item, SlotAssignment(start, end, count, held, booking, environment, spots))

    # ── the earliest time ──

    def _earliest(self, item: Item, environment: Environment, count: int) -> SlotAssignment | None:
        if self.settings["search"] == "gaps" and self._arrays(item, environment):
            group, slots = self._asked(item, environment, count)
            result = self._matrix.earliest(group, slots, item.duration)
            return self._granted(item, environment, slots, result[0], group.left(result[1])) if result else None

        def fits(start: float) -> SlotAssignment | None:
            return self.at(item, environment, start, count)

        times = Times(self.lines, item, environment)
        if self.settings["search"] == "backwards":
            return backwards(times.events(), fits)
        return earliest(times.candidates(count), fits)


def place_matched(
    lines: ResourceLines, item: Item, spots: Sequence[QueueInstance], start: float, end: float
) -> SlotAssignment | None:
    """Ask where an item lies now, or what it would hold on the workers that are wholly free over [start, end)."""
    if start <= lines.view.now and lines.view.free is not None:
        return _place_located(lines, item, spots, end, lines.view.free)
    inside = item.asks.reservation
    free = [w for w in dict.fromkeys(spot.worker for spot in spots) if _idle(lines, inside, w, start, end)]
    take = lines.view.place(item.gang.demand, free) if free else None
    if take is None:
        return None
    grant = _granted(inside, spots, take, start, end)
    outside = _line(inside, CLUSTER)
    return grant if lines.timeline.fits({outside: grant.booking.get(outside, {})}, start, end) else None


def _place_located(
    lines: ResourceLines, item: Item, spots: Sequence[QueueInstance], end: float, free: Free
) -> SlotAssignment | None:
    """Take an item's vertices on the first worker that has them until the end, else on several; keep nothing."""
    workers, mark = list(dict.fromkeys(spot.worker for spot in spots)), free.mark()

    def tried(among: Sequence[str]) -> tuple[SlotAssignment | None, list[str]]:
        """Return a grant on some workers, and those on which it would outlast that they are free."""
        taken = free.take(item.gang.demand, among=among)
        free.undo(mark)
        if taken is None:
            return None, []
        grant = _granted(item.asks.reservation, spots, taken.take, lines.view.now, end)
        grant = replace(grant, located=taken.located)
        reserved = [
            line for line, held in grant.booking.items() if not lines.timeline.fits({line: held}, grant.start, end)
        ]
        return (None if reserved else grant), reserved

    grant, reserved = tried(workers)
    if grant is None and not reserved:
        return None
    for worker in workers:
        if (alone := tried([worker])[0]) is not None:
            return alone
    while reserved and grant is None and CLUSTER not in reserved:
        workers = [worker for worker in workers if _line(item.asks.reservation, worker) not in reserved]
        grant, reserved = tried(workers)
    return grant


def _granted(inside: str, spots: Sequence[QueueInstance], take: Take, start: float, end: float) -> SlotAssignment:
    """Say what an item holds as a grant."""
    booking: dict[str, dict[str, int]] = {}
    for _, held in take.placed:
        for worker, amounts in held.items():
            line = _line(inside, worker)
            add_needs(booking, [Need(line, kind, amount) for kind, amount in amounts.items()], 1)
    used = tuple((spot, 1) for spot in _first(spots) if _line(inside, spot.worker) in booking)
    return SlotAssignment(start, end, len(take.placed), take.placed, booking, Environment(), used)


def _line(inside: str, holder: str) -> str:
    return reserved_line(inside, holder) if inside else holder


def _idle(lines: ResourceLines, inside: str, worker: str, start: float, end: float) -> bool:
    if inside:
        reserved = lines.reservations[inside].placement[worker]
        if any(reserved.get(kind, 0) < amount for kind, amount in lines.workers[worker].capacity.items()):
            return False
    uses = lines.timeline.lines.get(_line(inside, worker), {})
    return not any(use.most(start, end) for use in uses.values())


def _first(spots: Sequence[QueueInstance]) -> list[QueueInstance]:
    """Return the first spot of every worker."""
    return list({spot.worker: spot for spot in reversed(spots)}.values())[::-1]
