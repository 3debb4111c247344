"""Jobs and the decisions that placed them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from rainbow.state_machine import JobState
from rainbow.store.schema import (
    IS_OPEN,
    IS_OVER,
    STAGED,
    clusters,
    events,
    jobs,
    reaches,
    record_uses,
    records,
    states,
    tasks,
    together,
    unplaced,
)


def has_older(connection: sa.Connection, before: float) -> bool:
    """Return whether anything may be forgotten."""
    found = [
        sa.select(jobs.c.id).where(jobs.c.ended_at < before).limit(1),
        sa.select(events.c.number).where(events.c.at < before).limit(1),
    ]
    return any(connection.execute(query).first() for query in found)


def forget(connection: sa.Connection, before: float, most: int) -> int:
    """Forget what ended before this time, at most so many jobs with their tasks; return how many jobs."""
    old = sa.select(jobs.c.id).where(jobs.c.ended_at < before).order_by(jobs.c.ended_at).limit(most)
    gone = connection.execute(old).scalars().all()
    connection.execute(jobs.delete().where(jobs.c.id.in_(gone)))
    forget_unused_records(connection)
    forget_unused_reaches(connection)
    connection.execute(events.delete().where(events.c.at < before))
    return len(gone)


NAMED = 500  # jobs named in one statement
LIVE = frozenset({JobState.WAITING, JobState.RUNNING})  # at a cluster
PENDING = LIVE | {JobState.UNPLACED}  # not ended
COMMON = PENDING | {JobState.COMPLETED}  # of other states there are few: they are found by their state first
_OPEN = sa.text(f"jobs.{IS_OPEN}")
_OVER = sa.text(f"jobs.{IS_OVER}")
_NAMED_UNPLACED = jobs.c.id.in_(
    sa.select(unplaced.c.job).correlate(None)
)  # so that no statement looks at every job for these few


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is stored of a job, without its jobspec and decision. `wait`: why it waits, as the policy says."""

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

    def moved(self, cluster_id: str, cluster: str, nodes: int) -> JobRecord:
        """Return the job as it is at another cluster."""
        return replace(self, cluster_id=cluster_id, cluster=cluster, nodes=nodes)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs to list. `clusters` None: of every cluster; `before`: those that come after this job id."""

    clusters: Collection[str] | None = None
    states: Collection[str] = ()
    name: str | None = None
    before: str | None = None
    limit: int = 100
    requestor: str | None = None
    own: Mapping[str, Collection[str]] = field(default_factory=dict)  # cluster → whose jobs there, if not everybody's
    reason: str | None = None  # why they wait
    oldest: bool = False  # the oldest first


_NAMES = [column.name for column in fields(JobRecord)]
_COLUMNS = [jobs.c[name] for name in _NAMES]
_NO_KEY = {"idempotency": None, "request_digest": None}
_SEEN = sa.select(*_COLUMNS).where(jobs.c.state != STAGED)
_ORDERED = _SEEN.order_by(jobs.c.submitted_at, jobs.c.id)
_BY_PREFIX = _SEEN.order_by(jobs.c.id)
_BY_ID = _ORDERED.where(jobs.c.id == sa.bindparam("wanted"))
_LIVE = _ORDERED.where(jobs.c.cluster_id == sa.bindparam("wanted"), jobs.c.state.in_(LIVE))
_CHANGED = (
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
_ADD = jobs.insert().values(stamp=sa.func.coalesce(_EPOCH, 0))


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
        connection.execute(_ADD, {**values, "of_cluster": record.cluster_id})
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
    return next((_record(row) for row in connection.execute(_BY_ID, {"wanted": job_id})), None)


def beginning_with(connection: sa.Connection, prefix: str, most: int) -> list[JobRecord]:
    """Return at most `most` jobs whose ids begin with these hexadecimal digits."""
    within = (jobs.c.id >= prefix, jobs.c.id < prefix + "g")  # no digit comes after f: the index answers
    return [_record(row) for row in connection.execute(_BY_PREFIX.where(*within).limit(most))]


def some(connection: sa.Connection, job_ids: Collection[str]) -> list[JobRecord]:
    """Return those of these jobs that exist."""
    wanted = sorted(job_ids)
    parts = [wanted[k : k + NAMED] for k in range(0, len(wanted), NAMED)]
    return [record for part in parts for record in _jobs(connection, jobs.c.id.in_(part))]


def live(connection: sa.Connection, cluster_id: str) -> list[JobRecord]:
    """Return the cluster's jobs that have not ended, in order of submission."""
    return [_record(row) for row in connection.execute(_LIVE, {"wanted": cluster_id})]


