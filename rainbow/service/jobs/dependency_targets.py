"""The jobs and times a job waits for: checked at submit, looked at in every step."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rainbow.errors import JobspecError
from rainbow.scheduling import Wait
from rainbow.scheduling.dependencies import BY_JOB, DependencyState, Target
from rainbow.service.jobs.lifecycle import sees
from rainbow.state_machine import JobState
from rainbow.store import jobs
from rainbow.text import rfc3339

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Dependency, Request
    from rainbow.service.core.access import Caller
    from rainbow.store.jobs import JobRecord


MOST_NAMED = 10  # jobs named in a wait reason


def check_dependencies(connection: sa.Connection, who: Caller, request: Request) -> None:
    """Refuse a dependency on a job that does not exist for the caller."""
    for k, one in enumerate(request.dependencies):
        found = jobs.get(connection, one.value) if one.scheme in BY_JOB else None
        if one.scheme in BY_JOB and (found is None or not sees(connection, who, found)):
            at = f"/attributes/system/dependencies/{k}/value"
            raise JobspecError(
                f"job {one.value[:100]} not found; dependencies name jobs by the id that submit answers with",
                pointer=at,
            )


def targets_of(dependencies: Iterable[Dependency]) -> set[str]:
    """Name the jobs that are waited for."""
    return {one.value for one in dependencies if one.scheme in BY_JOB}


def target(record: JobRecord) -> Target:
    """A job that has ended has run if an agent had it; one that waits again after it ran will start again."""
    started = record.state is JobState.RUNNING or (record.ended_at is not None and record.accepted_clock is not None)
    return Target(record.state, started)


def wait_of(job: str, one: DependencyState) -> Wait:
    """Say why a job with unmet dependencies waits."""
    texts = [f"waits for {', '.join(one.waits[:MOST_NAMED])}"] if one.waits else []
    if one.until is not None:
        texts.append(f"does not start before {_shown(one.until)}")
    facts = {"jobs": list(one.jobs[:MOST_NAMED]), "until": None if one.until is None else rfc3339(one.until)}
    return Wait(job, "dependency" if one.waits else "begin-time", ", ".join(texts), facts)


def _shown(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # further away than the calendar goes
        return f"{seconds:g} seconds since 1970"
