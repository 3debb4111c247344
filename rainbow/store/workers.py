"""The workers' states, the agents' last heartbeats, certificates of starts, and questions to the agents of sites."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from rainbow.certificate.document import Stored, unfolded
from rainbow.state_machine import BOOKED, Task, TaskState, WorkerState
from rainbow.store.schema import ID, JSON, TIME, Plain, agents, clusters, metadata, tasks, workers

_AGENTS_OF = sa.select(agents).where(agents.c.cluster_id == sa.bindparam("wanted"))
_AGENTS_OF_MANY = sa.select(agents).where(agents.c.cluster_id.in_(sa.bindparam("wanted", expanding=True)))
_ONE = _AGENTS_OF.where(agents.c.name == sa.bindparam("called"))
_NUMBER: sa.BindParameter[int] = sa.bindparam("number")
_SEEN = agents.update().where(agents.c.cluster_id == sa.bindparam("of"), agents.c.name == sa.bindparam("called"))
_RENEWED = _SEEN.values(
    seen_at=sa.bindparam("at"), seq=sa.case((agents.c.seq < _NUMBER, _NUMBER), else_=agents.c.seq)
)


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent's last heartbeat, and the workers it last said are up (None: all of the cluster).

    `seq` is the highest number of a message of its: one with a lower number was overtaken, and is not believed.
    """

    name: str
    seen_at: float
    workers: frozenset[str] | None = None
    seq: int = 0
    load: Mapping[str, float] | None = None  # of the machine it watches, by name of the value
    keeps: bool = False  # its tasks go on when it loses the server
    checks: bool = False  # it asks its site whether that would take a job


def agents_of(connection: sa.Connection, cluster_id: str) -> dict[str, AgentRecord]:
    """Return {agent: its last heartbeat}."""
    return {row.name: _agent_record(row) for row in connection.execute(_AGENTS_OF, {"wanted": cluster_id})}


def agents_of_many(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, dict[str, AgentRecord]]:
    """Return {cluster id: {agent: its last heartbeat}} of those that have agents."""
    requirements, result = sorted(cluster_ids), dict[str, dict[str, AgentRecord]]()
    for k in range(0, len(requirements), NAMED):
        for row in connection.execute(_AGENTS_OF_MANY, {"wanted": requirements[k : k + NAMED]}):
            result.setdefault(row.cluster_id, {})[row.name] = _agent_record(row)
    return result


def agent(connection: sa.Connection, cluster_id: str, name: str) -> AgentRecord | None:
    """Return an agent's last heartbeat."""
    row = connection.execute(_ONE, {"wanted": cluster_id, "called": name}).first()
    return _agent_record(row) if row else None


def put_agent(connection: sa.Connection, cluster_id: str, record: AgentRecord, *, beats: bool = True) -> None:
    """Store a heartbeat in place of the agent's last; one that is no heartbeat leaves what the last one said."""
    values: dict[str, Any] = {
        "seen_at": record.seen_at,
        "workers": _written(record.workers),
        "seq": record.seq,
        "keeps": record.keeps,
        "checks": record.checks,
    }
    values["load"] = None if record.load is None else dict(record.load)
    news = values if beats else {"seen_at": record.seen_at, "seq": record.seq}
    if not connection.execute(_SEEN, {"of": cluster_id, "called": record.name, **news}).rowcount:
        connection.execute(agents.insert().values(cluster_id=cluster_id, name=record.name, **values))


_CHECKING = sa.select(agents.c.cluster_id).where(agents.c.checks.is_(sa.true())).distinct()


def checking(connection: sa.Connection) -> frozenset[str]:
    """Return the ids of the clusters that have an agent which asks its site about jobs to come."""
    return frozenset(connection.execute(_CHECKING).scalars())


def renew(connection: sa.Connection, signs: Iterable[tuple[str, AgentRecord]]) -> None:
    """Store that agents were heard which said nothing new: (cluster id, sign) of each."""
    rows = [{"of": of, "called": sign.name, "at": sign.seen_at, "number": sign.seq} for of, sign in signs]
    connection.execute(_RENEWED, rows)


