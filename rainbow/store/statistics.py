"""Counts of what there is; how long tasks ran; what was forecast, and how that turned out."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log
from statistics import median
from typing import Any, NamedTuple

import sqlalchemy as sa

from rainbow.forecast.lengths import RATIOS, RUNS, Key, RunHistory, length_of
from rainbow.state_machine import BOOKED, ENDED, JobState, TaskState
from rainbow.store.jobs import LIVE, staged_tasks
from rainbow.store.schema import JSON, Plain, durations, forecasts, job_etas, jobs, lengths, tasks, together, workers

REMEMBERED = 1_000_000  # tasks, and keys of lengths
SCORES = 300  # of a cluster
SWEEP = 1_000  # new ones between two times of forgetting
_EXPECTED = Plain(sa.select(durations.c.task, durations.c.mean).where(durations.c.job == sa.bindparam("wanted")))


def job_key(cluster_id: str, requestor: str, name: str) -> str:
    """Return what stands for a job that is submitted again and again; parts cannot run into each other."""
    return hashlib.sha256(json.dumps([cluster_id, requestor, name]).encode()).hexdigest()


def expected_durations(connection: sa.Connection, job: str) -> dict[str, float]:
    """Return {task name: mean seconds} of a job's tasks that ran before."""
    return dict(map(tuple, _EXPECTED(connection, {"wanted": job})))


def learn_duration(connection: sa.Connection, job: str, task: str, seconds: float, now: float) -> None:
    """Take another run into the mean; the first one is the mean."""
    own = (durations.c.job == job, durations.c.task == task)
    row = connection.execute(sa.select(durations.c.mean, durations.c.runs).where(*own)).one_or_none()
    if row is None:
        made = connection.execute(durations.insert().values(job=job, task=task, mean=seconds, runs=1, at=now))
        number = made.inserted_primary_key
        if number and int(number[0]) % SWEEP == 0:
            forget_oldest(connection, durations, REMEMBERED)
        return
    runs = row.runs + 1
    changed = {"mean": row.mean + (seconds - row.mean) / runs, "runs": runs, "at": now}
    connection.execute(durations.update().where(*own).values(**changed))


def forget_oldest(connection: sa.Connection, of: sa.Table, most: int) -> None:
    """Keep the rows of a table that were written last."""
    oldest = connection.execute(sa.select(of.c.at).order_by(of.c.at.desc()).limit(1).offset(most)).scalar()
    if oldest is not None:
        connection.execute(of.delete().where(of.c.at <= oldest))


StateCounts = dict[tuple[str, str], int]


