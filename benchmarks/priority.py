"""The priority policy beside what was measured of Grid Engine and Slurm on a machine with two cores.

Grid Engine started 16,000 sequential jobs a second in one run on 100 hosts of 8 slots, and planned 150 parallel jobs
with 100 reservations in 0.42 s. Slurm took 0.12 s for a main and 0.74 s for a backfill cycle over 11,000 pending
tasks in 51 records on 1,000 nodes. Those figures were measured on another day; the rest of a row is measured now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import log
from random import Random
from statistics import median
from typing import Any

from benchmarks.timing import as_served
from rainbow.scheduling import GangView, JobView, Plan, Priority, Reserve, RunView, SlotsView, Start, View, WorkerView
from rainbow.state_machine import WorkerState
from tests.unit.scheduling.test_promises import RUNS, campaign

CORE = {"core": 1}
ROUNDS = 3
TARGETS = {(3_000, 100): "was 18.9 s, target 0.5 s", (10_000, 1_000): "target 10 s"}


def workers(count: int, cores: int, free: int) -> list[WorkerView]:
    """Equal workers."""
    return [WorkerView(f"n{k:05}", "k", {"core": cores}, {"core": free}, WorkerState.READY) for k in range(count)]


def job(
    k: int, slots: int = 1, walltime: float = 100.0, attributes: dict[str, Any] | None = None, tasks: int = 1
) -> JobView:
    """A job of one slot group, or of several independent tasks."""
    group = (SlotsView("s", CORE, slots, slots),)
    gangs = tuple(GangView(f"j{k}", n, (f"j{k}-{n}",), f"{slots}", walltime, group) for n in range(tasks))
    return JobView(f"j{k:06}", "user", float(k), gangs, attributes=attributes or {})


def view(seen: list[WorkerView], jobs: Iterable[JobView], runs: Iterable[RunView] = (), **settings: Any) -> View:
    """A view without a matcher: every slot is told by amounts."""

    def divide(demand: str, take: Any) -> list[dict[str, dict[str, int]]]:
        held: dict[str, dict[str, int]] = {}
        for _, slot in take.placed:
            for worker, amounts in slot.items():
                held.setdefault(worker, {"core": 0})["core"] += amounts["core"]
        return [held]

    kinds = frozenset({"k"})
    return View(0.0, settings, seen, list(jobs), list(runs), lambda d, w: None, lambda d: kinds, divide)


def full(count: int, cores: int) -> list[RunView]:
    """A task on every core, ending one after another."""
    return [
        RunView(f"r{k}", f"r{k}", "user", 0, {f"n{k % count:05}": CORE}, -1.0, until=50.0 + k % 97)
        for k in range(count * cores)
    ]


def measured(label: str, of: View, rival: str = "") -> float:
    """Plan a few times, print what it took (seconds of this thread, the median), return the seconds."""
    policy: Callable[[View], Plan] = Priority().plan
    times = []
    with as_served():
        for _ in range(ROUNDS):
            begin = time.thread_time()
            plan = policy(of)
            times.append(time.thread_time() - begin)
    spent = median(times)
    starts = sum(isinstance(order, Start) for order in plan.orders)
    stored = sum(isinstance(order, Reserve) for order in plan.orders)
    rate = f"{starts / spent:,.0f} starts/s" if starts else ""
    print(f"{label:<66}{spent:>9.3f} s {starts:>6} starts {stored:>5} reservations {rate:>16}  {rival}")
    return spent


def different(pending: int, count: int) -> View:
    """A full cluster behind which gangs of 1 to 16 whole workers wait, all of another duration; all are promised."""
    chance = Random(7)
    runs = [
        RunView(f"r{k}", f"r{k}", "user", 0, {f"n{k:05}": {"core": 4}}, -1.0, until=chance.uniform(50, 5_000))
        for k in range(count)
    ]
    jobs = []
    for k in range(pending):
        width, seconds = chance.randint(1, 16), chance.uniform(60, 7_000)
        group = (SlotsView("s", {"core": 4}, width, width),)
        gangs = (GangView(f"j{k}", 0, (f"j{k}-0",), f"{width}", seconds, group),)
        jobs.append(JobView(f"j{k:06}", "user", float(k), gangs))
    return view(workers(count, 4, 0), jobs, runs, discipline="conservative")


def conservative() -> None:
    """Print what it costs to promise everybody a time, and how that grows."""
    for count, sizes in ((100, (1_000, 2_000, 3_000, 6_000)), (1_000, (1_000, 3_000, 10_000))):
        spent = {}
        for pending in sizes:
            request = different(pending, count)
            deep = replace(request, settings={**request.settings, "plan_depth": 0})
            target = TARGETS.get((pending, count), "")
            label = f"conservative, {pending:,} different, {count:,} workers"
            measured(f"{label}, plan_depth 1000", request, target)
            spent[pending] = measured(f"{label}, all promised", deep, target)
        first, last = min(sizes), max(sizes)
        print(f"  grows with the exponent {log(spent[last] / spent[first]) / log(last / first):.2f}, all promised")


def reasons() -> None:
    """Print what a plan costs that tells no reasons, as in forecasts and simulations, beside one that does."""
    request = replace(different(1_000, 100), settings={})
    answer = measured("easy, 1,000 different, 100 workers", request)
    quiet = measured("  the same, quiet", replace(request, quiet=True), "target a tenth, or 13 ms")
    print(f"  {answer / quiet:.1f} times as fast")


def promises() -> None:
    """Print how many promised starts are kept while limits are up to five times the run."""
    for discipline in RUNS:
        answer = campaign(discipline, 2)
        print(f"{f'promises of 2 runs, {discipline}':<66}{answer.made:>9} made {answer.kept:>6} kept, target all")


def main() -> None:
    """Print every comparison and the growth."""
    measured("(warming up)", view(workers(10, 8, 8), map(job, range(80))))
    measured("800 sequential jobs, 100 hosts of 8", view(workers(100, 8, 8), map(job, range(800))), "peer 16,000/s")
    measured("10,000 jobs for 800 slots", view(workers(100, 8, 8), map(job, range(10_000)), discipline="tuned"))
    many = (job(k, 1, 100.0 + k % 300) for k in range(10_000))
    measured("10,000 jobs of 300 categories for 800 slots", view(workers(100, 8, 8), many, discipline="tuned"))
    parallel = [job(k, 8 + k % 25, 60.0 + k % 7) for k in range(150)]
    deep = {"discipline": "tuned", "reserve": "all", "max_reservation": 100}
    measured(
        "150 parallel jobs, 100 reservations", view(workers(100, 8, 0), parallel, full(100, 8), **deep), "peer 0.42 s"
    )
    records = [job(k, 1 + k % 8, 100.0 + k, None, 216) for k in range(51)]
    busy = (workers(1_000, 8, 0), records, full(1_000, 8))
    measured("11,016 tasks of 51 jobs, 1,000 full nodes, easy", view(*busy), "peer 0.12 s main")
    measured("  the same, 750 reservations", view(*busy, **{**deep, "max_reservation": 750}), "peer 0.74 s backfill")
    for pending in (1_000, 10_000, 100_000):
        jobs = [job(k, 1 + k % 4, 100.0 + k % 20) for k in range(pending)]
        measured(f"growth: {pending:,} pending, 1,000 workers", view(workers(1_000, 8, 8), jobs))
    for count in (100, 1_000, 10_000):
        jobs = [job(k, 1 + k % 4, 100.0 + k % 20) for k in range(10_000)]
        measured(f"growth: 10,000 pending, {count:,} workers", view(workers(count, 8, 8), jobs))
    conservative()
    reasons()
    promises()


if __name__ == "__main__":
    main()
