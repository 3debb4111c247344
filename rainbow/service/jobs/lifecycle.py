"""The life of a job: settled, canceled, suspended, ended, forgotten; and its time limits.

A task may run for the `duration` of its jobspec, else for the `task_minutes` of its cluster. The agent ends it then;
if it does not, the server orders it to, after an allowance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from rainbow.errors import NotFound
from rainbow.outcome import note_object
from rainbow.scheduling import never_started
from rainbow.service.core.access import Caller, not_for
from rainbow.service.core.clock_watch import may_forget
from rainbow.service.jobs.jobspecs import reading
from rainbow.state_machine import BOOKED, JobState, Task, TaskState, job_state, ran_for
from rainbow.store import clusters, events, jobs, reservations, tasks, workers
from rainbow.store.jobs import ENDING, LIVE, JobRecord
from rainbow.transitions import CancelOrdered, transition

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Request
    from rainbow.service.core.service import Service


WHOLE_ID = 24  # hexadecimal digits
TEXT = "canceled; its last tasks are still being ended, none of them starts"
PIECE = 200  # tasks that hold space ended in one transaction: 0.2 ms each
LARGE_PIECE = 500  # tasks that wait: 0.05 ms each
FEW = 20  # tasks of a job that is canceled together with others
MOST_FORGOTTEN = 200  # jobs, or events, forgotten at once: those who want to write meanwhile wait for it
FORGET_SECONDS = 1.0  # at a time, a few times a minute: what submits bring meanwhile takes less


def forget_old(service: Service) -> int:
    """Forget ended jobs and events older than the settings say; return how many jobs."""
    if not may_forget(service):
        return 0
    before, until, many = service.clock() - service.settings.history, service.monotonic() + FORGET_SECONDS, 0
    with service.store.read() as connection:
        if not jobs.has_older(connection, before):
            return 0
    with service.store.write() as connection:
        workers.forget_agents(connection, before)
        reservations.forget(connection, before)
        jobs.forget_unused_reaches(connection)
    for forget in (jobs.forget, events.forget, events.forget_audit):
        gone = MOST_FORGOTTEN
        while gone == MOST_FORGOTTEN and service.monotonic() < until:
            with service.store.write() as connection:
                gone = forget(connection, before, MOST_FORGOTTEN)
            service.store.shrink()
            many += gone if forget is jobs.forget else 0
    return many


def sees(connection: sa.Connection, who: Caller, record: JobRecord) -> bool:
    """Return whether a job exists for this caller; one without a cluster by the clusters it may go to."""
    at = [record.cluster_id] if record.cluster_id or who.admin else jobs.open_to(connection, record.id)
    return any(who.sees_of(one, record.requestor) for one in at)


def visible_job(connection: sa.Connection, who: Caller, job_id: str) -> JobRecord:
    """Return a job that exists for this caller, else NotFound."""
    record = jobs.get(connection, job_id)
    if record is None or not sees(connection, who, record):
        raise NotFound(f"job {job_id} not found")
    return record


def own_job(connection: sa.Connection, who: Caller, job_id: str) -> JobRecord:
    """Return a job the caller may change; Forbidden for those who may only see it."""
    record = visible_job(connection, who, job_id)
    check_own(connection, who, record)
    return record


def check_own(connection: sa.Connection, who: Caller, record: JobRecord) -> None:
    """Raise Forbidden unless the caller may change a job that exists for them."""
    if not may_change(connection, who, record):
        raise not_for(record.requestor)
    note_object(f"job {record.id}", record.cluster_id)


def may_change(connection: sa.Connection, who: Caller, record: JobRecord) -> bool:
    """Return whether the caller may act for the user of a job that exists for them."""
    at = [record.cluster_id] if record.cluster_id or who.admin else jobs.open_to(connection, record.id)
    return who.admin or any(who.sees(one) and who.speaks_for(one, record.requestor) for one in at)


# A job is held in place by its owner (jobs.suspended_at), a task by the policy (tasks.hold): the agent holds the
# processes and says so. What is held keeps its space, and its time limit does not advance; what of a suspended job
# waits does not start. Of a job that is held (jobs.held_at) nothing more starts, and what runs is left alone.


def end(connection: sa.Connection, job_id: str, now: float, why: str = "") -> bool:
    """Cancel a job's tasks that have not started, tell the others to stop; `why` is shown to people.

    From now on nothing of the job starts. Of very many tasks the first are ended: True, some are left, the job's wait
    says so, and the cluster's steps end them.
    """
    jobs.change(connection, job_id, canceled_at=now)
    if (waiting := jobs.get_unplaced(connection, job_id)) is not None:
        jobs.change(connection, job_id, state=JobState.CANCELED, ended_at=now, wait=None)
        if (booked := reservations.drop_booking(connection, job_id)) is not None:
            clusters.note(connection, booked)
        events.add(connection, now, waiting.home, "job", job=job_id, state=str(JobState.CANCELED), cluster=None)
        return False
    if not _end_some(connection, job_id, now, why):
        return False
    jobs.change(connection, job_id, wait={"reason": ENDING, "text": TEXT, "facts": {"why": why}, "since": now})
    return True


def end_waiting(connection: sa.Connection, records: Sequence[JobRecord], now: float) -> set[str]:
    """Cancel those of some jobs of which nothing has begun, by a few statements for all of them; return their ids."""
    counts = tasks.counts(connection, [record.id for record in records if record.state is JobState.WAITING])
    few = {
        job
        for job, result in counts.items()
        if set(result) == {TaskState.WAITING} and result[TaskState.WAITING] <= FEW
    }
    plain = [record for record in records if record.id in few and record.canceled_at is None]
    tasks.cancel_waiting(connection, [record.id for record in plain], now, "", len(plain) * FEW)
    for cluster_id in {record.cluster_id for record in plain}:
        own = [record for record in plain if record.cluster_id == cluster_id]
        jobs.cancel_all(connection, [record.id for record in own], now, clusters.tick(connection, cluster_id))
        state = str(JobState.CANCELED)
        facts = [{"job": record.id, "state": state, "cluster": record.cluster} for record in own]
        events.add_all(connection, now, cluster_id, "job", facts)
    return {record.id for record in plain}


def end_more(service: Service, job_id: str, seconds: float) -> bool:
    """End more of a canceled job's tasks, piece by piece for so long; return whether any are left."""
    began, remaining = perf_counter(), True
    while remaining and perf_counter() - began < seconds:
        with service.store.write() as connection:
            record = jobs.get(connection, job_id)
            if record is None or record.canceled_at is None or record.state not in LIVE:
                return False
            wait = record.wait or {}  # a step that was planned before may have written another
            why = wait["facts"]["why"] if wait.get("reason") == ENDING else ""
            remaining = _end_some(connection, job_id, service.clock(), why)
            if not remaining:
                jobs.change(connection, job_id, wait=None)
    return remaining


