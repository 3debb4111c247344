"""One scheduling step of one cluster, in numbered phases; and the thread that takes them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rainbow.errors import RainbowError
from rainbow.jobs import BOOKED, ENDED, Task, TaskState, WorkerState, advance
from rainbow.matching import Take, backends, hosting_kinds, worker_capacity, worker_kinds
from rainbow.scheduling import (
    Gang,
    GangView,
    JobView,
    Plan,
    RunView,
    Start,
    Stop,
    View,
    WorkerView,
    check_plan,
    gangs,
    only,
    placements,
    policies,
    slots_of,
)
from rainbow.service.receiving import requests
from rainbow.service.service import log
from rainbow.service.submitting import settle
from rainbow.store import clusters, jobs, tasks, workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.scheduling.policy import Placement
    from rainbow.service.service import Entry, Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord

T = TaskState


def step(service: Service, name: str) -> bool:
    """Take one step for a cluster; tell whether any order was carried out."""
    entry = service.catalogue.get(name)
    if entry is None:
        return False
    with service.stepping(entry.id):
        _take_events(service, entry)  # 1
        frozen = _freeze(service, entry)  # 2
        if frozen is None:
            return False
        plan = policies.get(frozen.record.policy).plan(frozen.view)  # 3
        ordered = _carry_out(service, frozen, plan)  # 4, 5
    if ordered:
        service.tell()
    return ordered


def plan_only(service: Service, name: str) -> Plan | None:
    """Say what the next step would do, without doing it."""
    entry = service.catalogue.get(name)
    frozen = _freeze(service, entry) if entry else None
    return policies.get(frozen.record.policy).plan(frozen.view) if frozen else None


# ── 1 events: leases that ran out ──


def _take_events(service: Service, entry: Entry) -> None:
    """Give the tasks of agents that are silent for a lease back to the queue, and call their workers lost."""
    now, lease = service.clock(), service.settings.lease
    alive = [
        agent for (cluster_id, agent), at in service.seen.items() if cluster_id == entry.id and now - at <= lease
    ]
    if now - service.started <= lease or not _someone_silent(service, entry, alive):
        return
    with service.store.write() as connection:
        for task in tasks.of_cluster(connection, entry.id, BOOKED):
            if (task.agent and task.agent not in alive) or (not alive and task.state is T.ASSIGNED):
                _lose(connection, task, now)
        if not alive:
            states = workers.of_cluster(connection, entry.id)
            ready = [name for name, worker in states.items() if worker.state is WorkerState.READY]
            workers.move(connection, entry.id, ready, WorkerState.LOST, now)


def _someone_silent(service: Service, entry: Entry, alive: Sequence[str]) -> bool:
    with service.store.read() as connection:
        booked = tasks.of_cluster(connection, entry.id, BOOKED)
        ready = any(w.state is WorkerState.READY for w in workers.of_cluster(connection, entry.id).values())
    return any(task.agent and task.agent not in alive for task in booked) or (not alive and ready)


def _lose(connection: sa.Connection, task: Task, now: float) -> None:
    job = jobs.get(connection, task.job)
    if job and job.canceled_at is not None:
        tasks.save(connection, advance(task, T.CANCELED, placement={}, ended_at=now))
    else:
        tasks.save(connection, advance(task, T.WAITING, agent="", detail="its agent was lost"))
    settle(connection, task.job, now)


# ── 2 freeze ──


@dataclass
class Frozen:
    """A view and what is needed to carry out a plan made from it."""

    entry: Entry
    record: ClusterRecord
    view: View
    waiting: dict[str, Task]
    jobs: dict[str, JobRecord]
    takes: dict[str, Take] = field(default_factory=dict)  # task → the take its gang was placed by
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)


def _freeze(service: Service, entry: Entry) -> Frozen | None:
    """Read what the policy may know; None if nothing waits."""
    with service.store.read() as connection:
        record = next((r for r in clusters.every(connection) if r.id == entry.id), None)
        live = jobs.live(connection, entry.id) if record else []
        found = tasks.of_cluster(connection, entry.id, set(TaskState) - ENDED) if live else []
        states = workers.of_cluster(connection, entry.id)
        wanted = {t.job: _gangs(connection, t.job) for t in found if t.state is T.WAITING}
    waiting = {task.id: task for task in found if task.state is T.WAITING}
    if record is None or not waiting:
        return None
    running = [task for task in found if task.state in BOOKED]
    placing = Placing(entry.cluster, service.settings.backend)
    view = View(
        now=service.clock(),
        settings=record.settings,
        workers=_workers(entry.cluster, states, running),
        jobs=[_job_view(job, wanted, found, placing) for job in live if job.id in wanted],
        runs=_runs(running, {job.id: job.requestor for job in live}),
        place=placing.place,
        hosts=placing.hosts,
        divide=placing.divide,
        memory=record.memory,
    )
    return Frozen(entry, record, view, waiting, {job.id: job for job in live}, placing.by_task, placing.labels)


def _gangs(connection: sa.Connection, job_id: str) -> tuple[Gang, ...]:
    request, _ = requests(job_id, lambda: jobs.jobspec(connection, job_id))
    return gangs(request)


def _workers(cluster: Cluster, states: dict[str, workers.WorkerRecord], running: list[Task]) -> list[WorkerView]:
    capacity, kinds = worker_capacity(cluster), worker_kinds(cluster)
    used: dict[str, dict[str, int]] = {}
    held: dict[str, int] = {}
    for task in running:
        for name, amounts in task.placement.items():
            held[name] = held.get(name, 0) + 1
            taken = used.setdefault(name, {})
            for kind, amount in amounts.items():
                taken[kind] = taken.get(kind, 0) + amount
    views = []
    for name, whole in capacity.items():
        free = {kind: amount - used.get(name, {}).get(kind, 0) for kind, amount in whole.items()}
        known = states.get(name)
        state, since = (known.state, known.since) if known else (WorkerState.NEW, 0.0)
        views.append(WorkerView(name, kinds[name], whole, free, state, since, held.get(name, 0)))
    return views


def _runs(running: list[Task], requestors: dict[str, str]) -> list[RunView]:
    return [
        RunView(
            t.id, t.job, requestors.get(t.job, ""), t.gang, t.placement, t.assigned_at or 0.0, t.state is T.STOPPING
        )
        for t in running
    ]


def _job_view(job: JobRecord, wanted: dict[str, tuple[Gang, ...]], found: list[Task], placing: Placing) -> JobView:
    own = [task for task in found if task.job == job.id]
    waiting = {task.index: task.id for task in own if task.state is T.WAITING}
    views = []
    for gang in wanted[job.id]:
        indexes = [task.index for task in gang.tasks if task.index in waiting]
        if indexes:
            left = gang if len(indexes) == len(gang.tasks) else only(gang, indexes)
            demand = placing.demand(job.id, left, [waiting[index] for index in indexes])
            ids = tuple(waiting[index] for index in indexes)
            views.append(GangView(job.id, gang.number, ids, demand, left.request.duration))
    running = sum(1 for task in own if task.state in BOOKED)
    return JobView(job.id, job.requestor, job.submitted_at, tuple(views), running, job.priority)


class Placing:
    """The matcher's answers for one view: equal questions are asked once."""

    def __init__(self, cluster: Cluster, backend: str) -> None:
        self.cluster = cluster
        self.backend = backends.get(backend)
        self.gangs: dict[str, tuple[Gang, list[str]]] = {}
        self.by_task: dict[str, Take] = {}
        self.labels: dict[str, tuple[str, ...]] = {}
        self._placed: dict[tuple[int, frozenset[str]], Take | None] = {}

    def demand(self, job_id: str, gang: Gang, ids: list[str]) -> str:
        """Name what a gang asks for."""
        name = f"{job_id}/{gang.number}"
        self.gangs[name] = (gang, ids)
        self.labels.update(zip(ids, (task.labels for task in gang.tasks), strict=True))
        return name

    def place(self, demand: str, free: Sequence[str]) -> Take | None:
        """Ask the matcher what a gang would hold on these workers."""
        gang, ids = self.gangs[demand]
        key = (id(gang.request), frozenset(free))
        if key not in self._placed:
            self._placed[key] = self.backend.take(gang.request, self.cluster, frozenset(free))
        take = self._placed[key]
        if take is not None:
            self.by_task.update(dict.fromkeys(ids, take))
        return take

    def hosts(self, demand: str) -> frozenset[str]:
        """Ask which kinds of workers could take a part of a gang."""
        return hosting_kinds(self.gangs[demand][0].request, self.cluster)

    def divide(self, demand: str, take: Take) -> tuple[Placement, ...]:
        """Say what each task of a gang holds of a take."""
        return placements(self.gangs[demand][0], take)


