"""What a policy that lets jobs grow and shrink is told beyond what waits (`Policy.sees_all`).

Every job that has not ended with its class and service, how far its work has come, what each run has cost so far, and
the nodepools that workers name. The items of a job are its tasks, `threads` of them to a share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rainbow.jobs import ENDED, Task, TaskState
from rainbow.jobspec.request import OF_ITS_OWN
from rainbow.scheduling import JobProgress, JobView, RunProgress, View
from rainbow.service.steps.waiting import elastic_of, system_of
from rainbow.service.submits.jobspecs import Reading, reading
from rainbow.store import tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.store.jobs import JobRecord

BEGUN = frozenset({TaskState.RUNNING, TaskState.SUSPENDED}) | ENDED


@dataclass(frozen=True)
class Work:
    """The jobs of a cluster that have not ended, in order of submission, and what holds space."""

    live: Sequence[JobRecord]
    running: Sequence[Task]
    readings: Mapping[str, Reading]
    progress: Mapping[str, JobProgress]

    def told(self, view: View, cluster: Cluster) -> View:
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
        view = seen or JobView(job.id, job.requestor, job.submitted_at, (), held, job.priority, system_of(read))
        service = job.id if read.request.service == OF_ITS_OWN else read.request.service
        return replace(
            view,
            job_class=read.request.job_class,
            service=service,
            elastic=elastic_of(read),
            progress=self.progress.get(job.id),
        )


def read_work(connection: sa.Connection, live: Sequence[JobRecord], running: Sequence[Task]) -> Work:
    """Read what is known of the work of all jobs."""
    readings = {job.id: reading(connection, job.id) for job in live}
    elastic = [job for job, read in readings.items() if read.request.elastic]
    counts, means = tasks.counts(connection, elastic), tasks.mean_seconds(connection, elastic)
    progress = {job: _progress(readings[job].request, counts[job], means.get(job, 0.0)) for job in elastic}
    return Work(live, running, readings, progress)


def _progress(request: Request, counts: Mapping[TaskState, int], mean: float) -> JobProgress:
    threads = request.elastic.threads if request.elastic else 1
    left = sum(count for state, count in counts.items() if state not in ENDED)
    done = sum(count for state, count in counts.items() if state in ENDED)
    return JobProgress(left * threads, done * threads, max(0.0, mean), not BEGUN.isdisjoint(counts))


def _cost(task: Task, now: float) -> RunProgress:
    """Say what would be lost with a task: until its agent says it runs, it gets ready."""
    assigned = now if task.assigned_at is None else task.assigned_at
    if task.started_at is None:
        return RunProgress(False, max(0.0, now - assigned), 0.0)
    return RunProgress(True, max(0.0, task.started_at - assigned), max(0.0, now - task.started_at))
