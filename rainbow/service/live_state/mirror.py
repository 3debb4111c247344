"""One cluster in memory (workers, running and waiting tasks), following the store change by change.

    mirror   of one cluster in this process; the store is the truth, and a mirror in doubt is thrown away
    epoch    everything stamped before it has been read

Every process that plans has a mirror of its own; what others write is read like what this one writes."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from heapq import heappush
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from rainbow.errors import TryLater
from rainbow.matching import Occupancy, consumables
from rainbow.scheduling import Accounts, Ended, GangView, RunView, Wait, WorkerView, policies
from rainbow.scheduling.cluster_index import ClusterIndex
from rainbow.service.core.limits import limits_of
from rainbow.service.core.memory import ByCluster, picture
from rainbow.service.jobs.dependencies import target
from rainbow.service.jobs.jobspecs import reading, reading_of
from rainbow.service.jobs.lifecycle import may_run
from rainbow.service.live_state.comparison import check_space, compare
from rainbow.service.live_state.live_job import Dependents, LiveJob, system_of
from rainbow.service.live_state.matcher_cache import MatcherCache
from rainbow.state_machine import BOOKED, Task, TaskState, WorkerState, task_id
from rainbow.store import clusters, jobs, tasks, workers
from rainbow.store.jobs import LIVE, code_of
from rainbow.transitions import pause

if TYPE_CHECKING:
    from collections.abc import Mapping

    import sqlalchemy as sa

    from rainbow.scheduling import Plan
    from rainbow.scheduling.dependencies import Target
    from rainbow.service.core.service import RegisteredCluster, Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord
    from rainbow.store.tasks import WaitingTasks
    from rainbow.store.workers import WorkerRecord


MOST_CHECKED = 256  # workers of a cluster that is checked at every step, with RAINBOW_CHECK=1
OVERDUE_INTERVAL = 0.5  # seconds between two looks at whether a step is overdue
NOTHING = tasks.WaitingTasks((), {})


@contextmanager
def mirrored(service: Service, entry: RegisteredCluster, seconds: float = inf) -> Iterator[Mirror]:
    """Give a cluster's mirror, which is the caller's alone until the block is left; one in doubt is thrown away.

    TryLater if it is not free within these seconds, or a step does not give it back.
    """
    mirror = _current(service, entry, monotonic() + seconds)
    try:
        yield mirror
    except BaseException:
        service.state(Mirrors).pop(entry.id, None)
        raise
    finally:
        mirror.lock.release()


def _current(service: Service, entry: RegisteredCluster, until: float) -> Mirror:
    """Lock a cluster's mirror, made if there is none of these graphs."""
    mirrors = service.state(Mirrors)
    mirror = mirrors.get(entry.id)
    if mirror is None or mirror.entry.revision != entry.revision or mirror.placing.name != service.settings.backend:
        mirror = mirrors[entry.id] = Mirror(entry, service.settings.backend)
    while not mirror.lock.acquire(timeout=max(0.0, min(OVERDUE_INTERVAL, until - monotonic()))):
        if monotonic() >= until:
            raise TryLater(f"cluster {mirror.entry.cluster.name} is being scheduled", retry_after=1)
        if entry.id in service.overdue:
            name = mirror.entry.cluster.name
            text = f"the policy of cluster {name} does not come back; rainbow scheduler show {name} says where it is"
            raise TryLater(text, retry_after=30)
    if mirrors.get(entry.id) is mirror:
        return mirror
    mirror.lock.release()  # it was thrown away or replaced while we waited for it
    return _current(service, entry, until)


def follow(service: Service, mirror: Mirror) -> ClusterRecord | None:
    """Read what has changed since the mirror was last brought up to date; None if there is no such cluster.

    With RAINBOW_CHECK=1 small clusters are compared with their store: PlanError names what was lost on the way.
    """
    is_checked = os.environ.get("RAINBOW_CHECK") == "1"
    with service.store.read() as connection:
        record = clusters.get(connection, mirror.entry.id)
        if record is None:
            return None
        if mirror.occupancy is not None:
            mirror.occupancy.end()
        if mirror.epoch >= 0 and mirror.moves != record.moves:
            mirror.renew()
        _heed_limits(mirror, record)
        now, accounts = service.clock(), _accounts(record)
        if mirror.epoch < 0:
            changed = _read_all(connection, mirror)
            mirror.ended = _read_ended(connection, mirror, accounts) if accounts is not None else {}
        else:
            changed = _read_changed(connection, mirror, now if accounts is not None else None)
        _look_at_dependents(connection, mirror, changed, now)
        mirror.epoch, mirror.moves = record.epoch, record.moves
        if is_checked and len(mirror.workers) <= MOST_CHECKED:
            compare(connection, mirror.entry.id, mirror.jobs, mirror.booked)
    mirror.wake(service.clock())
    mirror.settle()
    if is_checked and len(mirror.workers) <= MOST_CHECKED:
        mirror.check()
    return record


