"""How one epoch of the fair-share policy grows with machines and jobs, in seconds of the processor."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

from rainbow.matching import Take
from rainbow.scheduling import (
    Elastic,
    FairShare,
    GangView,
    JobProgress,
    JobView,
    Plan,
    RunView,
    Start,
    View,
    WorkerView,
)
from rainbow.state_machine import WorkerState

CLASSES = {
    "low": {"policy": "FAIR_SHARE", "weight": 50, "expand_by_doubling": False, "initialization_cap": 1000},
    "normal": {"policy": "FAIR_SHARE", "default": True, "expand_by_doubling": False, "initialization_cap": 1000},
    "fixed": {"policy": "FIXED_SHARE", "default": True},
}
SHARES = 20  # tasks of every job


def busy_view(machines: int, jobs: int, seed: int = 1) -> View:
    """A cluster of three kinds of machines where more is wanted than there is."""
    rng = random.Random(seed)
    memory = {"small": 64, "large": 128, "huge": 256}
    kinds = [rng.choice(list(memory)) for _ in range(machines)]
    requirements = {f"j{k}": rng.choice([4, 8, 16, 32]) for k in range(jobs)}
    kind_of = {f"m{k}": kind for k, kind in enumerate(kinds)}

    def place(demand: str, workers: Sequence[str]) -> Take | None:
        held = {"memory": requirements[demand]}
        return next((Take((("share", {worker: held}),), {}) for worker in workers), None)

    return View(
        now=0.0,
        settings=FairShare().check({"quantum": {"amount": 4}, "classes": CLASSES}),
        workers=[
            WorkerView(name, kind, {"memory": memory[kind]}, {"memory": memory[kind]}, WorkerState.READY)
            for name, kind in kind_of.items()
        ],
        jobs=[_job(name, k, rng) for k, name in enumerate(requirements)],
        runs=[],
        place=place,
        hosts=lambda demand: frozenset(memory),
        divide=lambda demand, take: [dict(held) for _, held in take.placed],
    )


def _job(name: str, k: int, rng: random.Random) -> JobView:
    cls = rng.choice(list(CLASSES))
    gangs = tuple(GangView(name, n, (f"{name}/{n:02}",), name) for n in range(SHARES))
    progress = JobProgress(items_left=10_000, initialised=True)
    return JobView(name, f"u{k % 20}", float(k), gangs, job_class=cls, elastic=Elastic(), progress=progress)


def after(view: View, plan: Plan) -> View:
    """The next epoch: everything that was started runs."""
    started = {order.task: order.placement for order in plan.orders if isinstance(order, Start)}
    runs = [
        RunView(task, job.id, job.requestor, gang.number, started[task], 0.0)
        for job in view.jobs
        for gang in job.gangs
        for task in gang.tasks
        if task in started
    ]
    jobs = [replace(job, gangs=tuple(g for g in job.gangs if g.tasks[0] not in started)) for job in view.jobs]
    used: dict[str, int] = {}
    for placement in started.values():
        for worker, held in placement.items():
            used[worker] = used.get(worker, 0) + held["memory"]
    workers = [replace(w, free={"memory": w.capacity["memory"] - used.get(w.id, 0)}) for w in view.workers]
    return replace(view, now=10.0, workers=workers, jobs=jobs, runs=runs, memory=plan.memory)


def epochs() -> None:
    """Print the time of the first epoch, where everything starts, and of the second, where everything runs."""
    print(f"{'machines':>10}{'jobs':>8}{'first s':>10}{'next s':>10}{'starts':>9}")
    for machines in (100, 1_000, 10_000):
        for jobs in (100, 1_000, 10_000):
            view = busy_view(machines, jobs)
            began = time.process_time()
            plan = FairShare().plan(view)
            between = time.process_time()
            following = after(view, plan)
            again = time.process_time()
            FairShare().plan(following)
            ended = time.process_time()
            print(f"{machines:>10}{jobs:>8}{between - began:>10.2f}{ended - again:>10.2f}{len(plan.orders):>9}")


if __name__ == "__main__":
    epochs()