# ── 4 check and write, 5 keep the wait reasons ──


def _carry_out(service: Service, frozen: Frozen, plan: Plan) -> bool:
    check_plan(frozen.view, plan)
    now = service.clock()
    done = 0
    with service.store.write() as connection:
        for order in plan.orders:
            done += _order(connection, frozen, order, now)
        if dict(plan.memory) != dict(frozen.record.memory):
            clusters.set_memory(connection, frozen.record.id, plan.memory)
        for wait in plan.waits:
            _keep_wait(connection, frozen.jobs[wait.job], asdict(wait), now)
    return done > 0


def _order(connection: sa.Connection, frozen: Frozen, order: Any, now: float) -> int:
    """Write one order, unless the task has moved since the view was frozen."""
    if isinstance(order, (Start, Stop)):
        task = tasks.get(connection, frozen.record.id, [order.task]).get(order.task)
        if task is None:
            return 0
        if isinstance(order, Stop) and task.state in BOOKED and task.state is not T.STOPPING:
            tasks.save(connection, advance(task, T.STOPPING, detail=order.why))
            return 1
        if isinstance(order, Start) and task.state is T.WAITING:
            placement = {worker: dict(amounts) for worker, amounts in order.placement.items()}
            take = frozen.takes.get(task.id)
            slots = slots_of(frozen.labels.get(task.id, ()), take) if take else 1
            started = advance(
                task, T.ASSIGNED, placement=placement, slots=slots, agent="", assigned_at=now, detail=""
            )
            tasks.save(connection, started)
            jobs.change(connection, task.job, wait=None)
            return 1
    return 0


