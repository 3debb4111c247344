"""The plan of any policy, within the rules of its host, with the vertices that its starts hold.

    1 cut       hide what limits of running cores leave no room for, and what waits behind a claim (preemption.py)
    2 plan      ask the policy, and locate what it starts
    3 again     what it starts beyond a limit is hidden, and the policy asked once more; what is left is dropped
    4 preempt   what may preempt others and did not start

Without rules it is the policy's own plan, located.

A policy that asked `view.free` says where its starts lie. Those of any other are located here, in the order of the
plan: slots that amounts say completely on the leaves of their workers, all else as the matcher says on them. A gang
for which there is room in amounts only waits with the reason `fragmented`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rainbow.scheduling.cluster_index import ClusterIndex
from rainbow.scheduling.interface import Free, Plan, Policy, Start, TakesWholeWorkers, View, Wait, cluster_index_of
from rainbow.scheduling.invariants import left, started
from rainbow.scheduling.qos import Limit, Rules
from rainbow.scheduling.rules.preemption import NAME, Preemption
from rainbow.scheduling.rules.running_limits import (
    Cut,
    Gang,
    beyond,
    cut_to,
    cuts,
    owner_of,
    reasons,
    used_cores,
    without,
)
from rainbow.scheduling.snapshot import GangView


def plan(policy: Policy, view: View, rules: Rules | None) -> Plan:
    """Return a policy's plan for a view, within the rules of its host; None: there are none.

    Nothing else in Rainbow asks a policy: steps, forecasts, simulations and questions obey the same rules.
    """
    if rules is None:
        return located(view, policy.plan(view))
    if view.census is None:
        view = replace(view, census=cluster_index_of(view))
    return _within(policy, view, rules)


def _within(policy: Policy, view: View, rules: Rules) -> Plan:
    census = cluster_index_of(view)
    used = used_cores(rules, census.runs.values()) if rules.has_limits or rules.parents else {}
    preemption = Preemption.of(view, rules, used) if rules.has_preemption or rules.parents else None
    own = {key: value for key, value in view.memory.items() if key != NAME}
    shown = replace(view, memory=own) if NAME in view.memory else view

    def answer(cut: Mapping[str, Cut]) -> Plan:
        """Ask the policy without what is cut."""
        if not cut:
            return plan(policy, shown, None)
        with census.showing([one.job for one in cut.values()]):
            jobs = [cut[job.id].job if job.id in cut else job for job in shown.jobs]
            return plan(policy, replace(shown, jobs=[job for job in jobs if job.gangs or job.running]), None)

    cut = cuts(rules, census.jobs.values(), used) if rules.has_limits else {}
    cut |= preemption.held_back() if preemption else {}
    made = answer(cut)
    if rules.has_limits and (more := beyond(view, made, rules, used)):
        cut |= _less(census, made, rules, more, cut)
        made = answer(cut)
        made = without(view, made, beyond(view, made, rules, used))
    if preemption is not None:
        whole = isinstance(policy, TakesWholeWorkers) and policy.takes_whole_workers(view.settings)
        stops, waits = preemption.orders(made, cut, whole=whole)
        named = {wait.job for wait in waits}
        others = tuple(wait for wait in made.waits if wait.job not in named)
        memory = {**made.memory, **({NAME: preemption.claims} if preemption.claims else {})}
        made = replace(made, orders=(*made.orders, *stops), waits=(*others, *waits), memory=memory)
    if view.quiet:
        return made
    # of what was cut it is said why it waits, unless the policy has said it of the job
    named, begun = {wait.job for wait in made.waits}, started(census, made)
    silent = (one for job, one in cut.items() if job not in named and left(census, job, begun) > 0)
    return replace(made, waits=(*made.waits, *reasons(view, made, rules, silent, used)))


def _less(
    census: ClusterIndex, made: Plan, rules: Rules, more: Mapping[Gang, Limit], cut: Mapping[str, Cut]
) -> dict[str, Cut]:
    """Show of each job under a limit that was passed only what it starts within it."""
    passed, within = set(more.values()), dict[str, dict[int, GangView]]()
    for order in made.orders:
        gang = census.gang_of(order.task) if isinstance(order, Start) else None
        if gang is not None and (gang.job, gang.number) not in more:
            within.setdefault(gang.job, {})[gang.number] = gang
    changed: dict[str, Cut] = {}
    for job in census.jobs.values():
        limit = min(passed.intersection(rules.limits(owner_of(job))), default=None)
        starting = within.get(job.id, {})
        hidden = job.id in cut and cut[job.id].wait is not None
        if limit is not None and not hidden and len(starting) < len(job.gangs):
            first = next(gang for gang in job.gangs if gang.number not in starting)
            changed[job.id] = cut_to(job, tuple(starting.values()), limit, first)
    return changed


NOT_TOGETHER = "what it asks for is free in amounts, but not together as it is wanted"


def located(view: View, made: Plan) -> Plan:
    """Return a plan whose starts say what they hold; what cannot be held waits instead."""
    free, census = view.free, cluster_index_of(view)
    if free is None:
        return made
    gangs: dict[tuple[str, int], tuple[GangView, list[Start]]] = {}
    for order in made.orders:
        if isinstance(order, Start) and (gang := census.gang_of(order.task)) is not None:
            gangs.setdefault((gang.job, gang.number), (gang, []))[1].append(order)
    free.begin()
    results: dict[str, Start | None] = {}
    waits: dict[str, Wait] = {}
    for gang, starts in gangs.values():
        placed = _placed(free, gang, starts)
        if isinstance(placed, Wait):
            waits[gang.job], placed = placed, None
        elif placed is None and not view.quiet:
            waits.setdefault(gang.job, free.why(gang.demand) or Wait(gang.job, "fragmented", NOT_TOGETHER))
        results.update({start.task: None for start in starts} if placed is None else {s.task: s for s in placed})
    free.begin()
    changed = [results.get(order.task, order) if isinstance(order, Start) else order for order in made.orders]
    reserved = tuple(wait for wait in made.waits if wait.job not in waits)
    return replace(made, orders=tuple(filter(None, changed)), waits=(*reserved, *waits.values()))


def _placed(free: Free, gang: GangView, starts: Sequence[Start]) -> list[Start] | Wait | None:
    """Return the starts of a gang with what they hold; None if that is not free, a wait if it is not proved."""
    if not any(start.placement for start in starts):  # handed over to a cluster that places them itself
        return list(starts)
    pieces = [start.located for start in starts]
    if None not in pieces and (refused := free.unproved(gang.demand, pieces)) is not None:
        return refused
    if None not in pieces and free.book(pieces):
        return [replace(start, held=free.words(start.located)) for start in starts]
    if gang.slots:
        pieces = [free.fill(start.placement) for start in starts]
        if None in pieces:
            return None
        if (refused := free.unproved(gang.demand, pieces)) is not None:
            return refused
        return [replace(start, held=free.words(own)) for start, own in zip(starts, pieces, strict=True)]
    taken = free.take(gang.demand, among={name for start in starts for name in start.placement if name})
    if taken is None or (refused := free.unproved(gang.demand, taken.located)) is not None:
        return None if taken is None else refused
    by_task = dict(zip(gang.tasks, zip(taken.placements, taken.located, strict=True), strict=True))
    return [
        replace(start, placement=by_task[start.task][0], held=free.words(by_task[start.task][1])) for start in starts
    ]
