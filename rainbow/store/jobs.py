"""Jobs and the decisions that placed them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from rainbow.state_machine import JobState
from rainbow.store.schema import (
    STAGED,
    Plain,
    clusters,
    events,
    jobs,
    reaches,
    record_uses,
    records,
    states,
    tasks,
    unplaced,
)


def has_older(connection: sa.Connection, before: float) -> bool:
    """Return whether anything may be forgotten."""
    results = [
        sa.select(jobs.c.id).where(jobs.c.ended_at < before).limit(1),
        sa.select(events.c.number).where(events.c.at < before).limit(1),
    ]
    return any(connection.execute(query).first() for query in results)


def forget(connection: sa.Connection, before: float, most: int) -> int:
    """Forget what ended before this time, at most so many jobs with their tasks; return how many jobs."""
    old = sa.select(jobs.c.id).where(jobs.c.ended_at < before).order_by(jobs.c.ended_at).limit(most)
    gone = connection.execute(old).scalars().all()
    used = sa.select(record_uses.c.digest).where(record_uses.c.job.in_(gone)).distinct()
    digests = connection.execute(used).scalars().all()
    connection.execute(jobs.delete().where(jobs.c.id.in_(gone)))
    in_use = sa.exists().where(record_uses.c.digest == records.c.digest)
    connection.execute(records.delete().where(records.c.digest.in_(digests), ~in_use))
    return len(gone)


NAMED = 500  # jobs named in one statement
LIVE = frozenset({JobState.WAITING, JobState.RUNNING})  # at a cluster
PENDING = LIVE | {JobState.UNPLACED}  # not ended
# so that no statement looks at every job for these few
_NAMED_UNPLACED = jobs.c.id.in_(sa.select(unplaced.c.job).correlate(None))


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is stored of a job, without its jobspec and decision. `wait`: {"reason", "since"}, MARKS with text."""

    id: str
    name: str
    requestor: str
    cluster_id: str
    cluster: str
    nodes: int
    submitted_at: float
    state: JobState = JobState.WAITING
    priority: int = 0
    canceled_at: float | None = None
    ended_at: float | None = None
    accepted_clock: int | None = None
    ended_clock: int | None = None
    wait: Mapping[str, Any] | None = None
    basis: str = ""  # what this job is a version of
    tag: str = ""  # which version
    awaits: Sequence[str] | None = None  # jobs it was found to wait for by name when it was submitted
    suspended_at: float | None = None  # since when its owner wants it held
    account: str = ""  # who pays for it; empty: none
    rate: float = 0.0  # money for a core second where it was placed
    qos: str = ""  # its quality of service; empty: none
    number: int = 0  # decimal, never given twice; 0: of a server of a former version
    held_at: float | None = None  # since when its owner lets nothing more of it start
    overrides: Mapping[str, Any] | None = None  # what was changed of its jobspec since; see service/jobs/jobspecs.py
    elements: int = 0  # of an array: how many numbers it has, its own among them; 0: it is none

    @property
    def is_halted(self) -> bool:
        """Whether its owner lets nothing of it start that waits."""
        return self.suspended_at is not None or self.held_at is not None

    def moved(self, cluster_id: str, cluster: str, nodes: int) -> JobRecord:
        """Return the job as it is at another cluster."""
        return replace(self, cluster_id=cluster_id, cluster=cluster, nodes=nodes)


ENDING = "canceled"  # the code while a job's last tasks are still to be ended
WITHDRAWING = "withdrawing"  # the code while a site is asked to give a job back
MARKS = frozenset({ENDING, WITHDRAWING})  # facts of a job and no plan's opinion


def code_of(record: JobRecord) -> str:
    """Return the stored code of why a job waits; "" if none is."""
    return str((record.wait or {}).get("reason", ""))


