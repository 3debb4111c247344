"""What would start a waiting job now: the job with one change, planned in its place in the plan in force.

    limit     a shorter time limit
    nodes     fewer of the outermost count above 1
    without   one requirement left out: a type below a node, a property, or a need of a subsystem

Nothing of the mirror is left changed. With RAINBOW_CHECK=1 the plan is compared before and after.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import thread_time
from typing import TYPE_CHECKING

from rainbow.errors import PlanError
from rainbow.jobspec.request import Constraint, Count, Request, Resource
from rainbow.scheduling import Plan, policies
from rainbow.scheduling.sooner import (
    Budget,
    Change,
    Sooner,
    Spent,
    Trial,
    limit_change,
    longest_limit,
    most_that_starts,
    offered,
    without_one,
)
from rainbow.service.jobs.jobspecs import read_request
from rainbow.service.scheduler.view import gang_view

if TYPE_CHECKING:
    from rainbow.scheduling import JobView
    from rainbow.service.scheduler.view import Frozen

PLACES = frozenset({"cluster", "rack", "node", "core", "slot"})  # types that are no requirement of a node
MOST_TASKS = 1_000  # of a job whose size is tried
Changed = Callable[[], "JobView"]


def sooner(seen: Frozen, plan: Plan, job: str, budget: Budget | None = None) -> Sooner:
    """Return the changes with which a job of a frozen view starts now: limit, nodes, what it can do without.

    `plan` is that of the view. A job of which something runs already may have another limit only.
    """
    waiting = seen.mirror.census.jobs.get(job)
    if waiting is None:
        return Sooner((), 0, complete=True)
    trial = Trial(policies.get(seen.record.policy), seen.view, seen.rules, waiting, budget or Budget(), thread_time)
    before = _checked(trial)
    found: list[Change] = []
    complete = True
    with _restored(seen, waiting):
        try:
            found.extend(_all(seen, trial, plan, waiting))
        except Spent:
            complete = False
    if before is not None and before != _checked(trial):
        raise PlanError(f"a trial of job {job} has changed what is planned")
    return Sooner(offered(found), trial.plans, complete)


def limit_alone(seen: Frozen, plan: Plan, job: str, budget: Budget) -> Change | None:
    """Return the limit with which a job starts now: what lists say."""
    waiting = seen.mirror.census.jobs[job]
    trial = Trial(policies.get(seen.record.policy), seen.view, seen.rules, waiting, budget, thread_time)
    try:
        seconds = longest_limit(trial, plan)
    except Spent:
        seconds = None
    return limit_change(job, seconds) if seconds else None


def _checked(trial: Trial) -> object:
    """Return what is planned without any change, with RAINBOW_CHECK=1."""
    return trial.replan(trial.job).orders if os.environ.get("RAINBOW_CHECK") == "1" else None


@contextmanager
def _restored(seen: Frozen, job: JobView) -> Iterator[None]:
    """Ask the matcher afterwards what the job's gangs ask for, as before."""
    known = seen.placing.gangs
    before = {gang.demand: known[gang.demand] for gang in job.gangs if gang.demand in known}
    others = set(known)
    try:
        yield
    finally:
        for demand in known.keys() - others:
            seen.placing.forget(demand)
        known.update(before)


def _all(seen: Frozen, trial: Trial, plan: Plan, job: JobView) -> Iterator[Change]:
    if (seconds := longest_limit(trial, plan)) is not None:
        yield limit_change(job.id, seconds)
    live = seen.mirror.jobs[job.id]
    whole = not live.booked and len(live.order) == len(live.read.tasks) <= MOST_TASKS
    if not whole or live.read.depends:
        return
    request = live.read.request
    update = ("rainbow", "job", "update", job.id)
    if (one := outermost(request)) is not None:
        most = most_that_starts(trial, one.count.min, lambda count: _as_asked(seen, job, sized(request, one, count)))
        if most is not None:
            kind = "nodes" if _counts_nodes(one) else "slots"
            words = f"{most} {kind if most > 1 else kind[:-1]}"
            yield Change(kind, most, words, (*update, "-N", str(most)))
    left_out = ((name, _later(seen, job, made)) for name, made in less(request))
    for name in without_one(trial, left_out):
        yield Change("without", name, f"without {name}", (*update, "--without", name))