def forget_agents(connection: sa.Connection, before: float) -> None:
    """Forget agents that were last seen before a time."""
    connection.execute(agents.delete().where(agents.c.seen_at < before))


def _agent_record(row: sa.Row[Any]) -> AgentRecord:
    return AgentRecord(
        row.name, row.seen_at, _workers_of(row.workers), row.seq, row.load, bool(row.keeps), bool(row.checks)
    )


def _workers_of(stored: Collection[str] | None) -> frozenset[str] | None:
    return None if stored is None else frozenset(stored)


def _written(up: Collection[str] | None) -> list[str] | None:
    return None if up is None else sorted(up)


_AWAY = (
    sa.select(workers.c.name)
    .where(workers.c.cluster_id == sa.bindparam("wanted"), workers.c.state.in_((WorkerState.NEW, WorkerState.LOST)))
    .order_by(workers.c.name)
)
_AWAY_OF = _AWAY.where(workers.c.name.in_(sa.bindparam("names", expanding=True)))
_AWAY_ONE = _AWAY.where(workers.c.name == sa.bindparam("name"))  # a list is written into the statement at each use
_OF_CLUSTER = sa.select(workers).where(workers.c.cluster_id == sa.bindparam("wanted"))
_CHANGED = Plain(
    sa.select(*(workers.c[name] for name in ("name", "state", "since", "failures", "losses"))).where(
        workers.c.cluster_id == sa.bindparam("cluster"), workers.c.stamp >= sa.bindparam("since")
    )
)
NAMED = 500  # clusters named in one statement
_THERE = sa.select(workers.c.name).where(
    workers.c.cluster_id == clusters.c.id,
    sa.text("workers.state NOT IN ('NEW', 'LOST')"),  # as its index is written
)
_ALL_UNATTENDED = sa.select(clusters.c.id, clusters.c.policy).where(~_THERE.exists())
_UNATTENDED = _ALL_UNATTENDED.where(clusters.c.id.in_(sa.bindparam("wanted", expanding=True)))
_COUNTS = (
    sa.select(workers.c.cluster_id, workers.c.state, sa.func.count().label("many"))
    .where(workers.c.cluster_id.in_(sa.bindparam("wanted", expanding=True)))
    .group_by(workers.c.cluster_id, workers.c.state)
)


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker's state and since when it is in it."""

    state: WorkerState
    since: float
    failures: int = 0  # to start a task, one after the other
    losses: int = 0  # of tasks, one after the other


def of_cluster(connection: sa.Connection, cluster_id: str) -> dict[str, WorkerRecord]:
    """Return {worker: its state}."""
    return _records(connection.execute(_OF_CLUSTER, {"wanted": cluster_id}))


def away(connection: sa.Connection, cluster_id: str, names: Collection[str] | None) -> list[str]:
    """Return those of these workers (None: all) that nobody has spoken for, or that were lost, in order of name."""
    if names is not None and len(names) == 1:
        return list(connection.execute(_AWAY_ONE, {"wanted": cluster_id, "name": next(iter(names))}).scalars())
    if names is not None and len(names) <= NAMED:
        results = connection.execute(_AWAY_OF, {"wanted": cluster_id, "names": sorted(names)}) if names else ()
        return [row[0] for row in results]
    results = connection.execute(_AWAY, {"wanted": cluster_id})
    return [row[0] for row in results if names is None or row[0] in names]


def changed(connection: sa.Connection, cluster_id: str, since: int) -> dict[str, WorkerRecord]:
    """Return {worker: its state} of those that changed since an epoch."""
    rows = _CHANGED.found(connection, {"cluster": cluster_id, "since": since})
    return {name: WorkerRecord(WorkerState(state), *rest) for name, state, *rest in rows}


def unattended(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, str]:
    """Return {cluster id: its policy} of those of these clusters that no worker is there for."""
    if len(cluster_ids) > NAMED:  # names take longer to write than those of other clusters to read
        rows = connection.execute(_ALL_UNATTENDED)
    else:
        rows = connection.execute(_UNATTENDED, {"wanted": sorted(cluster_ids)})
    return {row[0]: row[1] for row in rows if row[0] in cluster_ids}


