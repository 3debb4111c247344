"""One cluster under its own policy in virtual time: what it orders is carried out, what runs ends when predicted.

A policy is shown limits, as ever (`expected`, `until`); tasks end when their mean lengths are over. Nothing new
arrives. Accounts and qualities of service hold as in a step: what a run's job has of them, its run has. The census is
kept change by change, as the host does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from rainbow.forecast.lengths import Length
from rainbow.forecast.room import Use
from rainbow.scheduling import (
    Accounts,
    Ended,
    GangView,
    JobView,
    Plan,
    Policy,
    ReservationView,
    Reserve,
    Resume,
    RunProgress,
    RunView,
    Start,
    Stop,
    Suspend,
    View,
    planner,
    traits_of,
)
from rainbow.scheduling.interface import cluster_index_of
from rainbow.scheduling.qos import Rules
from rainbow.scheduling.rules.preemption import NAME as PREEMPTION
from rainbow.scheduling.rules.running_limits import owner_of
from rainbow.scheduling.snapshot import Placement, Rows


class Lengths(Protocol):
    """How long what waits will run, and what runs still will."""

    def of(self, job: JobView, gang: GangView) -> Length:
        """Predict a gang that waits."""

    def left(self, run: RunView, now: float) -> float:
        """Predict how many more seconds a task runs; infinite: unknown."""


@dataclass(slots=True)
class Span:
    """When a job starts and ends, as far as is known by now."""

    start: float
    end: float


class VirtualCluster:
    """The cluster of a view, from its `now` on. `spans` are the starts and ends of jobs, `uses` what they hold.

    `again`: jobs with the gangs of theirs that run and may have to wait again. `rules`: what plans are held to.
    """

    def __init__(
        self,
        view: View,
        policy: Policy,
        lengths: Lengths,
        again: Iterable[JobView] = (),
        rules: Rules | None = None,
    ) -> None:
        self.now = view.now
        self.policy = policy
        self.rules = rules
        self._sees_all = traits_of(policy).sees_all
        self._accounts = policy if isinstance(policy, Accounts) else None
        self.lengths = lengths
        self.memory = view.memory
        self.spans: dict[str, Span] = {}
        self.promised: dict[str, float] = {}  # when space is kept from, by job
        self.promises = tuple(view.promises)
        self.jobs = {job.id: job for job in view.jobs}
        self._view = view
        self._gangs: dict[str, tuple[JobView, GangView]] = {}  # by task that waits or was started here
        self._ends: list[tuple[float, str]] = []
        self._end: dict[str, float] = {}  # of every task that runs
        self._held: dict[str, float] = {}  # suspended tasks, and how much they had left
        self._ended: list[Ended] = []
        self._past: list[Use] = []
        self._consumables = dict(view.consumables)
        self.census = cluster_index_of(replace(view, census=None))
        self.census.gang_of = self._gang_of
        for job in (*view.jobs, *again):
            self._gangs |= {task: (job, gang) for gang in job.gangs for task in gang.tasks}
        for run in view.runs:
            end = view.now + lengths.left(run, view.now)
            self._run(run, end, end)

    def _gang_of(self, task: str) -> GangView | None:
        result = self._gangs.get(task)
        return result[1] if result and task not in self._end else None

    @property
    def waiting(self) -> bool:
        """Whether anything waits that may start."""
        return bool(self.census.jobs)

    def view(self) -> View:
        """Freeze it."""
        by_progress = self._sees_all
        runs, jobs = self.census.runs.values(), self.jobs.values()
        waiting = Rows(lambda: [job for job in jobs if job.gangs], len(self.census.jobs))
        return replace(
            self._view,
            now=self.now,
            workers=tuple(self.census.workers.values()),
            jobs=tuple(jobs) if by_progress else waiting,
            runs=tuple(self._aged(run) for run in runs) if by_progress else tuple(runs),
            memory=self.memory,
            promises=self.promises,
            consumables=dict(self._consumables),
            ended=tuple(self._ended),
            census=None if by_progress else self.census,
            free=None,
            quiet=True,
        )

    def _aged(self, run: RunView) -> RunView:
        """Return a run with what has been invested in it by now."""
        return replace(run, progress=RunProgress(True, 0.0, max(0.0, self.now - run.started)))

    def uses(self) -> Iterator[Use]:
        """Yield everything that holds space from the beginning on, or will."""
        yield from self._past
        ending = [one for one in self._view.reservations if one.at_begin and one.start > self.now]
        for run in self.census.runs.values():
            begins = [one.start for one in ending if one.placement.keys() & run.placement.keys()]
            yield Use(run.placement, run.started, min([self._end[run.task], *begins]), owner_of(run))

    def submit(self, job: JobView) -> None:
        """Let a job arrive, the last of all by submission."""
        self._gangs |= {task: (job, gang) for gang in job.gangs for task in gang.tasks}
        self.jobs[job.id] = job
        self.census.put_job(job)

    # ── what a plan orders ──

    def next_plan(self, view: View | None = None) -> Plan:
        """Plan as the cluster's step would."""
        return planner.plan(self.policy, view or self.view(), self.rules)

    def carry_out(self, plan: Plan) -> None:
        """Carry out a plan's orders now."""
        self.memory = plan.memory
        self.promises = plan.promises
        self._ended = []
        begun: dict[str, list[Start]] = {}
        for order in plan.orders:
            if isinstance(order, Start):
                begun.setdefault(self._gangs[order.task][0].id, []).append(order)
            elif isinstance(order, Reserve):
                self.promised[order.job] = order.at
            elif order.task in self._end:
                self._change(order)
        for job, starts in begun.items():
            self._start(self.jobs[job], starts)

    def _start(self, job: JobView, starts: Iterable[Start]) -> None:
        begun = {order.task: order.placement for order in starts}
        gangs = tuple(gang for gang in job.gangs if gang.tasks[0] not in begun)
        self._put(replace(job, gangs=gangs, running=job.running + len(begun), waiting=_tasks(gangs)))
        for task, placement in begun.items():
            gang = self._gangs[task][1]
            length = self.lengths.of(job, gang)
            until = self.now + gang.expected if gang.expected else 0.0
            run = RunView(
                task,
                job.id,
                job.requestor,
                gang.number,
                placement,
                self.now,
                until=until,
                priority=job.priority,
                attributes=job.attributes,
                account=job.account,
                qos=job.qos,
            )
            self._book(placement, 1)
            self._run(run, self.now + length.mean, self.now + length.seconds)

    def _put(self, job: JobView) -> None:
        again = job.id not in self.jobs
        self.jobs[job.id] = job
        if again:
            self.jobs = {one.id: one for one in sorted(self.jobs.values(), key=lambda one: (one.submitted, one.id))}
        self.census.put_job(job)
        if not job.gangs and job.running <= 0:
            del self.jobs[job.id]

    def _run(self, run: RunView, end: float, own_end: float) -> None:
        """Let a task hold space until an end; its job has its own."""
        self.census.put_run(run)
        self._schedule(run.task, end)
        span = self.spans.setdefault(run.job, Span(run.started, own_end))
        span.start = min(span.start, run.started)
        span.end = max(span.end, own_end)

    def _schedule(self, task: str, end: float) -> None:
        self._end[task] = end
        if end < inf:
            heappush(self._ends, (end, task))

    def _change(self, order: Stop | Suspend | Resume) -> None:
        run = self.census.runs[order.task]
        if isinstance(order, Stop) and order.cancels:
            self._cancel(run.job)
        elif isinstance(order, Stop):  # its end is confirmed at once, and it waits again
            self.census.put_run(replace(run, stopping=True))
            self._schedule(run.task, self.now)
        elif isinstance(order, Suspend) and run.task not in self._held:
            self._held[run.task] = self._end[run.task] - self.now
            self.census.put_run(replace(run, suspended=True))
            self._schedule(run.task, inf)
        elif isinstance(order, Resume) and run.task in self._held:
            self.census.put_run(replace(run, suspended=False))
            self._schedule(run.task, self.now + self._held.pop(run.task))

    def _cancel(self, name: str) -> None:
        """End a job with all that runs of it, at once."""
        for run in [run for run in self.census.runs.values() if run.job == name]:
            self._schedule(run.task, self.now)
        if name in self.jobs:
            self._put(replace(self.jobs[name], gangs=(), waiting=0))
        self.spans[name].end = self.now

    def _book(self, placement: Placement, sign: int) -> None:
        for name, amounts in placement.items():
            if not name:
                for kind, amount in amounts.items():
                    self._consumables[kind] = self._consumables.get(kind, 0) - sign * amount
            elif name in self.census.workers:
                worker = self.census.workers[name]
                free = {kind: amount - sign * amounts.get(kind, 0) for kind, amount in worker.free.items()}
                self.census.put_worker(replace(worker, free=free, tasks=max(0, worker.tasks + sign)))

    # ── the next end ──

    def next_time(self) -> float | None:
        """Return when something happens next: an end, or a time the policy waits for; None: nothing any more."""
        while self._ends and self._end.get(self._ends[0][1]) != self._ends[0][0]:
            heappop(self._ends)
        stored = [time for one in self._view.reservations for time in (one.start, one.end)]
        claims = [time for one in self.memory.get(PREEMPTION, {}).values() for time in (one["until"], one["again"])]
        times = [*(end for end, _ in self._ends[:1]), *self.promised.values(), *stored, *claims]
        later = [time for time in times if self.now < time < inf]
        overdue = self._ends and self._ends[0][0] <= self.now
        return self.now if overdue else min(later, default=None)

    def interruption(self) -> float | None:
        """Return when a maintenance begins next that ends something of what runs; None: never."""
        runs, to_come = self.census.runs.values(), [one for one in self._view.reservations if one.start > self.now]
        begins = (one.start for one in to_come if one.at_begin and any(self._lasts(run, one) for run in runs))
        return min(begins, default=None)

    def _lasts(self, run: RunView, maintenance: ReservationView) -> bool:
        return self._end[run.task] > maintenance.start and not maintenance.placement.keys().isdisjoint(run.placement)

    def advance(self, to: float) -> None:
        """Let time pass, and what ends until then end; then what maintenance ends that has begun."""
        before, self.now = self.now, to
        self.promised = {}
        while self._ends and self._ends[0][0] <= to:
            end, task = heappop(self._ends)
            if self._end.get(task) == end:
                self._finish(task, end)
        for one in self._view.reservations:
            if one.at_begin and before < one.start <= to:
                self._empty(one)

    def _empty(self, maintenance: ReservationView) -> None:
        """End what runs on the workers of a maintenance that begins: whole gangs, or (cancel) whole jobs."""
        runs, cancels = list(self.census.runs.values()), maintenance.at_begin == "cancel"
        there = [run for run in runs if maintenance.placement.keys() & run.placement.keys()]
        ended = {run.job if cancels else (run.job, run.gang) for run in there}
        for run in runs:
            if (run.job if cancels else (run.job, run.gang)) in ended:
                self.census.put_run(replace(run, stopping=not cancels))
                self._finish(run.task, self.now)
        for job in {run.job for run in there}:
            if cancels and job in self.jobs:
                self._put(replace(self.jobs[job], gangs=(), running=0, waiting=0))
            remaining = [self._end[run.task] for run in runs if run.job == job and run.task in self._end]
            self.spans[job].end = max([self.now, *remaining])

    def _finish(self, task: str, end: float) -> None:
        run = self.census.drop_run(task)
        del self._end[task]
        self._held.pop(task, None)
        if run is None:
            return
        self._book(run.placement, -1)
        self._past.append(Use(run.placement, run.started, end, owner_of(run)))
        if self._accounts is not None and self._accounts.counted_until(self.memory) is not None:
            self._ended.append(Ended(run, end))
        if run.stopping:
            self._wait_again(run)
        elif run.job in self.jobs:
            job = _further(self.jobs[run.job])
            self._put(replace(job, running=job.running - 1))

    def _wait_again(self, run: RunView) -> None:
        """Let what was stopped wait like before; what was started before the view was frozen is not known well."""
        known = self._gangs.get(run.task)
        if known is None:
            return
        job, gang = self.jobs.get(run.job, replace(known[0], gangs=(), running=1)), known[1]
        there = any(one.number == gang.number for one in job.gangs)
        gangs = tuple(job.gangs) if there else (*job.gangs, gang)
        self._put(replace(job, gangs=gangs, running=job.running - 1, waiting=_tasks(gangs)))


def _tasks(gangs: Iterable[GangView]) -> int:
    return sum(len(gang.tasks) for gang in gangs)


def _further(job: JobView) -> JobView:
    """Return a job after one of its shares has done its part."""
    if job.progress is None or job.progress.items_left is None:
        return job
    done = job.elastic.threads if job.elastic else 1
    remaining = max(0, job.progress.items_left - done)
    return replace(
        job,
        progress=replace(
            job.progress, items_left=remaining, items_done=job.progress.items_done + done, initialised=True
        ),
    )
