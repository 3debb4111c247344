"""One fair-share count: class → user → job, the same rule at each level (apportion.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rainbow.scheduling.fair_share.apportion import Entity, apportion
from rainbow.scheduling.fair_share.model import Job, Pool
from rainbow.scheduling.fair_share.quanta import Table, added
from rainbow.scheduling.fair_share.settings import ClassSettings
from rainbow.scheduling.fair_share.tables import Tables


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
        entities = self._classes(top)
        left = {pool: pool.tables.copy() for pool in top.subtree()}
        for pool in sorted(left, key=lambda p: (-p.depth, p.name)):
            own = {cls.name for cls in self.classes.get(pool, ())}
            _take(pool, [e for e in entities if e.name in own], left)
        for e in entities:
            self._users(self.of_class[e.name], e.given)
        return left

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
            job.counted = e.given[job.order] + job.settled

    def _entity(self, name: str, jobs: Iterable[Job], weight: float = 1, most: int | None = None) -> Entity:
        wanted = [0] * (self.longest + 1)
        for job in jobs:
            wanted[job.order] += job.wanted - job.settled
        return Entity(name, weight, wanted, [0] * (self.longest + 1), most)


def _take(pool: Pool, own: Sequence[Entity], left: dict[Pool, Tables]) -> None:
    """Take what the classes of a pool were given out of its tables, then out of its children's.

    Over nested pools the sizes may not work out; then as many quanta go in smaller pieces, so that worse priorities
    do not count on them.
    """
    for order in range(len(pool.tables.n) - 1, 0, -1):
        missing = sum(e.given[order] for e in own)
        for part in pool.subtree():
            missing -= left[part].count_out(order, missing) if missing else 0
        quanta = missing * order
        for part in pool.subtree():
            quanta -= left[part].drain(quanta) if quanta else 0
