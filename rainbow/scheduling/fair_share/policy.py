"""The fair-share policy: one epoch of the DUCC Resource Manager, as a function.

1 build      machines, shares and jobs from the view (world.py)
2 clear      what can be preempted off machines that are going away (evict.py)
3 caps       what every job could use right now (caps.py)
4 how much   what every job should have, by priority (how_much.py)
5 what of    where it can have it now (what_of.py); space once kept for a job is still its own (claims.py)
6 shrink     who has too much gives up what least is lost with (evict.py)
7 defragment whoever is needy gets from the rich (defragment.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rainbow.scheduling.fair_share.asking import CLUSTER
from rainbow.scheduling.fair_share.caps import job_cap
from rainbow.scheduling.fair_share.checking import check_settings
from rainbow.scheduling.fair_share.claims import restore, to_keep
from rainbow.scheduling.fair_share.defragment import defragment
from rainbow.scheduling.fair_share.evict import clear_closed, clear_reserved, shrink
from rainbow.scheduling.fair_share.figures import figures_of, waits_of
from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.hosting import Hosting
from rainbow.scheduling.fair_share.how_much import how_much
from rainbow.scheduling.fair_share.model import Job, World
from rainbow.scheduling.fair_share.settings import compile_settings
from rainbow.scheduling.fair_share.settling import Settling
from rainbow.scheduling.fair_share.what_of import Space, what_of
from rainbow.scheduling.fair_share.world import Building
from rainbow.scheduling.policy import Order, Plan, Start, Stop, View, Wait


class FairShare:
    """Plans by weighted fair shares of memory, with preemption, fixed shares and reservations."""

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault."""
        return check_settings(settings)

    def plan(self, view: View) -> Plan:
        """Decide what starts, stops and waits."""
        building = Building(view, compile_settings(check_settings(view.settings)), view.memory.get("known", {}))
        world = building.build()
        settling = Settling(world, view.memory.get("settling", {}))
        needy = decide(world, settling, view.memory)
        orders = [*_stops(world), *_starts(world, building, dict(view.consumables))]
        memory = {
            "needy": [job.id for job in needy],
            "claims": to_keep(world),
            "settling": settling.remember(world),
            "known": {job.name: [job.cls.name, job.submitted] for job in world.jobs if job.shares or job.starts},
        }
        return Plan(tuple(orders), tuple(_merged([*building.waits, *waits_of(world)])), figures_of(world), memory)


def decide(world: World, settling: Settling, memory: Mapping[str, Any]) -> list[Job]:
    """Run one epoch over a world; return who is needy after it."""
    clear_closed(world)
    if settling.due:
        count(world, unhurried=True)
        settling.fix(world)
    count(world, settling)
    space = Space(world.machines)
    clear_reserved(world, space)
    restore(world, space, memory.get("claims", {}))
    what_of(world, space, set(memory.get("needy", ())))
    shrink(world)
    return defragment(world, space)


def count(world: World, settling: Settling | None = None, unhurried: bool = False) -> None:
    """Count every job's shares; `unhurried`: as if nobody had to double."""
    hosting = Hosting()
    for job in world.jobs:
        set_cap(job, world.settings.classic, unhurried)
        if job.gangs:
            job.wanted = min(job.wanted, job.held + hosting.more(job))
    if settling:
        settling.hold_back(world)
    grants = Grants(world)
    for top in world.tops:
        how_much(world, top, grants)


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


def _stops(world: World) -> Iterator[Order]:
    for job in (*world.jobs, *world.limbo):
        for share in job.shares:
            if share.evicted:
                yield from (Stop(task, share.evicted) for task in share.tasks)


def _starts(world: World, building: Building, consumables: dict[str, int]) -> Iterator[Order]:
    for job in world.jobs:
        waiting = list(job.gangs)
        for machine in sorted(job.starts, key=lambda m: m.id):
            gang = waiting.pop(0)
            placements = building.asking.placements(gang, machine.id, machine.kind)
            outside = [placement.get(CLUSTER, {}) for placement in placements]
            if not placements or not _consume(outside, consumables):
                job.reason = "consumables"
                job.starts.remove(machine)
                continue
            yield from (Start(task, placed) for task, placed in zip(gang.tasks, placements, strict=True))


def _consume(wanted: list[Mapping[str, int]], free: dict[str, int]) -> bool:
    """Take what a share wants of the cluster's consumables, all or nothing."""
    left = dict(free)
    for amounts in wanted:
        for kind, amount in amounts.items():
            left[kind] = left.get(kind, 0) - amount
    if any(amount < 0 for kind, amount in left.items() if amount < free.get(kind, 0)):
        return False
    free.update(left)
    return True


def _merged(waits: list[Wait]) -> Iterator[Wait]:
    """Keep the first reason of every job."""
    told: set[str] = set()
    for wait in waits:
        if wait.job not in told:
            told.add(wait.job)
            yield wait
