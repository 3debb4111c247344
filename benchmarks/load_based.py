"""One planning round of the load-based policy: how it grows with waiting tasks and workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.timing import timed
from rainbow.matching import Take
from rainbow.scheduling import GangView, JobView, LoadBased, RunView, View, WorkerView
from rainbow.scheduling.interface import cluster_index_of
from rainbow.state_machine import WorkerState

# the original's default classes, and its time for a round with 10k workers of which 1 % are idle
CLASSES = {
    "land": 40,
    "diff": 25,
    "regression": 17,
    "sandbox": 10,
    "ktf": 3,
    "coverage": 2,
    "tryout": 2,
    "unknown": 1,
}
ORIGINAL = {1_000: 0.06, 10_000: 0.27, 100_000: 1.1}
SETTINGS = {
    "classes": CLASSES,
    "default_class": "unknown",
    "requestors": [{"match": f"{name}.*", "class": name} for name in CLASSES],
}
CAPACITY = {"core": 1}


def place(_: str, free: Sequence[str]) -> Take | None:
    """Every task takes one worker."""
    return Take((("slot", {free[0]: CAPACITY}),), {}) if free else None


def divide(_: str, take: Take) -> list[dict[str, dict[str, int]]]:
    """Every gang is one task."""
    return [{worker: dict(amounts) for worker, amounts in take.placed[0][1].items()}]


def world(workers: int, waiting: int, idle: int, per_job: int) -> View:
    """Workers of which so many are idle, and jobs of `per_job` tasks, their requestors spread over the classes."""
    names, per_job = list(CLASSES), min(per_job, waiting)
    jobs = [
        JobView(f"j{k}", f"{names[k % len(names)]}-{k % 3}", float(k), _gangs(f"j{k}", per_job), waiting=per_job)
        for k in range(max(1, waiting // per_job))
    ]
    seen = [
        WorkerView(f"w{k}", "k", CAPACITY, CAPACITY, WorkerState.READY, 0.0, int(k >= idle)) for k in range(workers)
    ]
    runs = [
        RunView(f"r{k}", f"o{k // 100}", f"{names[k % len(names)]}-0", 0, {f"w{k}": CAPACITY}, 0.0)
        for k in range(idle, workers)
    ]
    view = View(0.0, SETTINGS, seen, jobs, runs, place, lambda _: frozenset({"k"}), divide)
    return replace(view, census=cluster_index_of(view))  # as the host keeps it from step to step


def _gangs(job: str, count: int) -> tuple[GangView, ...]:
    return tuple(GangView(job, k, (f"{job}-{k}",), f"{job}/{k}") for k in range(count))


def planning(most: int = 1_000_000) -> None:
    """Print the time of a round, per round and per start."""
    print(f"{'workers':>10}{'waiting':>10}{'idle':>8}{'starts':>8}{'ms':>10}{'us a start':>12}{'original ms':>13}")
    for workers in (1_000, 10_000, 100_000):
        for waiting in (1_000, 10_000, 100_000, 1_000_000):
            if waiting <= most:
                for idle in (10, workers // 2):
                    _row(workers, waiting, idle)


def _row(workers: int, waiting: int, idle: int) -> None:
    view = world(workers, waiting, idle, 1_000)
    plan = LoadBased().plan(view)
    spent, starts = timed(lambda: LoadBased().plan(view)) / 1e6, len(plan.orders)
    original = f"{ORIGINAL[waiting]:g}" if workers == 10_000 and waiting in ORIGINAL else "-"
    each = spent * 1e6 / max(1, starts)
    print(f"{workers:>10}{waiting:>10}{idle:>8}{starts:>8}{spent * 1e3:>10.2f}{each:>12.1f}{original:>13}")