_NAMES = [column.name for column in fields(JobRecord)]
_COLUMNS = [jobs.c[name] for name in _NAMES]
_NO_KEY = {"idempotency": None, "request_digest": None}
SEEN = sa.select(*_COLUMNS).where(jobs.c.state != STAGED)
_ORDERED = SEEN.order_by(jobs.c.submitted_at, jobs.c.id)
_BY_PREFIX = SEEN.order_by(jobs.c.id)
_BY_ID = _ORDERED.where(jobs.c.id == sa.bindparam("wanted"))
_LIVE = _ORDERED.where(jobs.c.cluster_id == sa.bindparam("wanted"), jobs.c.state.in_(LIVE))
_CHANGED = Plain(
    sa.select(*_COLUMNS)
    .where(jobs.c.cluster_id == sa.bindparam("cluster"), jobs.c.stamp >= sa.bindparam("since"))
    .order_by(jobs.c.submitted_at, jobs.c.id)
)
_EPOCH = sa.select(clusters.c.epoch).where(clusters.c.id == sa.bindparam("of_cluster")).scalar_subquery()
_MOVE = (
    jobs.update()
    .where(jobs.c.id == sa.bindparam("moved"))
    .values(cluster_id=sa.bindparam("of_cluster"), stamp=sa.func.coalesce(_EPOCH, 0))
)
_ADD = Plain(
    jobs.insert().values(stamp=sa.func.coalesce(_EPOCH, sa.literal_column("0"))),
    [*_NAMES, *_NO_KEY, "jobspec", "decision"],
)


def add(
    connection: sa.Connection,
    record: JobRecord,
    jobspec: Any,
    decision: Mapping[str, Any],
    *,
    staged: bool = False,
    **key: str,
) -> bool:
    """Store a new job; `key` may hold `idempotency` and `request_digest`.

    `staged`: its tasks are stored under a row that becomes the job; False if that row is gone.
    """
    own = {name: getattr(record, name) for name in _NAMES}
    values = {**_NO_KEY, **own, "jobspec": jobspec, "decision": dict(decision), **key}
    if not staged:
        _ADD(connection, {**values, "of_cluster": record.cluster_id})
        return True
    become = jobs.update().where(jobs.c.id == record.id, jobs.c.state == STAGED)
    stamped = become.values(**values, stamp=sa.func.coalesce(_EPOCH, 0))
    return connection.execute(stamped, {"of_cluster": record.cluster_id}).rowcount > 0


def place(connection: sa.Connection, record: JobRecord, decision: Mapping[str, Any], epoch: int) -> None:
    """Store that a cluster has taken a job that waited, so that what reads its changes since this epoch sees it."""
    there = {"cluster_id": record.cluster_id, "cluster": record.cluster, "nodes": record.nodes}
    there |= {"priority": record.priority, "rate": record.rate}
    connection.execute(record_uses.delete().where(record_uses.c.job == record.id))
    remove_unplaced(connection, record.id)
    change(connection, record.id, **there, state=record.state, wait=None, decision=dict(decision), stamp=epoch)


def get(connection: sa.Connection, job_id: str) -> JobRecord | None:
    """Return the job."""
    return next((record_of(row) for row in connection.execute(_BY_ID, {"wanted": job_id})), None)


_BY_NUMBER = SEEN.where(jobs.c.number <= sa.bindparam("wanted")).order_by(jobs.c.number.desc()).limit(1)


def by_number(connection: sa.Connection, number: int) -> JobRecord | None:
    """Return the job that has this number, or of which an element has it."""
    result = next((record_of(row) for row in connection.execute(_BY_NUMBER, {"wanted": number})), None)
    return result if result and 0 < number < result.number + max(1, result.elements) else None


def beginning_with(connection: sa.Connection, prefix: str, most: int) -> list[JobRecord]:
    """Return at most `most` jobs whose ids begin with these hexadecimal digits."""
    within = (jobs.c.id >= prefix, jobs.c.id < prefix + "g")  # no digit comes after f: the index answers
    return [record_of(row) for row in connection.execute(_BY_PREFIX.where(*within).limit(most))]


def some(connection: sa.Connection, job_ids: Collection[str]) -> list[JobRecord]:
    """Return those of these jobs that exist."""
    requirements = sorted(job_ids)
    parts = [requirements[k : k + NAMED] for k in range(0, len(requirements), NAMED)]
    return [record for part in parts for record in _jobs(connection, jobs.c.id.in_(part))]


def live(connection: sa.Connection, cluster_id: str) -> list[JobRecord]:
    """Return the cluster's jobs that have not ended, in order of submission."""
    return [record_of(row) for row in connection.execute(_LIVE, {"wanted": cluster_id})]


def changed(connection: sa.Connection, cluster_id: str, since: int) -> list[JobRecord]:
    """Return the cluster's jobs that were submitted or changed since an epoch, ended ones too."""
    rows = _CHANGED.found(connection, {"cluster": cluster_id, "since": since})
    return [replace(record, state=JobState(record.state)) for record in (JobRecord(*row) for row in rows)]