def counted(connection: sa.Connection) -> dict[str, StateCounts]:
    """Return {metric: {(cluster id, state): how many}}."""
    live = _by_state(connection, jobs.c.cluster_id, jobs.c.state, jobs.c.state.in_(LIVE))
    there = _by_state(connection, workers.c.cluster_id, workers.c.state, sa.true())
    return {"rainbow_jobs": live, "rainbow_tasks": queues(connection), "rainbow_workers": there}


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A task that has completed."""

    job: str
    name: str
    requestor: str
    cluster: str
    seconds: float


def completed(connection: sa.Connection, since: float, most: int) -> list[CompletedRun]:
    """Return the tasks that have completed since a time, the newest first, `most` of them at most."""
    ended = tasks.c.state == TaskState.COMPLETED, tasks.c.started_at.is_not(None), tasks.c.ended_at >= since
    named = (jobs.c.id, jobs.c.name, jobs.c.requestor, jobs.c.cluster)
    query = sa.select(*named, tasks.c.started_at, tasks.c.ended_at).join(jobs, jobs.c.id == tasks.c.job)
    rows = connection.execute(query.where(*ended).order_by(tasks.c.ended_at.desc(), tasks.c.id).limit(most))
    return [CompletedRun(row[0], row[1], row[2], row[3], row[5] - row[4]) for row in rows]


LONG = 4 * 3600.0  # seconds that a task has run when it counts as long-running


def long_running(connection: sa.Connection, now: float) -> dict[str, int]:
    """Return how many tasks of each cluster have been running for longer than LONG, by cluster id."""
    since = tasks.c.state == TaskState.RUNNING, tasks.c.started_at < now - LONG
    query = sa.select(tasks.c.cluster_id, sa.func.count()).where(*since).group_by(tasks.c.cluster_id)
    return {row[0]: row[1] for row in connection.execute(query)}


def queues(connection: sa.Connection) -> dict[tuple[str, str], int]:
    """Return how many tasks of each cluster are `waiting` and `running`: those that hold space."""
    counts = _by_state(connection, tasks.c.cluster_id, tasks.c.state, tasks.c.state.in_(set(TaskState) - ENDED))
    result: Counter[tuple[str, str]] = Counter()
    for (cluster_id, state), count in counts.items():
        result[(cluster_id, "running" if state in BOOKED else "waiting")] += count
    for cluster_id, count in staged_tasks(connection).items():
        result[(cluster_id, "waiting")] -= count
    return result


def _by_state(
    connection: sa.Connection, cluster: sa.Column[str], state: sa.Column[str], which: sa.ColumnElement[bool]
) -> StateCounts:
    query = sa.select(cluster, state, sa.func.count()).where(which).group_by(cluster, state)
    return {(row[0], str(row[1])): row[2] for row in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class Live:
    """The jobs of a cluster that have not ended; `nodes`: workers that they hold; `oldest`: the first submission."""

    running: int = 0
    waiting: int = 0
    nodes: int = 0
    oldest: float | None = None


def live(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, Live]:
    """Return {cluster id: its jobs that have not ended}, of those that have any."""
    requirements, result = sorted(cluster_ids), dict[str, Live]()
    sums = sa.func.count(), sa.func.min(jobs.c.submitted_at)
    query = sa.select(jobs.c.cluster_id, jobs.c.state, *sums).where(jobs.c.state.in_(LIVE))
    for k in range(0, len(requirements), FEW_NAMES):
        own = query.where(jobs.c.cluster_id.in_(requirements[k : k + FEW_NAMES])).group_by(
            jobs.c.cluster_id, jobs.c.state
        )
        for cluster_id, state, many, oldest in connection.execute(own):
            before = result.get(cluster_id, Live())
            is_running = state == JobState.RUNNING
            change = {"running": many} if is_running else {"waiting": many, "oldest": oldest}
            result[cluster_id] = replace(before, **change)
    held = _held(connection, [*result])
    return {one: replace(live, nodes=held.get(one, 0)) for one, live in result.items()}


def _held(connection: sa.Connection, cluster_ids: Sequence[str]) -> dict[str, int]:
    """Return how many workers the tasks of each cluster hold; one that several share counts once."""
    result = dict[str, int]()
    if connection.dialect.name == "sqlite":
        each = sa.func.json_each(tasks.c.placement).table_valued("key")
    else:
        each = sa.func.json_object_keys(tasks.c.placement).table_valued("key").render_derived()
    query = sa.select(tasks.c.cluster_id, sa.func.count(each.c.key.distinct())).join(each, sa.true())
    query = query.where(tasks.c.state.in_(BOOKED))
    for k in range(0, len(cluster_ids), FEW_NAMES):
        own = query.where(tasks.c.cluster_id.in_(cluster_ids[k : k + FEW_NAMES])).group_by(tasks.c.cluster_id)
        for cluster_id, many in connection.execute(own):
            result[cluster_id] = many
    return result


# ── lengths and forecasts ──

FEW_NAMES = 500  # names in one statement
COMMON = 20  # keys of a cluster that its speed is compared by


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that has ended as it should, or at its limit (0: it has none)."""

    key: Key
    seconds: float
    limit: float


@lru_cache(maxsize=65_536)
def digest(key: Key) -> str:
    """Return what a key is stored under, the cluster apart: what ran alike elsewhere is found with it."""
    named = [key.requestor, key.name, key.task, key.slots] if key.name else [key.requestor] if key.requestor else []
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def _floats(content: bytes) -> list[float]:
    return array("f", content).tolist()


def _bytes(values: Sequence[float]) -> bytes:
    return array("f", values).tobytes()


# ── lengths ──


def recent(connection: sa.Connection, cluster_id: str, keys: Iterable[Key]) -> dict[Key, list[float]]:
    """Return the seconds of the last runs of those keys, and of the wider ones, that a cluster has run."""
    requirements = {level for key in keys for level, _ in key.levels()}
    results = _found(connection, {digest(key) for key in requirements}, lengths.c.cluster_id == cluster_id)
    rows = {row.key: _floats(row.recent) for row in results}
    return {key: rows[name] for key in requirements if (name := digest(key)) in rows}


def everywhere(connection: sa.Connection, keys: Iterable[Key]) -> dict[str, dict[str, list[float]]]:
    """Return {digest: {cluster id: seconds of the last runs}} of some keys, whatever their cluster."""
    result: dict[str, dict[str, list[float]]] = {}
    for row in _found(connection, {digest(key) for key in keys}):
        result.setdefault(row.key, {})[row.cluster_id] = _floats(row.recent)
    return result


