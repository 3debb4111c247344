"""The fair-share policy: one epoch of the DUCC Resource Manager, as a function.

1 build      machines, shares and jobs from the view (world.py)
2 clear      what can be preempted off machines that are going away (eviction.py)
3 caps       what every job could use right now (caps.py)
4 how much   what every job should have, by priority (how_much.py)
5 what of    where it can have it now (what_of.py); space once kept for a job is still its own (what_of.py)
6 shrink     who has too much gives up what least is lost with (eviction.py)
7 defragment whoever is needy gets from the rich (defragmentation.py)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rainbow.scheduling.fair_share.epoch import Epoch
from rainbow.scheduling.fair_share.eviction import clear_limbo
from rainbow.scheduling.fair_share.figures import figures_of, waits_of
from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.model import CLUSTER, Job, World
from rainbow.scheduling.fair_share.settings import check_settings, compile_settings
from rainbow.scheduling.fair_share.world import Building
from rainbow.scheduling.interface import Order, Plan, Start, Stop, View, Wait

MEMORY = "fair_share"  # a cluster's memory may be another policy's: ours is under our name


class FairShare:
    """Plans by weighted fair shares of memory, with preemption, fixed shares and reservations."""

    sees_all = True  # a job that only runs has a class, a size and a part of what is counted like any other
    rests = True  # time goes into the order of eviction alone, and that matters once somebody has to give
    needs_workers = True

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault."""
        return check_settings(settings)

    def names(self, settings: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        """Return the classes there are."""
        return {"class": compile_settings(check_settings(settings)).classes}

    def plan(self, view: View) -> Plan:
        """Decide what starts, stops and waits."""
        memory = view.memory.get(MEMORY, {})
        building = Building(view, compile_settings(check_settings(view.settings)))
        world = building.build()
        clear_limbo(world)
        decided = Decided(list(_stops(world.limbo)), building.waits)
        decided.trees_of(world, building, view, memory.get("trees", {}))
        figures = {**figures_of(world), **({"failed": decided.failed} if decided.failed else {})}
        figures["jobs"] = {**building.refused, **figures["jobs"]}
        kept = {MEMORY: {"trees": decided.memories}} if view.jobs or view.runs else {}
        return Plan(tuple(decided.orders), tuple(_merged(decided.waits)), figures, kept)


@dataclass
class Decided:
    """What has been decided, tree by tree."""

    orders: list[Order]
    waits: list[Wait]
    memories: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def trees_of(self, world: World, building: Building, view: View, before: Mapping[str, Any]) -> None:
        """Run an epoch of every tree; the fault of one, whatever it is, stops no other."""
        consumables, grants = dict(view.consumables), Grants(world)
        for tree in world.trees():
            name = tree.tops[0].name
            try:
                grants, memory = Epoch(tree, before.get(name, {}), view.place).run(grants)
                orders = [*_stops(tree.jobs), *_starts(tree, building, consumables)]
            except Exception as fault:
                self._fail(tree, name, f"{type(fault).__name__}: {fault}", before.get(name, {}))
                continue
            self.memories[name] = memory
            self.orders += orders
            self.waits += waits_of(tree)

    def _fail(self, tree: World, name: str, fault: str, memory: Any) -> None:
        self.failed[name] = fault
        self.memories[name] = memory
        self.waits += [Wait(job.name, "failed", fault, {"nodepool": name}) for job in tree.jobs if job.gangs]


def _stops(jobs: list[Job]) -> Iterator[Order]:
    told: dict[str, str] = {}  # once each: a task may hold several machines
    for job in jobs:
        for share in job.shares:
            if share.evicted:
                told.update({task: share.evicted for task in share.tasks if task not in told})
    return (Stop(task, why) for task, why in told.items())


def _starts(world: World, building: Building, consumables: dict[str, int]) -> Iterator[Order]:
    for job in world.wide:
        yield from _spread(job, building, consumables)
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


def _spread(job: Job, building: Building, consumables: dict[str, int]) -> Iterator[Order]:
    """Start what stands on several machines."""
    for gang, take in list(job.spread):
        placements = building.view.divide(gang.demand, take)
        if _consume([placement.get(CLUSTER, {}) for placement in placements], consumables):
            yield from (Start(task, placed) for task, placed in zip(gang.tasks, placements, strict=True))
        else:
            job.reason = "consumables"
            job.spread.remove((gang, take))


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
