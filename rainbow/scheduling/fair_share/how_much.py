"""How Much: the shares every job should have, if preemptable work were not in the way.

    class → user → job     what can be preempted, by weight, apportioned at each level (apportionment.py)
    first come             what cannot, while space and the user's allotment last (grants.py)

Priorities are served best first; what a better one was counted is counted out of the tables before the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from rainbow.scheduling.fair_share.apportionment import Entity, apportion
from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.model import Job, Pool, World
from rainbow.scheduling.fair_share.settings import ClassSettings
from rainbow.scheduling.fair_share.share_tables import Table, Tables, added


class Cascade:
    """The classes, users and jobs of one priority, counted over one tree of nodepools."""

    def __init__(self, jobs: Sequence[Job], longest: int, classic: bool) -> None:
        self.longest = longest
        self.classic = classic
        self.of_class: dict[str, list[Job]] = {}
        for job in jobs:
            job.counted = 0
            if job.order > longest:
                job.reason = "too-large"
                continue
            self.of_class.setdefault(job.cls.name, []).append(job)
        self.classes: dict[Pool, list[ClassSettings]] = {}
        for own in self.of_class.values():
            self.classes.setdefault(own[0].pool, []).append(own[0].cls)

    def count(self, top: Pool) -> dict[Pool, Tables]:
        """Count every job; return the tables that are left of every pool."""
        for e in self._classes(top):
            self._users(self.of_class[e.name], e.given)
        remaining = {pool: pool.tables.copy() for pool in top.subtree()}
        self._pack(remaining)
        if not self.classic:
            self._hand_round(remaining)
        return remaining

    def _pack(self, remaining: dict[Pool, Tables]) -> None:
        """Take what was counted out of the tables: the largest first, and the deepest nodepools, that have no choice.

        Over nested pools the sizes may not work out; then the last is counted one less, so that every
        share that is counted has a place.
        """
        alike: dict[tuple[int, int, str], list[Job]] = {}
        for jobs in self.of_class.values():
            for job in jobs:
                alike.setdefault((-job.order, -job.pool.depth, job.pool.name), []).append(job)
        for _, own in sorted(alike.items(), key=lambda entry: entry[0]):
            missing = sum(job.counted - job.settled for job in own)
            for part in own[0].pool.subtree():
                missing -= remaining[part].count_out(own[0].order, missing) if missing else 0
            for _ in range(missing):
                max(own, key=lambda job: (job.counted - job.settled, *job.rank)).counted -= 1

    def _hand_round(self, remaining: dict[Pool, Tables]) -> None:
        """Distribute shares lost between class, user and job, one at a time, to the claimant with the least."""
        held: dict[tuple[str, str], int] = {}  # quanta by class and user
        for cls, jobs in self.of_class.items():
            for job in jobs:
                held[cls, job.user] = held.get((cls, job.user), 0) + job.counted * job.order
        heap = [self._claim(job, held) for jobs in self.of_class.values() for job in jobs if job.counted < job.wanted]
        heapify(heap)
        full: set[tuple[Pool, int]] = set()
        while heap:
            claim = heappop(heap)
            job = claim[-1]
            if (job.pool, job.order) in full or self._at_most(job):
                continue
            if claim != (now := self._claim(job, held)):  # its user has been given something since
                heappush(heap, now)
            elif not any(remaining[part].count_out(job.order, 1) for part in job.pool.subtree()):
                full.add((job.pool, job.order))
            else:
                job.counted += 1
                held[job.cls.name, job.user] += job.order
                if job.counted < job.wanted:
                    heappush(heap, self._claim(job, held))

    def _claim(self, job: Job, held: dict[tuple[str, str], int]) -> tuple[float, float, float, str, Job]:
        """Rank a claim: what its user would have for its class's weight, then what the job would, then its age."""
        would = (held[job.cls.name, job.user] + job.order) / job.cls.weight
        return would, (job.counted + 1) * job.order, *job.rank, job

    def _at_most(self, job: Job) -> bool:
        most = job.cls.most
        return most is not None and sum(other.counted for other in self.of_class[job.cls.name]) >= most

    def _classes(self, pool: Pool) -> list[Entity]:
        """Apportion among the classes of a subtree.

        A class further down is first counted there, alone with its like, and takes part up here for no more than
        it got: its machines are only those. That is weighted max-min over nested sets of machines.
        """
        below = [e for child in pool.children for e in self._classes(child)]
        for e in below:
            e.wanted, e.given = e.given, [0] * (self.longest + 1)
        own = [
            self._entity(cls.name, self.of_class[cls.name], cls.weight, cls.most)
            for cls in self.classes.get(pool, ())
        ]
        entities = sorted([*own, *below], key=lambda e: (-e.weight, e.name))
        if entities:
            table: Table = [0] * (self.longest + 1)
            for part in pool.subtree():
                table = added(table, part.tables.free)
            apportion(entities, table, self.classic)
        return entities

    def _users(self, jobs: Sequence[Job], table: Table) -> None:
        by_user: dict[str, list[Job]] = {}
        for job in jobs:
            by_user.setdefault(job.user, []).append(job)
        users = [self._entity(name, by_user[name]) for name in sorted(by_user)]
        apportion(users, list(table), self.classic)
        for user in users:
            self._jobs(by_user[user.name], user.given)

    def _jobs(self, jobs: Sequence[Job], table: Table) -> None:
        entities = [self._entity(job.id, [job]) for job in jobs]
        apportion(entities, list(table), self.classic)
        for job, e in zip(jobs, entities, strict=True):
            job.counted = e.given[job.order] + job.settled

    def _entity(self, name: str, jobs: Iterable[Job], weight: float = 1, most: int | None = None) -> Entity:
        requirements = [0] * (self.longest + 1)
        for job in jobs:
            requirements[job.order] += job.wanted - job.settled
        return Entity(name, weight, requirements, [0] * (self.longest + 1), most)


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
        remaining = Cascade(jobs, longest, classic).count(top)
        short = sorted((job for job in jobs if 0 < job.counted < job.least), key=lambda j: (j.held == 0, *j.rank))
        if not short:
            break
        for job in short[len(short) // 2 :]:  # half of them at a time: the rest may do with what these leave
            job.wanted = 0
            job.reason = "below-minimum"
    _name_full_classes(jobs)
    for pool, tables in remaining.items():
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
