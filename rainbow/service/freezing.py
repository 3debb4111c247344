"""Phase 2 of a step: read what a policy may know and freeze it into a View."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rainbow.jobs import BOOKED, ENDED, Task, TaskState, WorkerState
from rainbow.matching import Take, backends, consumables, hosting_kinds, worker_capacity, worker_kinds
from rainbow.scheduling import (
    Gang,
    GangTask,
    GangView,
    JobView,
    RunView,
    View,
    Wait,
    WorkerView,
    only,
    placements,
    waits_for,
)
from rainbow.service.jobspecs import reading
from rainbow.store import clusters, jobs, tasks, workers

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.scheduling.policy import Placement
    from rainbow.service.service import Entry, Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord

T = TaskState


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
    blocked: list[Wait] = field(default_factory=list)  # why jobs wait that the policy does not see


def freeze(service: Service, entry: Entry) -> Frozen | None:
    """Read what the policy may know; None if nothing waits."""
    with service.store.read() as connection:
        record = clusters.by_id(connection, entry.id)
        live = jobs.live(connection, entry.id) if record else []
        found = tasks.of_cluster(connection, entry.id, set(TaskState) - ENDED) if live else []
        states = workers.of_cluster(connection, entry.id)
        wanted = {t.job: reading(connection, t.job).gangs for t in found if t.state is T.WAITING}
    waiting = {task.id: task for task in found if task.state is T.WAITING}
    if record is None or not waiting:
        return None
    entry = service.entry(record)  # another process may have given it other graphs
    running = [task for task in found if task.state in BOOKED]
    placing = Placing(entry.cluster, service.settings.backend)
    views = _job_views(live, wanted, found, placing)
    view = View(
        now=service.clock(),
        settings=record.settings,
        workers=_workers(entry.cluster, states, running),
        jobs=[view for view in views if view.gangs],
        runs=_runs(running, {job.id: job.requestor for job in live}),
        place=placing.place,
        hosts=placing.hosts,
        divide=placing.divide,
        memory=record.memory,
        consumables=_consumables(entry.cluster, running),
    )
    return Frozen(
        entry,
        record,
        view,
        waiting,
        {job.id: job for job in live},
        placing.by_task,
        placing.labels,
        _blocked(views, wanted, found),
    )


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


def _consumables(cluster: Cluster, running: list[Task]) -> dict[str, int]:
    free = consumables(cluster)
    for task in running:
        for kind, amount in task.placement.get("", {}).items():
            free[kind] = free.get(kind, 0) - amount
    return free


def _runs(running: list[Task], requestors: dict[str, str]) -> list[RunView]:
    return [
        RunView(
            t.id, t.job, requestors.get(t.job, ""), t.gang, t.placement, t.assigned_at or 0.0, t.state is T.STOPPING
        )
        for t in running
    ]


def _job_views(
    live: list[JobRecord], wanted: dict[str, tuple[Gang, ...]], found: list[Task], placing: Placing
) -> list[JobView]:
    own: dict[str, list[Task]] = {}
    for task in found:
        own.setdefault(task.job, []).append(task)
    return [_job_view(job, wanted[job.id], own[job.id], placing) for job in live if job.id in wanted]


def _job_view(job: JobRecord, wanted: tuple[Gang, ...], own: list[Task], placing: Placing) -> JobView:
    waiting = {task.index: task.id for task in own if task.state is T.WAITING}
    unended = _unended(wanted, own)
    views = []
    for gang in wanted:
        indexes = [task.index for task in gang.tasks if task.index in waiting]
        if indexes and not waits_for(gang, unended):
            left = gang if len(indexes) == len(gang.tasks) else only(gang, indexes)
            demand = placing.demand(job.id, left, [waiting[index] for index in indexes])
            ids = tuple(waiting[index] for index in indexes)
            views.append(GangView(job.id, gang.number, ids, demand, left.request.duration))
    running = sum(1 for task in own if task.state in BOOKED)
    return JobView(job.id, job.requestor, job.submitted_at, tuple(views), running, job.priority)


def _unended(wanted: tuple[Gang, ...], own: list[Task]) -> list[GangTask]:
    live = {task.index for task in own}
    return [task for gang in wanted for task in gang.tasks if task.index in live]


def _blocked(views: list[JobView], wanted: dict[str, tuple[Gang, ...]], found: list[Task]) -> list[Wait]:
    """Say of jobs without a gang that may start what they wait for."""
    waits = []
    for job in (view.id for view in views if not view.gangs):
        unended = _unended(wanted[job], [task for task in found if task.job == job])
        names = sorted({name for gang in wanted[job] for name in waits_for(gang, unended)})
        waits.append(Wait(job, "dependency", f"waits for {', '.join(names)} to complete", {"tasks": names}))
    return waits


class Placing:
    """The matcher's answers for one view: equal questions are asked once."""

    def __init__(self, cluster: Cluster, backend: str) -> None:
        self.cluster = cluster
        self.backend = backends.get(backend)
        self.gangs: dict[str, tuple[Gang, list[str]]] = {}
        self.by_task: dict[str, Take] = {}
        self.labels: dict[str, tuple[str, ...]] = {}
        # by the identity of a request: those of equal jobspecs are one (jobspecs.py)
        self._placed: dict[tuple[int, frozenset[str]], Take | None] = {}
        self._hosting: dict[int, frozenset[str]] = {}

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
        request = self.gangs[demand][0].request
        if id(request) not in self._hosting:
            self._hosting[id(request)] = hosting_kinds(request, self.cluster)
        return self._hosting[id(request)]

    def divide(self, demand: str, take: Take) -> tuple[Placement, ...]:
        """Say what each task of a gang holds of a take."""
        return placements(self.gangs[demand][0], take)
