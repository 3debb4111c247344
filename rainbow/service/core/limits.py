"""Admission limits of a cluster, checked in the transaction that stores the job.

A cluster registered with a policy that reads them begins with those of the configuration's `admission`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rainbow.errors import TooMany
from rainbow.scheduling.settings_schema import Check, integer, number, optional, record
from rainbow.store import jobs, tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.store.jobs import JobRecord


UNLIMITED = -1
LARGEST_LIMIT = 2**31 - 1
_COUNT, _OR_NONE = integer(0, LARGEST_LIMIT), integer(UNLIMITED, LARGEST_LIMIT, f"; {UNLIMITED}: no limit")
REPLACE: dict[str, tuple[float, Check]] = {  # when a job moves to where it is expected to end sooner
    "gain": (0.25, number(0, 1)),  # of its time to the end here, which it must gain
    "least": (300.0, number(0, LARGEST_LIMIT)),  # seconds that it must gain
    "most": (3, integer(1, LARGEST_LIMIT)),  # such moves of one job
    "apart": (600.0, number(0, LARGEST_LIMIT)),  # seconds between two of them
    "every": (60.0, number(1, LARGEST_LIMIT)),  # seconds between two looks at a cluster's jobs
}
SCHEMA: dict[str, tuple[Any, Check]] = {
    "max_requestors": (UNLIMITED, _OR_NONE),  # with live jobs
    "max_jobs_per_requestor": (UNLIMITED, _OR_NONE),  # live
    "max_waiting_tasks": (UNLIMITED, _OR_NONE),
    "throttle": (UNLIMITED, _OR_NONE),  # tasks waiting and running; 0 refuses every job
    "max_retries": (0, _COUNT),  # of a task that failed or ran too long
    "max_lost": (5, _COUNT),  # attempts of a task before it has failed; 0: no limit
    "quarantine_after_lost": (10, _COUNT),  # times tasks were lost on a worker one after the other; 0: never
    "quarantine_after": (0, _COUNT),  # tasks a worker could not start one after the other; 0: never
    "quarantine_minutes": (15, _COUNT),
    "task_minutes": (0, _COUNT),  # a task may run that asks for no duration; 0: for ever
    "allowance_seconds": (15, _COUNT),  # beyond what a task may run, before its agent is told to stop it
    "max_reservations_per_requestor": (10, _OR_NONE),  # in advance, not over
    "reservation_days": (0, _COUNT),  # the longest one, 0: of any length
    "replace": (None, optional(record(REPLACE))),  # null: jobs stay where they are
}
WORDS = {
    "max_requestors": "users with active jobs",
    "max_jobs_per_requestor": "active jobs of one user",
    "max_waiting_tasks": "tasks waiting",
    "throttle": "tasks waiting and running",
}


_LIMITS = record(SCHEMA)
_DEFAULTS = {key: default for key, (default, _) in SCHEMA.items()}


def check_limits(options: Any) -> dict[str, Any]:
    """Return every limit, those not given at their defaults; PolicyError names the first fault by pointer."""
    return _LIMITS(options, "/limits")


def limits_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return every limit of a cluster, those not stored at their defaults; what is stored was checked before."""
    return {**_DEFAULTS, **stored}


def admit(connection: sa.Connection, record: JobRecord, new: int, limits: Mapping[str, int]) -> None:
    """Admit a job with `new` tasks; TooMany names the limit that is reached."""
    limited = {key: limits[key] for key in WORDS if limits[key] >= 0}
    for key, (has, adds) in _counted(connection, record, new).items() if limited else ():
        if key in limited and adds and has + adds > limited[key]:
            text = f"cluster {record.cluster} has {has} of at most {limited[key]} {WORDS[key]}"
            text += f", this job adds {adds}" if adds > 1 else ""
            more = f"rainbow scheduler set {record.cluster} --{key.replace('_', '-')} N"
            text += f"; try again when some have ended, or ask its operator to raise it ({more})"
            raise TooMany(text, limit=key, most=limited[key], present=has)


def limits_tasks(limits: Mapping[str, int]) -> bool:
    """Return whether it matters to a cluster how many tasks a job has."""
    return limits["max_waiting_tasks"] >= 0 or limits["throttle"] >= 0


def _counted(connection: sa.Connection, record: JobRecord, new: int) -> dict[str, tuple[int, int]]:
    """Return by limit how much there is, and how much the job adds."""
    own = jobs.live_by_requestor(connection, record.cluster_id)
    waiting, running = tasks.unended(connection, record.cluster_id)
    return {
        "max_requestors": (len(own), int(record.requestor not in own)),
        "max_jobs_per_requestor": (own.get(record.requestor, 0), 1),
        "max_waiting_tasks": (waiting, new),
        "throttle": (waiting + running, new),
    }
