"""Counting what cannot be preempted: first come, while there is space and the user's allotment lasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rainbow.scheduling.fair_share.model import Job, Machine, World
from rainbow.scheduling.fair_share.settings import Rule


class Grants:
    """What has been promised so far that cannot be taken back: qshares by user, shares by class, whole machines."""

    def __init__(self, world: World) -> None:
        self.settings = world.settings
        self.held: dict[str, int] = {}  # amounts by user
        self.held_of: dict[tuple[str, str], int] = {}
        self.shares: dict[str, int] = {}  # by class
        self.promised: set[Machine] = set()
        for job in world.jobs:
            for share in job.shares if not job.cls.fair else ():
                self._add(job, share.order)

    def copy(self) -> Grants:
        """Return grants that can be added to apart from these."""
        copied = Grants.__new__(Grants)
        copied.settings, copied.promised = self.settings, set(self.promised)
        copied.held, copied.held_of, copied.shares = dict(self.held), dict(self.held_of), dict(self.shares)
        return copied

    def _add(self, job: Job, order: int, shares: int = 1) -> None:
        amount = order * shares * job.pool.quantum
        self.held[job.user] = self.held.get(job.user, 0) + amount
        key = job.user, job.cls.name
        self.held_of[key] = self.held_of.get(key, 0) + amount
        self.shares[job.cls.name] = self.shares.get(job.cls.name, 0) + shares

    def whole(self, job: Job, quanta: int) -> bool:
        """Grant so many quanta together, or nothing."""
        if not self._allowed(job, max(1, quanta)):
            return False
        self._add(job, max(1, quanta))
        return True

    def count(self, jobs: Sequence[Job]) -> None:
        """Count the jobs of one priority, in order of submission."""
        for job in jobs:
            job.counted = job.held
            more = job.wanted - job.held
            if more > 0:
                granted = self._machines(job, more) if job.cls.rule is Rule.RESERVE else self._shares(job, more)
                job.counted = granted + job.held

    def _shares(self, job: Job, more: int) -> int:
        """Grant shares out of the job's own pool."""
        tables = job.pool.tables
        there = tables.fitting(job.order)
        granted = min(more, there, self._allowed(job, job.order))
        if there == 0:
            job.reason = _no_space(job)
        if job.held + granted < job.least:
            job.reason = job.reason or "below-minimum"
            return 0
        tables.count_out(job.order, granted)
        self._add(job, job.order, granted)
        return granted

    def _allowed(self, job: Job, order: int) -> int:
        """How many more shares the user's allotments and the class's own limit allow."""
        allowed, missing = 1 << 30, job.wanted - job.held
        for limit, held in self._allotments(job):
            more = max(0, int((limit - held) // (order * job.pool.quantum)))
            if more < min(allowed, missing):
                unit = self.settings.unit
                job.reason, job.facts = "allotment", {"allotment": limit / unit, "held": held / unit}
            allowed = min(allowed, more)
        if job.cls.most is not None:
            more = max(0, job.cls.most - self.shares.get(job.cls.name, 0))
            if more < min(allowed, missing):
                job.reason, job.facts = "class-cap", {"cap": job.cls.most}
            allowed = min(allowed, more)
        return allowed

    def _allotments(self, job: Job) -> Iterator[tuple[float, int]]:
        """Yield what the user may hold, in all and of the class, each with what is held of it."""
        if (limit := self.settings.allotment_of(job.user)) is not None:
            yield limit, self.held.get(job.user, 0)
        key = job.user, job.cls.name
        if key in self.settings.class_allotments:
            yield self.settings.class_allotments[key], self.held_of.get(key, 0)

    def _machines(self, job: Job, more: int) -> int:
        """Promise whole machines: empty, or to be emptied of what can be preempted; all of them of one order."""
        results = sorted(self._candidates(job), key=lambda m: (*_trouble(m), m.order, m.id))
        order = next((m.order for m in (*(share.machine for share in job.staying), *results)), 0)
        results = [m for m in results if m.order == order]
        taken = results[: min(more, job.pool.tables.n[order], self._allowed(job, order))] if results else []
        if not results and not self._any_of_order(job):
            job.reason = "no-machine-of-order"
        if not taken or job.held + len(taken) < job.least:
            job.reason = job.reason or ("below-minimum" if taken else "no-space")
            return 0
        for machine in taken:
            self.promised.add(machine)
            job.pool.tables.n[order] -= 1
        job.promised = taken
        self._add(job, order, len(taken))
        return len(taken)

    def _candidates(self, job: Job) -> Iterator[Machine]:
        for machine in job.pool.machines:
            fixed = any(not share.preemptable for share in machine.shares)
            if machine.open and not fixed and machine not in self.promised and self._right(job, machine):
                yield machine

    def _any_of_order(self, job: Job) -> bool:
        return any(machine.usable and self._right(job, machine) for machine in job.pool.machines)

    def _right(self, job: Job, machine: Machine) -> bool:
        """A whole machine is of exactly the order that was asked for, or a little larger if that is allowed."""
        most = max(job.order, -(-(job.asked + self.settings.reserve_overage) // job.pool.quantum))
        return machine.kind in job.amounts and job.order <= machine.order <= most


def _trouble(machine: Machine) -> tuple[int, float, int]:
    """What emptying a machine would cost: shares to evict, what is invested in them, and how many leave already."""
    staying = [share for share in machine.shares if not share.leaving]
    return len(staying), sum(share.investment for share in staying), len(machine.shares)


def _no_space(job: Job) -> str:
    fits = any(m.usable and m.kind in job.amounts and m.order >= job.order for m in job.pool.machines)
    return "no-space" if fits else "too-large"
