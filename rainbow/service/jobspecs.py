"""The jobspecs of stored jobs, each read once; jobs with equal jobspecs share one reading.

That they share it lets a step ask the matcher once for all of them (freezing.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rainbow.jobspec import Request, parse_jobspec
from rainbow.scheduling import Gang, GangTask, gangs
from rainbow.store import jobs

if TYPE_CHECKING:
    import sqlalchemy as sa

REMEMBERED = 50_000  # jobs
_by_job: dict[str, Reading] = {}


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
    """Return what a job asks for. Job ids are never used again, so what was read once stays true."""
    known = _by_job.get(job_id)
    if known is None:
        known = _read(json.dumps(jobs.jobspec(connection, job_id)))
        if len(_by_job) >= REMEMBERED:
            _by_job.clear()
        _by_job[job_id] = known
    return known


@lru_cache(maxsize=4096)
def _read(jobspec: str) -> Reading:
    request = parse_jobspec(json.loads(jobspec))
    found = tuple(gangs(request))
    asked = {task.index: task for gang in found for task in gang.tasks}
    depends = any(task.spec.depends_on for task in asked.values())
    return Reading(request, found, asked, depends, len(found) == len(asked))
