"""What a new job waits for, and the earlier versions of it that it ends.

Dependencies on a job's id, or on a time, are checked at submit and looked at in every step. Dependencies by name
(RFC 26, OpenMP style) are resolved when the job is submitted:

    string  in, inout    waits for every earlier job that says `out` or `inout` of the name and has not ended
            out          waits for nothing; later jobs may wait for it
    fluid   in           waits for the job of that id; every job is `out` of its own id by itself

A pair is within scope if both jobs are of one requestor, or both say `global`. A global `out` concerns all
requestors, so it needs the admin token. It is an order only: how the earlier job ends does not matter, as in
OpenMP.

Basis and tag: a job may name what it is a version of; a newer version replaces those before it. The same tag again is
the same version: nothing is replaced. A tag that a newer one followed is refused, even if its jobs have long ended.
Only what the caller may submit to is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rainbow.errors import Conflict, Forbidden, JobspecError
from rainbow.scheduling import Wait
from rainbow.scheduling.dependencies import BY_JOB, DependencyState, Target
from rainbow.service.jobs.lifecycle import end, sees
from rainbow.state_machine import JobState
from rainbow.store import jobs
from rainbow.store.names import symbols
from rainbow.store.names.symbols import Basis
from rainbow.text import rfc3339

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Dependency, Request
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.store.jobs import JobRecord
    from rainbow.store.names.symbols import Bringer


AT = "/attributes/system/dependencies"
MOST_NAMED = 10  # jobs named in a wait reason


def check_dependencies(connection: sa.Connection, who: Caller, request: Request) -> None:
    """Refuse a dependency on a job that does not exist for the caller."""
    for k, one in enumerate(request.dependencies):
        result = jobs.get(connection, one.value) if one.scheme in BY_JOB else None
        if one.scheme in BY_JOB and (result is None or not sees(connection, who, result)):
            raise _not_found(one, k)


def _not_found(one: Dependency, place: int) -> JobspecError:
    text = f"job {one.value[:100]} not found; dependencies name jobs by the number or the id that submit answers with"
    return JobspecError(text, pointer=f"{AT}/{place}/value")


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


# ── by name ──

USER, GLOBAL = "user", "global"


def check_scopes(who: Caller, request: Request) -> None:
    """Refuse dependencies by name that a caller may not state, before any job is looked for."""
    for k, one in enumerate(request.dependencies):
        if one.scheme == "fluid" and one.type != "in":
            text = "scheme fluid accepts only type in: every job implicitly provides its own id"
            raise JobspecError(text, pointer=f"{AT}/{k}/type")
        if one.scheme == "string" and one.type != "in" and one.scope == GLOBAL and not who.admin:
            raise Forbidden(
                f"type {one.type} with scope global requires the admin token, because it affects all users' jobs"
            )


def jobs_before(connection: sa.Connection, who: Caller, record: JobRecord, request: Request) -> list[str]:
    """Name the jobs that must end before a new one may start."""
    requirements = [one for one in request.dependencies if one.scheme == "string" and one.type != "out"]
    bringers = symbols.live_with_symbols(connection, {one.value for one in requirements}) if requirements else []
    results = [b.job for b in bringers if any(_within(who, record, one, b) for one in requirements)]
    return list(dict.fromkeys([*results, *_by_id(connection, who, record, request)]))


def _within(who: Caller, record: JobRecord, dependency: Dependency, bringer: Bringer) -> bool:
    if dependency.value != bringer.name:
        return False
    if dependency.scope == GLOBAL == bringer.scope:
        return True
    own = not bringer.cluster_id or who.sees(bringer.cluster_id)  # one that waits for a cluster is its requestor's
    return bringer.requestor == record.requestor and own


def _by_id(connection: sa.Connection, who: Caller, record: JobRecord, request: Request) -> Iterator[str]:
    for k, one in enumerate(request.dependencies):
        if one.scheme != "fluid":
            continue
        other = jobs.get(connection, one.value)
        mine = other is not None and sees(connection, who, other)
        if other is None or not mine or (one.scope == USER and other.requestor != record.requestor):
            raise _not_found(one, k)
        if other.state in jobs.PENDING:
            yield other.id


def record_symbols(connection: sa.Connection, record: JobRecord, request: Request) -> None:
    """Store the names for which later jobs may wait, and the jobs for which this one waits."""
    brought = {(one.value, one.scope) for one in request.dependencies if one.scheme == "string" and one.type != "in"}
    symbols.add_symbols(connection, record.id, sorted(brought))
    symbols.add_dependencies(connection, record.id, awaited_by(record, request))


def awaited_by(record: JobRecord, request: Request) -> dict[str, str]:
    """Return the jobs that a job waits for, by id or by name, as {id: scheme}."""
    by_name = dict.fromkeys(record.awaits or (), "string")
    return by_name | {one.value: one.scheme for one in request.dependencies if one.scheme in (*BY_JOB, "fluid")}


# ── versions by tag ──


def replace_ancestors(service: Service, connection: sa.Connection, who: Caller, record: JobRecord) -> None:
    """Make a job's tag the newest of its basis and end the jobs of older ones; Conflict if it is an older one."""
    if not record.basis:
        return
    replace_waiting(service, connection, record)
    basis = Basis(record.requestor, record.basis)
    allowed = {entry.id for entry in service.catalogue.values() if who.admin or entry.id in who.submits}
    known = symbols.known_tags(connection, allowed, basis)
    if record.tag in known[1:] and record.tag != known[0]:
        raise Conflict(f"tag {record.tag} is outdated: {record.basis} is now at {known[0]}", newest=known[0])
    if record.tag not in known[:1]:
        symbols.add_tag(connection, record.cluster_id, basis, record.tag)
        for job in symbols.live_with_tag(connection, allowed, basis, record.tag):
            end(connection, job, service.clock())


def replace_waiting(service: Service, connection: sa.Connection, record: JobRecord) -> None:
    """End the older versions of a job that wait for a cluster."""
    if record.basis:
        for job in jobs.older_unplaced(connection, record.id, record.requestor, record.basis, record.tag):
            end(connection, job, service.clock())