def medians(connection: sa.Connection, cluster_id: str, most: int) -> list[dict[str, float]]:
    """Return {cluster id: median seconds} of each of the keys that a cluster ran last, but of the one of all runs.

    Of other clusters the `most` last are read: where all have run everything, not one submit pays for that.
    """
    here, last = lengths.c.cluster_id == cluster_id, (lengths.c.at.desc(), lengths.c.key)
    query = sa.select(lengths.c.key, lengths.c.recent).where(here, lengths.c.key != digest(Key(cluster_id)))
    rows = connection.execute(query.order_by(*last).limit(COMMON))
    results = {row.key: {cluster_id: median(_floats(row.recent))} for row in rows}
    others = sa.select(lengths).where(lengths.c.key.in_(sorted(results)), ~here).order_by(*last).limit(most)
    for row in connection.execute(others):
        results[row.key][row.cluster_id] = median(_floats(row.recent))
    return list(results.values())


def _found(connection: sa.Connection, names: Collection[str], *which: sa.ColumnElement[bool]) -> list[Any]:
    listed, rows = sorted(names), list[Any]()
    for first in range(0, len(listed), FEW_NAMES):
        query = sa.select(lengths).where(lengths.c.key.in_(listed[first : first + FEW_NAMES]), *which)
        rows += connection.execute(query)
    return rows


def learn(connection: sa.Connection, cluster_id: str, runs: Sequence[Ran], now: float) -> None:
    """Remember how long runs of a cluster took, and how far that was from what was predicted."""
    known = recent(connection, cluster_id, [ran.key for ran in runs])
    before = set(known)
    ratios: list[float] = []
    for ran in runs:
        predicted = length_of(RunHistory(known), ran.key, ran.limit).seconds
        if 0 < predicted < inf and ran.seconds > 0:
            ratios.append(log(ran.seconds / predicted))
        for level in {level for level, _ in ran.key.levels()}:
            known[level] = [*known.get(level, ()), ran.seconds][-RUNS:]
    touched = {level for ran in runs for level, _ in ran.key.levels()}
    _put(connection, cluster_id, {key: known[key] for key in touched}, before, now)
    _add(connection, cluster_id, "ratios", ratios, RATIOS)


def _put(
    connection: sa.Connection,
    cluster_id: str,
    known: Mapping[Key, Sequence[float]],
    before: Collection[Key],
    now: float,
) -> None:
    rows = {key: {"recent": _bytes(runs), "at": now} for key, runs in known.items()}
    for key in known:
        if key in before:
            own = (lengths.c.key == digest(key), lengths.c.cluster_id == cluster_id)
            connection.execute(lengths.update().where(*own).values(**rows[key]))
    new = [{"key": digest(key), "cluster_id": cluster_id, **rows[key]} for key in known if key not in before]
    for row in new:
        made = connection.execute(lengths.insert().values(**row))
        number = made.inserted_primary_key
        if number and int(number[0]) % SWEEP == 0:
            forget_oldest(connection, lengths, REMEMBERED)


# ── how forecasts and lengths turned out ──


def turned_out(connection: sa.Connection, cluster_id: str) -> tuple[list[float], list[float], list[float]]:
    """Return a cluster's last scores, which missed their bands (1), and ratios of actual to predicted lengths."""
    row = _row(connection, cluster_id)
    return ([], [], []) if row is None else (_floats(row.scores), _floats(row.missed), _floats(row.ratios))


def _row(connection: sa.Connection, cluster_id: str) -> Any:
    return connection.execute(sa.select(forecasts).where(forecasts.c.cluster_id == cluster_id)).one_or_none()


def _add(connection: sa.Connection, cluster_id: str, ring: str, values: Sequence[float], most: int) -> None:
    if not values:
        return
    row = _row(connection, cluster_id)
    before = [] if row is None else _floats(getattr(row, ring))
    _change(connection, cluster_id, row is None, {ring: _bytes([*before, *values][-most:])})


def _change(connection: sa.Connection, cluster_id: str, new: bool, values: Mapping[str, Any]) -> None:
    if new:
        connection.execute(
            forecasts.insert().values(
                **{"scores": b"", "missed": b"", "ratios": b"", **values, "cluster_id": cluster_id}
            )
        )
    else:
        connection.execute(forecasts.update().where(forecasts.c.cluster_id == cluster_id).values(**values))


def add_scores(
    connection: sa.Connection, cluster_id: str, scores: Mapping[str, float], missed: Sequence[float]
) -> None:
    """Remember how the first forecasts of these jobs turned out."""
    for job, score in scores.items():
        connection.execute(job_etas.update().where(job_etas.c.job == job).values(score=score))
    _add(connection, cluster_id, "scores", list(scores.values()), SCORES)
    _add(connection, cluster_id, "missed", missed, SCORES)


# ── forecasts ──


def put(connection: sa.Connection, cluster_id: str, at: float, content: Mapping[str, Any]) -> None:
    """Store what other processes are to know of a cluster's last forecast."""
    _change(connection, cluster_id, _row(connection, cluster_id) is None, {"at": at, "content": dict(content)})


