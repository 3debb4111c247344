"""The view of a step: what a policy may know, frozen; and the view as it would be with other jobs and settings.

A policy that grows and shrinks jobs (`Traits.sees_all`) also sees every active job with its class and service, its
progress, the cost of each run so far, and the nodepools that workers name. The items of a job are its tasks,
`threads` of them to a share.

Of a supposed view nothing is stored, and nothing of the cluster in memory is left changed. Hypothetical jobs come
last by submission; their dependencies are taken as met. Amounts alone say what is free where workers are supposed to
be in other states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rainbow.errors import PolicyError, RainbowError, ValueRefused
from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.request import OF_ITS_OWN
from rainbow.scheduling import (
    Elastic,
    GangView,
    JobProgress,
    JobView,
    ReservationView,
    RunProgress,
    RunView,
    View,
    policies,
    traits_of,
)
from rainbow.scheduling.snapshot import Rows
from rainbow.service.accounts.account_cache import members_of, rules_of, standings_of
from rainbow.service.agents.liveness import alive, loads
from rainbow.service.jobs.jobspecs import Reading, read_request, reading
from rainbow.service.live_state.live_job import elastic_of, system_of
from rainbow.service.live_state.matcher_cache import FreeSpace, MatcherCache
from rainbow.service.live_state.mirror import follow
from rainbow.state_machine import ENDED, Task, TaskState, WorkerState, index_of, task_id
from rainbow.store import reservations, tasks, workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.accounts.fair_tree import Standing
    from rainbow.graph import Cluster
    from rainbow.scheduling import Gang
    from rainbow.scheduling.qos import Rules
    from rainbow.service.core.service import Service
    from rainbow.service.live_state.mirror import Mirror
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord
    from rainbow.store.reservations import ReservationRecord


@dataclass(frozen=True, slots=True)
class Frozen:
    """A view with the rules that hold, and its mirror: nobody changes that while a plan is made and carried out."""

    mirror: Mirror
    record: ClusterRecord
    view: View
    rules: Rules | None

    @property
    def placing(self) -> MatcherCache:
        """The matcher's answers, for callers that ask about more."""
        return self.mirror.placing


def take_snapshot(service: Service, mirror: Mirror) -> Frozen | None:
    """Bring a mirror, which is the caller's alone, up to date and freeze it; None if the cluster is gone."""
    record = follow(service, mirror)
    return frozen(service, mirror, record, even_idle=True) if record else None


def frozen(service: Service, mirror: Mirror, record: ClusterRecord, *, even_idle: bool = False) -> Frozen | None:
    """Freeze a mirror that is up to date; None if nothing waits and nothing is remembered, unless `even_idle`."""
    _leave_behind(service, mirror)
    if not (mirror.waiting or record.memory or mirror.doomed or even_idle):
        return None
    mirror.placing.begin()
    census = mirror.census
    view = View(
        now=service.clock(),
        settings=record.settings,
        workers=Rows(census.workers.values, len(census.workers)),
        jobs=Rows(lambda: sorted(census.jobs.values(), key=lambda j: (j.submitted, j.id)), len(census.jobs)),
        runs=Rows(lambda: sorted(census.runs.values(), key=lambda r: (r.job, index_of(r.task))), len(census.runs)),
        place=mirror.placing.place,
        hosts=mirror.placing.hosts,
        divide=mirror.placing.divide,
        memory=record.memory,
        consumables=dict(mirror.consumables),
        ended=tuple(mirror.ended.values()),
        units=mirror.placing.units,
        census=census,
        free=FreeSpace(mirror.placing, mirror.occupancy) if mirror.occupancy else None,
        standings=_standings(service, mirror),
    )
    traits = traits_of(record.policy)
    if not traits.by_census:
        view = _in_full(service, mirror, view, sees_all=traits.sees_all)
    return Frozen(mirror, record, view, _rules(service, mirror) if mirror.waiting or even_idle else None)


def _standings(service: Service, mirror: Mirror) -> Mapping[tuple[str, str], Standing]:
    """Return where users are in their accounts, if a job that waits has one."""
    if mirror.paying.isdisjoint(mirror.waiting):
        return {}
    with service.store.read() as connection:
        return members_of(standings_of(service, connection))


def _rules(service: Service, mirror: Mirror) -> Rules | None:
    """Return the limits and rights to preempt that hold here."""
    with service.store.read() as connection:
        return rules_of(service, connection, mirror.entry)


