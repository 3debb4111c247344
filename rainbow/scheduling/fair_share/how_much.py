"""How Much: how many shares every job should have, in an ideal world where what can be preempted is not in the way.

    class → user → job     what can be preempted, by weight, apportioned at each level (apportion.py)
    first come             what cannot, while space and the user's allotment last (grants.py)

Priorities are served best first; what a better one was counted is counted out of the tables before the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rainbow.scheduling.fair_share.cascade import Cascade
from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.model import Job, Pool, World
from rainbow.scheduling.fair_share.tables import Tables


def how_much(world: World, top: Pool, grants: Grants) -> None:
    """Count the shares of every job of a tree."""
    longest = world.longest
    for pool in top.subtree():
        pool.tables = ideal_tables(pool, longest)
    for jobs in world.priorities(top):
        if jobs[0].cls.fair:
            _count_fair(jobs, top, longest, world.settings.classic)
        else:
            grants.count(jobs)


def ideal_tables(pool: Pool, longest: int) -> Tables:
    """Tables of a pool's open machines as if nothing that can be preempted were there."""
    return Tables.of(
        (
            (m.order, max(0, m.order - sum(s.order for s in m.shares if not s.preemptable)))
            for m in pool.machines
            if m.open
        ),
        longest,
    )


def _count_fair(jobs: Sequence[Job], top: Pool, longest: int, classic: bool) -> None:
    """Count one priority; a job that would get less than it can work with gets nothing, and the others more."""
    _deserve(jobs)
    while True:
        left = Cascade(jobs, longest, classic).count(top)
        short = sorted((job for job in jobs if 0 < job.counted < job.least), key=lambda j: (j.held == 0, *j.rank))
        if not short:
            break
        for job in short[len(short) // 2 :]:  # half of them at a time: the rest may do with what these leave
            job.wanted = 0
            job.reason = "below-minimum"
    _name_full_classes(jobs)
    for pool, tables in left.items():
        pool.tables = tables


def _name_full_classes(jobs: Sequence[Job]) -> None:
    """Say of the jobs that would have more whose class has reached its cap that it has."""
    counted: Counter[str] = Counter()
    for job in jobs:
        counted[job.cls.name] += job.counted
    for job in jobs:
        full = job.cls.most is not None and counted[job.cls.name] >= job.cls.most
        if full and job.held >= job.counted and job.counted < job.cap and job.reason in ("", "below-minimum"):
            job.reason, job.facts = "class-cap", {"cap": job.cls.most}


def _deserve(jobs: Sequence[Job]) -> None:
    """Set what each job is owed by weight alone: of its pool's machines, its class's, its user's and its own part."""
    weights = {job.cls.name: (job.pool, job.cls.weight) for job in jobs}
    for name, (pool, weight) in weights.items():
        related = sum(w for other, w in weights.values() if _related(pool, other))
        quanta = sum(m.order for part in pool.subtree() for m in part.machines if m.open)
        own = [job for job in jobs if job.cls.name == name]
        users = {job.user for job in own}
        for user in users:
            theirs = [job for job in own if job.user == user]
            for job in theirs:
                part = int(quanta * (weight / related)) // len(users) // len(theirs)
                job.deserved = max(1, part // job.order)


def _related(one: Pool, other: Pool) -> bool:
    """Whether one of two pools contains the other."""
    return one in other.subtree() or other in one.subtree()