def live_by_requestor(connection: sa.Connection, cluster_id: str) -> dict[str, int]:
    """Return {requestor: how many live jobs} of a cluster."""
    query = sa.select(jobs.c.requestor, sa.func.count()).where(jobs.c.cluster_id == cluster_id)
    rows = connection.execute(query.where(jobs.c.state.in_(LIVE)).group_by(jobs.c.requestor))
    return {row[0]: row[1] for row in rows}


def live_of(connection: sa.Connection, cluster_id: str, requestor: str) -> int:
    """Count a requestor's jobs at a cluster that have not ended."""
    where = (jobs.c.cluster_id == cluster_id, jobs.c.state.in_(LIVE), jobs.c.requestor == requestor)
    return connection.execute(sa.select(sa.func.count()).where(*where)).scalar_one()


def oldest_waiting(connection: sa.Connection, cluster_ids: Sequence[str]) -> dict[str, JobRecord]:
    """Return {cluster id: the job that waits there longest}, of those where one waits."""
    if not cluster_ids:
        return {}
    own = jobs.c.cluster_id.in_(cluster_ids), jobs.c.state == JobState.WAITING
    first = sa.select(sa.func.min(jobs.c.id)).where(*own).group_by(jobs.c.cluster_id)
    return {record.cluster_id: record for record in _jobs(connection, jobs.c.id.in_(first))}


def by_idempotency(connection: sa.Connection, key: str) -> tuple[str, str] | None:
    """Return (job id, digest of its request) of the job submitted under this key."""
    query = sa.select(jobs.c.id, jobs.c.request_digest).where(jobs.c.idempotency == key)
    row = connection.execute(query).one_or_none()
    return (row[0], row[1]) if row else None


def jobspec(connection: sa.Connection, job_id: str) -> Any:
    """Return the jobspec as it was given: text or a mapping."""
    return connection.execute(sa.select(jobs.c.jobspec).where(jobs.c.id == job_id)).scalar_one()


def jobspec_changed(connection: sa.Connection, job_id: str) -> tuple[Any, Mapping[str, Any] | None]:
    """Return the jobspec as it was given, and what was changed of it since."""
    row = connection.execute(sa.select(jobs.c.jobspec, jobs.c.overrides).where(jobs.c.id == job_id)).one()
    return row[0], row[1]


def decision(connection: sa.Connection, job_id: str) -> dict[str, Any]:
    """Return why the job is where it is."""
    result: dict[str, Any] = connection.execute(sa.select(jobs.c.decision).where(jobs.c.id == job_id)).scalar_one()
    return result


def change(connection: sa.Connection, job_id: str, **values: Any) -> None:
    """Store new values of a job's columns."""
    connection.execute(_changing(tuple(values)), {"changed": job_id, **{f"new_{key}": values[key] for key in values}})


def cancel_all(connection: sa.Connection, job_ids: Collection[str], now: float, clock: int) -> None:
    """Store that jobs of one cluster, of which nothing had begun, are canceled and have ended."""
    ended = {"state": JobState.CANCELED, "canceled_at": now, "ended_at": now, "ended_clock": clock, "wait": None}
    for k in range(0, len(job_ids), NAMED):
        part = list(job_ids)[k : k + NAMED]
        connection.execute(jobs.update().where(jobs.c.id.in_(part)).values(**ended))


