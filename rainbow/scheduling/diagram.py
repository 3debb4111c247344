"""The resource diagram of a plan: what runs, what would start, what is promised or kept, as far as times are known.

What an advance reservation keeps is drawn whole, and not a second time for the jobs that run in it.
"""

from __future__ import annotations

from collections.abc import Set
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
    for kept in view.reservations:
        made.add(kept.placement, kept.start, kept.end)
    kept_for = {kept.id for kept in view.reservations}
    usual = view.settings.get("default_duration") or inf  # what a policy plans with, if it has the setting
    for run in view.runs:
        if run.attributes.get("reservation") not in kept_for:
            made.add(run.placement, run.started, max(run.until or run.started + usual, view.now))
    _enter(made, view, plan, {job.id for job in view.jobs if job.attributes.get("reservation") in kept_for}, usual)
    return made


def _enter(made: Timeline, view: View, plan: Plan, inside: Set[str], usual: float) -> None:
    """Enter what a plan would book, but for the jobs inside reservations."""
    gangs = {task: (job.id, gang.expected) for job in view.jobs for gang in job.gangs for task in gang.tasks}
    for order in plan.orders:
        if isinstance(order, Start):
            job, expected = gangs[order.task]
            if job not in inside:
                made.add(order.placement, view.now, view.now + (expected or usual))
        elif isinstance(order, Reserve) and order.job not in inside:
            made.add(order.placement, order.at, order.until)