def _leave_behind(service: Service, mirror: Mirror) -> None:
    """Note the jobs whose advance reservation is over: they end with it."""
    if not mirror.reserved:
        return
    with service.store.read() as connection:
        over = reservations.over(connection, mirror.entry.id, service.clock())
    gone = {job: one for job, one in mirror.reserved.items() if one in over}
    mirror.doomed |= {job: f"its advance reservation {one} is over" for job, one in gone.items()}


def _in_full(service: Service, mirror: Mirror, view: View, *, sees_all: bool) -> View:
    """Add what no census counts: measured loads, suspensions so far, reservations, and all that is known of work."""
    cluster = mirror.entry.cluster
    with service.store.read() as connection:
        signs = alive(service, mirror.entry.id, workers.agents_of(connection, mirror.entry.id)).values()
        stored = reservations.of_cluster(connection, mirror.entry.id, view.now)
        promises = tuple(reservations.promised(connection, mirror.entry.id))
        work = read_work(connection, *_records(mirror)) if sees_all else None
    measured = loads(signs, cluster.workers)
    view = replace(view, reservations=[_kept(one) for one in stored], promises=promises)
    if measured:
        view = replace(view, workers=[replace(w, load=measured.get(w.id, {})) for w in view.workers])
    if mirror.suspended:
        view = replace(view, runs=[_longer(run, mirror, view.now) for run in view.runs])
    return replace(work.added_to(view, cluster), census=None) if work else view


def _records(mirror: Mirror) -> tuple[list[JobRecord], list[Task]]:
    live = sorted((job.record for job in mirror.jobs.values()), key=lambda record: (record.submitted_at, record.id))
    return live, sorted(mirror.booked.values(), key=lambda task: (task.job, task.index))


def _longer(run: RunView, mirror: Mirror, now: float) -> RunView:
    """The time of what is suspended stands still: it ends that much later."""
    since = mirror.suspended.get(run.task)
    return run if since is None or not run.until else replace(run, until=run.until + max(0.0, now - since))


def _kept(record: ReservationRecord) -> ReservationView:
    requestors = None if record.requestors is None else tuple(record.requestors)
    answers = (record.id, record.placement, record.start, record.end, requestors, record.maintenance, record.name)
    return ReservationView(*answers, record.at_begin)


BEGUN = frozenset({TaskState.RUNNING, TaskState.SUSPENDED}) | ENDED


@dataclass(frozen=True)
class ElasticProgress:
    """The jobs of a cluster that have not ended, in order of submission, and what holds space."""

    live: Sequence[JobRecord]
    running: Sequence[Task]
    readings: Mapping[str, Reading]
    progress: Mapping[str, JobProgress]

    def added_to(self, view: View, cluster: Cluster) -> View:
        """Return the view with all of it."""
        costs, pools = {task.id: _cost(task, view.now) for task in self.running}, cluster.nodepools
        runs = [replace(run, progress=costs[run.task]) for run in view.runs]
        workers = [replace(w, pool=pools[w.id]) if w.id in pools else w for w in view.workers]
        return replace(view, jobs=self._jobs(view.jobs), runs=runs, workers=workers)

    def _jobs(self, waiting: Sequence[JobView]) -> list[JobView]:
        """Return what waits and what only runs; what waits for something else is no part of either."""
        seen, held = {job.id: job for job in waiting}, dict[str, int]()
        for task in self.running:
            held[task.job] = held.get(task.job, 0) + 1
        return [
            self._job(job, seen.get(job.id), held.get(job.id, 0))
            for job in self.live
            if job.id in seen or job.id in held
        ]

    def _job(self, job: JobRecord, seen: JobView | None, held: int) -> JobView:
        read = self.readings[job.id]
        view = seen or JobView(
            job.id, job.requestor, job.submitted_at, (), held, job.priority, system_of(read), account=job.account
        )
        service = job.id if read.request.service == OF_ITS_OWN else read.request.service
        return replace(
            view,
            job_class=read.request.job_class,
            service=service,
            elastic=elastic_of(read),
            progress=self.progress.get(job.id),
        )


def read_work(connection: sa.Connection, live: Sequence[JobRecord], running: Sequence[Task]) -> ElasticProgress:
    """Read what is known of the work of all jobs."""
    readings = {job.id: reading(connection, job.id) for job in live}
    elastic = [job for job, read in readings.items() if read.request.elastic]
    counts, means = tasks.counts(connection, elastic), tasks.mean_seconds(connection, elastic)
    progress = {job: _progress(readings[job].request, counts[job], means.get(job, 0.0)) for job in elastic}
    return ElasticProgress(live, running, readings, progress)


