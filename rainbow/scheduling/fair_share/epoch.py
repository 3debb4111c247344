"""One epoch of one tree of nodepools: the phases in their order.

Trees have nothing in common but the users and what these may hold that cannot be preempted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rainbow.scheduling.fair_share.caps import job_cap
from rainbow.scheduling.fair_share.claims import restore, to_keep
from rainbow.scheduling.fair_share.defragment import defragment
from rainbow.scheduling.fair_share.evict import clear_closed, clear_reserved, shrink
from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.hosting import Hosting
from rainbow.scheduling.fair_share.how_much import how_much
from rainbow.scheduling.fair_share.model import Job, World
from rainbow.scheduling.fair_share.settling import Settling
from rainbow.scheduling.fair_share.what_of import Space, what_of
from rainbow.scheduling.fair_share.wide import Place, gather


class Epoch:
    """One tree's epoch; `memory` is what its last one left."""

    def __init__(self, world: World, memory: Mapping[str, Any], place: Place) -> None:
        self.world = world
        self.memory = memory
        self.place = place
        self.settling = Settling(world, memory.get("settling", {}))

    def run(self, grants: Grants) -> tuple[Grants, dict[str, Any]]:
        """Decide everything; return what users hold then that cannot be preempted, and the next memory."""
        world = self.world
        clear_closed(world)
        granted = grants.copy()
        gathered = gather(world, granted, self.place, self.memory.get("gathered", {}))
        if self.settling.due:
            self._count(granted.copy(), unhurried=True)
            self.settling.fix(world)
        self._count(granted)
        space = Space(world.machines)
        clear_reserved(world, space)
        restore(world, space, self.memory.get("claims", {}))
        what_of(world, space, set(self.memory.get("needy", ())))
        shrink(world)
        needy = defragment(world, space)
        settled = self.settling.remember(world)
        memory = {"needy": [job.id for job in needy], "claims": to_keep(world), "gathered": gathered}
        return granted, {**memory, "settling": settled}

    def _count(self, grants: Grants, unhurried: bool = False) -> None:
        """Count every job's shares; `unhurried`: as if nobody had to double."""
        hosting = Hosting()
        for job in self.world.jobs:
            set_cap(job, self.world.settings.classic, unhurried)
            if job.gangs:
                job.wanted = min(job.wanted, job.held + hosting.more(job))
        if not unhurried:
            self.settling.hold_back(self.world)
        for top in self.world.tops:
            how_much(self.world, top, grants)


def set_cap(job: Job, classic: bool, unhurried: bool = False) -> None:
    """Say what a job could use; what cannot be preempted never could do with less than it holds."""
    job.reason, job.facts, job.promised = "", {}, []
    most = len(job.gangs) + len(job.shares)  # what is leaving will come back and ask again
    if job.elastic:
        growth = replace(job.cls.growth, expand_by_doubling=False) if unhurried else job.cls.growth
        job.cap, job.limit = job_cap(growth, job.load, job.held, classic)
        if 0 < job.cap < job.least:
            job.cap = job.least
    else:
        job.cap, job.limit = most, "maximum"
    if not job.cls.fair:
        job.cap = max(job.cap, job.held)
    job.wanted = min(job.cap, most)