def later_than(connection: sa.Connection, at: float) -> dict[str, tuple[float, Mapping[str, Any]]]:
    """Return {cluster id: (when, what)} of the forecasts made after a time."""
    query = sa.select(forecasts.c.cluster_id, forecasts.c.at, forecasts.c.content).where(forecasts.c.at > at)
    return {row.cluster_id: (row.at, row.content) for row in connection.execute(query) if row.content}


def unscored(connection: sa.Connection, cluster_id: str) -> dict[str, Mapping[str, Any]]:
    """Return {job: its first forecast} of a cluster's jobs that had not started at the last look."""
    query = sa.select(job_etas.c.job, job_etas.c.first)
    own = (job_etas.c.cluster_id == cluster_id, job_etas.c.score.is_(None))
    return {row.job: row.first for row in connection.execute(query.where(*own))}


def starts(connection: sa.Connection, jobs_: Collection[str]) -> dict[str, float]:
    """Return {job: when its first task was started} of those that have started."""
    result: dict[str, float] = {}
    listed = sorted(jobs_)
    for first in range(0, len(listed), FEW_NAMES):
        own = (tasks.c.job.in_(listed[first : first + FEW_NAMES]), tasks.c.assigned_at.is_not(None))
        query = sa.select(tasks.c.job, sa.func.min(tasks.c.assigned_at)).where(*own).group_by(tasks.c.job)
        result |= {row[0]: row[1] for row in connection.execute(query)}
    return result


def put_etas(
    connection: sa.Connection, cluster_id: str, answer: Mapping[str, Mapping[str, Any]], known: Collection[str]
) -> None:
    """Store the forecasts of jobs: the first, of those that are not `known` to have one, and the last."""
    new = [job for job in answer if job not in known]
    fresh = _ids(connection, jobs.c.id, new) - _ids(connection, job_etas.c.job, new)
    rows = [
        {"job": job, "cluster_id": cluster_id, "first": answer[job], "last": answer[job]} for job in sorted(fresh)
    ]
    if rows:
        connection.execute(job_etas.insert(), together(rows))
    changed = [{"wanted": job, "said": said} for job, said in answer.items() if job in known]
    if changed:
        query = job_etas.update().where(job_etas.c.job == sa.bindparam("wanted"))
        connection.execute(query.values(last=sa.bindparam("said", type_=JSON)), together(changed))


def _ids(connection: sa.Connection, column: sa.Column[str], named: Sequence[str]) -> set[str]:
    """Return which of some ids a column has."""
    result: set[str] = set()
    for first in range(0, len(named), FEW_NAMES):
        result |= set(
            connection.execute(sa.select(column).where(column.in_(named[first : first + FEW_NAMES]))).scalars()
        )
    return result


def eta_of(connection: sa.Connection, job: str) -> tuple[Mapping[str, Any], Mapping[str, Any], float | None] | None:
    """Return a job's first and last forecast, and the score of the first if it has started."""
    row = connection.execute(sa.select(job_etas).where(job_etas.c.job == job)).one_or_none()
    return None if row is None else (row.first, row.last, row.score)


def forget_etas(connection: sa.Connection, gone: Collection[str]) -> None:
    """Forget the forecasts of jobs that will not start here."""
    if gone:
        connection.execute(job_etas.delete().where(job_etas.c.job.in_(sorted(gone)[:FEW_NAMES])))


class HeldTime(NamedTuple):
    """What a task held, since when and until when (None: still)."""

    job: str
    state: str
    placement: Mapping[str, Mapping[str, int]]
    assigned_at: float
    ended_at: float | None


_HELD = [tasks.c[name] for name in HeldTime._fields]


def in_window(connection: sa.Connection, cluster_id: str, begin: float, end: float, most: int) -> list[HeldTime]:
    """Return what the tasks of a window of time held, the last to begin first."""
    live = sa.select(jobs.c.id).where(jobs.c.cluster_id == cluster_id, jobs.c.state.in_(("WAITING", "RUNNING")))
    # by their end, whatever else the cluster has run: no index of its id is used
    over = sa.select(jobs.c.id).where(jobs.c.cluster_id.concat("") == cluster_id, jobs.c.ended_at >= begin)
    own = (tasks.c.job.in_(sa.union_all(live, over)), tasks.c.assigned_at < end)
    still = sa.or_(tasks.c.ended_at.is_(None), tasks.c.ended_at > begin)
    query = sa.select(*_HELD).where(*own, still, tasks.c.state != TaskState.WAITING)
    rows = connection.execute(query.order_by(tasks.c.assigned_at.desc()).limit(most))
    return [HeldTime(*row) for row in rows]
