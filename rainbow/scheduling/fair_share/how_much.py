"""How Much: how many shares every job should have, in an ideal world where what can be preempted is not in the way.

    class → user → job     what can be preempted, by weight, apportioned at each level (apportion.py)
    first come             what cannot, while space and the user's allotment last (grants.py)

Priorities are served best first; what a better one was counted is counted out of the tables before the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rainbow.scheduling.fair_share.apportion import Entity, apportion
from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.model import Job, Pool, World
from rainbow.scheduling.fair_share.quanta import Table, added
from rainbow.scheduling.fair_share.settings import ClassSettings
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
            (m.order, max(0, m.order - sum(s.order for s in m.shares if not s.job.cls.fair)))
            for m in pool.machines
            if m.open
        ),
        longest,
    )


def _count_fair(jobs: Sequence[Job], top: Pool, longest: int, classic: bool) -> None:
    """Count one priority; a job that would get less than it can work with gets nothing, and the others more."""
    _deserve(jobs)
    while True:
        given = _Cascade(jobs, longest, classic).count(top)
        short = sorted((job for job in jobs if 0 < job.counted < job.least), key=lambda j: (j.held == 0, *j.rank))
        if not short:
            break
        for job in short[len(short) // 2 :]:  # half of them at a time: the rest may do with what these leave
            job.wanted = 0
            job.reason = "below-minimum"
    for pool in sorted(given, key=lambda p: -p.depth):
        _count_out(pool, given[pool])


def _count_out(pool: Pool, given: Table) -> None:
    """Take what the classes of a pool were counted out of its tables, then out of its children's."""
    for order in range(len(given) - 1, 0, -1):
        left = given[order]
        for part in pool.subtree():
            left -= part.tables.count_out(order, left) if left else 0


class _Cascade:
    """One fair-share count over classes, users and jobs."""

    def __init__(self, jobs: Sequence[Job], longest: int, classic: bool) -> None:
        self.longest = longest
        self.classic = classic
        self.of_class: dict[str, list[Job]] = {}
        for job in jobs:
            job.counted = 0
            self.of_class.setdefault(job.cls.name, []).append(job)
        self.classes: dict[Pool, list[ClassSettings]] = {}
        for own in self.of_class.values():
            self.classes.setdefault(own[0].pool, []).append(own[0].cls)

    def count(self, top: Pool) -> dict[Pool, Table]:
        """Count every job; return what each pool's classes were given, by order."""
        entities = self._classes(top)
        given: dict[Pool, Table] = {}
        for e in entities:
            own = self.of_class[e.name]
            given[own[0].pool] = added(given.get(own[0].pool, [0]), e.given)
            self._users(own, e.given)
        return given

    def _classes(self, pool: Pool) -> list[Entity]:
        """Apportion among the classes of a subtree.

        A class further down is first counted there, alone with its like, and takes part up here for no more than
        it got: its machines are only those. That is weighted max-min over nested sets of machines.
        """
        below = [e for child in pool.children for e in self._classes(child)]
        own = [
            self._entity(cls.name, self.of_class[cls.name], cls.weight, cls.most)
            for cls in self.classes.get(pool, [])
        ]
        for e in below:
            e.wanted, e.given = e.given, [0] * (self.longest + 1)
        entities = sorted([*own, *below], key=lambda e: (-e.weight, e.name))
        table: Table = [0] * (self.longest + 1)
        for part in pool.subtree():
            table = added(table, part.tables.free)
        apportion(entities, table, self.classic)
        return entities

    def _users(self, jobs: Sequence[Job], given: Table) -> None:
        by_user: dict[str, list[Job]] = {}
        for job in jobs:
            by_user.setdefault(job.user, []).append(job)
        users = [self._entity(name, by_user[name]) for name in sorted(by_user)]
        apportion(users, list(given), self.classic)
        for user in users:
            self._jobs(by_user[user.name], user.given)

    def _jobs(self, jobs: Sequence[Job], given: Table) -> None:
        entities = [self._entity(job.id, [job]) for job in jobs]
        apportion(entities, list(given), self.classic)
        for job, e in zip(jobs, entities, strict=True):
            job.counted = e.given[job.order]

    def _entity(self, name: str, jobs: Iterable[Job], weight: float = 1, most: int | None = None) -> Entity:
        wanted = [0] * (self.longest + 1)
        for job in jobs:
            wanted[job.order] += job.wanted
        return Entity(name, weight, wanted, [0] * (self.longest + 1), most)


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