def counts(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, dict[WorkerState, int]]:
    """Return {cluster id: {state: how many of its workers are in it}} of those that have workers."""
    requirements, result = sorted(cluster_ids), dict[str, dict[WorkerState, int]]()
    for k in range(0, len(requirements), NAMED):
        for row in connection.execute(_COUNTS, {"wanted": requirements[k : k + NAMED]}):
            result.setdefault(row.cluster_id, {})[WorkerState(row.state)] = row.many
    return result


def _records(rows: sa.CursorResult[Any]) -> dict[str, WorkerRecord]:
    return {row.name: WorkerRecord(WorkerState(row.state), row.since, row.failures, row.losses) for row in rows}


def idle(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, int]:
    """Return {cluster id: how many of its workers are ready and hold no task}."""
    ready: dict[str, set[str]] = {key: set() for key in cluster_ids}
    query = sa.select(workers.c.cluster_id, workers.c.name)
    query = query.where(workers.c.cluster_id.in_(cluster_ids), workers.c.state == WorkerState.READY)
    for cluster_id, name in connection.execute(query):
        ready[cluster_id].add(name)
    held = sa.select(tasks.c.cluster_id, tasks.c.placement)
    held = held.where(tasks.c.cluster_id.in_(cluster_ids), tasks.c.state.in_(BOOKED))
    for cluster_id, placement in connection.execute(held):
        ready[cluster_id].difference_update(placement)
    return {key: len(names) for key, names in ready.items()}


def keep_only(connection: sa.Connection, cluster_id: str, names: Collection[str], now: float) -> None:
    """Forget workers the graph no longer has and add, as NEW, those it did not have."""
    known = set(connection.execute(sa.select(workers.c.name).where(workers.c.cluster_id == cluster_id)).scalars())
    for name in known - set(names):
        connection.execute(_delete(cluster_id, name))
    add(connection, cluster_id, [name for name in names if name not in known], now)


def add(connection: sa.Connection, cluster_id: str, names: Sequence[str], now: float) -> None:
    """Add workers, as NEW."""
    if names:
        row = {"cluster_id": cluster_id, "state": WorkerState.NEW, "since": now}
        connection.execute(workers.insert(), [{**row, "name": name} for name in names])


def move(connection: sa.Connection, cluster_id: str, names: Collection[str], to: WorkerState, now: float) -> None:
    """Put these workers into another state."""
    if not names:
        return
    statement = workers.update().values(state=to, since=now)
    statement = statement.where(workers.c.cluster_id == cluster_id, workers.c.name == sa.bindparam("worker"))
    connection.execute(statement, [{"worker": name} for name in names])


def count_failures(connection: sa.Connection, cluster_id: str, failures: Mapping[str, int]) -> None:
    """Store how often each of these workers has failed one after the other."""
    if not failures:
        return
    statement = workers.update().values(failures=sa.bindparam("times"))
    statement = statement.where(workers.c.cluster_id == cluster_id, workers.c.name == sa.bindparam("worker"))
    connection.execute(statement, [{"worker": name, "times": times} for name, times in failures.items()])


def count_losses(connection: sa.Connection, cluster_id: str, names: Collection[str]) -> dict[str, int]:
    """Count that tasks were lost on these workers; return {worker: how often in a row}."""
    if not names:
        return {}
    own = (workers.c.cluster_id == cluster_id, workers.c.name.in_(sorted(names)))
    connection.execute(workers.update().where(*own).values(losses=workers.c.losses + 1))
    return {
        row.name: row.losses for row in connection.execute(sa.select(workers.c.name, workers.c.losses).where(*own))
    }


def forget_losses(connection: sa.Connection, cluster_id: str, names: Collection[str]) -> None:
    """Note that tasks on these workers end as they should."""
    own = (workers.c.cluster_id == cluster_id, workers.c.name.in_(sorted(names)), workers.c.losses > 0)
    if names:
        connection.execute(workers.update().where(*own).values(losses=0))


def _delete(cluster_id: str, name: str) -> sa.Delete:
    return workers.delete().where(workers.c.cluster_id == cluster_id, workers.c.name == name)


# ── certificates: with the first task of the gang that started, kept in the transaction of the start ──