def changed(connection: sa.Connection, cluster_id: str, since: int) -> list[JobRecord]:
    """Return the cluster's jobs that were submitted or changed since an epoch, ended ones too."""
    return [_record(row) for row in connection.execute(_CHANGED, {"cluster": cluster_id, "since": since})]


def live_by_requestor(connection: sa.Connection, cluster_id: str) -> dict[str, int]:
    """Return {requestor: how many live jobs} of a cluster."""
    query = sa.select(jobs.c.requestor, sa.func.count()).where(jobs.c.cluster_id == cluster_id)
    rows = connection.execute(query.where(jobs.c.state.in_(LIVE)).group_by(jobs.c.requestor))
    return {row[0]: row[1] for row in rows}


def live_of(connection: sa.Connection, cluster_id: str, requestor: str) -> int:
    """Count a requestor's jobs at a cluster that have not ended."""
    where = (jobs.c.cluster_id == cluster_id, jobs.c.state.in_(LIVE), jobs.c.requestor == requestor)
    return connection.execute(sa.select(sa.func.count()).where(*where)).scalar_one()


def _unindexed(column: sa.Column[str]) -> sa.ColumnElement[str]:
    """Return a column's value such that no index of it is used, where another one finds the few that are wanted."""
    return column.concat("")


def listing(connection: sa.Connection, chosen: Filter) -> list[JobRecord]:
    """Return the chosen jobs, the newest first unless the oldest are asked for."""
    order = jobs.c.id if chosen.oldest else jobs.c.id.desc()
    query = _SEEN.order_by(order).limit(chosen.limit)
    if chosen.clusters is not None:
        query = query.where(_shown(chosen.clusters, chosen.own))
    states = chosen.states or (PENDING if chosen.reason is not None else ())
    is_open, are_few = PENDING.issuperset(states), not COMMON.intersection(states)
    if states:
        query = query.where(jobs.c.state.in_(states), *([_OPEN] if is_open else [_OVER] if are_few else []))
    if chosen.reason is not None:
        query = query.where(jobs.c.wait["reason"].as_string() == chosen.reason)
    for column, wanted in ((jobs.c.cluster, chosen.name), (jobs.c.requestor, chosen.requestor)):
        if wanted is not None:
            query = query.where((_unindexed(column) if states and (is_open or are_few) else column) == wanted)
    if chosen.before is not None:
        query = query.where(jobs.c.id > chosen.before if chosen.oldest else jobs.c.id < chosen.before)
    return list(map(_record, connection.execute(query)))


def oldest_waiting(connection: sa.Connection, cluster_ids: Sequence[str]) -> dict[str, JobRecord]:
    """Return {cluster id: the job that waits there longest}, of those where one waits."""
    if not cluster_ids:
        return {}
    own = jobs.c.cluster_id.in_(cluster_ids), jobs.c.state == JobState.WAITING
    first = sa.select(sa.func.min(jobs.c.id)).where(*own).group_by(jobs.c.cluster_id)
    return {record.cluster_id: record for record in _jobs(connection, jobs.c.id.in_(first))}


COUNTED = ("state", "cluster", "requestor", "reason")


def count_live_by(
    connection: sa.Connection, visible: Collection[str] | None, own: Mapping[str, Collection[str]], by: str
) -> dict[str, int]:
    """Return {value: how many jobs that have not ended} of one of COUNTED, the largest first."""
    column = jobs.c.wait["reason"].as_string() if by == "reason" else _unindexed(jobs.c[by])
    query = sa.select(column, sa.func.count()).where(_OPEN).group_by(column)
    if visible is not None:
        query = query.where(_shown(visible, own))
    found = {str(value or ""): many for value, many in connection.execute(query)}
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def newest(connection: sa.Connection) -> str:
    """Return the largest job id there is, or an empty text."""
    return connection.execute(sa.select(sa.func.max(jobs.c.id))).scalar() or ""


def by_idempotency(connection: sa.Connection, key: str) -> tuple[str, str] | None:
    """Return (job id, digest of its request) of the job submitted under this key."""
    query = sa.select(jobs.c.id, jobs.c.request_digest).where(jobs.c.idempotency == key)
    row = connection.execute(query).one_or_none()
    return (row[0], row[1]) if row else None


def jobspec(connection: sa.Connection, job_id: str) -> Any:
    """Return the jobspec as it was given: text or a mapping."""
    return connection.execute(sa.select(jobs.c.jobspec).where(jobs.c.id == job_id)).scalar_one()


