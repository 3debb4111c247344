"""The fair-share policy: a view → a plan, and its figures.

1 build      machines, shares and jobs from the view (world.py)
2 clear      what can be preempted off machines that are going away (eviction.py)
3 caps       what every job could use right now (caps.py)
4 how much   what every job should have, by priority (how_much.py)
5 what of    where it can have it now (what_of.py); space once kept for a job is still its own (what_of.py)
6 shrink     who has too much gives up what least is lost with (eviction.py)
7 defragment whoever is needy gets from the rich (eviction.py)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rainbow.regex import compile_regex
from rainbow.scheduling.fair_share.epoch import Epoch
from rainbow.scheduling.fair_share.eviction import clear_limbo
from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.model import CLUSTER, Job, Machine, Pool, World
from rainbow.scheduling.fair_share.settings import Rule, check_settings, compile_settings
from rainbow.scheduling.fair_share.share_tables import Tables, share_counts
from rainbow.scheduling.fair_share.world import WorldBuilder
from rainbow.scheduling.interface import Order, Plan, Start, Stop, Traits, View, Wait
from rainbow.scheduling.patience import for_ever
from rainbow.scheduling.settings_schema import at, no_worker
from rainbow.text import some

TEXTS = {
    "allotment": "allotment used up: user {user} holds {held:g} of {allotment:g} non-preemptable",
    "below-minimum": "needs at least {minimum} to start; fewer are available",
    "class-cap": "class {class} has its limit of {shares}",
    "consumables": "not enough of the cluster-wide resources is free",
    "defragmentation": "no machine has {order} free quanta, and no other job can release any",
    "doubling": "ramping up: holds {held}, limited to {cap} in this cycle",
    "fair-share": "at its fair share: {counted} of the {shares} it could use",
    "fragmented": "{said}",
    "initialization-cap": "limited to {cap} until its first share is ready",
    "maximum": "at the job's own maximum of {shares}",
    "no-machine-of-order": "no machine of nodepool {nodepool} has exactly {order} quanta",
    "no-space": "nodepool {nodepool} is full for non-preemptable work",
    "patience": "{machines} until there is room for it; it has waited since {since}",
    "preemptions": "waiting for preempted shares to end: entitled to {counted}, holds {held}",
    "prediction": "limited to {shares}: more would start too late to help",
    "settled": "fixed at {own} until something changes, because shares kept moving back and forth",
    "too-large": "needs {order} quanta on one machine; no usable machine of nodepool {nodepool} has that many",
    "work-left": "remaining work needs only {shares}",
}


def reason_of(job: Job) -> str:
    """Name the reason why a job has no more shares; empty if it has all it could use."""
    if job.held < job.counted:
        return job.reason or "preemptions"
    if job.counted < job.cap or job.gangs:
        return job.reason or (_limit(job) if job.counted >= job.wanted else _too_large(job) or "fair-share")
    return ""


def _limit(job: Job) -> str:
    """Name what bounds a job that has all it may want: its cap, or the machines, where those could not hold that."""
    if job.cls.fair or job.wanted >= job.cap or job.limit != "maximum":
        return job.limit
    exact = any(machine.order == job.order for machine in job.pool.machines)
    return "no-space" if exact or job.cls.rule is not Rule.RESERVE else "no-machine-of-order"


def _too_large(job: Job) -> str:
    fits = not job.amounts or any(
        m.usable and m.order >= job.order and m.kind in job.amounts for pool in job.reach() for m in pool.machines
    )
    return "" if fits else "too-large"


def facts_of(job: Job) -> dict[str, Any]:
    """What a reason speaks of."""
    return {
        "class": job.cls.name,
        "user": job.user,
        "nodepool": job.pool.name,
        "order": job.order,
        "least": job.least,
        "cap": job.cap,
        "counted": job.counted,
        "deserved": job.deserved,
        "held": job.held,
        **job.facts,
    }


def waits_of(world: World) -> Iterator[Wait]:
    """Say of every job that has shares left to start, or lacks some that are still ending, why they do not."""
    for job in world.wide:
        if len(job.gangs) > len(job.spread):
            facts = facts_of(job)
            yield Wait(job.name, job.reason or "no-space", _text(job.reason or "no-space", facts), facts)
    for job in world.jobs:
        if len(job.gangs) > len(job.starts) or job.need or job.counted < job.cap:
            reason = reason_of(job) or "fair-share"
            facts = facts_of(job)
            yield Wait(job.name, reason, _text(reason, facts), facts)


def _text(reason: str, facts: Mapping[str, Any]) -> str:
    counts = {"shares": some(facts["cap"], "share"), "minimum": some(facts["least"], "share")}
    counts["own"] = some(facts["counted"], "is", "are")
    reserved = len(facts.get("kept", ()))
    counts["machines"] = f"{some(reserved, 'machine')} {'takes' if reserved == 1 else 'take'} nothing new"
    return TEXTS[reason].format_map({"said": "", **counts, **facts})


def figures_of(world: World) -> dict[str, Any]:
    """Sum it up."""
    return {
        "classes": _summed(world, lambda job: job.cls.name),
        "users": _summed(world, lambda job: job.user),
        "jobs": _of_jobs(world),
        "nodepools": {pool.name: _of_pool(pool) for top in world.tops for pool in top.subtree()},
        "orders": dict(_by_order(world)),
        "machines": {
            machine.id: _of_machine(machine) for machine in world.machines if machine.used or not machine.open
        },
    }


def _of_job(job: Job) -> dict[str, Any]:
    leaving = sum(share.leaving for share in job.shares)
    numbers = {"order": job.order, "cap": job.cap, "deserved": job.deserved, "counted": job.counted, "held": job.held}
    return {"class": job.cls.name, "user": job.user, **numbers, "leaving": leaving, "reason": reason_of(job)}


def _of_jobs(world: World) -> dict[str, dict[str, Any]]:
    """Say it of every job; what waits for several machines stands apart from what of the same job runs already."""
    answer = {job.id: _of_job(job) for job in world.jobs}
    return answer | {f"{job.id}/gangs" if job.id in answer else job.id: _of_gangs(job) for job in world.wide}


def _of_gangs(job: Job) -> dict[str, Any]:
    """What of a job waits for several machines at once: gangs, which are no shares and have no order."""
    demand, held = len(job.gangs), len(job.spread)
    numbers = {"order": 0, "cap": demand, "deserved": 0, "counted": held, "held": held, "leaving": 0}
    return {"class": job.cls.name, "user": job.user, **numbers, "reason": job.reason if held < demand else ""}


def _of_pool(pool: Pool) -> dict[str, int]:
    """Sum the quanta of a nodepool's own machines, those of its children not counted."""
    ready = [machine for machine in pool.machines if machine.open]
    return {
        "machines": len(pool.machines),
        "open": len(ready),
        "quanta": sum(machine.order for machine in pool.machines),
        "used": sum(machine.used for machine in pool.machines),
        "free": sum(machine.free for machine in ready),
        "largest_free": max((machine.free for machine in ready), default=0),
    }


