"""Hard invariants of a plan, and the check that every job left out has a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rainbow.errors import PlanError
from rainbow.scheduling.cluster_index import ClusterIndex
from rainbow.scheduling.interface import Plan, Start, Stop, View, Wait, cluster_index_of
from rainbow.scheduling.snapshot import amounts_by_worker


def check_plan(view: View, plan: Plan) -> None:
    """Raise PlanError, naming the first order that may not be carried out."""
    census = cluster_index_of(view)
    starts = [order for order in plan.orders if isinstance(order, Start)]
    _check_tasks(census, starts)
    _check_gangs(census, starts)
    _check_space(view, census, starts)
    _check_stops(census, [order for order in plan.orders if isinstance(order, Stop)])
    if not view.quiet:
        _check_waits(census, plan)


def _check_tasks(census: ClusterIndex, starts: list[Start]) -> None:
    twice = [task for task, times in Counter(start.task for start in starts).items() if times > 1]
    if twice:
        raise PlanError(f"task {twice[0]} is started twice")
    for start in starts:
        if census.gang_of(start.task) is None:
            raise PlanError(f"task {start.task} is not waiting")


def _check_gangs(census: ClusterIndex, starts: list[Start]) -> None:
    begun = {start.task for start in starts}
    for start in starts:
        gang = census.gang_of(start.task)
        if gang is not None and not begun.issuperset(gang.tasks):
            raise PlanError(f"gang {gang.number} of job {gang.job} would start in part")


def _check_space(view: View, census: ClusterIndex, starts: list[Start]) -> None:
    for name, requirement in amounts_by_worker(start.placement for start in starts).items():
        if not name:
            _check_consumables(view, requirement)
            continue
        if not census.is_ready(name):
            raise PlanError(f"invalid plan: worker {name} is not ready")
        free = census.workers[name].free
        for kind, amount in requirement.items():
            if amount > free.get(kind, 0):
                raise PlanError(f"{amount} {kind} on {name}, where {free.get(kind, 0)} are free")


def _check_consumables(view: View, amounts: Counter[str]) -> None:
    for kind, amount in amounts.items():
        if amount > view.consumables.get(kind, 0):
            raise PlanError(f"{amount} {kind} of the cluster, where {view.consumables.get(kind, 0)} are free")


def _check_stops(census: ClusterIndex, stops: list[Stop]) -> None:
    for stop in stops:
        run = census.runs.get(stop.task)
        if run is None or run.stopping:
            raise PlanError(f"task {stop.task} cannot be stopped")


def _check_waits(census: ClusterIndex, plan: Plan) -> None:
    """A job left waiting is named, or one of the rest."""
    if plan.rest is not None:
        return
    explained, begun = {wait.job for wait in plan.waits}, started(census, plan)
    for job in census.jobs:
        if job not in explained and left(census, job, begun) > 0:
            raise PlanError(f"job {job} waits without a reason")


def started(census: ClusterIndex, plan: Plan) -> Counter[str]:
    """Count the tasks of each job that a plan starts."""
    gangs = (census.gang_of(order.task) for order in plan.orders if isinstance(order, Start))
    return Counter(gang.job for gang in gangs if gang is not None)


def left(census: ClusterIndex, job: str, begun: Counter[str]) -> int:
    """Count the tasks of a job that still wait after a plan that starts so many."""
    return census.jobs[job].tasks - begun[job]


def every_wait(view: View, plan: Plan) -> Iterator[Wait]:
    """Say of every job that still waits why it does."""
    census, named = cluster_index_of(view), {wait.job for wait in plan.waits}
    yield from plan.waits
    if plan.rest is not None:
        begun = started(census, plan)
        for job in view.jobs:
            if job.id not in named and left(census, job.id, begun) > 0:
                yield plan.rest.of(job.id)
