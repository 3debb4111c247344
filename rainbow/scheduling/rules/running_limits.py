"""Limits of running cores: what of each waiting job may start, and why the rest waits.

used     cores that run under each limit, here and elsewhere
cut      a waiting job of which no more gangs are shown to the policy than its limits have room for
beyond   gangs that a plan starts although, together with what it starts before them, they pass a limit
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rainbow.scheduling.interface import Plan, Start, View, Wait, cluster_index_of
from rainbow.scheduling.qos import Limit, Owner, Rules
from rainbow.scheduling.snapshot import GangView, JobView, Placement, RunView

CORE = "core"
# jobs that wait for limits and are told how much is in use: of more the number is not kept up to date
MOST_COUNTED_FOR = 1_000
SLACK = 1e-6
Gang = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """A waiting job as the policy sees it, and why the rest of it waits: a text, or a limit and the first gang."""

    job: JobView
    wait: Wait | None = None
    limit: Limit | None = None
    gang: GangView | None = None


def owner_of(one: JobView | RunView) -> Owner:
    """Return who is counted for a job or a task."""
    return one.account, one.requestor, one.qos


def cores_of(gang: GangView) -> int:
    """Return the fewest cores a gang takes; 0 where only the matcher knows."""
    return sum(slot.least * slot.amounts.get(CORE, 0) for slot in gang.slots)


def held_cores(placement: Placement) -> int:
    """Return the cores of a placement."""
    return sum(amounts.get(CORE, 0) for amounts in placement.values())


def used_cores(rules: Rules, runs: Iterable[RunView]) -> Counter[Limit]:
    """Count the cores that run under each limit."""
    used: Counter[Limit] = Counter(rules.elsewhere)
    for run in runs:
        if limits := rules.counted(owner_of(run)):
            cores = held_cores(run.placement)
            used.update(dict.fromkeys(limits, cores))
    return used


def cuts(rules: Rules, jobs: Iterable[JobView], used: Mapping[Limit, float]) -> dict[str, Cut]:
    """Return the jobs of which not all that waits may start, by id."""
    result: dict[str, Cut] = {}
    for job in jobs:
        limits = rules.limits(owner_of(job))
        if limits and job.gangs:
            tight = min(limits, key=lambda limit: limit.most - used.get(limit, 0))
            count = _room(job, tight.most - used.get(tight, 0))
            if count < len(job.gangs):
                result[job.id] = cut_to(job, job.gangs[:count], tight, job.gangs[count])
    return result


def cut_to(job: JobView, gangs: Sequence[GangView], limit: Limit, first: GangView) -> Cut:
    """Show some gangs of a job; `first` is the first of those that wait for a limit."""
    return Cut(replace(job, gangs=gangs, waiting=len(gangs) if job.waiting else 0), None, limit, first)


def _room(job: JobView, remaining: float) -> int:
    """Count the first gangs of a job that fit into so many cores together."""
    for count, gang in enumerate(job.gangs):
        cores = cores_of(gang)
        if remaining + SLACK < max(cores, 1):
            return count
        remaining -= cores
    return len(job.gangs)


def reasons(view: View, plan: Plan, rules: Rules, cut: Iterable[Cut], used: Mapping[Limit, float]) -> Iterator[Wait]:
    """Say why what was cut waits, by what is in use once a plan's starts run."""
    results, census = list(cut), cluster_index_of(view)
    total = Counter(used)
    for gang, cores in _started(view, plan).items():
        total.update(dict.fromkeys(rules.limits(owner_of(census.jobs[gang[0]])), cores))
    for one in results:
        if one.wait is not None:
            yield one.wait
        elif one.limit is not None and one.gang is not None:
            yield _reason(
                one.job, one.gang, one.limit, total[one.limit] if len(results) <= MOST_COUNTED_FOR else None
            )


def _reason(job: JobView, gang: GangView, limit: Limit, used: float | None) -> Wait:
    cores = cores_of(gang)
    parts = [f"{used:g} in use" if used is not None else "", f"{cores} needed" if cores else ""]
    facts = {"limit": limit.most, limit.kind: limit.name, "cluster": limit.cluster or None, "used": used}
    text = f"{limit}; {', '.join(filter(None, parts))}".rstrip("; ")
    return Wait(job.id, "running-limit", text, facts | ({"user": limit.user} if limit.user else {}))


def beyond(view: View, plan: Plan, rules: Rules, used: Mapping[Limit, float]) -> dict[Gang, Limit]:
    """Return the gangs among a plan's starts that pass a limit, each with the limit."""
    census = cluster_index_of(view)
    room: dict[Limit, float] = {}
    result: dict[Gang, Limit] = {}
    for gang, cores in _started(view, plan).items():
        job = census.jobs[gang[0]]
        limits = rules.limits(owner_of(job))
        remaining = {limit: room.get(limit, limit.most - used.get(limit, 0)) for limit in limits}
        tight = min(remaining, key=lambda limit: remaining[limit], default=None)
        if tight is not None and cores > remaining[tight] + SLACK:
            result[gang] = tight
        else:
            room |= {limit: most - cores for limit, most in remaining.items()}
    return result


def _started(view: View, plan: Plan) -> dict[Gang, int]:
    """Return the gangs a plan starts, in its order, with their cores."""
    census, result = cluster_index_of(view), dict[Gang, int]()
    for order in plan.orders:
        if isinstance(order, Start) and (gang := census.gang_of(order.task)) is not None:
            key = gang.job, gang.number
            result[key] = result.get(key, 0) + held_cores(order.placement)
    return result


def within(view: View, plan: Plan, rules: Rules) -> Plan:
    """Return a plan without the starts that pass a limit."""
    used = used_cores(rules, cluster_index_of(view).runs.values())
    return without(view, plan, beyond(view, plan, rules, used))


def without(view: View, plan: Plan, gangs: Collection[Gang]) -> Plan:
    """Return a plan that does not start some gangs."""
    census = cluster_index_of(view)

    def kept(order: object) -> bool:
        gang = census.gang_of(order.task) if isinstance(order, Start) else None
        return gang is None or (gang.job, gang.number) not in gangs

    return replace(plan, orders=tuple(filter(kept, plan.orders)))
