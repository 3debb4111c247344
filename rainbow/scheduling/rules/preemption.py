"""Preemption by quality of service: which running tasks end so that a waiting gang can start.

    claim    a gang of a job whose quality of service may preempt others, that did not start
    unit     the running tasks of one gang: they end together; the lowest priority first, of equal ones the youngest
    fits     asks whether a claim fits if these tasks had ended; where, or None

Of the units that may be preempted the shortest row is taken after which the claim fits, then every one of it that is
not needed is left alone, the highest priority first: no part of what is preempted would do. Tasks that end already
count as gone, so one claim preempts once. What was preempted waits in its old place, and not before the claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from rainbow.scheduling.interface import Free, Plan, Start, Stop, View, Wait, cluster_index_of
from rainbow.scheduling.qos import CANCEL, PREEMPTION, Limit, Owner, Rules
from rainbow.scheduling.rules.running_limits import Cut, cores_of, held_cores, owner_of
from rainbow.scheduling.snapshot import GangView, JobView, Placement, RunView
from rainbow.state_machine import WorkerState, job_of
from rainbow.text import some

NAME = "preemption"  # what is remembered stands under this name in a cluster's memory
MOST_GANGS = 16  # gangs of one job that preempt in one step
SLACK = 30.0  # seconds from the end of the grace in which a claim must have started
CLAIM_PAUSE = 60.0  # seconds until a claim that did not start preempts again; twice as long each time
NOT_SPACE = frozenset({"attributes", "running-limit", "never", "unfit", "cluster-wide", "array-limit"})
Claim = Mapping[str, Any]  # of a job: {"tasks": preempted, "until": time, "again": time, "tries": count}


class RunningGang(NamedTuple):
    """The running tasks of one gang."""

    priority: int
    youngest: float  # minus the time of the last start
    tasks: tuple[str, ...]
    workers: frozenset[str]


Fits = Callable[[Collection[str]], Collection[str] | None]


def chosen(units: Sequence[RunningGang], fits: Fits) -> list[RunningGang]:
    """Return the units to preempt, none if the claim does not fit after all of them.

    >>> units = [RunningGang(0, -9.0, ("b",), frozenset("n")), RunningGang(0, -5.0, ("a",), frozenset("n"))]
    >>> [unit.tasks for unit in chosen(units, lambda gone: "n" if "a" in gone else None)]
    [('a',)]
    """
    ordered = sorted(units)
    low, high = 0, len(ordered)
    if not ordered or fits(_tasks(ordered)) is None:
        return []
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(_tasks(ordered[:middle])) is not None else (middle + 1, high)
    reserved = ordered[:low]
    where = frozenset(fits(_tasks(reserved)) or ())
    near = [unit for unit in reserved if unit.workers & where]
    reserved = near if fits(_tasks(near)) is not None else reserved
    for unit in reversed(reserved):
        rest = [one for one in reserved if one is not unit]
        reserved = rest if fits(_tasks(rest)) is not None else reserved
    return reserved


def _tasks(units: Iterable[RunningGang]) -> list[str]:
    return [task for unit in units for task in unit.tasks]


def units_for(view: View, rules: Rules, job: JobView, gone: Collection[str]) -> list[RunningGang]:
    """Return what a job may preempt: nothing exempt, nothing of its own, and no gang in part."""
    may = rules.of(job.qos).preempts
    others = [runs for runs in _running_gangs(view, gone) if runs[0].job != job.id]
    return [_unit(runs) for runs in others if all(_may_go(rules, run, may, view.now) for run in runs)]


def _running_gangs(view: View, gone: Collection[str] = ()) -> Collection[list[RunView]]:
    gangs: dict[tuple[str, int], list[RunView]] = {}
    for run in cluster_index_of(view).runs.values():
        if run.task not in gone:
            gangs.setdefault((run.job, run.gang), []).append(run)
    return gangs.values()


def _may_go(rules: Rules, run: RunView, may: Collection[str], now: float) -> bool:
    qos = rules.of(run.qos)
    return (
        qos.name in may
        and PREEMPTION not in qos.exempt
        and now - run.started >= qos.exempt_seconds
        and not run.stopping
    )


def _unit(runs: Sequence[RunView]) -> RunningGang:
    workers = frozenset(worker for run in runs for worker in run.placement if worker)
    youngest = -max(run.started for run in runs)
    return RunningGang(runs[0].priority, youngest, tuple(sorted(run.task for run in runs)), workers)


# ── what would be free ──


class Space(Protocol):
    """What is free, tried on."""

    def after(self, gang: GangView, tasks: Collection[str], *, keep: bool = False) -> Collection[str] | None:
        """Return the workers a gang would hold if these tasks had ended, None if it does not fit; `keep`: it does."""


def _ending(view: View, plan: Plan) -> set[str]:
    """Return the tasks that end already, or by this plan."""
    stops = {order.task for order in plan.orders if isinstance(order, Stop)}
    return stops | {run.task for run in cluster_index_of(view).runs.values() if run.stopping}


def _idle(view: View, plan: Plan, gone: Collection[str]) -> list[str]:
    """Return the ready workers that nothing holds once some tasks have ended and a plan's starts have begun."""
    census = cluster_index_of(view)
    ending = _ending(view, plan).union(gone)
    busy = {name for run in census.runs.values() if run.task not in ending for name in run.placement}
    busy |= {name for order in plan.orders if isinstance(order, Start) for name in order.placement}
    return [name for name in census.everyone() if name not in busy]


