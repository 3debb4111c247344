"""Free space over time: the resource diagram of one run, and what an item could be given of it.

Everything that limits is a line of the diagram: a worker, a queue on a worker, a parallel environment, a resource
quota, the cluster's consumables (the line ""). A slot fits where every line it needs has room for the whole time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from rainbow.scheduling.priority.model import ONE_WORKER, Environment, Item, Need, QueueInstance, SlotAssignment
from rainbow.scheduling.priority.placement.slot_allocation import allocate
from rainbow.scheduling.resource_timeline import Timeline
from rainbow.scheduling.snapshot import SlotsView


@dataclass(slots=True)
class FreeSpace:
    """What is left of each line over [start, end) while one item is being placed; thrown away if that fails."""

    timeline: Timeline
    start: float
    end: float
    left: dict[tuple[str, str], int] = field(default_factory=dict)
    apart: set[str] = field(default_factory=set)  # workers that hold a slot that stands alone
    once: set[tuple[str, str]] = field(default_factory=set)  # what is taken once, and is

    def free(self, line: str, kind: str) -> int:
        """How much is left."""
        key = (line, kind)
        if key not in self.left:
            self.left[key] = self.timeline.free(line, kind, self.start, self.end)
        return self.left[key]

    def copies(self, needs: Iterable[Need]) -> float:
        """How many slots with these needs fit."""
        most = inf
        for line, kind, amount, _ in needs:
            most = min(most, self.free(line, kind) // amount)
            if most <= 0:
                return 0
        return most

    def debit(self, needs: Iterable[Need], count: int) -> None:
        """Take the needs of some slots."""
        for line, kind, amount, _ in needs:
            self.left[line, kind] = self.free(line, kind) - amount * count


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """What one slot of a group takes at a spot: always, once on each worker, once for the job."""

    each: tuple[Need, ...]
    per_worker: tuple[Need, ...] = ()
    per_job: tuple[Need, ...] = ()

    @property
    def fixed(self) -> bool:
        """Return whether anything is taken once."""
        return bool(self.per_worker or self.per_job)


class SlotPlacer:
    """Places one item over one interval; `given` lists (group, spot, count) in the order taken."""

    def __init__(
        self,
        item: Item,
        ledger: FreeSpace,
        environment: Environment,
        workers: Callable[[], Iterable[str]],
        spots: Mapping[str, Sequence[QueueInstance]],
        requirement: Callable[[int, QueueInstance], SlotRequest],
        masters: Sequence[QueueInstance] | None = None,
    ) -> None:
        self.item = item
        self.ledger = ledger
        self.environment = environment
        self.workers = workers
        self.spots = spots
        self.wanted = requirement
        self.masters = masters
        self.given: list[tuple[int, QueueInstance, int]] = []

    def place(self, count: int) -> bool:
        """Place all groups, the one with a range with `count` slots."""
        for k, group in enumerate(self.item.groups):
            requirement = group.least if len(self.item.groups) > 1 else count
            if not self._group(k, group, requirement):
                return False
        return True

    def _group(self, k: int, group: SlotsView, count: int) -> bool:
        if k == 0 and self.masters is not None:
            return any(self._with_master(group, spot, count) for spot in self.masters)
        return self._spread(k, group, count, self.workers())

    def _spread(self, k: int, group: SlotsView, count: int, workers: Iterable[str]) -> bool:
        def take(worker: str, low: int, high: int) -> int:
            return self._take(k, group, worker, low, high)

        return count == 0 or allocate(self.environment.rule, count, workers, take)

    def _with_master(self, group: SlotsView, spot: QueueInstance, count: int) -> bool:
        """Place the master's slot at a spot and all others by the rule; take everything back if that fails."""
        if self._room(0, group, spot) < 1:
            return False
        rule, mark = self.environment.rule, self._mark()
        self._give(0, spot, 1)
        more, others = 0, [worker for worker in self.workers() if worker != spot.worker]
        if rule == ONE_WORKER or isinstance(rule, int):  # the master's worker gives as many as any other
            more = (count if rule == ONE_WORKER else int(rule)) - 1
            placed = more == 0 or (spot.worker in self.spots and self._take(0, group, spot.worker, more, more))
        else:
            placed, others = True, list(self.workers())
        if placed and self._spread(0, group, count - 1 - more, others):
            return True
        self._undo(mark)
        return False

    def _mark(self) -> tuple[dict[tuple[str, str], int], set[tuple[str, str]], set[str], int]:
        """Return what to come back to."""
        return dict(self.ledger.left), set(self.ledger.once), set(self.ledger.apart), len(self.given)

    def _undo(self, mark: tuple[dict[tuple[str, str], int], set[tuple[str, str]], set[str], int]) -> None:
        self.ledger.left, self.ledger.once, self.ledger.apart, grants = mark
        del self.given[grants:]

    def _take(self, k: int, group: SlotsView, worker: str, low: int, high: int) -> int:
        """Take between low and high slots on a worker, over its queues; all or nothing below low."""
        mark = self._mark() if low > 1 else None
        got = 0
        for spot in self.spots[worker]:
            count = min(high - got, self._room(k, group, spot))
            if count > 0:
                self._give(k, spot, int(count))
                got += int(count)
        if got < low and mark:
            self._undo(mark)
        return got if got >= low else 0

    def _room(self, k: int, group: SlotsView, spot: QueueInstance) -> float:
        """How many slots of a group a spot could still give."""
        if group.apart and spot.worker in self.ledger.apart:
            return 0
        requirement = self.wanted(k, spot)
        if not requirement.fixed:
            return min(self.ledger.copies(requirement.each), 1 if group.apart else inf)
        fixed = [*self._due(requirement.per_worker, spot.worker), *self._due(requirement.per_job, "")]
        if not fixed:
            return min(self.ledger.copies(requirement.each), 1 if group.apart else inf)
        if self.ledger.copies(fixed) < 1:
            return 0
        self.ledger.debit(fixed, 1)
        most = self.ledger.copies(requirement.each)
        self.ledger.debit(fixed, -1)
        return min(most, 1 if group.apart else inf)

    def _due(self, needs: Iterable[Need], worker: str) -> list[Need]:
        """Return the needs that are taken once and have not been taken yet."""
        return [need for need in needs if (worker, need.kind) not in self.ledger.once]

    def _give(self, k: int, spot: QueueInstance, count: int) -> None:
        requirement = self.wanted(k, spot)
        for needs, worker in (
            ((requirement.per_worker, spot.worker), (requirement.per_job, "")) if requirement.fixed else ()
        ):
            self.ledger.debit(self._due(needs, worker), 1)
            self.ledger.once.update((worker, need.kind) for need in needs)
        self.ledger.debit(requirement.each, count)
        if self.item.groups[k].apart:
            self.ledger.apart.add(spot.worker)
        self.given.append((k, spot, count))

    # ── the result ──

    def grant(self) -> SlotAssignment:
        """Say what was placed: slots with what they hold, and what is booked on every line."""
        slots: list[tuple[str, dict[str, dict[str, int]]]] = []
        booking: dict[str, dict[str, int]] = {}
        once: set[tuple[str, str]] = set()
        for k, spot, count in self.given:
            group, requirement = self.item.groups[k], self.wanted(k, spot)
            fixed: list[Need] = []
            if requirement.fixed:
                fixed += [n for n in requirement.per_worker if (spot.worker, n.kind) not in once]
                fixed += [n for n in requirement.per_job if ("", n.kind) not in once]
                once.update((spot.worker, need.kind) for need in requirement.per_worker)
                once.update(("", need.kind) for need in requirement.per_job)
                add_needs(booking, fixed, 1)
            add_needs(booking, requirement.each, count)
            each = _held(spot, requirement.each)
            slots.append((group.label, _held(spot, [*requirement.each, *fixed]) if fixed else each))
            slots.extend([(group.label, each)] * (count - 1))
        spots: dict[QueueInstance, int] = {}
        for _, spot, count in self.given:
            spots[spot] = spots.get(spot, 0) + count
        grants = tuple(spots.items())
        start, end = self.ledger.start, self.ledger.end
        return SlotAssignment(start, end, sum(spots.values()), tuple(slots), booking, self.environment, grants)


def _held(spot: QueueInstance, needs: Iterable[Need]) -> dict[str, dict[str, int]]:
    """What a slot holds of its worker and of the cluster."""
    held: dict[str, dict[str, int]] = {spot.worker: {}}
    for _, kind, amount, holder in needs:
        if holder is not None:
            of = held.setdefault(holder, {})
            of[kind] = of.get(kind, 0) + amount
    return held


def add_needs(to: dict[str, dict[str, int]], needs: Iterable[Need], count: int) -> None:
    """Add the needs of some slots to {line: {type: amount}}."""
    for line, kind, amount, _ in needs:
        held = to.setdefault(line, {})
        held[kind] = held.get(kind, 0) + amount * count
