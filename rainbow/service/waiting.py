"""What waits at a cluster, as a policy sees it: jobs with the gangs that may start, in their order.

Of a very large job of independent tasks only the first are read, as many as could start in one step: a step then
costs what it can start, and not what waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rainbow.jobs import Task
from rainbow.scheduling import Elastic, Gang, GangTask, GangView, JobView, Wait, only, waits_for
from rainbow.service.depending import depending, wait_of
from rainbow.service.jobspecs import Reading, reading
from rainbow.store import tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.scheduling.awaiting import Awaited
    from rainbow.service.placing import Placing
    from rainbow.store.jobs import JobRecord

SUSPENDED = "it is suspended, and waits to be resumed"
FIRST = 1_000  # tasks of a job that are read at least


@dataclass
class Queue:
    """The live jobs of a cluster, and what of them waits and runs."""

    live: list[JobRecord]
    running: dict[str, list[Task]]  # by job
    readings: dict[str, Reading] = field(default_factory=dict)  # of the jobs with something waiting
    waiting: dict[str, list[Task]] = field(default_factory=dict)  # by job, in the order of the jobspec
    numbers: dict[str, int] = field(default_factory=dict)  # of waiting tasks, where not all were read
    unmet: dict[str, Awaited] = field(default_factory=dict)

    def views(self, placing: Placing) -> list[JobView]:
        """Return the jobs that have gangs which may start."""
        may = (job for job in self.live if job.id in self.waiting and not self._is_kept(job))
        found = (self._view(job, placing) for job in may)
        return [view for view in found if view.gangs]

    def _is_kept(self, job: JobRecord) -> bool:
        """Tell whether nothing of a job may start now, whatever is free."""
        return job.id in self.unmet or job.suspended_at is not None

    def _view(self, job: JobRecord, placing: Placing) -> JobView:
        own, read = self.waiting[job.id], self.readings[job.id]
        views = (
            _single(job.id, own, read, placing) if read.single and not read.depends else self._gangs(job.id, placing)
        )
        waits = self.numbers.get(job.id) or sum(len(view.tasks) for view in views)
        running = len(self.running.get(job.id, ()))
        return JobView(
            job.id,
            job.requestor,
            job.submitted_at,
            tuple(views),
            running,
            job.priority,
            system_of(read),
            waits,
            elastic=elastic_of(read),
        )

    def _gangs(self, job: str, placing: Placing) -> list[GangView]:
        waiting = {task.index: task.id for task in self.waiting[job]}
        unended, views = self._unended(job), []
        for gang in self.readings[job].gangs:
            indexes = [task.index for task in gang.tasks if task.index in waiting]
            if indexes and not waits_for(gang, unended):
                left = gang if len(indexes) == len(gang.tasks) else only(gang, indexes)
                views.append(_gang_view(job, left, [waiting[index] for index in indexes], placing))
        longest = {task.gang: task.expected for task in sorted(self.waiting[job], key=lambda task: task.expected)}
        return sorted(views, key=lambda view: -longest[view.number])  # else as the jobspec has them

    def _unended(self, job: str) -> list[GangTask]:
        live = {task.index for task in (*self.waiting[job], *self.running.get(job, ()))}
        return [task for index, task in self.readings[job].tasks.items() if index in live]

    def blocked(self, seen: Collection[str]) -> list[Wait]:
        """Say why jobs wait that a policy does not see."""
        waits = [wait_of(job, one) for job, one in self.unmet.items() if not one.never]
        held = {job.id for job in self.live if job.suspended_at is not None and job.id in self.waiting}
        waits += [Wait(job, "suspended", SUSPENDED) for job in sorted(held - self.unmet.keys())]
        for job in self.waiting.keys() - self.unmet.keys() - held - set(seen):
            unended = self._unended(job)
            names = sorted({name for gang in self.readings[job].gangs for name in waits_for(gang, unended)})
            waits.append(Wait(job, "dependency", f"waits for {', '.join(names)} to complete", {"tasks": names}))
        return waits

    def doomed(self) -> dict[str, str]:
        """Name the jobs that can never start, and why."""
        return {job: one.never for job, one in self.unmet.items() if one.never}


def read_queue(
    connection: sa.Connection, live: list[JobRecord], running: list[Task], now: float, most: int, *, count: bool
) -> Queue:
    """Read what waits: all of ordinary jobs, the first `most` tasks of large ones; `count` how many those have."""
    queue = Queue(live, _by_job(running))
    readings = {job.id: reading(connection, job.id) for job in live}
    most = max(FIRST, most)
    large = [job for job, read in readings.items() if len(read.tasks) > most and read.single and not read.depends]
    queue.waiting = _by_job(tasks.waiting_of(connection, readings.keys() - set(large)))
    for job in large:
        if found := tasks.first_waiting(connection, job, most):
            queue.waiting[job] = found
            if count and len(found) == most:
                queue.numbers[job] = tasks.count_waiting(connection, job)
    queue.readings = {job: readings[job] for job in queue.waiting}
    queue.unmet = depending(connection, {job: read.request for job, read in queue.readings.items()}, now)
    return queue


def _by_job(found: list[Task]) -> dict[str, list[Task]]:
    own: dict[str, list[Task]] = {}
    for task in found:
        own.setdefault(task.job, []).append(task)
    return own


def _single(job: str, own: list[Task], read: Reading, placing: Placing) -> list[GangView]:
    """Return gangs of one task each."""
    ordered = sorted(own, key=lambda task: (-task.expected, task.index))
    return [_gang_view(job, read.gangs[task.gang], [task.id], placing) for task in ordered]


def _gang_view(job: str, gang: Gang, ids: list[str], placing: Placing) -> GangView:
    demand = placing.demand(job, gang, ids)
    slots = placing.slots(gang.request)
    return GangView(job, gang.number, tuple(ids), demand, gang.request.duration, slots)


def elastic_of(read: Reading) -> Elastic | None:
    """Return how many shares a job works with, if they may come and go."""
    asked = read.request.elastic
    return Elastic(asked.min, asked.max, asked.threads) if asked else None


def system_of(read: Reading) -> Mapping[str, Any]:
    """Return a jobspec's attributes.system, which policies read their own entries from."""
    system = read.request.attributes.get("system")
    return system if isinstance(system, Mapping) else {}
