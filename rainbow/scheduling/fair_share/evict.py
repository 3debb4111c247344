"""Who has to give shares back before anything is placed, and who holds more than How Much counted."""

from __future__ import annotations

from rainbow.jobs import WorkerState
from rainbow.scheduling.fair_share.investment import Invested, eviction_order
from rainbow.scheduling.fair_share.model import Job, Share, World
from rainbow.scheduling.fair_share.what_of import Space


def clear_closed(world: World) -> None:
    """Take what can be preempted off machines that were varied off, and out of nodepools it may not be in."""
    for job in world.jobs:
        for share in job.staying if job.cls.fair else ():
            if share.machine.why_closed == WorkerState.OFFLINE.value:
                share.evict("offline")
            elif share.machine.pool not in job.reach():
                share.evict("blacklisted")


def clear_limbo(world: World) -> None:
    """Stop all that restarts where it may not be, or has no class any more."""
    for job in world.limbo:
        for share in job.staying if job.elastic or job.service else ():
            share.evict("blacklisted")


def clear_reserved(world: World, space: Space) -> None:
    """Keep every machine a reservation was promised, and empty it of what can be preempted."""
    for job in world.jobs:
        for machine in job.promised:
            space.claim(job, machine)
            for share in machine.shares:
                if share.preemptable and not share.leaving:
                    share.evict("reservation")


def shrink(world: World) -> None:
    """Evict from every job that holds more than it was counted, least investment first."""
    for job in world.jobs:
        over = job.held - job.counted if job.cls.fair else 0
        for share in in_order(job, world.settings.classic)[: max(0, over)]:
            share.evict("shrink")


def in_order(job: Job, classic: bool = False) -> list[Share]:
    """Sort the shares a job could give up, the first to go first."""
    there = {(share.started, share.id): share for share in job.staying if share.preemptable}
    invested = [
        Invested(
            key,
            share.initialised,
            share.initialising,
            share.investment,
            share.machine.pool.depth,
            share.machine.memory,
        )
        for key, share in there.items()
    ]
    return [there[one.serial] for one in eviction_order(invested, classic)]