class Located:
    """The vertices that are free; the plan's starts hold theirs."""

    def __init__(self, view: View, plan: Plan, free: Free, *, whole: bool) -> None:
        self._view, self._plan, self._free, self._whole = view, plan, free, whole
        self._kept: set[str] = set()  # workers, and what ends for what was kept
        self._gone: set[str] = set()
        free.begin()
        for order in plan.orders:
            if isinstance(order, Start) and not (order.located and free.book([order.located])):
                free.fill(order.placement)
        free.release(_ending(view, plan))

    def after(self, gang: GangView, tasks: Collection[str], *, keep: bool = False) -> Collection[str] | None:
        """Ask the matcher."""
        mark = self._free.mark()
        self._free.release(tasks)
        gone = self._gone.union(tasks)
        idle = set(_idle(self._view, self._plan, gone)) - self._kept if self._whole else None
        taken = self._free.take(gang.demand, among=idle)
        where = None if taken is None else {name for placed in taken.placements for name in placed if name}
        if where is None or not keep:
            self._free.undo(mark)
            return where
        self._kept |= where
        self._gone = gone
        return where


@dataclass
class Amounts:
    """Amounts by worker, for a cluster of unknown vertices."""

    view: View
    plan: Plan
    free: dict[str, Counter[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        workers = cluster_index_of(self.view).workers.values()
        self.free = {one.id: Counter(one.free) for one in workers if one.state is WorkerState.READY}
        self.free[""] = Counter(self.view.consumables)
        self.kinds = {one.id: one.kind for one in workers}
        self.runs = cluster_index_of(self.view).runs
        for order in self.plan.orders:
            if isinstance(order, Start):
                _add(self.free, order.placement, -1)
        for task in _ending(self.view, self.plan) & self.runs.keys():
            _add(self.free, self.runs[task].placement, 1)

    def after(self, gang: GangView, tasks: Collection[str], *, keep: bool = False) -> Collection[str] | None:
        """Place every slot on the first worker with room."""
        free = {name: Counter(amounts) for name, amounts in self.free.items()}
        for task in tasks:
            _add(free, self.runs[task].placement, 1)
        used = self._placed(gang, free)
        if used is not None and keep:
            self.free = free
        return used

    def _placed(self, gang: GangView, free: dict[str, Counter[str]]) -> set[str] | None:
        used: set[str] = set()
        kinds = self.view.hosts(gang.demand)
        hosts = [name for name in free if name and self.kinds[name] in kinds]
        for slot in gang.slots:
            there: set[str] = set()
            for _ in range(slot.least):
                name = next((n for n in hosts if not (slot.apart and n in there) and _has(free[n], slot.amounts)), "")
                if not name or not _has(free[""], slot.outside):
                    return None
                _add(free, {name: slot.amounts, "": slot.outside}, -1)
                there.add(name)
            used |= there
        return used if gang.slots else None


def _has(free: Mapping[str, int], requirements: Mapping[str, int]) -> bool:
    return all(free.get(kind, 0) >= amount for kind, amount in requirements.items())


def _add(free: Mapping[str, Counter[str]], placement: Placement, sign: int) -> None:
    for name, amounts in placement.items():
        for kind, amount in amounts.items():
            if name in free:
                free[name][kind] += sign * amount


# ── a step ──


@dataclass
class Preemption:
    """One step: the claims remembered from before, and those that a plan leaves."""

    view: View
    rules: Rules
    used: Counter[Limit] = field(default_factory=Counter)  # but for what ends already
    claims: dict[str, Claim] = field(default_factory=dict)

    @classmethod
    def of(cls, view: View, rules: Rules, used: Mapping[Limit, float] | None = None) -> Preemption:
        """Read the claims whose jobs still wait."""
        known, census = view.memory.get(NAME, {}), cluster_index_of(view)
        stay = Counter(used or {})
        for run in census.runs.values() if used else ():
            if run.stopping:
                stay.subtract(dict.fromkeys(rules.counted(owner_of(run)), held_cores(run.placement)))
        return cls(view, rules, stay, {job: claim for job, claim in known.items() if job in census.jobs})

    @property
    def live(self) -> dict[str, Claim]:
        """The claims that are still to start."""
        runs, now = cluster_index_of(self.view).runs, self.view.now
        ending = {run.task for run in runs.values() if run.stopping}
        ends = {job for job, one in self.claims.items() if not ending.isdisjoint(one["tasks"])}
        return {job: one for job, one in self.claims.items() if now < one["until"] or job in ends}

    def held_back(self) -> dict[str, Cut]:
        """Hide the waiting jobs that a live claim may preempt: it starts before them."""
        census, result = cluster_index_of(self.view), dict[str, Cut]()
        claimants = [census.jobs[job] for job in sorted(self.live)]
        for job in census.jobs.values() if claimants else ():
            first = next((one for one in claimants if self._before(one, job)), None)
            if first is not None:
                result[job.id] = Cut(replace(job, gangs=(), waiting=0), self._wait_for(job, first))
        return result

    def _before(self, claimant: JobView, job: JobView) -> bool:
        mine, its = self.rules.of(claimant.qos), self.rules.of(job.qos)
        may = its.name in mine.preempts or self._lends(claimant, job)
        return may and claimant.id != job.id and PREEMPTION not in its.exempt

    def _lends(self, claimant: JobView, job: JobView) -> bool:
        """Return whether the account of a job has all it is guaranteed, and borrows of a claimant's."""
        mine, its = (self.rules.guarantee(owner_of(one)) for one in (claimant, job))
        if mine is None or its is None:
            return False
        return self.rules.are_siblings(mine, its) and self.used.get(its, 0) >= its.most

    def _wait_for(self, job: JobView, first: JobView) -> Wait:
        was = any(job_of(task) == job.id for task in self.live[first.id]["tasks"])
        by = self._called(first)
        text = f"preempted by {by}, which starts first" if was else f"{by} starts first: it may preempt this job"
        return Wait(job.id, "preempted", text, {"by": first.id, "qos": self.rules.of(first.qos).name})

    def orders(self, plan: Plan, cut: Mapping[str, Cut], *, whole: bool = False) -> tuple[list[Stop], list[Wait]]:
        """Return what is to be stopped for the claims a plan leaves, and what those jobs wait for."""
        begun = {order.task for order in plan.orders if isinstance(order, Start)}
        for order in plan.orders:
            if isinstance(order, Start) and (gang := cluster_index_of(self.view).gang_of(order.task)):
                self._count(owner_of(cluster_index_of(self.view).jobs[gang.job]), held_cores(order.placement))
        stops, waits = list[Stop](), list[Wait]()
        self.claims = {job: one for job, one in self.claims.items() if not self._begins(job, begun)}
        live, space = self.live, None
        for job in self._claimants(plan, cut):
            if job.id not in live and self.view.now >= self.claims.get(job.id, {}).get("again", 0.0):
                space = space or self._space(plan, whole=whole)
                limit = self._cohort(job, cut[job.id]) if job.id in cut else None
                gone = _ending(self.view, plan).union(stop.task for stop in stops)
                stops += self._preempted(job, begun, space, gone, limit)
            if job.id in self.live:
                waits.append(self._waits(job))
        if self.view.free is not None:
            self.view.free.begin()
        return stops, waits

    def _begins(self, job: str, begun: Collection[str]) -> bool:
        return any(job_of(task) == job for task in begun)

    def _claimants(self, plan: Plan, cut: Mapping[str, Cut]) -> Iterator[JobView]:
        """Yield the jobs that may preempt and wait for space, the best first."""
        said = {wait.job: wait.reason for wait in plan.waits}
        jobs = cluster_index_of(self.view).jobs.values()
        waiting = (job for job in jobs if self.rules.of(job.qos).preempts or self._is_owed(job, job.gangs[0]))
        for job in sorted(waiting, key=lambda one: (-one.priority, one.submitted, one.id)):
            if job.id in cut:
                if self._cohort(job, cut[job.id]) is not None:
                    yield job
            elif said.get(job.id) not in NOT_SPACE:
                yield job

    def _is_owed(self, job: JobView, gang: GangView) -> bool:
        """Return whether a gang is within what its account is guaranteed."""
        own = self.rules.guarantee(owner_of(job))
        return own is not None and self.used.get(own, 0) + cores_of(gang) <= own.most

    def _cohort(self, job: JobView, cut: Cut) -> Limit | None:
        """Return the limit that a job waits for, if siblings that borrow can give room under it."""
        own = self.rules.guarantee(owner_of(job))
        if own is None or cut.limit is None or not self._is_owed(job, job.gangs[0]):
            return None
        return cut.limit if (cut.limit.kind, cut.limit.name) == ("account", self.rules.parents[own.name]) else None

    def _space(self, plan: Plan, *, whole: bool) -> Space:
        free = self.view.free
        return Amounts(self.view, plan) if free is None else Located(self.view, plan, free, whole=whole)

    def _preempted(
        self, job: JobView, begun: Collection[str], space: Space, gone: Collection[str], limit: Limit | None
    ) -> Iterator[Stop]:
        gangs = [gang for gang in job.gangs[: MOST_GANGS + len(begun)] if gang.tasks[0] not in begun][:MOST_GANGS]
        taken, qos = set(gone), self.rules.of(job.qos)
        for gang in gangs:

            def fits(tasks: Collection[str], gang: GangView = gang) -> Collection[str] | None:
                return space.after(gang, tasks) if self._has_room(gang, limit, tasks) else None

            if fits(()) is not None:
                space.after(gang, (), keep=True)
                self._count(owner_of(job), cores_of(gang))
                continue
            units = units_for(self.view, self.rules, job, taken)
            results = chosen(units, fits)
            if not results and self._is_owed(job, gang):
                results = chosen(self._borrowed(job, taken), fits)
            if not results:
                break
            space.after(gang, _tasks(results), keep=True)
            taken |= set(_tasks(results))
            self._count(owner_of(job), cores_of(gang))
            for run in map(cluster_index_of(self.view).runs.__getitem__, _tasks(results)):
                self._count(owner_of(run), -held_cores(run.placement))
        if tasks := sorted(taken - set(gone)):
            self._claim(job, tasks, qos.grace)
            why = f"preempted by {self._called(job)}"
            cancels = qos.how == CANCEL
            yield from (Stop(task, why, job.id, qos.signal, qos.grace, cancels) for task in tasks)

    def _called(self, job: JobView) -> str:
        """Name a claimant, with what lets it preempt."""
        qos = self.rules.of(job.qos)
        return f"job {job.id} ({f'qos {qos.name}' if qos.preempts else f'account {job.account}'})"

    def _count(self, owner: Owner, cores: int) -> None:
        self.used.update(dict.fromkeys(self.rules.counted(owner), cores))

    def _has_room(self, gang: GangView, limit: Limit | None, gone: Collection[str]) -> bool:
        """Return whether a gang passes no limit once some tasks have ended."""
        if limit is None:
            return True
        runs = (cluster_index_of(self.view).runs[task] for task in gone)
        back = sum(held_cores(run.placement) for run in runs if limit in self.rules.counted(owner_of(run)))
        return self.used.get(limit, 0) + cores_of(gang) - back <= limit.most

    def _borrowed(self, job: JobView, gone: Collection[str]) -> list[RunningGang]:
        """Return what siblings run beyond what they are guaranteed, their last starts first."""
        own, result, over = self.rules.guarantee(owner_of(job)), list[RunningGang](), dict[Limit, float]()
        for runs in sorted(_running_gangs(self.view), key=lambda runs: (-runs[0].started, runs[0].task)):
            its, kind = self.rules.guarantee(owner_of(runs[0])), self.rules.of(runs[0].qos)
            free = all(not run.stopping and run.task not in gone for run in runs) and PREEMPTION not in kind.exempt
            if own is None or its is None or not free or not self.rules.are_siblings(own, its):
                continue
            cores = sum(held_cores(run.placement) for run in runs)
            remaining = over.get(its, self.used.get(its, 0) - its.most)
            if cores <= remaining:
                over[its] = remaining - cores
                result.append(_unit(runs))
        return result

    def _claim(self, job: JobView, tasks: Sequence[str], grace: float) -> None:
        tries = self.claims.get(job.id, {}).get("tries", 0) + 1
        until = self.view.now + grace + SLACK
        again = until + CLAIM_PAUSE * 2 ** min(tries - 1, 10)
        self.claims[job.id] = {"tasks": list(tasks), "until": until, "again": again, "tries": tries}

    def _waits(self, job: JobView) -> Wait:
        """Say what ends for a job."""
        tasks = self.claims[job.id]["tasks"]
        of = sorted({job_of(task) for task in tasks})
        named = ", ".join(of[:3]) + (", ..." if len(of) > 3 else "")
        text = f"preempts {some(len(tasks), 'task')} of {some(len(of), 'job')} ({named}), which end first"
        return Wait(job.id, "preempting", text, {"tasks": len(tasks), "jobs": of[:100]})
