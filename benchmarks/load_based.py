"""One planning round of the load-based policy: how it grows with waiting tasks and workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.timing import as_served, heading, row, timed
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


def world(workers: int, waiting: int, idle: int, per_job: int, *, differ: bool = False) -> View:
    """Workers of which so many are idle, and jobs of `per_job` tasks, their requestors spread over the classes.

    All workers are of one kind and all tasks ask for the same, as one jobspec's do; or no two if they `differ`.
    """
    kinds = [f"k{k}" if differ else "k" for k in range(workers)]
    hosts = frozenset(kinds)
    names, per_job = list(CLASSES), min(per_job, waiting)
    jobs = [
        JobView(
            f"j{k}",
            f"{names[k % len(names)]}-{k % 3}",
            float(k),
            _gangs(f"j{k}", per_job, alike=not differ),
            waiting=per_job,
        )
        for k in range(max(1, waiting // per_job))
    ]
    seen = [
        WorkerView(f"w{k}", kinds[k], CAPACITY, CAPACITY, WorkerState.READY, 0.0, int(k >= idle))
        for k in range(workers)
    ]
    runs = [
        RunView(f"r{k}", f"o{k // 100}", f"{names[k % len(names)]}-0", 0, {f"w{k}": CAPACITY}, 0.0)
        for k in range(idle, workers)
    ]
    view = View(0.0, SETTINGS, seen, jobs, runs, place, lambda _: hosts, divide)
    return replace(view, census=cluster_index_of(view))  # as the host keeps it from step to step


def _gangs(job: str, count: int, *, alike: bool) -> tuple[GangView, ...]:
    return tuple(GangView(job, k, (f"{job}-{k}",), f"{job}/{k}", alike=int(alike)) for k in range(count))


def planning(most: int = 1_000_000) -> None:
    """Print the time of a round, per round and per start."""
    heading(
        "load_based, ms", "workers", "waiting", "idle", "starts", "ms", "us a start", "all differ", "Scoot, recorded"
    )
    for workers in (1_000, 10_000, 100_000):
        for waiting in (1_000, 10_000, 100_000, 1_000_000):
            if waiting <= most:
                for idle in (10, workers // 2):
                    _row(workers, waiting, idle)


def _row(workers: int, waiting: int, idle: int) -> None:
    spent, starts = _planned(world(workers, waiting, idle, 1_000))
    different: float | str = "-"
    if workers <= 10_000 and waiting <= 10_000:
        different, _ = _planned(world(workers, waiting, idle, 1_000, differ=True))
    original = ORIGINAL[waiting] if workers == 10_000 and waiting in ORIGINAL else "-"
    row(workers, waiting, idle, starts, spent, spent * 1e3 / max(1, starts), different, original)


def _planned(view: View) -> tuple[float, int]:
    """Return the milliseconds of a round, and how many tasks it starts."""
    with as_served():
        return timed(lambda: LoadBased().plan(view)) / 1e3, len(LoadBased().plan(view).orders)