def _end_some(connection: sa.Connection, job_id: str, now: float, why: str) -> bool:
    """End a piece of a job's tasks, those that hold space first; return whether there are more."""
    held = tasks.some_of(connection, job_id, BOOKED - {TaskState.STOPPING}, PIECE)
    tasks.save_all(connection, [transition(task, CancelOrdered(why), now) for task in held], now)
    if len(held) == PIECE or tasks.cancel_waiting(connection, [job_id], now, why, LARGE_PIECE) == LARGE_PIECE:
        return True
    settle(connection, job_id, now)
    return False


def _cancel_dependents(connection: sa.Connection, job_id: str, now: float) -> None:
    """Cancel what waits for a task of the job that ended badly."""
    read = reading(connection, job_id)
    if not read.depends:
        return
    request = read.tasks
    results = {task.index: task for task in tasks.of_job(connection, job_id)}
    for index, name in never_started(request, {index: task.state for index, task in results.items()}).items():
        detail = f"canceled because {name}, which it depends on, did not complete"
        tasks.save(connection, transition(results[index], CancelOrdered(detail), now), now)


def settle(connection: sa.Connection, job_id: str, now: float) -> None:
    """Bring a job's state up to date with its tasks; its end is an event of the cluster's free nodes."""
    record = jobs.get(connection, job_id)
    if record is None or record.state not in LIVE:
        return
    if record.suspended_at is not None:  # what has begun meanwhile is to be held, too
        tasks.note_holders(connection, record.cluster_id, job_id)
    _cancel_dependents(connection, job_id, now)
    state = job_state(tasks.states_of(connection, job_id))
    if state is not record.state:
        events.add(connection, now, record.cluster_id, "job", job=job_id, state=str(state), cluster=record.cluster)
    if state in LIVE:
        jobs.change(connection, job_id, state=state)
        return
    clock = clusters.tick(connection, record.cluster_id)
    jobs.change(connection, job_id, state=state, ended_at=now, ended_clock=clock, wait=None)


def may_run(request: Request, limits: Mapping[str, int]) -> float:
    """Return how many seconds a task may run, 0: forever."""
    return request.duration or 60.0 * limits["task_minutes"]


def is_overdue(connection: sa.Connection, task: Task, limits: Mapping[str, int], now: float) -> bool:
    """Return whether a task runs longer than it may, and than the allowance."""
    seconds = may_run(reading(connection, task.job).request, limits)
    return seconds > 0 and ran_for(task, now) > seconds + limits["allowance_seconds"]
