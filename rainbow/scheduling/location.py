"""The vertices that the starts of a plan hold, whatever its policy planned with.

A policy that asked `view.free` says where its starts lie. Those of any other are located here, in the order of the
plan: slots that amounts say completely on the leaves of their workers, all else as the matcher says on them. A gang
for which there is room in amounts only waits with the reason `fragmented`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rainbow.scheduling.interface import Free, Plan, Start, View, Wait, cluster_index_of
from rainbow.scheduling.snapshot import GangView

TEXT = "what it asks for is free in amounts, but not together as it is wanted"


def located(view: View, plan: Plan) -> Plan:
    """Return a plan whose starts say what they hold; what cannot be held waits instead."""
    free, census = view.free, cluster_index_of(view)
    if free is None:
        return plan
    gangs: dict[tuple[str, int], tuple[GangView, list[Start]]] = {}
    for order in plan.orders:
        if isinstance(order, Start) and (gang := census.gang_of(order.task)) is not None:
            gangs.setdefault((gang.job, gang.number), (gang, []))[1].append(order)
    free.begin()
    found: dict[str, Start | None] = {}
    waits: dict[str, Wait] = {}
    for gang, starts in gangs.values():
        placed = _placed(free, gang, starts)
        if placed is None and not view.quiet:
            waits.setdefault(gang.job, free.why(gang.demand) or Wait(gang.job, "fragmented", TEXT))
        found.update({start.task: None for start in starts} if placed is None else {s.task: s for s in placed})
    free.begin()
    changed = [found.get(order.task, order) if isinstance(order, Start) else order for order in plan.orders]
    kept = tuple(wait for wait in plan.waits if wait.job not in waits)
    return replace(plan, orders=tuple(filter(None, changed)), waits=(*kept, *waits.values()))


def _placed(free: Free, gang: GangView, starts: Sequence[Start]) -> list[Start] | None:
    """Return the starts of a gang with what they hold; None if that is not free."""
    if not any(start.placement for start in starts):  # handed over to a cluster that places them itself
        return list(starts)
    pieces = [start.located for start in starts]
    if None not in pieces and free.book(pieces):
        return [replace(start, held=free.words(start.located)) for start in starts]
    if gang.slots:
        pieces = [free.fill(start.placement) for start in starts]
        if None in pieces:
            return None
        return [replace(start, held=free.words(own)) for start, own in zip(starts, pieces, strict=True)]
    taken = free.take(gang.demand, among={name for start in starts for name in start.placement if name})
    if taken is None:
        return None
    by_task = dict(zip(gang.tasks, zip(taken.placements, taken.located, strict=True), strict=True))
    return [
        replace(start, placement=by_task[start.task][0], held=free.words(by_task[start.task][1])) for start in starts
    ]
