"""Phase 1 of a step: read what has changed in the store, and let the cluster's mirror follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from rainbow.jobs import BOOKED
from rainbow.scheduling import Accounts, Ended, policies
from rainbow.service.steps.mirror import Mirror
from rainbow.service.steps.waiting import LiveJob
from rainbow.service.submits.admission import check_limits
from rainbow.service.submits.depending import target
from rainbow.service.submits.jobspecs import reading
from rainbow.store import clusters, jobs, tasks, workers
from rainbow.store.jobs import LIVE

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.scheduling.awaiting import Target
    from rainbow.service.service import Entry, Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord
    from rainbow.store.tasks import Waiting

NOTHING = tasks.Waiting((), {})


@contextmanager
def mirrored(service: Service, entry: Entry) -> Iterator[Mirror]:
    """Give a cluster's mirror, which is the caller's alone until the block is left; one in doubt is thrown away."""
    mirror = service.mirrors.get(entry.id)
    if mirror is None or mirror.entry.revision != entry.revision or mirror.placing.name != service.settings.backend:
        mirror = service.mirrors[entry.id] = Mirror(entry, service.settings.backend)
    with mirror.lock:
        try:
            yield mirror
        except BaseException:
            service.mirrors.pop(entry.id, None)
            raise


def follow(service: Service, mirror: Mirror) -> ClusterRecord | None:
    """Read what has changed since the mirror was last brought up to date; None if there is no such cluster."""
    with service.store.read() as connection:
        record = clusters.get(connection, mirror.entry.id)
        if record is None:
            return None
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
    mirror.wake(service.clock())
    mirror.settle()
    return record


def _accounts(record: ClusterRecord) -> float | None:
    """Return the time until which a cluster's policy has counted what ran; None if it counts nothing."""
    policy = policies.get(record.policy)
    return policy.counted_until(record.memory) if isinstance(policy, Accounts) else None


def _read_ended(connection: sa.Connection, mirror: Mirror, since: float) -> dict[tuple[str, int], Ended]:
    """Read the record of the tasks that have ended since a time."""
    found = tasks.ended_since(connection, mirror.entry.id, since)
    owners = {record.id: record for record in jobs.some(connection, sorted({task.job for task in found}))}
    runs = (
        (task, LiveJob(owners[task.job], reading(connection, task.job), NOTHING, mirror.placing)) for task in found
    )
    return {(task.id, task.attempt): Ended(mirror.run_of(task, job), task.ended_at or since) for task, job in runs}


def _heed_limits(mirror: Mirror, record: ClusterRecord) -> None:
    limits = check_limits(record.limits)
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
        mirror.put_task(replace(task, output="", detail=""))
    for task in tasks.resting(connection, mirror.entry.id):
        mirror.put_task(replace(task, output="", detail=""))
    return {record.id: record for record in live}


def _read_changed(connection: sa.Connection, mirror: Mirror, ends: float | None) -> dict[str, JobRecord]:
    """Read what has changed; `ends`: keep the record of what has ended, of what goes on to wait with this time."""
    cluster, since = mirror.entry.id, mirror.epoch
    states, found = workers.changed(connection, cluster, since), jobs.changed(connection, cluster, since)
    moved = tasks.changed(connection, cluster, since)
    for task in moved if ends is not None else ():
        mirror.note_end(task, ends or 0.0)
    mirror.put_workers(states)
    for record in found:
        if record.state not in LIVE:
            if record.id in mirror.jobs:
                mirror.drop_job(record.id)
        elif record.id in mirror.jobs:
            mirror.change_job(record)
        else:
            whole = len(reading(connection, record.id).tasks)
            _add(connection, mirror, record, tasks.waiting_of(connection, record.id, whole))
    for task in moved:
        mirror.put_task(task)
    mirror.read = len(states) + len(found) + len(moved)
    return {record.id: record for record in found}


def _add(connection: sa.Connection, mirror: Mirror, record: JobRecord, waiting: Waiting) -> None:
    mirror.put_job(LiveJob(record, reading(connection, record.id), waiting, mirror.placing))


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