def _accounts(record: ClusterRecord) -> float | None:
    """Return the time until which a cluster's policy has counted what ran; None if it counts nothing."""
    policy = policies.get(record.policy)
    return policy.counted_until(record.memory) if isinstance(policy, Accounts) else None


def _read_ended(connection: sa.Connection, mirror: Mirror, since: float) -> dict[tuple[str, int], Ended]:
    """Read the record of the tasks that have ended since a time."""
    results = tasks.ended_since(connection, mirror.entry.id, since)
    owners = {record.id: record for record in jobs.some(connection, sorted({task.job for task in results}))}
    runs = (
        (task, LiveJob(owners[task.job], reading(connection, task.job), NOTHING, mirror.placing)) for task in results
    )
    return {(task.id, task.attempt): Ended(mirror.run_of(task, job), task.ended_at or since) for task, job in runs}


def _heed_limits(mirror: Mirror, record: ClusterRecord) -> None:
    limits = limits_of(record.limits)
    if limits != mirror.limits:
        mirror.limits, mirror.deadlines = limits, []
        for task in mirror.booked.values():
            mirror.watch(task)


def _read_all(connection: sa.Connection, mirror: Mirror) -> dict[str, JobRecord]:
    mirror.put_workers(workers.of_cluster(connection, mirror.entry.id))
    live, waiting = jobs.live(connection, mirror.entry.id), tasks.waiting_at(connection, mirror.entry.id)
    for record in live:
        _add(connection, mirror, record, waiting.get(record.id, NOTHING))
    for task in tasks.of_cluster(connection, mirror.entry.id, BOOKED):
        mirror.put_task(replace(task, output="", errors="", detail=""))
    for task in tasks.resting(connection, mirror.entry.id):
        mirror.put_task(replace(task, output="", errors="", detail=""))
    return {record.id: record for record in live}


def _read_changed(connection: sa.Connection, mirror: Mirror, ends: float | None) -> dict[str, JobRecord]:
    """Read what has changed; `ends`: keep the record of what has ended, of what continues to wait with this time."""
    cluster, since = mirror.entry.id, mirror.epoch
    states, result = workers.changed(connection, cluster, since), jobs.changed(connection, cluster, since)
    moved = tasks.changed(connection, cluster, since)
    for task in moved if ends is not None else ():
        mirror.note_end(task, ends or 0.0)
    mirror.put_workers(states)
    for record in result:
        if record.state not in LIVE:
            if record.id in mirror.jobs:
                mirror.drop_job(record.id)
        elif record.id in mirror.jobs:
            mirror.change_job(record)
        else:
            whole = len(reading(connection, record.id).tasks)
            _add(connection, mirror, record, tasks.waiting_of(connection, record.id, whole))
    for task in moved:  # whatever their order: what one of them has given back, another may hold by now
        if not mirror.keeps_space(task):
            mirror.drop_task(task.id)
    for task in moved:
        mirror.put_task(task)
    mirror.read = len(states) + len(result) + len(moved)
    return {record.id: record for record in result}


def _add(connection: sa.Connection, mirror: Mirror, record: JobRecord, waiting: WaitingTasks) -> None:
    mirror.put_job(LiveJob(record, reading_of(connection, record), waiting, mirror.placing))