def _by_order(world: World) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the Resource Manager's three tables of every nodepool, an order in a line, as they are now."""
    for pool in (pool for top in world.tops for pool in top.subtree()):
        free = [(machine.order, machine.free) for machine in pool.machines if machine.open]
        tables = Tables.of(free, max((order for order, _ in free), default=0))
        counts = share_counts(tables.free)
        for order in range(1, len(counts)):
            numbers = {"nMachines": tables.n[order], "vMachines": tables.v[order], "nShares": counts[order]}
            yield f"{pool.name} {order}", {"order": order, **numbers}


def _of_machine(machine: Machine) -> dict[str, Any]:
    shares: dict[str, int] = {}
    for share in machine.shares:
        shares[share.job.id] = shares.get(share.job.id, 0) + share.order
    numbers = {"order": machine.order, "used": machine.used, "kept": machine.claimed}
    return {"nodepool": machine.pool.name, **numbers, "closed": machine.why_closed, "jobs": shares}


def _summed(world: World, key: Callable[[Job], str]) -> Mapping[str, dict[str, int]]:
    """Sum quanta of the jobs with one key."""
    sums: dict[str, dict[str, int]] = {}
    for job in world.jobs:
        one = sums.setdefault(key(job), {"jobs": 0, "deserved": 0, "counted": 0, "held": 0})
        one["jobs"] += 1
        one["deserved"] += job.deserved * job.order
        one["counted"] += job.counted * job.order
        one["held"] += job.held * job.order
    return dict(sorted(sums.items()))


MEMORY = "fair_share"  # a cluster's memory may be another policy's: ours is under our name