def _progress(request: Request, counts: Mapping[TaskState, int], mean: float) -> JobProgress:
    threads = request.elastic.threads if request.elastic else 1
    remaining = sum(count for state, count in counts.items() if state not in ENDED)
    done = sum(count for state, count in counts.items() if state in ENDED)
    return JobProgress(remaining * threads, done * threads, max(0.0, mean), not BEGUN.isdisjoint(counts))


def _cost(task: Task, now: float) -> RunProgress:
    """Say what would be lost with a task: until its agent says it runs, it gets ready."""
    assigned = now if task.assigned_at is None else task.assigned_at
    if task.started_at is None:
        return RunProgress(False, max(0.0, now - assigned), 0.0)
    return RunProgress(True, max(0.0, task.started_at - assigned), max(0.0, now - task.started_at))


# ── as it would be ──

MOST_JOBS = 1_000  # hypothetical jobs


@contextmanager
def supposed(frozen: Frozen, options: Mapping[str, Any]) -> Iterator[View]:
    """Give the view as it would be; `options` has the form `Supposition`."""
    if not options:
        yield frozen.view
        return
    view, demands = frozen.view, set(frozen.placing.gangs)
    try:
        jobs = list(_jobs(frozen.placing, options.get("jobs", ()), view.now))
        changed = replace(
            view,
            jobs=[*view.jobs, *jobs],
            settings=_settings(frozen.record.policy, view.settings, options.get("settings", {})),
            census=None,
        )
        yield _in_states(changed, options["workers"]) if options.get("workers") else changed
    finally:
        for demand in frozen.placing.gangs.keys() - demands:
            frozen.placing.forget(demand)


def _settings(policy: str, now: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings merged key by key; null returns a key to its default."""
    merged = {key: value for key, value in {**now, **options}.items() if value is not None}
    try:
        return policies.get(policy).check(merged) if options else now
    except PolicyError as fault:
        raise PolicyError(fault.message, pointer=f"/settings{fault.pointer or ''}") from None


def _in_states(view: View, states: Mapping[str, str]) -> View:
    workers = {worker.id: worker for worker in view.workers}
    for name, state in states.items():
        if name not in workers:
            raise ValueRefused(f"there is no worker {name[:100]}", pointer=f"/workers/{name[:100]}")
        workers[name] = replace(workers[name], state=WorkerState(state))
    return replace(view, workers=list(workers.values()), free=None)


def _jobs(placing: MatcherCache, inputs: list[Mapping[str, Any]], now: float) -> Iterator[JobView]:
    number = 0
    for k, one in enumerate(inputs):
        try:
            request = parse_jobspec(one["jobspec"])
        except RainbowError as fault:
            inside = getattr(fault, "pointer", None) or ""
            raise ValueRefused(fault.message, pointer=f"/jobs/{k}/jobspec{inside}") from None
        for _ in range(one.get("count", 1)):
            number += 1
            if number > MOST_JOBS:
                raise ValueRefused(f"at most {MOST_JOBS:,} hypothetical jobs are planned", pointer="/jobs")
            yield _job(placing, f"supposed-{number}", one, request, now)


def _job(placing: MatcherCache, name: str, options: Mapping[str, Any], request: Request, now: float) -> JobView:
    """Return a hypothetical job as a policy sees it."""
    system, elastic = request.attributes.get("system"), request.elastic
    views = tuple(gang_view(placing, name, gang) for gang in placing.settled(read_request(request)).gangs)
    tasks = sum(len(gang.tasks) for gang in views)
    return JobView(
        name,
        options.get("requestor") or "supposed",
        now,
        views,
        priority=options.get("priority", 0),
        attributes=system if isinstance(system, Mapping) else {},
        waiting=tasks,
        job_class=request.job_class,
        elastic=Elastic(elastic.min, elastic.max, elastic.threads) if elastic else None,
        progress=JobProgress(tasks * (elastic.threads if elastic else 1)),
        service=name if request.service == OF_ITS_OWN else request.service,
    )


def gang_view(placing: MatcherCache, job: str, gang: Gang) -> GangView:
    """Return a gang as a policy sees it; the matcher is asked about it by its demand."""
    ids = [task_id(job, task.index) for task in gang.tasks]
    slots, request = placing.slots(gang.request), gang.request
    demand = placing.demand(job, gang, ids)
    return GangView(job, gang.number, tuple(ids), demand, request.duration, slots, request.number)
