"""Eviction: shares that jobs give back, and defragmentation for needy jobs.

A share that has not initialised goes before one that has; of two that have not, the one that initialised for the
shorter time; of two that have, the one with less invested; then the one in the most deeply nested nodepool, on the
larger machine, and last the newest. The order is total. `classic` leaves out the depth, which DUCC compares
with itself, and keeps shares that have not initialised in the order they come.
See docs/design/fair-share-corrects-the-resource-manager.md.

Defragmentation takes from the rich and gives to the needy:

    needy     holds less than the threshold, than it deserves and than it was counted, or less than it can work with
              (what cannot be preempted: than it was counted)
    rich      would not be needy after giving one share away, and has initialised
    poor      gives only to strictly better priorities, when the rich cannot help
    wealth    qshares a user's jobs hold that can be preempted

A needy job first keeps space that is being left anyway. Then machines are cleared of the shares of the rich, those
with the richest user on them first. What was cleared is kept for the job until it starts there (what_of.py). A start
that nobody has heard of yet is taken back rather than a running share stopped. A job that was to shrink and gives
besides keeps as many of the shares it would have given up, where their space is not promised: no more stops than
what is needed. DUCC stops both, and starts some of them again, and so does `classic`.

Every gift lowers somebody's need and raises nobody's of the same or a better priority, so giving comes to an end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from rainbow.scheduling.fair_share.model import Job, Machine, Share, World
from rainbow.scheduling.fair_share.settings import Rule
from rainbow.scheduling.fair_share.what_of import FreeShares, MachineSpace, place
from rainbow.state_machine import WorkerState


def clear_closed(world: World) -> None:
    """Take what can be preempted off machines that were varied off, and out of nodepools it may not be in."""
    for job in world.jobs:
        for share in job.staying if job.cls.fair else ():
            if share.machine.why_closed == WorkerState.OFFLINE.value:
                share.evict("offline")
            elif share.machine.pool not in job.reach():
                share.evict("blacklisted")


def clear_limbo(world: World) -> None:
    """Stop all that restarts where it may not be, or has no class any more."""
    for job in world.limbo:
        for share in job.staying if job.elastic or job.service else ():
            share.evict("blacklisted")


def clear_reserved(world: World, space: MachineSpace) -> None:
    """Keep every machine a reservation was promised, and empty it of what can be preempted."""
    for job in world.jobs:
        for machine in job.promised:
            space.claim(job, machine)
            for share in machine.shares:
                if share.preemptable and not share.leaving:
                    share.evict("reservation")


def shrink(world: World) -> None:
    """Evict from every job that holds more than it was counted, least investment first."""
    for job in world.jobs:
        over = job.held - job.counted if job.cls.fair else 0
        for share in in_order(job, world.settings.classic)[: max(0, over)]:
            share.evict("shrink")


def in_order(job: Job, classic: bool = False) -> list[Share]:
    """Sort the shares a job could give up, the first to go first."""
    return _sorted((share for share in job.staying if share.preemptable), classic)


def _shrunk(job: Job) -> list[Share]:
    """Sort the shares that this epoch takes because they are too many, the first to go first."""
    return _sorted(share for share in job.shares if share.evicted == "shrink")


def _sorted(shares: Iterable[Share], classic: bool = False) -> list[Share]:
    there = {(share.started, share.id): share for share in shares}
    invested = [
        Invested(
            key,
            share.initialised,
            share.initialising,
            share.investment,
            share.machine.pool.depth,
            share.machine.memory,
        )
        for key, share in there.items()
    ]
    return [there[one.serial] for one in eviction_order(invested, classic)]


@dataclass(frozen=True, slots=True)
class Invested:
    """What eviction looks at in a share; the larger `serial`, the newer it is."""

    serial: Any  # a number, or anything else that is ordered
    initialised: bool
    initialising: float = 0.0  # time spent, until it was ready
    investment: float = 0.0
    depth: int = 0
    memory: int = 0


def eviction_order(shares: Iterable[Invested], classic: bool = False) -> list[Invested]:
    """Sort shares, the first to be given up first.

    >>> [s.serial for s in eviction_order([Invested(1, True), Invested(2, False), Invested(3, True)])]
    [2, 3, 1]
    """
    newest_first = sorted(shares, key=lambda share: share.serial, reverse=True)
    if classic:
        waiting = sorted((s for s in newest_first if not s.initialised), key=lambda s: s.serial)
        ready = sorted((s for s in newest_first if s.initialised), key=lambda s: (s.investment, -s.memory))
        return sorted(waiting, key=lambda s: s.initialising) + ready
    return sorted(newest_first, key=_rank)


def _rank(share: Invested) -> tuple[bool, float, int, int]:
    lost = share.investment if share.initialised else share.initialising
    return share.initialised, lost, -share.depth, -share.memory


def floor_of(job: Job, threshold: int) -> int:
    """How many shares a job must hold not to be needy."""
    most = min(max(threshold, job.least), max(job.deserved, job.least))
    return min(most, job.counted) if job.cls.fair else job.counted


def defragment(world: World, space: MachineSpace) -> list[Job]:
    """Make room for needy jobs; return them: they come first in the next epoch."""
    threshold = world.settings.threshold
    needy = [job for top in world.tops for jobs in world.priorities(top) for job in jobs]
    needy = [job for job in needy if job.held < floor_of(job, threshold)]
    if needy and world.settings.defragmentation:
        gifts = Defragmentation(world, space, {job.id for job in needy})
        for job in needy:
            if job.cls.rule is not Rule.RESERVE:  # its machines have been cleared already
                gifts.help(job, floor_of(job, threshold) - job.held)
        for job in world.jobs:
            _hold_back(job, space)
    return needy


def _hold_back(job: Job, space: MachineSpace) -> None:
    """Keep the space of what was going to start, where gifts to better priorities leave too little to work with."""
    if job.cls.fair and job.held < job.least:
        for machine in list(job.starts):
            space.give_back(job, machine)
            space.claim(job, machine)


@dataclass(frozen=True, slots=True)
class ShareTransfer:
    """One share a rich job can spare: one that runs, or one that was only going to start (`share` None)."""

    giver: Job
    order: int
    share: Share | None = None


class Defragmentation:
    """What the rich have given so far in this epoch."""

    def __init__(self, world: World, space: MachineSpace, needy: set[str]) -> None:
        self.space = space
        self.threshold = world.settings.threshold
        self.classic = world.settings.classic
        self.needy = needy
        self.left = FreeShares(world.machines, lambda machine: max(0, machine.eventual))
        self.wealth: dict[str, int] = {}
        self.pending: dict[Machine, list[Job]] = {}
        self.rank: dict[Share, int] = {}
        self.heaps: dict[tuple[object, ...], list[tuple[int, int, str, Machine]]] = {}
        self.worst = max((job.cls.priority for job in world.jobs if job.cls.fair and job.held), default=0)
        for job in world.jobs:
            if job.cls.fair:
                self.wealth[job.user] = self.wealth.get(job.user, 0) + job.held * job.order
                self.rank.update({share: k for k, share in enumerate(in_order(job))})
                shrunk = _shrunk(job)  # they go before the others, should one be kept instead
                self.rank.update({share: k - len(shrunk) for k, share in enumerate(shrunk)})
                for machine in job.starts:
                    self.pending.setdefault(machine, []).append(job)

    def help(self, job: Job, missing: int) -> None:
        """Keep and clear space until the job has what it misses, or nobody can give."""
        missing -= sum(job.claims.values())
        missing -= self._keep_what_is_left(job, missing) if missing > 0 else 0
        better = [False, True] if self._may_take_from_poor(job) else [False]
        for poor in better:
            while missing > 0 and self._clear_one(job, poor):
                missing -= 1
        place(job, self.space)
        if missing > 0:
            job.reason = job.reason or "defragmentation"

    def _keep_what_is_left(self, job: Job, missing: int) -> int:
        """Keep space that is free or being left, the tightest first."""
        chosen: list[tuple[Machine, int]] = []
        for machine in (m for pool in job.reach() for m in self.left.tightest(pool, job)):
            if missing <= 0:
                break
            chosen.append((machine, min(missing, machine.eventual // job.order)))
            missing -= chosen[-1][1]
        for machine, count in chosen:
            self._claim(job, machine, count)
        return sum(count for _, count in chosen)

    def _claim(self, job: Job, machine: Machine, count: int = 1) -> None:
        self.space.claim(job, machine, count)
        self.left.file(machine)

    def _may_take_from_poor(self, job: Job) -> bool:
        return job.cls.priority < self.worst

    def _clear_one(self, job: Job, poor: bool) -> bool:
        """Clear one machine for one share, where the richest user has something; return whether there is one.

        A machine that once could not be cleared for a job cannot be for one like it: nobody has more to give later.
        """
        heap = self._candidates(job, poor)
        while heap:
            wealth, memory, name, machine = heappop(heap)
            now = -self._richest(machine)
            if now > wealth:  # the richest there have given since
                heappush(heap, (now, memory, name, machine))
                continue
            if gifts := self._enough(job, machine, poor):
                for gift in gifts:
                    self._give(gift, machine)
                self._claim(job, machine)
                for gift in gifts:
                    self._keep_instead(gift.giver)
                heappush(heap, (-self._richest(machine), memory, name, machine))
                return True
        return False

    def _candidates(self, job: Job, poor: bool) -> list[tuple[int, int, str, Machine]]:
        likeness = (job.order, job.pool, frozenset(job.amounts), job.cls.fair, job.cls.priority, poor)
        if likeness not in self.heaps:
            self.heaps[likeness] = [
                (-self._richest(m), -m.memory, m.id, m)
                for pool in job.reach()
                for m in pool.machines
                if m.open and m.order >= job.order and m.kind in job.amounts
            ]
            heapify(self.heaps[likeness])
        return self.heaps[likeness]

    def _richest(self, machine: Machine) -> int:
        running = [self.wealth[s.job.user] for s in machine.shares if s.preemptable and not s.leaving]
        return max((*running, *(self.wealth[giver.user] for giver in self.pending.get(machine, ()))), default=0)

    def _enough(self, job: Job, machine: Machine, poor: bool) -> list[ShareTransfer]:
        """Choose gifts on a machine that make room for one share, as few as will do; none if they cannot."""
        missing = job.order - max(0, machine.eventual)
        spare: dict[Job, int] = {}
        chosen: list[ShareTransfer] = []
        offered = list(self._offered(job, machine, poor))
        exact = [gift for gift in offered if gift.order == missing]
        for gift in [*exact, *(gift for gift in offered if gift.order != missing)]:
            if missing <= 0:
                break
            remaining = spare.setdefault(gift.giver, self._spare(gift.giver, job, poor))
            if remaining > 0:
                spare[gift.giver] -= 1
                chosen.append(gift)
                missing -= gift.order
        return chosen if missing <= 0 else []

    def _offered(self, job: Job, machine: Machine, poor: bool) -> list[ShareTransfer]:
        """Shares on a machine that may be given: those not yet started first, then the richest user's."""
        gifts = [ShareTransfer(giver, giver.order) for giver in self.pending.get(machine, ())]
        running = [s for s in machine.shares if s.preemptable and not s.leaving]
        running.sort(key=lambda s: (-self.wealth[s.job.user], self.rank[s], s.id))
        gifts += [ShareTransfer(share.job, share.order, share) for share in running]
        return [gift for gift in gifts if gift.giver is not job]

    def _spare(self, giver: Job, job: Job, poor: bool) -> int:
        """How many shares a job can give to another."""
        if poor and job.cls.priority < giver.cls.priority:
            return giver.held
        if giver.cls.priority < job.cls.priority or giver.id in self.needy or giver.load.initialising:
            return 0
        return giver.held - max(floor_of(giver, self.threshold), giver.least)

    def _keep_instead(self, giver: Job) -> None:
        """Let a giver that has too few now keep a share that was to shrink, unless its space is promised.

        Of those it keeps the one in which most is invested. What goes although more is invested in it goes to make
        room, and says so.
        """
        if self.classic or giver.held >= giver.counted:
            return
        shrunk = _shrunk(giver)
        for k in reversed(range(len(shrunk))):
            share = shrunk[k]
            if share.machine.open and share.machine.eventual >= share.order:
                share.stay()
                self.wealth[giver.user] += share.order
                self.left.file(share.machine)
                for other in shrunk[k + 1 :]:
                    other.evicted = "defragmentation"
                return

    def _give(self, gift: ShareTransfer, machine: Machine) -> None:
        self.wealth[gift.giver.user] -= gift.order
        if gift.share is not None:
            gift.share.evict("defragmentation")
        else:
            self.pending[machine].remove(gift.giver)
            self.space.give_back(gift.giver, machine)
        self.left.file(machine)
