"""How much may wait at a cluster: limits checked in the transaction that stores the job, so they hold under any load.

The original's own numbers are 10 requestors with 100 jobs each; here nothing is limited until somebody says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rainbow.errors import PolicyError, TooMany
from rainbow.store import clusters, jobs, tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.store.jobs import JobRecord

UNLIMITED = -1
MOST = 2**53  # more is no number every client can hold
LIMITS = {
    "max_requestors": "requestors with live jobs",
    "max_jobs_per_requestor": "live jobs of one requestor",
    "max_waiting_tasks": "tasks waiting",
    "throttle": "tasks waiting and running; 0 refuses every job",
}


def check_limits(given: Any) -> dict[str, int]:
    """Return every limit, those not given unlimited; PolicyError names the first fault by pointer."""
    if not isinstance(given, Mapping):
        raise PolicyError("limits is a mapping", pointer="/limits")
    for key, value in given.items():
        if key not in LIMITS:
            raise PolicyError(f"there is no limit {key}; there are: {', '.join(LIMITS)}", pointer=f"/limits/{key}")
        if isinstance(value, bool) or not isinstance(value, int) or not UNLIMITED <= value <= MOST:
            raise PolicyError(f"{key} is a whole number, or {UNLIMITED} for no limit", pointer=f"/limits/{key}")
    return {key: given.get(key, UNLIMITED) for key in LIMITS}


def admit(connection: sa.Connection, record: JobRecord, new: int) -> None:
    """Let a job with so many tasks in; TooMany names the limit that is reached."""
    limits = {key: most for key, most in clusters.limits(connection, record.cluster_id).items() if most >= 0}
    if not limits:
        return
    for key, (has, adds) in _counted(connection, record, new, limits).items():
        if adds and has + adds > limits[key]:
            text = f"cluster {record.cluster} takes {limits[key]} {LIMITS[key].partition(';')[0]}, there are {has}"
            raise TooMany(text, limit=key, most=limits[key], present=has)


def _counted(
    connection: sa.Connection, record: JobRecord, new: int, limits: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Return by limit how much there is, and how much the job adds."""
    found = {}
    own = jobs.live_by_requestor(connection, record.cluster_id)
    waiting, running = tasks.unended(connection, record.cluster_id)
    found["max_requestors"] = len(own), int(record.requestor not in own)
    found["max_jobs_per_requestor"] = own.get(record.requestor, 0), 1
    found["max_waiting_tasks"] = waiting, new
    found["throttle"] = waiting + running, new
    return {key: found[key] for key in LIMITS if key in limits}
