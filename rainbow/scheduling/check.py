"""The hard invariants: what no policy's plan may break. Checking costs what is ordered, not what exists."""

from __future__ import annotations

from collections import Counter

from rainbow.errors import PlanError
from rainbow.scheduling.census import Census, census_of
from rainbow.scheduling.explaining import left, started
from rainbow.scheduling.policy import Plan, Start, Stop, View


def check_plan(view: View, plan: Plan) -> None:
    """Raise PlanError, naming the first order that may not be carried out."""
    census = census_of(view)
    starts = [order for order in plan.orders if isinstance(order, Start)]
    _check_tasks(census, starts)
    _check_gangs(census, starts)
    _check_space(view, census, starts)
    _check_stops(census, [order for order in plan.orders if isinstance(order, Stop)])
    _check_waits(census, plan)


def _check_tasks(census: Census, starts: list[Start]) -> None:
    twice = [task for task, times in Counter(start.task for start in starts).items() if times > 1]
    if twice:
        raise PlanError(f"task {twice[0]} is started twice")
    for start in starts:
        if census.gang_of(start.task) is None:
            raise PlanError(f"task {start.task} is not waiting")


def _check_gangs(census: Census, starts: list[Start]) -> None:
    begun = {start.task for start in starts}
    for start in starts:
        gang = census.gang_of(start.task)
        if gang is not None and not begun.issuperset(gang.tasks):
            raise PlanError(f"gang {gang.number} of job {gang.job} would start in part")


def _check_space(view: View, census: Census, starts: list[Start]) -> None:
    asked: dict[str, Counter[str]] = {}
    for start in starts:
        for name, amounts in start.placement.items():
            asked.setdefault(name, Counter()).update(amounts)
    for name, wanted in asked.items():
        if not name:
            _check_consumables(view, wanted)
            continue
        if not census.is_ready(name):
            raise PlanError(f"worker {name} is not ready")
        free = census.workers[name].free
        for kind, amount in wanted.items():
            if amount > free.get(kind, 0):
                raise PlanError(f"{amount} {kind} on {name}, where {free.get(kind, 0)} are free")


def _check_consumables(view: View, amounts: Counter[str]) -> None:
    for kind, amount in amounts.items():
        if amount > view.consumables.get(kind, 0):
            raise PlanError(f"{amount} {kind} of the cluster, where {view.consumables.get(kind, 0)} are free")


def _check_stops(census: Census, stops: list[Stop]) -> None:
    for stop in stops:
        run = census.runs.get(stop.task)
        if run is None or run.stopping:
            raise PlanError(f"task {stop.task} cannot be stopped")


def _check_waits(census: Census, plan: Plan) -> None:
    """A job left waiting is named, or one of the rest."""
    if plan.rest is not None:
        return
    explained, begun = {wait.job for wait in plan.waits}, started(census, plan)
    for job in census.jobs:
        if job not in explained and left(census, job, begun) > 0:
            raise PlanError(f"job {job} waits without a reason")
