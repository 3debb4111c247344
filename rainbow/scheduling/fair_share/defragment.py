"""Defragmentation: take from the rich, give to the needy.

    needy     holds less than the threshold, than it deserves and than it was counted (what cannot be preempted: than
              it was counted)
    rich      would not be needy after giving one share away, and has initialised
    poor      gives only to strictly better priorities, when the rich cannot help
    wealth    qshares a user's jobs hold that can be preempted

A needy job first keeps space that is being left anyway. Then machines are cleared of the shares of the rich, those
with the richest user on them first. What was cleared is kept for the job until it starts there (claims.py). A start
that nobody has heard of yet is taken back rather than a running share stopped.

Every gift lowers somebody's need and raises nobody's of the same or a better priority, so giving comes to an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rainbow.scheduling.fair_share.evict import in_order
from rainbow.scheduling.fair_share.model import Job, Machine, Share, World
from rainbow.scheduling.fair_share.settings import Rule
from rainbow.scheduling.fair_share.what_of import Space, place


def floor_of(job: Job, threshold: int) -> int:
    """How many shares a job must hold not to be needy."""
    return min(threshold, job.deserved, job.counted) if job.cls.fair else job.counted


def defragment(world: World, space: Space) -> list[Job]:
    """Make room for needy jobs; return them: they come first in the next epoch."""
    threshold = world.settings.threshold
    needy = [job for top in world.tops for jobs in world.priorities(top) for job in jobs]
    needy = [job for job in needy if job.held < floor_of(job, threshold) and job.reason != "below-minimum"]
    if needy and world.settings.defragmentation:
        gifts = Gifts(world, space, {job.id for job in needy})
        for job in needy:
            if job.cls.rule is not Rule.RESERVE:  # its machines have been cleared already
                gifts.help(job, floor_of(job, threshold) - job.held)
    return needy


@dataclass(frozen=True, slots=True)
class Gift:
    """One share a rich job can spare: one that runs, or one that was only going to start (`share` None)."""

    giver: Job
    order: int
    share: Share | None = None


class Gifts:
    """What the rich have given so far in this epoch."""

    def __init__(self, world: World, space: Space, needy: set[str]) -> None:
        self.space = space
        self.threshold = world.settings.threshold
        self.needy = needy
        self.machines = world.machines
        self.wealth: dict[str, int] = {}
        self.pending: dict[Machine, list[Job]] = {}
        self.rank: dict[Share, int] = {}
        self.in_vain: set[tuple[object, ...]] = set()
        for job in world.jobs:
            if job.cls.fair:
                self.wealth[job.user] = self.wealth.get(job.user, 0) + job.held * job.order
                self.rank.update({share: k for k, share in enumerate(in_order(job))})
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

    def _reachable(self, job: Job) -> Iterator[Machine]:
        for pool in job.reach():
            for machine in pool.machines:
                if machine.open and machine.order >= job.order and machine.kind in job.amounts:
                    yield machine

    def _keep_what_is_left(self, job: Job, missing: int) -> int:
        """Keep space that is free or being left, the tightest first."""
        kept = 0
        room = sorted((m for m in self._reachable(job) if m.eventual >= job.order), key=lambda m: (m.eventual, m.id))
        for machine in room:
            count = min(missing - kept, machine.eventual // job.order)
            if count > 0:
                self.space.claim(job, machine, count)
                kept += count
        return kept

    def _may_take_from_poor(self, job: Job) -> bool:
        return any(job.cls.priority < giver.cls.priority for giver in self._givers())

    def _givers(self) -> Iterable[Job]:
        return {share.job for share in self.rank} | {job for jobs in self.pending.values() for job in jobs}

    def _clear_one(self, job: Job, poor: bool) -> bool:
        """Clear one machine for one share of the job; tell whether there was one."""
        likeness = (job.order, job.pool, frozenset(job.amounts), job.cls.fair, job.cls.priority, poor)
        if likeness in self.in_vain:
            return False
        found = [(m, gifts) for m in self._reachable(job) if (gifts := self._enough(job, m, poor))]
        if not found:
            self.in_vain.add(likeness)
            return False
        machine, gifts = min(found, key=lambda f: (-self._richest(f[1]), -f[0].memory, f[0].id))
        for gift in gifts:
            self._give(gift, machine)
        self.space.claim(job, machine)
        return True

    def _richest(self, gifts: list[Gift]) -> int:
        return max(self.wealth[gift.giver.user] for gift in gifts)

    def _enough(self, job: Job, machine: Machine, poor: bool) -> list[Gift]:
        """Choose gifts on a machine that make room for one share, as few as will do; none if they cannot."""
        missing = job.order - max(0, machine.eventual)
        spare: dict[Job, int] = {}
        chosen: list[Gift] = []
        offered = list(self._offered(job, machine, poor))
        exact = [gift for gift in offered if gift.order == missing]
        for gift in [*exact, *(gift for gift in offered if gift.order != missing)]:
            if missing <= 0:
                break
            left = spare.setdefault(gift.giver, self._spare(gift.giver, job, poor))
            if left > 0:
                spare[gift.giver] -= 1
                chosen.append(gift)
                missing -= gift.order
        return chosen if missing <= 0 else []

    def _offered(self, job: Job, machine: Machine, poor: bool) -> list[Gift]:
        """Shares on a machine that may be given: those not yet started first, then the richest user's."""
        gifts = [Gift(giver, giver.order) for giver in self.pending.get(machine, ())]
        running = [s for s in machine.shares if s.preemptable and not s.leaving]
        running.sort(key=lambda s: (-self.wealth[s.job.user], self.rank[s], s.id))
        gifts += [Gift(share.job, share.order, share) for share in running]
        return [gift for gift in gifts if gift.giver is not job]

    def _spare(self, giver: Job, job: Job, poor: bool) -> int:
        """How many shares a job can give to another."""
        if poor and job.cls.priority < giver.cls.priority:
            return giver.held
        if giver.cls.priority < job.cls.priority or giver.id in self.needy or giver.load.initialising:
            return 0
        return giver.held - max(floor_of(giver, self.threshold), giver.least)

    def _give(self, gift: Gift, machine: Machine) -> None:
        self.wealth[gift.giver.user] -= gift.order
        if gift.share is not None:
            gift.share.evict("defragmentation")
            return
        self.pending[machine].remove(gift.giver)
        self.space.give_back(gift.giver, machine)