def _keep_wait(connection: sa.Connection, job: JobRecord, wait: dict[str, Any], now: float) -> None:
    """Store why a job waits, and since when for this reason; nothing is written when nothing changed."""
    wait.pop("job")
    earlier = job.wait or {}
    since = earlier.get("since", now) if earlier.get("reason") == wait["reason"] else now
    told = {**wait, "facts": dict(wait["facts"]), "since": since}
    if told != earlier:
        jobs.change(connection, job.id, wait=told)


# ── the thread ──


class Loop:
    """Steps every cluster when something happens, and every tick; one failing cluster never stops another."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Begin to step."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step at hand."""
        self._stop.set()
        self.service.tell()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        version = -1
        while not self._stop.is_set():
            version = self.service.wait(version, self.service.settings.tick)
            for name in list(self.service.catalogue):
                step_safely(self.service, name)


def step_safely(service: Service, name: str) -> bool:
    """Take a step; a fault is logged once and kept, and the cluster stays in its last good state."""
    entry = service.catalogue.get(name)
    try:
        ordered = step(service, name)
    except Exception as fault:  # a policy is anybody's code: nothing it raises may end the loop
        told = f"{type(fault).__name__}: {fault}"
        if entry and service.faults.get(entry.id) != told:
            service.faults[entry.id] = told
            log.error(
                "step-failed", cluster=name, fault=told, expected=isinstance(fault, RainbowError), exc_info=True
            )
        return False
    if entry:
        service.faults.pop(entry.id, None)
    return ordered
