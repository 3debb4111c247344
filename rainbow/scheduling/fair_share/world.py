"""A view as the world of one epoch.

workers  → machines in nodepools        runs  → shares        jobs → jobs, one part for every size of share

A run belongs to its job's class; a run whose class is gone, or may not be where it is, is in limbo: its machine takes
no new work until it has left (DUCC's blacklist).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from rainbow.scheduling.fair_share.model import CLUSTER, Amounts, Job, JobWork, Machine, Pool, Share, World
from rainbow.scheduling.fair_share.settings import ClassSettings, NodepoolSettings, Rule, Settings
from rainbow.scheduling.fair_share.share_tables import job_order, machine_order
from rainbow.scheduling.interface import Start, View, Wait
from rainbow.scheduling.snapshot import GangView, JobView, Placement, RunProgress, RunView, WorkerView
from rainbow.state_machine import WorkerState


@dataclass(slots=True)
class ShareDemand:
    """What may start of one size: a gang a share. `amounts` by kind of worker that can host one."""

    order: int
    asked: int = 0  # the largest amount of the type that is counted
    amounts: dict[str, dict[str, int]] = field(default_factory=dict)
    gangs: list[GangView] = field(default_factory=list)


class ShareDemandCache:
    """Asks the matcher about gangs on one worker of every kind; workers of a kind are alike."""

    def __init__(self, view: View, counted: str | None) -> None:
        self.view = view
        self.counted = counted
        self.example = {worker.kind: worker for worker in sorted(view.workers, key=lambda w: w.id, reverse=True)}

    def wishes(self, gangs: Sequence[GangView], alike: bool, quantum: int) -> dict[int, ShareDemand]:
        """Sort gangs by the order of their share; 0 is the order of what no single worker can host."""
        if alike and gangs:
            only = self._wish(gangs[0], quantum)
            only.gangs.extend(gangs)
            return {only.order: only}
        wishes: dict[int, ShareDemand] = {}
        for gang in gangs:
            demand = self._wish(gang, quantum)
            wish = wishes.setdefault(demand.order, ShareDemand(demand.order))
            wish.gangs.append(gang)
            wish.asked = max(wish.asked, demand.asked)
            for kind, amounts in demand.amounts.items():
                _raise(wish.amounts.setdefault(kind, {}), amounts)
        return wishes

    def _wish(self, gang: GangView, quantum: int) -> ShareDemand:
        wish = ShareDemand(0)
        for kind in sorted(self.view.hosts(gang.demand) & set(self.example)):
            worker = self.example[kind]
            take = self.view.place(gang.demand, (worker.id,))
            if take is None:
                continue
            amounts: dict[str, int] = {}
            for _, held in take.placed:
                for t, amount in held.get(worker.id, {}).items():
                    amounts[t] = amounts.get(t, 0) + amount
            wish.amounts[kind] = amounts
            wish.asked = max(wish.asked, amounts.get(self.counted or "", 0))
            wish.order = max(wish.order, order_of_share(amounts, worker.capacity, self.counted, quantum))
        return wish

    def starts(self, gang: GangView, worker: str, kind: str) -> Sequence[Start]:
        """Start a gang on this worker: on vertices that are free, else as on the example of its kind."""
        free = self.view.free
        if free is not None and (taken := free.take(gang.demand, among=[worker])) is not None:
            return list(map(Start, gang.tasks, taken.placements, taken.located))
        placements = self._placements(gang, worker, kind) if free is None else ()
        return list(map(Start, gang.tasks, placements))

    def _placements(self, gang: GangView, worker: str, kind: str) -> Sequence[Placement]:
        example = self.example[kind].id
        take = self.view.place(gang.demand, (example,))
        if take is None:
            return ()
        divided = self.view.divide(gang.demand, take)
        return [{worker if name == example else name: held for name, held in part.items()} for part in divided]


def _raise(most: dict[str, int], amounts: Amounts) -> None:
    for kind, amount in amounts.items():
        most[kind] = max(most.get(kind, 0), amount)


def forest(settings: Settings) -> dict[str, Pool]:
    """Hang every nodepool under its parent, in search order."""
    pools = {name: Pool(name) for name in settings.nodepools}
    for name in sorted(pools, key=lambda n: (settings.nodepools[n].search_order, n)):
        pool, parent = pools[name], settings.nodepools[name].parent
        pool.quantum = settings.nodepools[name].quantum or settings.quantum
        if parent is not None:
            pool.parent = pools[parent]
            pools[parent].children.append(pool)
    for pool in pools.values():
        above = pool.parent
        while above is not None:
            pool.depth, above = pool.depth + 1, above.parent
    return pools


def pool_name(worker: WorkerView, pools: Mapping[str, NodepoolSettings]) -> str:
    """Name a worker's pool: the first that matches it, that lists it, that it names, that takes the rest."""
    for name, pool in pools.items():
        if pool.match is not None and pool.match.fullmatch(worker.id):
            return name
    for name, pool in pools.items():
        if worker.id in pool.nodes:
            return name
    if worker.pool in pools:
        return worker.pool
    tops = (name for name, pool in pools.items() if pool.parent is None)
    return next((name for name, pool in pools.items() if pool.rest), next(tops))