def _later(seen: Frozen, job: JobView, request: Request) -> Changed:
    return lambda: _as_asked(seen, job, request)


def _as_asked(seen: Frozen, job: JobView, request: Request) -> JobView:
    """Return a waiting job as if it asked for something else; what the matcher is asked about its gangs changes."""
    settled = seen.placing.settled(read_request(request))
    own = tuple(gang_view(seen.placing, job.id, gang) for gang in settled.gangs)
    return replace(job, gangs=own, waiting=sum(len(gang.tasks) for gang in own))


# ── requests with one change ──


def outermost(request: Request) -> Resource | None:
    """Return the outermost resource that is asked for several times, if all variants are one."""
    if len(request.variants) > 1:
        return None
    row = list(request.resources)
    while row:
        for one in row:
            if one.count.min > 1 and not one.count.listed and not one.unit:
                return one
        row = [child for one in row for child in one.children]
    return None


def _counts_nodes(one: Resource) -> bool:
    return one.type == "node" or (one.is_slot and any(child.type == "node" for child in one.children))


def sized(request: Request, which: Resource, count: int) -> Request:
    """Return a request with another count of one of its resources."""

    def change(one: Resource) -> Resource | None:
        return replace(one, count=Count(count, count)) if one is which else one

    return _mapped(request, change) or request


def less(request: Request) -> Iterator[tuple[str, Request]]:
    """Yield what a request may leave out, one at a time, by name: types below a node, properties, needs."""
    every = [one for tree in request.resources for one in tree.walk()]
    for kind in dict.fromkeys(one.type for one in every if one.type not in PLACES):
        made = _mapped(request, lambda one, kind=kind: None if one.type == kind else one)  # type: ignore[misc]
        if made is not None:
            yield kind, made
    for name, constraint in _fewer_properties(request.constraint):
        yield name, replace(request, constraint=constraint)
    for subsystem in dict.fromkeys(need.subsystem for one in every for need in one.needs):
        made = _mapped(request, lambda one, name=subsystem: _needing_no(one, name))  # type: ignore[misc]
        if made is not None:
            yield subsystem, made


def _needing_no(one: Resource, subsystem: str) -> Resource:
    return replace(one, needs=tuple(need for need in one.needs if need.subsystem != subsystem))


def _fewer_properties(constraint: Constraint | None) -> Iterator[tuple[str, Constraint | None]]:
    """Yield by name what is left of a constraint without one of the properties that it wants."""
    if constraint is None or constraint.operator not in ("properties", "and"):
        return
    if constraint.operator == "properties":
        for name in constraint.values:
            others = tuple(value for value in constraint.values if value != name)
            yield name, replace(constraint, values=others) if others else None
        return
    for k, one in enumerate(constraint.operands):
        for name, left in _fewer_properties(one):
            kept = (*constraint.operands[:k], *((left,) if left else ()), *constraint.operands[k + 1 :])
            yield name, replace(constraint, operands=kept) if kept else None


def _mapped(request: Request, change: Callable[[Resource], Resource | None]) -> Request | None:
    """Return a request with each resource changed or left out; None if a slot would hold nothing."""

    def mapped(one: Resource) -> Resource | None:
        made = change(one)
        if made is None:
            return None
        children = [mapped(child) for child in one.children]
        left = tuple(child for child in children if child is not None)
        return None if one.children and not left and one.is_slot else replace(made, children=left)

    variants = [tuple(filter(None, map(mapped, variant))) for variant in request.variants]
    if not all(variants):
        return None
    return replace(request, variants=tuple(variants))
