"""Figures for people: what is deserved, counted and held by class, user and job; who is on every machine; and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rainbow.scheduling.fair_share.model import Job, Machine, Pool, World
from rainbow.scheduling.interface import Wait
from rainbow.text import some

TEXTS = {
    "allotment": "user {user} holds {held:g} of an allotment of {allotment:g} that cannot be preempted",
    "below-minimum": "works with no fewer than {minimum}, and so many are not to be had",
    "class-cap": "class {class} has its limit of {shares}",
    "consumables": "the cluster has too little free of what belongs to no worker",
    "defragmentation": "no machine has {order} quanta free together, and nobody can give any away",
    "doubling": "grows by doubling: holds {held}, may have {cap} now",
    "fair-share": "its fair share is {counted} of the {shares} it could use",
    "initialization-cap": "until its first share is ready it may have {cap}",
    "maximum": "has its own maximum of {shares}",
    "no-machine-of-order": "no machine of nodepool {nodepool} has exactly {order} quanta",
    "no-space": "nodepool {nodepool} has no room left for what cannot be preempted",
    "preemptions": "waits for shares of others to end: counted {counted}, holds {held}",
    "prediction": "more than {shares} would be ready only after its work is done",
    "settled": "shares have gone to and fro since the last change; {own} its own until the next",
    "too-large": "needs {order} quanta on one machine; no machine of nodepool {nodepool} it may use has them",
    "work-left": "its work left is enough for {shares}",
}


def reason_of(job: Job) -> str:
    """Name the reason why a job has no more shares; empty if it has all it could use."""
    if job.held < job.counted:
        return job.reason or "preemptions"
    if job.counted < job.cap or job.gangs:
        return job.reason or (job.limit if job.counted >= job.wanted else _too_large(job) or "fair-share")
    return ""


def _too_large(job: Job) -> str:
    fits = not job.amounts or any(
        m.open and m.order >= job.order and m.kind in job.amounts for pool in job.reach() for m in pool.machines
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
    return TEXTS[reason].format_map({**counts, **facts})


def figures_of(world: World) -> dict[str, Any]:
    """Sum it up."""
    return {
        "classes": _summed(world, lambda job: job.cls.name),
        "users": _summed(world, lambda job: job.user),
        "jobs": _of_jobs(world),
        "nodepools": {pool.name: _of_pool(pool) for top in world.tops for pool in top.subtree()},
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
    told = {job.id: _of_job(job) for job in world.jobs}
    return told | {f"{job.id}/gangs" if job.id in told else job.id: _of_gangs(job) for job in world.wide}


def _of_gangs(job: Job) -> dict[str, Any]:
    """What of a job waits for several machines at once: gangs, which are no shares and have no order."""
    wanted, held = len(job.gangs), len(job.spread)
    numbers = {"order": 0, "cap": wanted, "deserved": 0, "counted": held, "held": held, "leaving": 0}
    return {"class": job.cls.name, "user": job.user, **numbers, "reason": job.reason if held < wanted else ""}


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