FINEST = 4096  # orders index tables; a quantum that would make more of a machine is taken as a larger one
WITHOUT = "core"  # counts where no worker has any of the quantum's type


def counted_type(target: str, workers: Sequence[WorkerView]) -> str | None:
    """Choose the type that is counted; None: every worker is one share."""
    return next((kind for kind in (target, WITHOUT) if any(w.capacity.get(kind, 0) > 0 for w in workers)), None)


def coarse_enough(quantum: int, amounts: Sequence[int]) -> int:
    """Return the quantum, or the smallest larger one that leaves tables of a bearable length."""
    return max(quantum, -(-max(amounts, default=0) // FINEST))


def order_of_worker(capacity: Mapping[str, int], kind: str | None, quantum: int) -> int:
    """How many quanta a worker can give."""
    return 1 if kind is None else machine_order(capacity.get(kind, 0), quantum)


def order_of_share(amounts: Mapping[str, int], capacity: Mapping[str, int], kind: str | None, quantum: int) -> int:
    """How many quanta a share takes on a worker; one that asks for none of the type takes its part of the worker.

    >>> order_of_share({"memory": 20}, {"memory": 64}, "memory", 15)
    2
    >>> order_of_share({"core": 4}, {"memory": 64, "core": 16}, "memory", 1)
    16
    """
    if kind is None:
        return 1
    if amounts.get(kind, 0) > 0:
        return job_order(amounts[kind], quantum)
    whole = order_of_worker(capacity, kind, quantum)
    parts = [-(-whole * amount // capacity[t]) for t, amount in amounts.items() if capacity.get(t, 0) > 0]
    return max([1, *parts])


GONE = ClassSettings("", Rule.FIXED_SHARE, 0, "")


class WorldBuilder:
    """Builds the world of one view, and says of jobs that take no part why not."""

    def __init__(self, view: View, settings: Settings) -> None:
        self.view = view
        self.waits: list[Wait] = []
        self.refused: dict[str, dict[str, Any]] = {}  # figures of jobs that take no part
        self.counted = counted_type(settings.quantum_type, view.workers)
        settings = self.settings = settings.counted_in(view.units.get(self.counted or "", 1))
        self.asking = ShareDemandCache(view, self.counted)
        self.pools = forest(settings)
        self.machines = self._machines()
        tops = [pool for pool in self.pools.values() if pool.parent is None]
        self.world = World(settings, tops, [self.machines[name] for name in sorted(self.machines)], [])

    def build(self) -> World:
        """Build everything."""
        runs: dict[str, list[RunView]] = {}
        for run in self.view.runs:
            runs.setdefault(run.job, []).append(run)
        views = {job.id: job for job in self.view.jobs}
        for name in sorted({*views, *runs}):
            own = runs.get(name, [])
            self._job(views.get(name) or _only_running(name, own), own)
        self.world.jobs.sort(key=lambda job: job.rank)
        self.world.wide.sort(key=lambda job: (job.cls.priority, *job.rank))
        self.world.machines.sort(key=lambda machine: machine.id)
        for machine in self.world.machines:
            machine.shares.sort(key=lambda share: share.id)
        return self.world

    # ── machines ──

    def _machines(self) -> dict[str, Machine]:
        own = {w.id: self.pools[pool_name(w, self.settings.nodepools)] for w in self.view.workers}
        for top in (pool for pool in self.pools.values() if pool.parent is None):
            amounts = [w.capacity.get(self.counted or "", 0) for w in self.view.workers if own[w.id].top is top]
            quantum = coarse_enough(top.quantum, amounts)
            for pool in top.subtree():
                pool.quantum = quantum
        machines = {worker.id: self._machine(worker, own[worker.id]) for worker in self.view.workers}
        for name in sorted(machines):
            machines[name].pool.machines.append(machines[name])
        return machines

    def _machine(self, worker: WorkerView, pool: Pool) -> Machine:
        ready = worker.state is WorkerState.READY
        return Machine(
            worker.id,
            worker.kind,
            order_of_worker(worker.capacity, self.counted, pool.quantum),
            worker.capacity.get(self.counted or "", 0),
            pool,
            ready,
            dict(worker.free),
            why_closed="" if ready else worker.state.value,
        )

    # ── jobs ──

    def _job(self, view: JobView, runs: Sequence[RunView]) -> None:
        cls = self._class(view)
        if cls is None:
            self._refuse(view, "no-class", f"class {view.job_class} not found", {"class": view.job_class})
            self._limbo(view, runs)
        elif cls.users is not None and view.requestor not in cls.users and not runs:
            text = f"{view.requestor} may not use class {cls.name}"
            self._refuse(view, "not-authorised", text, {"class": cls.name})
        else:
            self._parts(view, cls, runs)

    def _class(self, view: JobView) -> ClassSettings | None:
        if view.job_class:
            return self.settings.classes.get(view.job_class)
        rules = [Rule.FIXED_SHARE, Rule.FAIR_SHARE, Rule.RESERVE]
        return self.settings.default_class(
            *sorted(rules, key=lambda rule: (rule is Rule.FAIR_SHARE) != bool(view.elastic))
        )

    def _refuse(self, view: JobView, reason: str, text: str, facts: Mapping[str, Any]) -> None:
        if view.gangs:
            self.waits.append(Wait(view.id, reason, text, facts))
            numbers = {"order": 0, "cap": len(view.gangs), "deserved": 0, "counted": 0, "held": 0, "leaving": 0}
            answer = {"class": facts["class"], "user": view.requestor, **numbers, "reason": reason}
            self.refused[view.id] = answer

    def _limbo(self, view: JobView, runs: Sequence[RunView]) -> None:
        job = Job(
            view.id,
            view.id,
            view.requestor,
            GONE,
            self.world.tops[0],
            1,
            view.submitted,
            JobWork(0, 0),
            bool(view.elastic),
        )
        job.service = view.service
        self.world.limbo.append(job)
        for run in runs:
            for worker in _workers(run):
                self._share(job, worker, [run])

    def _parts(self, view: JobView, cls: ClassSettings, runs: Sequence[RunView]) -> None:
        pool = self.pools[cls.nodepool]
        wishes = self.asking.wishes(view.gangs, view.elastic is not None, pool.quantum)
        held: dict[int, list[tuple[str, list[RunView]]]] = {}
        for (_, worker), group in _groups(runs).items():
            held.setdefault(self._order(worker, group, pool), []).append((worker, group))
        if cls.rule is Rule.RESERVE and held and wishes:  # the machine's order may be above what was asked for
            held = {min(wishes): [entry for entries in held.values() for entry in entries]}
        wide = wishes.pop(0, None)
        if wide is not None and cls.fair:
            others = [name for name, other in self.settings.classes.items() if other.rule is Rule.FIXED_SHARE]
            text = f"no single worker can host one of its shares; class {cls.name} places shares of one worker only"
            text += (
                f"; submit it to one of: {', '.join(others)}" if others else "; a FIXED_SHARE class would gather them"
            )
            self._refuse(view, "no-single-host", text, {"class": cls.name})
        elif wide is not None:
            self.world.wide.append(self._part(view.id, view, cls, pool, wide))
        orders = sorted({*wishes, *held})
        for order in orders:
            name = view.id if len(orders) == 1 else f"{view.id}/{order}"
            job = self._part(name, view, cls, pool, wishes.get(order, ShareDemand(order)))
            for worker, group in held.get(order, []):
                self._share(job, worker, group)
            job.load = _load(view, job)
            job.least = min(job.least, len(job.gangs) + len(job.shares))  # what is left of its work may be less
            job.ready = view.progress is not None and view.progress.initialised
            self.world.jobs.append(job)

    def _order(self, worker: str, group: Sequence[RunView], pool: Pool) -> int:
        amounts: dict[str, int] = {}
        for run in group:
            for kind, amount in run.placement[worker].items():
                amounts[kind] = amounts.get(kind, 0) + amount
        capacity = self.asking.example[self.machines[worker].kind].capacity if worker in self.machines else {}
        return order_of_share(amounts, capacity, self.counted, pool.quantum)

    def _part(self, name: str, view: JobView, cls: ClassSettings, pool: Pool, wish: ShareDemand) -> Job:
        least = view.elastic.least if view.elastic else 0
        part = Job(
            name,
            view.id,
            view.requestor,
            cls,
            pool,
            wish.order,
            view.submitted,
            JobWork(0, 0),
            view.elastic is not None,
        )
        part.asked = wish.asked
        part.least, part.service, part.amounts, part.gangs = least, view.service, dict(wish.amounts), wish.gangs
        return part

    def _share(self, job: Job, worker: str, group: Sequence[RunView]) -> None:
        """Book what a gang holds on one worker."""
        machine = self.machines.get(worker)
        if machine is None:
            return
        share = self._made(job, machine, group)
        job.shares.append(share)
        machine.shares.append(share)
        machine.used += share.order
        machine.leaving += share.order if share.leaving else 0
        machine.services.add(job.service)
        if job.cls is GONE or machine.pool not in job.reach():
            machine.open, machine.why_closed = False, "blacklisted"

    def _made(self, job: Job, machine: Machine, group: Sequence[RunView]) -> Share:
        progress = [run.progress or _progress(run, self.view.now) for run in group]
        whole = job.cls.rule is Rule.RESERVE
        return Share(
            id=f"{job.name}/{group[0].gang}/{machine.id}",
            job=job,
            machine=machine,
            order=machine.order if whole else min(job.order, machine.order),
            tasks=tuple(sorted(run.task for run in group)),
            started=min(run.started for run in group),
            initialised=all(p.initialised for p in progress),
            initialising=1000 * max(p.seconds_initialising for p in progress),
            investment=1000 * max(p.seconds_invested for p in progress),
            leaving=any(run.stopping for run in group),
            pinned=any(len(_workers(run)) > 1 for run in group),
        )


def _only_running(name: str, runs: Sequence[RunView]) -> JobView:
    """Stand in for a job of which the view says no more than that it runs."""
    return JobView(name, runs[0].requestor, min(run.started for run in runs), (), len(runs))


def _groups(runs: Sequence[RunView]) -> dict[tuple[int, str], list[RunView]]:
    """Put together what one gang holds on one worker: that is a share."""
    groups: dict[tuple[int, str], list[RunView]] = {}
    for run in sorted(runs, key=lambda run: run.task):
        for worker in _workers(run):
            groups.setdefault((run.gang, worker), []).append(run)
    return groups


def _workers(run: RunView) -> list[str]:
    return sorted(worker for worker in run.placement if worker != CLUSTER)


def _progress(run: RunView, now: float) -> RunProgress:
    """Without a word of it a task counts as ready, and all its time as invested."""
    return RunProgress(True, 0.0, max(0.0, now - run.started))


def _load(view: JobView, job: Job) -> JobWork:
    """What the job's work allows; a job that is not elastic wants all its shares at once."""
    count = len(job.gangs) + len(job.shares)
    if view.elastic is None:
        return JobWork(count, count)
    progress, threads = view.progress, max(1, view.elastic.threads)
    most = count if view.elastic.most is None else view.elastic.most
    ready = [share for share in job.shares if share.initialised]
    return JobWork(
        most=most,
        items_left=most * threads if progress is None or progress.items_left is None else progress.items_left,
        threads=threads,
        time_per_item=1000 * progress.seconds_per_item if progress and isfinite(progress.seconds_per_item) else 0.0,
        initialising=not ready and not (progress and progress.initialised),
        init_times=tuple(share.initialising for share in ready),
    )
