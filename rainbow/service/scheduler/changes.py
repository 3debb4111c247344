"""What would start a waiting job now: the job with one change, planned in its place in the plan in force.

    limit     a shorter time limit
    nodes     fewer of what it counts
    without   one requirement left out: a type below a node, a property, or a need of a subsystem
    cluster   the job as it is, in its place in the plan of another cluster

What may be changed says service/jobs/jobspecs.py, of a job that is to be changed and of one that is only tried.

Nothing of the mirror is left changed. With RAINBOW_CHECK=1 the plan is compared before and after.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import thread_time
from typing import TYPE_CHECKING, Any

from rainbow.errors import PlanError
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
    without_one,
)
from rainbow.service.jobs.jobspecs import altered, changeable
from rainbow.service.live_state.live_job import LiveJob
from rainbow.service.scheduler.view import gang_view
from rainbow.store.tasks import WaitingTasks
from rainbow.text import some

if TYPE_CHECKING:
    from rainbow.scheduling import JobView
    from rainbow.service.jobs.jobspecs import Reading
    from rainbow.service.scheduler.view import Frozen
    from rainbow.store.jobs import JobRecord

MOST_TASKS = 1_000  # of a job whose size is tried


def sooner(seen: Frozen, plan: Plan, job: str, budget: Budget | None = None) -> Sooner:
    """Return the changes with which a job of a frozen view starts now: limit, nodes, what it can do without.

    `plan` is that of the view. A job of which something runs already may have another limit only.
    """
    waiting = seen.mirror.census.jobs.get(job)
    if waiting is None:
        return Sooner((), 0, complete=True)
    trial = Trial(policies.get(seen.record.policy), seen.view, seen.rules, waiting, budget or Budget(), thread_time)
    before = _checked(trial)
    changes: list[Change] = []
    complete = True
    with _restored(seen, waiting):
        try:
            changes.extend(_all(seen, trial, plan, waiting))
        except Spent:
            complete = False
    if before is not None and before != _checked(trial):
        raise PlanError(f"a trial of job {job} has changed what is planned")
    return Sooner(tuple(changes), trial.plans, complete)


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
    overrides, update = live.record.overrides, ("rainbow", "job", "update", job.id)
    may = changeable(live.read, overrides)

    def as_changed(**change: Any) -> JobView:
        return _as_asked(seen, job, altered(live.read, overrides, **change))

    if may.kind and (most := most_that_starts(trial, may.count, lambda count: as_changed(nodes=count))) is not None:
        words = some(most, may.kind[:-1])
        yield Change(may.kind, most, words, (*update, "-N", str(most)))
    for name in without_one(trial, ((name, partial(as_changed, without=name)) for name in may.omissible)):
        yield Change("without", name, f"without {name}", (*update, "--without", name))


def _as_asked(seen: Frozen, job: JobView, read: Reading) -> JobView:
    """Return a waiting job as if it asked for something else; what the matcher is asked about its gangs changes."""
    own = tuple(gang_view(seen.placing, job.id, gang) for gang in seen.placing.settled(read).gangs)
    return replace(job, gangs=own, waiting=sum(len(gang.tasks) for gang in own))


def starts_at(seen: Frozen, record: JobRecord, read: Reading) -> bool:
    """Return whether all of a job that waits at another cluster would start at this one, in its place here."""
    waiting = LiveJob(record, read, WaitingTasks([*read.tasks], {}), seen.placing)
    if waiting.dependencies or not waiting.startable:
        return False
    try:
        shown = waiting.view()
        trial = Trial(policies.get(seen.record.policy), seen.view, seen.rules, shown)
        return trial.starts(replace(shown, gangs=tuple(shown.gangs)))
    finally:
        waiting.forget_all()
