"""Which jobs give back shares.

Which shares of a job go first: those that least is lost with.

A share that has not initialised goes before one that has; of two that have not, the one that initialised for the
shorter time; of two that have, the one with less invested; then the one in the most deeply nested nodepool, on the
larger machine, and last the newest. The order is total.

`classic` leaves out the depth, which the original compares with itself, and keeps shares that have not initialised in
the order they come (docs/decisions/0012).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rainbow.scheduling.fair_share.model import Job, Share, World
from rainbow.scheduling.fair_share.what_of import Space
from rainbow.state_machine import WorkerState


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


@dataclass(frozen=True, slots=True)
class Invested:
    """What eviction looks at in a share; the larger `serial`, the newer it is."""

    serial: Any  # a number, or anything else that is ordered
    initialised: bool
    initialising: float = 0.0  # time spent, until it was ready
    investment: float = 0.0
    depth: int = 0
    memory: int = 0


def eviction_order(shares: Iterable[Invested], classic: bool = False) -> list[Invested]:
    """Sort shares, the first to be given up first.

    >>> [s.serial for s in eviction_order([Invested(1, True), Invested(2, False), Invested(3, True)])]
    [2, 3, 1]
    """
    newest_first = sorted(shares, key=lambda share: share.serial, reverse=True)
    if classic:
        waiting = sorted((s for s in newest_first if not s.initialised), key=lambda s: s.serial)
        ready = sorted((s for s in newest_first if s.initialised), key=lambda s: (s.investment, -s.memory))
        return sorted(waiting, key=lambda s: s.initialising) + ready
    return sorted(newest_first, key=_rank)


def _rank(share: Invested) -> tuple[bool, float, int, int]:
    lost = share.investment if share.initialised else share.initialising
    return share.initialised, lost, -share.depth, -share.memory