def set_waits(connection: sa.Connection, waits: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Store why jobs wait, of one job at least."""
    _SET_WAIT(connection, *({"changed": job, "new_wait": waits[job]} for job in waits))


def move(connection: sa.Connection, job_id: str, cluster_id: str) -> None:
    """Let a job belong to another cluster, as one that is new there."""
    connection.execute(_MOVE, {"moved": job_id, "of_cluster": cluster_id})


@cache
def _changing(names: tuple[str, ...]) -> sa.Update:
    values: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in names}
    return jobs.update().where(jobs.c.id == sa.bindparam("changed")).values(values)


_SET_WAIT = Plain(_changing(("wait",)))


def _jobs(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[JobRecord]:
    return [record_of(row) for row in connection.execute(_ORDERED.where(*where))]


def record_of(row: sa.Row[Any]) -> JobRecord:
    """Return the job of a row of SEEN."""
    return JobRecord(**{**row._mapping, "state": JobState(row.state)})


FAST = 1  # of zlib's levels: names and numbers shrink to a tenth anyway
_KNOWN = sa.select(records.c.digest).where(records.c.digest.in_(sa.bindparam("wanted", expanding=True)))
_ADD_RECORD = records.insert()
_KEPT = sa.select(sa.bindparam("user", type_=sa.String), records.c.digest).where(
    records.c.digest == sa.bindparam("wanted")
)
_USE = Plain(record_uses.insert().from_select(["job", "digest"], _KEPT))


def keep_records(connection: sa.Connection, job_id: str, texts: Mapping[str, str]) -> None:
    """Keep texts, given by digest, as long as the job is kept."""
    if texts and _use(connection, job_id, texts) < len(texts):
        known = set(connection.execute(_KNOWN, {"wanted": list(texts)}).scalars())
        new = {key: zlib.compress(text.encode(), FAST) for key, text in texts.items() if key not in known}
        connection.execute(_ADD_RECORD, [{"digest": key, "content": content} for key, content in new.items()])
        _use(connection, job_id, new)


def _use(connection: sa.Connection, job_id: str, digests: Collection[str]) -> int:
    """Note that a job uses what is kept of these; return how many that are."""
    used: int = _USE(connection, *({"user": job_id, "wanted": one} for one in digests)).rowcount
    return used


def get_records(connection: sa.Connection, digests: Collection[str]) -> dict[str, str]:
    """Return {digest: text} of those that are kept."""
    results = connection.execute(sa.select(records).where(records.c.digest.in_(digests))) if digests else ()
    return {row.digest: zlib.decompress(row.content).decode() for row in results}


# ── jobs that wait for a cluster ──

# `reach` names a set of clusters, kept once for all jobs that may go to them; None: to any cluster there is.
# `turn` is when the job was submitted or, if that is later, when a job of the same requestor was placed last: the
# smallest is next. `home` is the cluster whose readers are told of the job while it has none.


@dataclass(frozen=True, slots=True)
class UnplacedRecord:
    """A job that waits, or ended before any cluster took it."""

    job: str
    reach: str | None
    turn: float
    home: str
    selector: str | None = None  # its own; None: the server's
    options: Mapping[str, Any] | None = None
    backend: str | None = None  # how it is matched; None: as the server is set


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits: what decides whose turn it is."""

    job: str
    requestor: str
    submitted_at: float
    turn: float
    account: str = ""


def add_unplaced(connection: sa.Connection, record: UnplacedRecord) -> None:
    """Store that a job waits."""
    connection.execute(unplaced.insert().values(**asdict(record)))


def keep_reach(connection: sa.Connection, cluster_ids: Collection[str]) -> str:
    """Store a set of clusters and return its name."""
    ids = sorted(cluster_ids)
    name = hashlib.sha256(" ".join(ids).encode()).hexdigest()
    known = set(connection.execute(sa.select(reaches.c.cluster_id).where(reaches.c.reach == name)).scalars())
    if rows := [{"reach": name, "cluster_id": one} for one in ids if one not in known]:
        connection.execute(reaches.insert(), rows)
    return name


def get_unplaced(connection: sa.Connection, job_id: str) -> UnplacedRecord | None:
    """Return what is kept of a job without a cluster."""
    row = connection.execute(sa.select(unplaced).where(unplaced.c.job == job_id)).one_or_none()
    return UnplacedRecord(**row._mapping) if row else None


def remove_unplaced(connection: sa.Connection, job_id: str) -> None:
    """Forget that a job waited: a cluster has it."""
    connection.execute(unplaced.delete().where(unplaced.c.job == job_id))


def open_to(connection: sa.Connection, job_id: str) -> set[str]:
    """Return the ids of the clusters that a job without a cluster may go to; empty if it may go to any."""
    query = sa.select(reaches.c.cluster_id).join(unplaced, unplaced.c.reach == reaches.c.reach)
    return set(connection.execute(query.where(unplaced.c.job == job_id)).scalars())


def list_unplaced(connection: sa.Connection) -> list[WaitingJob]:
    """Return the jobs that wait and are not suspended."""
    query = sa.select(jobs.c.id, jobs.c.requestor, jobs.c.submitted_at, unplaced.c.turn, jobs.c.account)
    query = query.join(unplaced, unplaced.c.job == jobs.c.id)
    query = query.where(_NAMED_UNPLACED, jobs.c.state == JobState.UNPLACED)
    query = query.where(jobs.c.suspended_at.is_(None), jobs.c.held_at.is_(None))
    return [WaitingJob(*row) for row in connection.execute(query)]


def count_unplaced(connection: sa.Connection, requestor: str | None = None) -> int:
    """Count the jobs that wait, of a requestor or all."""
    query = sa.select(sa.func.count()).where(_NAMED_UNPLACED, jobs.c.state == JobState.UNPLACED)
    return connection.execute(query if requestor is None else query.where(jobs.c.requestor == requestor)).scalar_one()


def serve_requestor(connection: sa.Connection, requestor: str, now: float) -> None:
    """Let a requestor's other jobs wait for another turn: one of them was placed."""
    own = sa.select(jobs.c.id).where(jobs.c.requestor == requestor, jobs.c.state == JobState.UNPLACED)
    connection.execute(unplaced.update().where(unplaced.c.job.in_(own), unplaced.c.turn < now).values(turn=now))


def older_unplaced(connection: sa.Connection, job_id: str, requestor: str, basis: str, tag: str) -> list[str]:
    """Return the jobs of a basis that wait since before a job, with another tag."""
    query = sa.select(jobs.c.id).where(jobs.c.state == JobState.UNPLACED, jobs.c.requestor == requestor)
    query = query.where(jobs.c.basis == basis, jobs.c.tag != tag, jobs.c.id < job_id)
    return list(connection.execute(query).scalars())


def placement_signature(connection: sa.Connection) -> list[tuple[Any, ...]]:
    """Return what changes when a state, a graph or a booking of some cluster does."""
    changing = (clusters.c.id, clusters.c.revision, clusters.c.clock, clusters.c.moves, states.c.reported_at)
    query = sa.select(*changing).outerjoin(states, states.c.cluster_id == clusters.c.id).order_by(clusters.c.id)
    return [tuple(row) for row in connection.execute(query)]


def forget_unused_reaches(connection: sa.Connection) -> None:
    """Forget sets of clusters that no job may go to any more."""
    used = sa.select(unplaced.c.reach).where(unplaced.c.reach.is_not(None))
    connection.execute(reaches.delete().where(reaches.c.reach.not_in(used)))


# A row in the state STAGED is no job yet: tasks are stored under it piece by piece. It has no cluster; nothing that
# lists or finds jobs sees it, and nothing that counts tasks counts those of it. `add` makes a job of it.
_OURS = (jobs.c.cluster_id == "", jobs.c.state == STAGED)  # as an index is written
_TOUCH = jobs.update().where(jobs.c.id == sa.bindparam("row"), *_OURS).values(submitted_at=sa.bindparam("now"))
_STAGED_TASKS = (
    sa.select(tasks.c.cluster_id, sa.func.count())
    .join(jobs, jobs.c.id == tasks.c.job)
    .where(*_OURS)
    .group_by(tasks.c.cluster_id)
)


def begin_staged(connection: sa.Connection, job_id: str, now: float) -> None:
    """Store a row under which tasks can be stored; `submitted_at` is when it was touched last."""
    blank = {"name": "", "requestor": "", "cluster_id": "", "cluster": "", "jobspec": "", "decision": {}}
    row = {"id": job_id, "state": STAGED, "priority": 0, "nodes": 0, "submitted_at": now, "stamp": 0}
    connection.execute(jobs.insert().values(**blank, **row))


def touch_staged(connection: sa.Connection, job_id: str, now: float) -> bool:
    """Note that tasks are stored there now; False if the row is gone."""
    return connection.execute(_TOUCH, {"row": job_id, "now": now}).rowcount > 0


def older_staged(connection: sa.Connection, before: float) -> list[str]:
    """Return the rows not touched since a time."""
    query = sa.select(jobs.c.id).where(*_OURS, jobs.c.submitted_at < before).order_by(jobs.c.id)
    return list(connection.execute(query).scalars())


def remove_staged(connection: sa.Connection, job_id: str, most: int) -> bool:
    """Remove some of the tasks of a row, or the row after the last of them; return whether any may be left."""
    ours = sa.select(jobs.c.id).where(jobs.c.id == job_id, *_OURS)
    some = sa.select(tasks.c.id).where(tasks.c.job.in_(ours)).limit(most)
    if connection.execute(tasks.delete().where(tasks.c.id.in_(some))).rowcount == most:
        return True
    connection.execute(jobs.delete().where(jobs.c.id == job_id, *_OURS))
    return False


def staged_tasks(connection: sa.Connection) -> dict[str, int]:
    """Return {cluster id: tasks stored for it that are of no job yet}: they all look like tasks that wait."""
    return {row[0]: row[1] for row in connection.execute(_STAGED_TASKS)}
