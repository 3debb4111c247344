"""Space kept for jobs that need it, from one epoch to the next.

Without it the space that was cleared for a needy job could go to anybody between the eviction and the end of what was
evicted, and the same eviction would be ordered again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.scheduling.fair_share.model import World
from rainbow.scheduling.fair_share.settings import Rule
from rainbow.scheduling.fair_share.what_of import Space

Claims = dict[str, dict[str, int]]


def restore(world: World, space: Space, kept: Mapping[str, Any]) -> None:
    """Keep again what was kept, as far as it is still needed and can still become free."""
    machines = {machine.id: machine for machine in world.machines}
    for job in world.jobs:
        reach = set(job.reach())
        for name, count in sorted(kept.get(job.id, {}).items()):
            machine = machines.get(name)
            if machine is None or not machine.open or machine.pool not in reach or job.cls.rule is Rule.RESERVE:
                continue
            most = min(count, job.need - sum(job.claims.values()), machine.eventual // job.order)
            if most > 0 and machine.kind in job.amounts:
                space.claim(job, machine, most)


def to_keep(world: World) -> Claims:
    """What is to be kept in the next epoch."""
    return {
        job.id: {machine.id: count for machine, count in sorted(job.claims.items(), key=lambda kept: kept[0].id)}
        for job in world.jobs
        if job.claims and job.cls.rule is not Rule.RESERVE
    }
