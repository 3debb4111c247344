"""Gangs that need several machines at once: whole machines are gathered for them until they can start together.

The original has no such work. It is served before everything else of its tree, by priority and submission, out of the
machines of its own nodepool that hold nothing but what can be preempted: these are closed to others and emptied, and
chosen again in the next epoch, until the gang starts on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.scheduling.fair_share.asking import CLUSTER
from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.model import Job, Machine, World
from rainbow.scheduling.policy import GangView

if TYPE_CHECKING:
    from rainbow.matching import Take

Place = Callable[[str, Sequence[str]], "Take | None"]


def gather(world: World, grants: Grants, place: Place, kept: Mapping[str, Any]) -> dict[str, list[str]]:
    """Choose machines for every such gang in turn; return what is kept for those that cannot start yet."""
    keeping: dict[str, list[str]] = {}
    for job in world.wide:
        job.reason, job.facts, job.wanted = "", {}, 1
        for gang in job.gangs:
            found = _choose(world, job, gang, place, set(kept.get(job.id, ())))
            if found is None or not _granted(grants, job, found[1]):
                job.reason = job.reason or "no-space"
                break
            take, machines = found
            for machine in machines:
                _close(machine)
            if all(not machine.used for machine in machines):
                job.spread.append((gang, take))
            else:
                keeping.setdefault(job.id, []).extend(machine.id for machine in machines)
                job.reason = "preemptions"
    return keeping


def _choose(
    world: World, job: Job, gang: GangView, place: Place, kept: set[str]
) -> tuple[Take, list[Machine]] | None:
    """Ask the matcher: first for what was kept, then for empty machines, then for those that can be emptied."""
    usable = {
        m.id: m for m in world.machines if m.open and m.pool is job.pool and all(s.preemptable for s in m.shares)
    }
    empty = [name for name, machine in usable.items() if not machine.used]
    for names in (sorted(kept & usable.keys()), empty, list(usable)):
        take = place(gang.demand, names) if names else None
        if take is not None:
            workers = {worker for _, held in take.placed for worker in held if worker != CLUSTER}
            return take, [usable[name] for name in sorted(workers)]
    return None


def _granted(grants: Grants, job: Job, machines: Sequence[Machine]) -> bool:
    return grants.whole(job, sum(machine.order for machine in machines))


def _close(machine: Machine) -> None:
    machine.open, machine.why_closed = False, "kept"
    for share in machine.shares:
        if not share.leaving:
            share.evict("reservation")
