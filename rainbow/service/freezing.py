"""Phase 2 of a step: read what a policy may know and freeze it into a View."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rainbow.jobs import BOOKED, Task, TaskState, WorkerState, held_for
from rainbow.matching import Take, consumables, worker_capacity, worker_kinds
from rainbow.scheduling import ReservationView, RunView, View, Wait, WorkerView, policies
from rainbow.service.growing import read_work
from rainbow.service.jobspecs import Reading, reading
from rainbow.service.placing import Placing
from rainbow.service.presence import alive, loads
from rainbow.service.waiting import read_queue, system_of
from rainbow.store import agents, clusters, jobs, reservations, tasks, workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.service.service import Entry, Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord
    from rainbow.store.reservations import ReservationRecord

T = TaskState


@dataclass
class Frozen:
    """A view and what is needed to carry out a plan made from it."""

    entry: Entry
    record: ClusterRecord
    view: View
    jobs: dict[str, JobRecord]
    takes: dict[str, Take] = field(default_factory=dict)  # task → the take its gang was placed by
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    blocked: list[Wait] = field(default_factory=list)  # why jobs wait that the policy does not see
    doomed: dict[str, str] = field(default_factory=dict)  # jobs that can never start, and why
    placing: Placing | None = None  # the matcher's answers, for whoever asks about more


def freeze(service: Service, entry: Entry, *, quiet: bool = False) -> Frozen | None:
    """Read what the policy may know; None if nothing waits and the policy remembers nothing, unless `quiet`."""
    now = service.clock()
    with service.store.read() as connection:
        record = clusters.get(connection, entry.id)
        live = jobs.live(connection, entry.id) if record else []
        if record is None or not (live or record.memory or quiet):
            return None
        entry = service.entry(record)  # another process may have given it other graphs
        running = tasks.of_cluster(connection, entry.id, BOOKED) if live else []
        measured = loads(alive(service, agents.of_cluster(connection, entry.id)).values(), entry.cluster.workers)
        known = _workers(entry.cluster, workers.of_cluster(connection, entry.id), running, measured)
        queue = read_queue(connection, live, running, now, _startable(known, record), count=quiet)
        readings = {job: reading(connection, job) for job in {task.job for task in running}}
        sees_all = getattr(policies.get(record.policy), "sees_all", False)
        work = read_work(connection, live, running) if sees_all else None
        kept = reservations.of_cluster(connection, entry.id, now)
        doomed = queue.doomed() | _left_behind({**readings, **queue.readings}, connection, entry.id, now)
    if not (queue.waiting or record.memory or doomed or quiet):
        return None
    placing = Placing(entry.cluster, service.settings.backend)
    views = queue.views(placing)
    view = View(
        now=now,
        settings=record.settings,
        workers=known,
        jobs=views,
        runs=_runs(running, {job.id: job for job in live}, readings, now),
        place=placing.place,
        hosts=placing.hosts,
        divide=placing.divide,
        memory=record.memory,
        consumables=_consumables(entry.cluster, running),
        reservations=[_kept(one) for one in kept],
    )
    view = work.told(view, entry.cluster) if work else view
    by_id = {job.id: job for job in live}
    blocked = queue.blocked({seen.id for seen in views})
    return Frozen(entry, record, view, by_id, placing.by_task, placing.labels, blocked, doomed, placing)


def _kept(record: ReservationRecord) -> ReservationView:
    requestors = None if record.requestors is None else tuple(record.requestors)
    return ReservationView(record.id, record.placement, record.start, record.end, requestors)


def _left_behind(
    readings: Mapping[str, Reading], connection: sa.Connection, cluster_id: str, now: float
) -> dict[str, str]:
    """Name the jobs whose advance reservation is over, and say so: they end with it."""
    named = {job: system_of(read).get("reservation") for job, read in readings.items()}
    over = reservations.over(connection, cluster_id, now) if any(named.values()) else set()
    return {job: f"its advance reservation {one} is over" for job, one in named.items() if one in over}


def _startable(known: list[WorkerView], record: ClusterRecord) -> int:
    """Return how many tasks could start at once: one on each worker, or as many as there is of what is shared."""
    unit = record.settings.get("unit", "")
    return sum(max(1, worker.free.get(unit, 0)) for worker in known)


def _workers(
    cluster: Cluster,
    states: dict[str, workers.WorkerRecord],
    running: list[Task],
    measured: Mapping[str, Mapping[str, float]],
) -> list[WorkerView]:
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
        load = measured.get(name, {})
        views.append(WorkerView(name, kinds[name], whole, free, state, since, held.get(name, 0), load=load))
    return views


def _consumables(cluster: Cluster, running: list[Task]) -> dict[str, int]:
    free = consumables(cluster)
    for task in running:
        for kind, amount in task.placement.get("", {}).items():
            free[kind] = free.get(kind, 0) - amount
    return free


def _runs(running: list[Task], live: dict[str, JobRecord], readings: dict[str, Reading], now: float) -> list[RunView]:
    views = []
    for t in running:
        job, request, started = live.get(t.job), readings[t.job].request, t.assigned_at or 0.0
        # the time of what is suspended stands still: it ends that much later
        until = started + request.duration + held_for(t, now) if request.duration else 0.0
        views.append(
            RunView(
                task=t.id,
                job=t.job,
                requestor=job.requestor if job else "",
                gang=t.gang,
                placement=t.placement,
                started=started,
                stopping=t.state is T.STOPPING,
                until=until,
                suspended=t.state is T.SUSPENDED,
                priority=job.priority if job else 0,
                attributes=system_of(readings[t.job]),
            )
        )
    return views