_KEEP = (
    tasks.update()
    .where(tasks.c.id == sa.bindparam("task"))
    .values(certificate=sa.bindparam("content", type_=tasks.c.certificate.type))
)
_FIRST = (
    sa.select(tasks.c.certificate)
    .where(
        tasks.c.job == sa.bindparam("wanted"),
        tasks.c.gang == sa.bindparam("of_gang"),
        tasks.c.assigned_at == sa.bindparam("at"),
        tasks.c.certificate.is_not(None),
    )
    .limit(1)
)
ELSEWHERE = b""  # its site placed it, after the start was checked


def keep_certificates(connection: sa.Connection, proved: Mapping[str, bytes], changed: Iterable[Task]) -> None:
    """Keep the certificates of tasks that start, and forget those of starts before."""
    starts = [task for task in changed if task.state is TaskState.ASSIGNED]
    rows = [{"task": task.id, "content": proved.get(task.id)} for task in starts if task.attempt or task.id in proved]
    if rows:
        connection.execute(_KEEP, rows)


def forget_certificate(connection: sa.Connection, task: str) -> None:
    """Note that a site placed a task otherwise than it was checked."""
    connection.execute(_KEEP, [{"task": task, "content": ELSEWHERE}])


def certificate_of(connection: sa.Connection, task: Task) -> Stored | bytes | None:
    """Return what is kept of a task's start: None where it was not checked, ELSEWHERE where its site placed it."""
    key = {"wanted": task.job, "of_gang": task.gang, "at": task.assigned_at}
    content = connection.execute(_FIRST, key).scalar()
    return unfolded(content) if content else content


# ── questions to sites that schedule for themselves ──

site_checks = sa.Table(
    "site_checks",
    metadata,
    sa.Column("id", ID, primary_key=True),  # SHA-256 of the cluster and of what is asked
    sa.Column("cluster_id", ID, sa.ForeignKey("clusters.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("question", JSON, nullable=False),
    sa.Column("asked_at", TIME, nullable=False, index=True),
    sa.Column("answered_at", TIME),  # NULL: not yet
    sa.Column("answer", JSON),
)


class SiteCheck(NamedTuple):
    """A question; `answer` is None until an agent has answered."""

    id: str
    cluster_id: str
    question: Mapping[str, Any]
    asked_at: float
    answer: Mapping[str, Any] | None = None


def checks_by_id(connection: sa.Connection, ids: Collection[str], since: float) -> dict[str, SiteCheck]:
    """Return those of these questions that were asked since a time."""
    requirement = sa.select(site_checks).where(site_checks.c.id.in_(ids), site_checks.c.asked_at >= since)
    return {row.id: _check(row) for row in connection.execute(requirement)}


def open_checks(connection: sa.Connection, cluster_id: str, since: float) -> list[SiteCheck]:
    """Return the questions to a cluster that are not answered, and were asked since a time."""
    requirement = sa.select(site_checks).where(
        site_checks.c.cluster_id == cluster_id, site_checks.c.answered_at.is_(None), site_checks.c.asked_at >= since
    )
    return [_check(row) for row in connection.execute(requirement.order_by(site_checks.c.asked_at))]


def add_checks(connection: sa.Connection, checks: Sequence[SiteCheck], forgotten: float) -> None:
    """Store questions in place of those that are too old; forget what was asked before a time."""
    ids = [check.id for check in checks]
    old = sa.or_(site_checks.c.asked_at < forgotten, site_checks.c.id.in_(ids))
    connection.execute(site_checks.delete().where(old))
    rows = [{**check._asdict(), "answered_at": None} for check in checks]
    connection.execute(site_checks.insert(), rows)


def answer_check(
    connection: sa.Connection, cluster_id: str, check_id: str, answer: Mapping[str, Any], now: float
) -> bool:
    """Store an answer; False if there is no such question to this cluster."""
    known = site_checks.update().where(site_checks.c.id == check_id, site_checks.c.cluster_id == cluster_id)
    return bool(connection.execute(known.values(answered_at=now, answer=dict(answer))).rowcount)


def _check(row: sa.Row[Any]) -> SiteCheck:
    return SiteCheck(row.id, row.cluster_id, row.question, row.asked_at, row.answer)
