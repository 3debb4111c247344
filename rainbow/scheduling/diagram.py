"""The resource diagram of a plan: what runs, what would start, what is promised, as far as times are known."""

from __future__ import annotations

from math import inf

from rainbow.scheduling.policy import Plan, Reserve, Start, View
from rainbow.scheduling.timeline import Timeline


def diagram(view: View, plan: Plan) -> Timeline:
    """Enter everything a view's tasks hold and its plan would book; what has no known end goes on for ever."""
    capacity = {worker.id: dict(worker.capacity) for worker in view.workers}
    outside = dict(view.consumables)
    for run in view.runs:
        for kind, amount in run.placement.get("", {}).items():
            outside[kind] = outside.get(kind, 0) + amount
    made = Timeline({**capacity, "": outside})
    for run in view.runs:
        made.add(run.placement, run.started, max(run.until, view.now) if run.until else inf)
    expected = {task: gang.expected for job in view.jobs for gang in job.gangs for task in gang.tasks}
    for order in plan.orders:
        if isinstance(order, Start):
            made.add(order.placement, view.now, view.now + (expected[order.task] or inf))
        elif isinstance(order, Reserve):
            made.add(order.placement, order.at, order.until)
    return made
