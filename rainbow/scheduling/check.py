"""The hard invariants: what no policy's plan may break."""

from __future__ import annotations

from collections import Counter

from rainbow.errors import PlanError
from rainbow.jobs import WorkerState
from rainbow.scheduling.policy import Plan, Start, Stop, View


def check_plan(view: View, plan: Plan) -> None:
    """Raise PlanError, naming the first order that may not be carried out."""
    starts = [order for order in plan.orders if isinstance(order, Start)]
    _check_tasks(view, starts)
    _check_gangs(view, starts)
    _check_space(view, starts)
    _check_stops(view, [order for order in plan.orders if isinstance(order, Stop)])
    _check_waits(view, plan, {start.task for start in starts})


def _check_tasks(view: View, starts: list[Start]) -> None:
    waiting = {task for job in view.jobs for gang in job.gangs for task in gang.tasks}
    twice = [task for task, times in Counter(start.task for start in starts).items() if times > 1]
    if twice:
        raise PlanError(f"task {twice[0]} is started twice")
    for start in starts:
        if start.task not in waiting:
            raise PlanError(f"task {start.task} is not waiting")


def _check_gangs(view: View, starts: list[Start]) -> None:
    started = {start.task for start in starts}
    for job in view.jobs:
        for gang in job.gangs:
            if started & set(gang.tasks) and not started >= set(gang.tasks):
                raise PlanError(f"gang {gang.number} of job {job.id} would start in part")


def _check_space(view: View, starts: list[Start]) -> None:
    workers = {worker.id: worker for worker in view.workers}
    asked: dict[str, Counter[str]] = {}
    for start in starts:
        for name, amounts in start.placement.items():
            asked.setdefault(name, Counter()).update(amounts)
    for name, amounts in asked.items():
        if not name:
            _check_consumables(view, amounts)
            continue
        if name not in workers or workers[name].state is not WorkerState.READY:
            raise PlanError(f"worker {name} is not ready")
        for kind, amount in amounts.items():
            if amount > workers[name].free.get(kind, 0):
                raise PlanError(f"{amount} {kind} on {name}, where {workers[name].free.get(kind, 0)} are free")


def _check_consumables(view: View, amounts: Counter[str]) -> None:
    for kind, amount in amounts.items():
        if amount > view.consumables.get(kind, 0):
            raise PlanError(f"{amount} {kind} of the cluster, where {view.consumables.get(kind, 0)} are free")


def _check_stops(view: View, stops: list[Stop]) -> None:
    runs = {run.task: run for run in view.runs}
    for stop in stops:
        if stop.task not in runs or runs[stop.task].stopping:
            raise PlanError(f"task {stop.task} cannot be stopped")


def _check_waits(view: View, plan: Plan, started: set[str]) -> None:
    explained = {wait.job for wait in plan.waits}
    for job in view.jobs:
        left = [task for gang in job.gangs for task in gang.tasks if task not in started]
        if left and job.id not in explained:
            raise PlanError(f"job {job.id} waits without a reason")
