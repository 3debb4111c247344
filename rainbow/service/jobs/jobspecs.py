"""The jobspecs of stored jobs, each parsed once; equal jobspecs share one Request. The tasks that a new job has.

Sharing it lets a step ask the matcher once for all of them (view.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rainbow.cache import LruCache
from rainbow.jobspec import Count, Request, parse_jobspec
from rainbow.jobspec.batch import started
from rainbow.jobspec.handover import handover, least, trees_of
from rainbow.jobspec.request import SLOT
from rainbow.scheduling import Gang, GangTask, gangs
from rainbow.scheduling.dependencies import BY_JOB
from rainbow.state_machine import Task, task_id
from rainbow.store import jobs

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Dependency
    from rainbow.store.jobs import JobRecord


REMEMBERED = 50_000  # jobs
DIGITS = 10  # of the number of a job
_by_job: dict[str, Reading] = {}
_overrides: dict[str, Mapping[str, Any]] = {}  # of those jobs that were changed
_by_request: LruCache[int, Reading] = LruCache(4_096)  # by number of the request


@dataclass(frozen=True, eq=False, slots=True)
class Reading:
    """A jobspec in normal form, its gangs, and its tasks by index.

    `depends`: some task depends on another; `single`: every gang is one task.
    """

    request: Request
    gangs: tuple[Gang, ...]
    tasks: Mapping[int, GangTask]
    depends: bool
    single: bool


def reading(connection: sa.Connection, job_id: str) -> Reading:
    """Return what a job asks for. Job ids are never used again, so what was read once stays true until it is changed.

    A process that has the job in a mirror learns of a change there, by `reading_of`, before it plans again.
    """
    known = _by_job.get(job_id)
    if known is None:
        jobspec, overrides = jobs.jobspec_changed(connection, job_id)
        known = _changed(by_id(connection, _read(json.dumps(jobspec))), overrides)
        remember(job_id, known, overrides)
    return known


def reading_of(connection: sa.Connection, record: JobRecord) -> Reading:
    """Return what a job asks for as its record says, also where another process has changed it."""
    if _overrides.get(record.id) != record.overrides:
        _by_job.pop(record.id, None)
    return reading(connection, record.id)


def _changed(read: Reading, overrides: Mapping[str, Any] | None) -> Reading:
    """Return what a job asks for after changes: `duration`, in seconds, and `nodes`, of its outermost count."""
    request = read.request
    if overrides and "duration" in overrides:
        request = replace(request, duration=float(overrides["duration"]))
    if overrides and "nodes" in overrides:
        count = Count(overrides["nodes"], overrides["nodes"])
        variants = tuple(
            tuple(replace(one, count=count) if one.type == "node" else one for one in variant)
            for variant in request.variants
        )
        request = replace(request, variants=variants)
    return read if request is read.request else read_request(request)


def by_id(connection: sa.Connection, read: Reading) -> Reading:
    """Return a reading whose dependencies name jobs by their ids where they were named by number."""
    named = read.request.dependencies
    found = tuple(replace(one, value=_known_id(connection, one.value)) if _by_number(one) else one for one in named)
    return read if found == named else read_request(replace(read.request, dependencies=found))


def _by_number(one: Dependency) -> bool:
    return one.scheme in (*BY_JOB, "fluid") and len(one.value) <= DIGITS and one.value.isdecimal()


def _known_id(connection: sa.Connection, number: str) -> str:
    """Return the id of the job with this number; a number of no job as it is, which no lookup finds either."""
    record = jobs.by_number(connection, int(number))
    return record.id if record is not None and record.number == int(number) else number


def remember(job_id: str, read: Reading, overrides: Mapping[str, Any] | None = None) -> None:
    """Note what a job asks for, which its submit has read already, or after changes."""
    if len(_by_job) >= REMEMBERED:
        _by_job.clear()
        _overrides.clear()
    _by_job[job_id] = read
    if overrides:
        _overrides[job_id] = overrides
    else:
        _overrides.pop(job_id, None)


@lru_cache(maxsize=4096)
def _read(jobspec: str) -> Reading:
    return read_request(parse_jobspec(json.loads(jobspec)))


def read_request(request: Request) -> Reading:
    """Return what a request asks for; the same reading for the same request."""
    known = _by_request.get(request.number)
    return known or _by_request.put(request.number, _reading(request))


def _reading(request: Request) -> Reading:
    found = tuple(gangs(request))
    asked = {task.index: task for gang in found for task in gang.tasks}
    depends = any(task.spec.depends_on for task in asked.values())
    return Reading(request, found, asked, depends, len(found) == len(asked))


def first_tasks(
    job_id: str, wanted: Sequence[Gang], retries: int, expected: Mapping[str, float], account: str = ""
) -> Iterator[Task]:
    """Make the tasks of a new job, which all wait."""
    return (
        Task(
            task_id(job_id, task.index),
            job_id,
            task.index,
            gang.number,
            task.name,
            retries_left=retries,
            expected=expected.get(task.name, 0.0),
            account=account,
        )
        for gang in wanted
        for task in gang.tasks
    )


def handed_over(wanted: Reading, gang: int, index: int, name: str, requestor: str) -> dict[str, Any]:
    """Return what a task asks for, as it is handed over to a site that decides its place itself."""
    one = wanted.tasks[index]
    together, trees = len(wanted.gangs[gang].tasks), trees_of(wanted.request, one.labels)
    kind = one.spec.per_resource[0] if one.spec.per_resource else ""
    each = one.spec.per_resource[1] if one.spec.per_resource else one.spec.per_slot
    count = one.spec.total or max(1, least(trees, kind or SLOT, () if kind else one.labels)) * each
    told = {**handover(wanted.request, one.labels, together, name, requestor), "tasks": len(wanted.tasks)}
    if told["script"]:  # the command is a shell's that loads it: the site is given the script itself, and these
        told["arguments"] = started(replace(wanted.request, script=""), one.spec, index)[0][1:]
    return {"processes": count, "request": told}
