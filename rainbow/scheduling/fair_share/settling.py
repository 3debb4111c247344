"""What makes schedules come to rest: a job that keeps losing shares and taking them back is held where it is.

How much a job is counted depends on how much it holds, through doubling and prediction, and what it holds on what it
is counted: such a rule may go round in circles. So it is remembered, since the last change from outside, how often
each job grew again after shrinking. After PATIENCE times it grows no more until something changes: the jobs and what
they could use, the machines, or the settings. Every job then grows and shrinks a bounded number of times, so
everything comes to rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from rainbow.scheduling.fair_share.model import Job, World

PATIENCE = 3


class Settling:
    """Which jobs have gone to and fro since the last change from outside."""

    def __init__(self, world: World, memory: Mapping[str, Any]) -> None:
        self.print = fingerprint(world)
        same = memory.get("print") == self.print
        self.lost: set[str] = set(memory.get("lost", ())) if same else set()
        self.turns: dict[str, int] = dict(memory.get("turns", {})) if same else {}

    def hold_back(self, job: Job) -> None:
        """Let a job that has turned too often not grow."""
        if self.turns.get(job.id, 0) >= PATIENCE and job.held < job.wanted:
            job.wanted = job.held
            job.limit = "settled"

    def remember(self, world: World) -> dict[str, Any]:
        """Say what to remember after this epoch."""
        for job in world.jobs:
            if job.cls.fair and job.starts and job.id in self.lost:
                self.turns[job.id] = self.turns.get(job.id, 0) + 1
                self.lost.discard(job.id)
            if any(share.evicted for share in job.shares):
                self.lost.add(job.id)
        alive = {job.id for job in world.jobs}
        turns = {name: turns for name, turns in sorted(self.turns.items()) if name in alive}
        return {"print": self.print, "lost": sorted(self.lost & alive), "turns": turns}


def fingerprint(world: World) -> str:
    """Name everything that changes from outside: settings, machines, jobs and what they could ever use."""
    quanta = sum(machine.order for machine in world.machines)
    jobs = [(j.id, j.user, j.cls.name, j.order, j.least, _useful(j, quanta), j.load.initialising) for j in world.jobs]
    machines = [(m.id, m.order, m.why_closed, m.pool.name) for m in world.machines]
    return blake2b(repr((sorted(jobs), machines, world.settings)).encode(), digest_size=8).hexdigest()


def _useful(job: Job, quanta: int) -> int:
    """How many shares its work is enough for, as far as the cluster could hold them."""
    work = -(-job.load.items_left // max(1, job.load.threads))
    most = work if job.load.most < 0 else min(job.load.most, work)
    return min(most, quanta // job.order)