def decision(connection: sa.Connection, job_id: str) -> dict[str, Any]:
    """Return why the job is where it is."""
    found: dict[str, Any] = connection.execute(sa.select(jobs.c.decision).where(jobs.c.id == job_id)).scalar_one()
    return found


def change(connection: sa.Connection, job_id: str, **values: Any) -> None:
    """Store new values of a job's columns."""
    connection.execute(_changing(tuple(values)), {"changed": job_id, **{f"new_{key}": values[key] for key in values}})


def move(connection: sa.Connection, job_id: str, cluster_id: str) -> None:
    """Let a job belong to another cluster, as one that is new there."""
    connection.execute(_MOVE, {"moved": job_id, "of_cluster": cluster_id})


@cache
def _changing(names: tuple[str, ...]) -> sa.Update:
    values: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in names}
    return jobs.update().where(jobs.c.id == sa.bindparam("changed")).values(values)


def _jobs(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[JobRecord]:
    return [_record(row) for row in connection.execute(_ORDERED.where(*where))]


def _record(row: sa.Row[Any]) -> JobRecord:
    return JobRecord(**{**row._mapping, "state": JobState(row.state)})


FAST = 1  # of zlib's levels: names and numbers shrink to a tenth anyway
_KNOWN = sa.select(records.c.digest).where(records.c.digest.in_(sa.bindparam("wanted", expanding=True)))
_ADD_RECORD = records.insert()
_KEPT = sa.select(sa.bindparam("user", type_=sa.String), records.c.digest).where(
    records.c.digest == sa.bindparam("wanted")
)
_USE = record_uses.insert().from_select(["job", "digest"], _KEPT).execution_options(preserve_rowcount=True)


def keep_records(connection: sa.Connection, job_id: str, texts: Mapping[str, str]) -> None:
    """Keep texts, given by digest, as long as the job is kept."""
    if texts and _use(connection, job_id, texts) < len(texts):
        known = set(connection.execute(_KNOWN, {"wanted": list(texts)}).scalars())
        new = {key: zlib.compress(text.encode(), FAST) for key, text in texts.items() if key not in known}
        connection.execute(_ADD_RECORD, [{"digest": key, "content": content} for key, content in new.items()])
        _use(connection, job_id, new)


def _use(connection: sa.Connection, job_id: str, digests: Collection[str]) -> int:
    """Note that a job uses what is kept of these; return how many that are."""
    return connection.execute(_USE, together([{"user": job_id, "wanted": one} for one in digests])).rowcount


def get_records(connection: sa.Connection, digests: Collection[str]) -> dict[str, str]:
    """Return {digest: text} of those that are kept."""
    found = connection.execute(sa.select(records).where(records.c.digest.in_(digests))) if digests else ()
    return {row.digest: zlib.decompress(row.content).decode() for row in found}


def forget_unused_records(connection: sa.Connection) -> None:
    """Forget the texts of jobs that are all gone."""
    used = sa.exists().where(record_uses.c.digest == records.c.digest)
    connection.execute(records.delete().where(~used))


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
class Waiting:
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


def _shown(cluster_ids: Collection[str], own: Mapping[str, Collection[str]]) -> sa.ColumnElement[bool]:
    """Return the condition that a job is at one of these, or may go there, and that its requestor's are shown."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for cluster_id, requestors in own.items():
        groups.setdefault(tuple(sorted(requestors)), []).append(cluster_id)
    parts = [_there([one for one in cluster_ids if one not in own])]
    parts += [sa.and_(_there(listed), jobs.c.requestor.in_(whose)) for whose, listed in groups.items()]
    return sa.or_(*parts)


def _there(cluster_ids: Collection[str]) -> sa.ColumnElement[bool]:
    return sa.or_(_unindexed(jobs.c.cluster_id).in_(cluster_ids), _in_reach(cluster_ids))


def _in_reach(cluster_ids: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a job has no cluster and may go to one of these."""
    query = sa.select(unplaced.c.job).join(reaches, unplaced.c.reach == reaches.c.reach)
    return jobs.c.id.in_(query.where(reaches.c.cluster_id.in_(cluster_ids)))


def list_unplaced(connection: sa.Connection) -> list[Waiting]:
    """Return the jobs that wait and are not suspended."""
    query = sa.select(jobs.c.id, jobs.c.requestor, jobs.c.submitted_at, unplaced.c.turn, jobs.c.account)
    query = query.join(unplaced, unplaced.c.job == jobs.c.id)
    query = query.where(_NAMED_UNPLACED, jobs.c.state == JobState.UNPLACED, jobs.c.suspended_at.is_(None))
    return [Waiting(*row) for row in connection.execute(query)]


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