def _look_at_dependents(connection: sa.Connection, mirror: Mirror, changed: dict[str, JobRecord], now: float) -> None:
    """Look again at the jobs that wait for jobs which changed, or for a time."""
    dependents = mirror.dependents
    foreign = {record.id: record for record in jobs.some(connection, dependents.foreign(mirror.jobs))}

    def find(job_id: str) -> Target | None:
        here = mirror.jobs.get(job_id)
        record = here.record if here else changed.get(job_id) or foreign.get(job_id)
        return target(record) if record else None

    for job_id in dependents.affected([*changed, *foreign, *dependents.foreign(mirror.jobs)]):
        never = dependents.look(job_id, find, now)
        if never and mirror.jobs[job_id].order:
            mirror.doomed[job_id] = never
        mirror.touch(job_id)


T = TaskState


class Mirror:
    """One cluster. Readers and writers hold `lock`."""

    def __init__(self, entry: RegisteredCluster, backend: str) -> None:
        self.entry = entry
        self.lock = threading.RLock()
        self.state = 0  # another number after each change: what a plan says on request holds while it stays
        self.placing = MatcherCache(entry.cluster, backend, entry.revision)
        self.limits: Mapping[str, Any] = {}
        self._capacity = self.placing.capacity
        self._kinds = self.placing.kinds
        self.renew()

    def renew(self) -> None:
        """Forget everything that was read."""
        self.epoch = -1  # nothing has been read
        self.state += 1
        self.moves = 0
        self.read = 0  # rows the last time
        self.census = ClusterIndex()
        self.census.gang_of = self.gang_of
        self.jobs: dict[str, LiveJob] = {}
        self.waiting: set[str] = set()  # jobs with tasks that wait
        self.booked: dict[str, Task] = {}
        self.ended: dict[
            tuple[str, int], Ended
        ] = {}  # by task and attempt: those that have given their space back since the last plan
        self.resting: dict[str, Task] = {}  # tasks that were lost, and wait for their time
        self.workers: dict[str, WorkerRecord] = {}
        self.workers_changed = True  # workers have changed since somebody looked for what is lost
        self.states: Counter[WorkerState] = Counter()
        self.agents: Counter[str] = Counter()  # tasks each holds
        self.dependents = Dependents()
        self.blocked: dict[str, str] = {}  # the code of jobs that no policy sees, where the store has another one
        self._uncoded: set[str] = set()  # jobs that have changed, or that a plan named, since codes were compared
        self._turns: list[str] = []  # jobs whose codes are compared although nothing of them has changed
        self.doomed: dict[str, str] = {}  # jobs that can never start, and why
        self.withdrawn: set[str] = set()  # jobs that their site gives back
        self.ending: set[str] = set()  # canceled jobs with tasks that are still to be ended
        self.reserved: dict[str, Any] = {}  # jobs that run in an advance reservation, and which
        self.paying: set[str] = set()  # jobs with an account
        self.promised: set[str] | None = None  # jobs with a promised start or space kept; None: no plan was made yet
        self.suspended: dict[str, float] = {}  # tasks that are held in place, and since when
        self.deadlines: list[tuple[float, str]] = []  # when running tasks must have ended
        self.consumables = consumables(self.entry.cluster)
        occupancy = Occupancy(self.entry.cluster)
        self.occupancy = occupancy if occupancy.is_located else None  # None: nobody knows more than amounts
        self._touched: set[str] = set(self._capacity)  # workers whose views are to be made anew
        self._changed: set[str] = set()  # jobs whose views are

    # ── workers ──

    def put_workers(self, changed: Mapping[str, WorkerRecord]) -> None:
        """Take note of workers' states."""
        fresh = {name: record for name, record in changed.items() if self.workers.get(name) != record}
        for name, record in fresh.items():
            before = self.workers.get(name)
            if before is not None:
                self.states[before.state] -= 1
            self.states[record.state] += 1
            self.workers_changed = self.workers_changed or before is None or before.state is not record.state
        self.workers.update(fresh)
        self._touched |= fresh.keys() & self._capacity.keys()

    def _worker(self, name: str) -> WorkerView:
        whole, census = self._capacity[name], self.census
        free = self.occupancy.free(name) if self.occupancy is not None else census.less_held(name, whole)
        known = self.workers.get(name)
        state, since = (known.state, known.since) if known else (WorkerState.NEW, 0.0)
        if self.entry.drained and state is WorkerState.READY:
            state = WorkerState.DRAINING
        return WorkerView(name, self._kinds[name], whole, free, state, since, census.tasks_on(name))

    # ── jobs ──

    def put_job(self, job: LiveJob) -> None:
        """Take note of a job that is new here."""
        self.jobs[job.record.id] = job
        self._changed.add(job.record.id)
        if reserved := system_of(job.read).get("reservation"):
            self.reserved[job.record.id] = reserved
        if job.record.account:
            self.paying.add(job.record.id)
        self.dependents.add(job)

    def change_job(self, record: JobRecord) -> None:
        """Take note of what is stored of a job."""
        self.jobs[record.id].record = record
        self._changed.add(record.id)

    def drop_job(self, job_id: str) -> None:
        """Forget a job that has ended."""
        job = self.jobs.pop(job_id)
        self.state += 1
        for index in list(job.resting):
            self.resting.pop(task_id(job_id, index), None)
        for index in list(job.booked):
            self.drop_task(task_id(job_id, index))
        job.forget_all()
        self.dependents.drop(job_id)
        self.census.drop_job(job_id)
        self._changed.discard(job_id)
        self.reserved.pop(job_id, None)
        self.blocked.pop(job_id, None)
        self.doomed.pop(job_id, None)
        for jobs_ in (self.waiting, self._uncoded, self.ending, self.withdrawn, self.paying):
            jobs_.discard(job_id)

    def forget_moved(self, job_id: str) -> None:
        """Forget a job that this process has moved to another cluster, and that it has."""
        if job_id in self.jobs:
            self.drop_job(job_id)
        self.moves += 1

    # ── tasks ──

    def put_task(self, task: Task) -> None:
        """Take note of a task as it is now."""
        job = self.jobs.get(task.job)
        if job is None:
            return
        self._changed.add(task.job)
        if task.state not in BOOKED:
            self.drop_task(task.id)
            if task.state is T.WAITING and task.not_before is not None:
                self.resting[task.id] = task
                job.task_rests(task.index, task.losses)
            else:
                self.resting.pop(task.id, None)
                (job.task_waits if task.state is T.WAITING else job.task_ends)(task.index)
            return
        self.resting.pop(task.id, None)
        job.task_begins(task.index)
        stays = self.keeps_space(task)
        self.drop_task(task.id, stays=stays)
        self.booked[task.id] = task
        if self.occupancy is not None and not stays:
            self.occupancy.book(task.id, task.held, task.placement)
        if task.suspended_at is not None:
            self.suspended[task.id] = task.suspended_at
        self._book(task, 1)
        self.census.put_run(self.run_of(task, job))
        self.watch(task)

    def keeps_space(self, task: Task) -> bool:
        """Return whether a task, as it is now, holds what it held before."""
        before = self.booked.get(task.id)
        same = before is not None and (before.held, before.placement) == (task.held, task.placement)
        return same and task.state in BOOKED

    def note_end(self, task: Task, now: float) -> None:
        """Keep the record of what a task held, if as it is now it holds nothing any more."""
        job, before = self.jobs.get(task.job), self.booked.get(task.id, task)
        if job is not None and task.state not in BOOKED and before.placement:
            self.ended[task.id, task.attempt] = Ended(self.run_of(before, job), task.ended_at or now)

    def wake(self, now: float) -> None:
        """Let tasks whose rest is over wait like others; and one whose rest has grown, as where the clock was set."""
        for task in list(self.resting.values()):
            remaining = (task.not_before or 0.0) - now
            if not 0 < remaining <= pause(len(task.losses)):
                del self.resting[task.id]
                self.jobs[task.job].task_waits(task.index)
                self._changed.add(task.job)

    def drop_task(self, task_id: str, *, stays: bool = False) -> None:
        """Take note that a task holds nothing any more; `stays`: it keeps the vertices it has."""
        before = self.booked.pop(task_id, None)
        if before is not None:
            self._book(before, -1)
            self.census.drop_run(task_id)
            self.suspended.pop(task_id, None)
            if self.occupancy is not None and not stays:
                self.occupancy.release(task_id)

    def _book(self, task: Task, sign: int) -> None:
        if task.agent:
            self.agents[task.agent] += sign
        for name, amounts in task.placement.items():
            if not name:
                for kind, amount in amounts.items():
                    self.consumables[kind] = self.consumables.get(kind, 0) - sign * amount
                continue
            if name in self._capacity:
                self._touched.add(name)

    def run_of(self, task: Task, job: LiveJob) -> RunView:
        """Say what a task of a job holds, since when, and until when at most."""
        started, duration = task.assigned_at or 0.0, job.read.request.duration
        return RunView(
            task=task.id,
            job=task.job,
            requestor=job.record.requestor,
            gang=task.gang,
            placement=task.placement,
            started=started,
            stopping=task.state is T.STOPPING,
            until=started + duration + task.paused if duration else 0.0,
            suspended=task.state is T.SUSPENDED,
            priority=job.record.priority,
            attributes=system_of(job.read),
            account=job.record.account,
            qos=job.record.qos,
        )

    def watch(self, task: Task) -> None:
        """Note when a running task must have ended."""
        job = self.jobs[task.job]
        seconds = may_run(job.read.request, self.limits) if task.state is T.RUNNING else 0.0
        if seconds > 0 and task.started_at is not None:
            seconds += task.paused + self.limits["allowance_seconds"]
            heappush(self.deadlines, (task.started_at + seconds, task.id))

    # ── what a policy sees ──

    def settle(self) -> None:
        """Bring the census up to date with all that was noted."""
        if self._touched or self._changed:
            self.state += 1
            self._uncoded |= self._changed
        order = self._capacity if len(self._touched) == len(self._capacity) else self._touched
        for name in order:  # the first time in their natural order
            worker = self._worker(name)
            self.census.put_worker(worker)
            if self.occupancy is not None:
                (self.occupancy.open if worker.state is WorkerState.READY else self.occupancy.close)(name)
        for job_id in self._changed:
            self._settle_job(self.jobs[job_id])
        self._touched, self._changed = set(), set()

    def check(self) -> None:
        """Raise PlanError unless what is held is what the booked tasks say, vertex by vertex and by amounts."""
        self.census.check()
        if self.occupancy is None:
            return
        check_space(self.entry.cluster, self.occupancy, self.census, self._capacity, self.booked.values())

    def to_compare(self, plan: Plan, most: int) -> set[str]:
        """Return the jobs whose codes may have changed by this plan, and `most` others by turns."""
        if not self._turns:
            self._turns = list(self.census.jobs)
        turns, self._turns[-most:] = self._turns[-most:], []
        result, self._uncoded = self._uncoded.union(turns), {wait.job for wait in plan.waits}
        return result

    def touch(self, job_id: str) -> None:
        """Let a job be looked at again."""
        self._changed.add(job_id)

    def _settle_job(self, job: LiveJob) -> None:
        job_id = job.record.id
        waits = bool(job.order or job.resting)
        (self.waiting.add if waits else self.waiting.discard)(job_id)
        (self.ending.add if self._is_ending(job) else self.ending.discard)(job_id)
        (self.withdrawn.add if job.is_withdrawn else self.withdrawn.discard)(job_id)
        self.census.put_job(job.view())
        wait = self.wait_of(job) if waits and job_id not in self.doomed else None
        if wait is None or code_of(job.record) == wait.reason:
            self.blocked.pop(job_id, None)
        else:
            self.blocked[job_id] = wait.reason

    def _is_ending(self, job: LiveJob) -> bool:
        """Return whether a canceled job has tasks that are still to be canceled or told to stop."""
        if job.record.canceled_at is None:
            return False
        held = (self.booked[task_id(job.record.id, index)] for index in job.booked)
        return bool(job.order or job.resting) or any(task.state is not T.STOPPING for task in held)

    def wait_of(self, job: LiveJob) -> Wait | None:
        """Return why a job waits that no policy sees; None if one does, or its wait is a mark of its own."""
        if job.record.id in self.census.jobs or job.record.canceled_at is not None or job.is_withdrawn:
            return None
        if job.unmet is not None:
            return self.dependents.wait_of(job)
        if job.record.is_halted:
            return job.waits_held()
        if job.order and not job.startable:
            return job.waits_for_its_own()
        return job.awaits_itself() if job.order else job.rests() if job.resting else None

    def gang_of(self, task: str) -> GangView | None:
        """Return the gang that waits with a task in it."""
        job_id, _, index = task.rpartition("-")
        job = self.jobs.get(job_id)
        return job.gang_of(int(index)) if job is not None and index.isdecimal() else None


@picture("mirrors", most="one for a cluster", true="what has a stamp since its epoch is read before each use")
class Mirrors(ByCluster["Mirror"]):
    """The mirrors of a service."""