class FairShare:
    """Plans by weighted fair shares of memory, with preemption, fixed shares and reservations."""

    # a job that only runs is counted like any other; time goes into the order of eviction alone, and that matters
    # once somebody has to give
    traits = Traits(sees_all=True, rests=True, needs_workers=True)

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault."""
        return check_settings(settings)

    def names(self, settings: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        """Return the classes there are."""
        return {"class": compile_settings(check_settings(settings)).classes}

    def warnings(
        self, settings: Mapping[str, Any], requestors: Collection[str], workers: Collection[str]
    ) -> Sequence[Mapping[str, Any]]:
        """Name the machines of nodepools that the cluster does not have; say if jobs may wait indefinitely."""
        checked = check_settings(settings)
        pools = checked["nodepools"] if workers else {}
        result = [*for_ever(checked["patience"])] if checked["mode"] == "own" else []
        for name, pool in pools.items():
            owner, here = f"nodepool {name}", at("/nodepools", name)
            for k, node in enumerate(pool.get("nodes") or ()):
                if node not in workers:
                    result.append(no_worker(owner, node, at(at(here, "nodes"), k), workers))
            if (match := pool.get("match")) is not None and not any(map(compile_regex(match).fullmatch, workers)):
                result.append(no_worker(owner, match, at(here, "match"), workers))
        return result

    def plan(self, view: View) -> Plan:
        """Decide what starts, stops and waits."""
        memory = view.memory.get(MEMORY, {})
        building = WorldBuilder(view, compile_settings(check_settings(view.settings)))
        world = building.build()
        clear_limbo(world)
        decided = Decisions(list(_stops(world.limbo)), building.waits)
        decided.trees_of(world, building, view, memory.get("trees", {}))
        reserved = {MEMORY: {"trees": decided.memories}} if view.jobs or view.runs else {}
        if view.quiet:
            return Plan(tuple(decided.orders), memory=reserved)
        figures = {**figures_of(world), **({"failed": decided.failed} if decided.failed else {})}
        figures["jobs"] = {**building.refused, **figures["jobs"]}
        return Plan(tuple(decided.orders), tuple(_merged(decided.waits)), figures, reserved)


@dataclass
class Decisions:
    """What has been decided, tree by tree."""

    orders: list[Order]
    waits: list[Wait]
    memories: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def trees_of(self, world: World, building: WorldBuilder, view: View, before: Mapping[str, Any]) -> None:
        """Run an epoch of every tree; the fault of one, whatever it is, stops no other."""
        consumables, grants = dict(view.consumables), Grants(world)
        for tree in world.trees():
            name = tree.tops[0].name
            try:
                mark = view.free.mark() if view.free else 0
                grants, memory = Epoch(tree, before.get(name, {}), view.place, view.now, view.free).run(grants)
                if view.free is not None:
                    view.free.undo(mark)
                orders = [*_stops(tree.jobs), *_starts(tree, building, consumables)]
            except Exception as fault:
                self._fail(tree, name, f"{type(fault).__name__}: {fault}", before.get(name, {}))
                continue
            self.memories[name] = memory
            self.orders += orders
            self.waits += () if view.quiet else waits_of(tree)

    def _fail(self, tree: World, name: str, fault: str, memory: Any) -> None:
        self.failed[name] = fault
        self.memories[name] = memory
        self.waits += [Wait(job.name, "failed", fault, {"nodepool": name}) for job in tree.jobs if job.gangs]


def _stops(jobs: list[Job]) -> Iterator[Order]:
    answer: dict[str, str] = {}  # once each: a task may hold several machines
    for job in jobs:
        for share in job.shares:
            if share.evicted:
                answer.update({task: share.evicted for task in share.tasks if task not in answer})
    return (Stop(task, why) for task, why in answer.items())


def _starts(world: World, building: WorldBuilder, consumables: dict[str, int]) -> Iterator[Order]:
    for job in world.wide:
        yield from _spread(job, building, consumables)
    for job in world.jobs:
        yield from _spread(job, building, consumables)
        waiting = list(job.gangs)
        for machine in sorted(job.starts, key=lambda m: m.id):
            gang = waiting.pop(0)
            starts = building.asking.starts(gang, machine.id, machine.kind)
            outside = [start.placement.get(CLUSTER, {}) for start in starts]
            if not starts or not _consume(outside, consumables):
                job.reason = "consumables"
                job.starts.remove(machine)
                continue
            yield from starts


def _spread(job: Job, building: WorldBuilder, consumables: dict[str, int]) -> Iterator[Order]:
    """Start what stands on several machines."""
    for gang, take in list(job.spread):
        placements = building.view.divide(gang.demand, take)
        if _consume([placement.get(CLUSTER, {}) for placement in placements], consumables):
            yield from (Start(task, placed) for task, placed in zip(gang.tasks, placements, strict=True))
        else:
            job.reason = "consumables"
            job.spread.remove((gang, take))


def _consume(requirements: list[Mapping[str, int]], free: dict[str, int]) -> bool:
    """Take what a share wants of the cluster's consumables, all or nothing."""
    remaining = dict(free)
    for amounts in requirements:
        for kind, amount in amounts.items():
            remaining[kind] = remaining.get(kind, 0) - amount
    if any(amount < 0 for kind, amount in remaining.items() if amount < free.get(kind, 0)):
        return False
    free.update(remaining)
    return True


def _merged(waits: list[Wait]) -> Iterator[Wait]:
    """Keep the first reason of every job."""
    answers: set[str] = set()
    for wait in waits:
        if wait.job not in answers:
            answers.add(wait.job)
            yield wait
