"""The phases of one epoch of one tree of nodepools, and when its counts settle.

Trees have nothing in common but the users and what these may hold that cannot be preempted. When shares keep moving
between jobs, counts are fixed until something changes. The reason: how much a job is counted depends on how much it
holds, through doubling and prediction, and what it holds on what it is counted: such a rule may go round in circles.
So it is remembered in how many epochs some job grew again that had lost shares since the last change from outside: of
the jobs and what they could use, of the machines, of the settings. After MOST_TURNS of them all jobs are counted once
as if nobody had to double, and until the next change no job may want more than that. These counts fit together, so
each job grows towards its own whatever the others do, and all rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from rainbow.scheduling.fair_share.caps import Hosting, job_cap
from rainbow.scheduling.fair_share.eviction import clear_closed, clear_reserved, defragment, shrink
from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.how_much import how_much
from rainbow.scheduling.fair_share.model import Job, World
from rainbow.scheduling.fair_share.patience import LongestWait
from rainbow.scheduling.fair_share.what_of import MachineSpace, Place, gather, restore, spread_out, to_keep, what_of
from rainbow.scheduling.interface import Free


class Epoch:
    """One tree's epoch; `memory` is what its last one left."""

    def __init__(
        self, world: World, memory: Mapping[str, Any], place: Place, now: float, free: Free | None = None
    ) -> None:
        self.world = world
        self.patience = LongestWait(world, memory, now)
        self.memory = memory
        self.place = place
        self.free = free
        self.settling = Stability(world, memory.get("settling", {}))

    def run(self, grants: Grants) -> tuple[Grants, dict[str, Any]]:
        """Decide everything; return what users hold then that cannot be preempted, and the next memory."""
        world = self.world
        clear_closed(world)
        granted = grants.copy()
        self.patience.serve(granted, self.place)
        gathered = gather(world, granted, self.place, self.memory.get("gathered", {}), self.patience.job)
        if self.settling.due:
            self._count(granted.copy(), unhurried=True)
            self.settling.fix(world)
        self._count(granted)
        self.patience.settle()
        space = MachineSpace(world.machines, self.free)
        clear_reserved(world, space)
        restore(world, space, self.memory.get("claims", {}))
        what_of(world, space, set(self.memory.get("needy", ())))
        shrink(world)
        needy = defragment(world, space)
        spread_out(world, space, granted)
        settled = self.settling.remember(world)
        memory = {"needy": [job.id for job in needy], "claims": to_keep(world), "gathered": gathered}
        return granted, {**memory, "settling": settled, **self.patience.remember()}

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


MOST_TURNS = 2  # turns of the shares back to what they were, before the counts are fixed


class Stability:
    """How often shares have gone to and fro since the last change from outside, and the counts fixed for it."""

    def __init__(self, world: World, memory: Mapping[str, Any]) -> None:
        self.print = fingerprint(world)
        same = memory.get("print") == self.print
        self.lost: set[str] = set(memory.get("lost", ())) if same else set()
        self.turns: int = memory.get("turns", 0) if same else 0
        self.counts: dict[str, int] = dict(memory.get("counts", {})) if same else {}

    @property
    def due(self) -> bool:
        """Whether counts must be fixed now."""
        return self.turns >= MOST_TURNS and not self.counts

    def fix(self, world: World) -> None:
        """Fix what has just been counted."""
        self.counts = {job.id: job.counted for job in world.jobs if job.cls.fair}

    def hold_back(self, world: World) -> None:
        """Let no job want more than the counts that were fixed."""
        for job in world.jobs if self.counts else ():
            most = self.counts.get(job.id, job.wanted)
            if job.cls.fair and most < job.wanted:
                job.wanted, job.limit = most, "settled"

    def remember(self, world: World) -> dict[str, Any]:
        """Say what to remember after this epoch."""
        again = {job.id for job in world.jobs if job.cls.fair and job.starts and job.id in self.lost}
        self.turns += bool(again)
        self.lost -= again
        self.lost |= {job.id for job in world.jobs if any(share.evicted for share in job.shares)}
        return {"print": self.print, "lost": sorted(self.lost), "turns": self.turns, "counts": self.counts}


def fingerprint(world: World) -> str:
    """Name everything that changes from outside: settings, machines, jobs and what they could ever use."""
    quanta = sum(machine.order for machine in world.machines)
    jobs = [(j.id, j.user, j.cls.name, j.order, j.least, _useful(j, quanta), j.ready) for j in world.jobs]
    machines = [(m.id, m.order, m.why_closed, m.pool.name) for m in world.machines]
    return blake2b(repr((sorted(jobs), machines, world.settings)).encode(), digest_size=8).hexdigest()


def _useful(job: Job, quanta: int) -> int:
    """How many shares its work is enough for, as far as the cluster could hold them."""
    work = -(-job.load.items_left // max(1, job.load.threads))
    most = work if job.load.most < 0 else min(job.load.most, work)
    return min(most, quanta // job.order)
