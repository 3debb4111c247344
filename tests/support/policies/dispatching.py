"""A small cluster under the priority policy and a virtual clock: what the recorded workloads are replayed with."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rainbow.matching import Take
from rainbow.scheduling import (
    GangView,
    JobView,
    Plan,
    Policy,
    Reserve,
    RunView,
    SlotsView,
    Start,
    View,
    WorkerView,
    check_plan,
)
from rainbow.scheduling.snapshot import Placement
from rainbow.state_machine import WorkerState


@dataclass(frozen=True)
class Job:
    """A job of equal slots, `least` to `most` of them, that runs for `runtime` and asks for `walltime`."""

    id: str
    submit: float
    least: int
    runtime: float
    walltime: float
    priority: int = 0
    most: int = 0
    requestor: str = "user"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    amounts: Mapping[str, int] = field(default_factory=lambda: {"core": 1})
    apart: bool = False


def job_view(job: Job) -> JobView:
    """One gang of one task."""
    slots = SlotsView("s", job.amounts, job.least, max(job.least, job.most), (), job.apart)
    gang = GangView(job.id, 0, (job.id,), job.id, job.walltime, (slots,))
    return JobView(job.id, job.requestor, job.submit, (gang,), 0, job.priority, job.attributes)


def run_view(job: Job, placement: Placement, started: float) -> RunView:
    """A job that runs since `started`."""
    until = started + job.walltime
    return RunView(
        job.id, job.id, job.requestor, 0, placement, started, False, until, False, job.priority, job.attributes
    )


def divide(demand: str, take: Take) -> Sequence[Placement]:
    """All slots to the one task."""
    held: dict[str, dict[str, int]] = {}
    for _, slot in take.placed:
        for worker, amounts in slot.items():
            for kind, amount in amounts.items():
                of = held.setdefault(worker, {})
                of[kind] = of.get(kind, 0) + amount
    return [held]


def make_view(
    now: float,
    workers: Mapping[str, Mapping[str, int]],
    waiting: Iterable[JobView],
    runs: Sequence[RunView] = (),
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> View:
    """Freeze a view of workers any of which can host a slot; those of equal capacity are of one kind."""
    free = {name: dict(amounts) for name, amounts in workers.items()}
    for run in runs:
        for worker, amounts in run.placement.items():
            for kind, amount in amounts.items():
                if worker:
                    free[worker][kind] -= amount
    kinds = {name: str(sorted(amounts.items())) for name, amounts in workers.items()}
    seen = [WorkerView(name, kinds[name], workers[name], free[name], WorkerState.READY) for name in workers]
    able = frozenset(kinds.values())
    return View(now, settings or {}, seen, list(waiting), list(runs), no_matcher, lambda _: able, divide, **more)


def no_matcher(demand: str, workers: Sequence[str]) -> None:
    """Nothing here needs more than amounts."""


@dataclass
class Replay:
    """Start and first promised start of every job."""

    start: dict[str, float] = field(default_factory=dict)
    promised: dict[str, float] = field(default_factory=dict)
    placed: dict[str, Placement] = field(default_factory=dict)
    plans: int = 0


def replay(
    policy: Policy,
    workers: Mapping[str, Mapping[str, int]],
    jobs: Iterable[Job],
    settings: Mapping[str, Any],
    watch: Callable[[View, Plan], None] = check_plan,
    first: int | None = None,
    remembers: bool = False,
) -> Replay:
    """Plan at every instant at which a job ends or arrives: ends first, then arrivals.

    `first`: only so many of those that wait are shown to the policy, and it is asked again if all of them start.
    That changes nothing where nobody passes who waits, and every job is of one priority. `remembers`: each plan has
    the memory and the promised starts of the one before.
    """
    arrivals = sorted(jobs, key=lambda job: job.submit)
    views = {job.id: job_view(job) for job in arrivals}
    ends: list[tuple[float, str]] = []
    by_id = {job.id: job for job in arrivals}
    waiting: dict[str, JobView] = {}
    runs: dict[str, RunView] = {}
    done, k, memory, promises = Replay(), 0, {}, ()
    while k < len(arrivals) or ends:
        now = min([*(job.submit for job in arrivals[k : k + 1]), *(end for end, _ in ends[:1])])
        while ends and ends[0][0] <= now:
            del runs[heapq.heappop(ends)[1]]
        while k < len(arrivals) and arrivals[k].submit <= now:
            waiting[arrivals[k].id] = views[arrivals[k].id]
            k += 1
        again = True
        while waiting and again:
            shown = list(islice(waiting.values(), first))
            view = make_view(now, workers, shown, list(runs.values()), settings, memory=memory, promises=promises)
            plan = policy.plan(view)
            memory, promises = (plan.memory, plan.promises) if remembers else ({}, ())
            done.plans += 1
            watch(view, plan)
            started = [order for order in plan.orders if isinstance(order, Start)]
            for order in started:
                del waiting[order.task]
                job = by_id[order.task]
                runs[job.id] = run_view(job, order.placement, now)
                heapq.heappush(ends, (now + job.runtime, job.id))
                done.start[job.id] = now
                done.placed[job.id] = order.placement
            for order in plan.orders:
                if isinstance(order, Reserve):
                    done.promised.setdefault(order.job, order.at)
            again = first is not None and len(started) == len(shown)
    return done
