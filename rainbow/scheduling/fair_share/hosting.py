"""How many shares the machines a job may use could hold, where it may not use all of its nodepool.

How Much knows sizes and no names. Without this bound a job that names its machines is counted shares it can never
have, and others are counted less for it.
"""

from __future__ import annotations

from rainbow.scheduling.fair_share.model import Job, Pool

UNBOUNDED = 1 << 30


class Hosting:
    """Answers for one epoch; jobs of one nodepool, size and choice of machines have the same answer."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[Pool, bool], frozenset[str]] = {}
        self.known: dict[tuple[Pool, bool, frozenset[str], int], int] = {}

    def more(self, job: Job) -> int:
        """How many shares the job could have beside those that cannot be preempted; its own fair ones count again."""
        there = self._kinds(job)
        usable = there.intersection(job.amounts)
        if usable == there:
            return UNBOUNDED
        key = job.pool, job.cls.fair, usable, job.order
        if key not in self.known:
            self.known[key] = sum(
                max(0, m.order - sum(s.order for s in m.shares if not s.preemptable)) // job.order
                for pool in job.reach()
                for m in pool.machines
                if m.open and m.kind in usable
            )
        return self.known[key] - (job.held - job.settled if job.cls.fair else 0)

    def _kinds(self, job: Job) -> frozenset[str]:
        key = job.pool, job.cls.fair
        if key not in self.kinds:
            self.kinds[key] = frozenset(m.kind for pool in job.reach() for m in pool.machines if m.open)
        return self.kinds[key]
