"""Counts of stored things, and mean durations of tasks."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import sqlalchemy as sa

from rainbow.state_machine import BOOKED, ENDED, TaskState
from rainbow.store.jobs import LIVE
from rainbow.store.schema import durations, jobs, tasks, workers

REMEMBERED = 1_000_000  # tasks
SWEEP = 1_000  # new ones between two times of forgetting
_EXPECTED = sa.select(durations.c.task, durations.c.mean).where(durations.c.job == sa.bindparam("wanted"))


def job_key(cluster_id: str, requestor: str, name: str) -> str:
    """Return what stands for a job that is submitted again and again; parts cannot run into each other."""
    return hashlib.sha256(json.dumps([cluster_id, requestor, name]).encode()).hexdigest()


def expected_durations(connection: sa.Connection, job: str) -> dict[str, float]:
    """Return {task name: mean seconds} of a job's tasks that ran before."""
    rows = connection.execute(_EXPECTED, {"wanted": job})
    return {row.task: row.mean for row in rows}


def learn_duration(connection: sa.Connection, job: str, task: str, seconds: float, now: float) -> None:
    """Take another run into the mean; the first one is the mean."""
    own = (durations.c.job == job, durations.c.task == task)
    row = connection.execute(sa.select(durations.c.mean, durations.c.runs).where(*own)).one_or_none()
    if row is None:
        made = connection.execute(durations.insert().values(job=job, task=task, mean=seconds, runs=1, at=now))
        number = made.inserted_primary_key
        if number and int(number[0]) % SWEEP == 0:
            forget_durations(connection, REMEMBERED)
        return
    runs = row.runs + 1
    changed = {"mean": row.mean + (seconds - row.mean) / runs, "runs": runs, "at": now}
    connection.execute(durations.update().where(*own).values(**changed))


def forget_durations(connection: sa.Connection, most: int) -> None:
    """Keep the tasks that ran last."""
    oldest = connection.execute(
        sa.select(durations.c.at).order_by(durations.c.at.desc()).limit(1).offset(most)
    ).scalar()
    if oldest is not None:
        connection.execute(durations.delete().where(durations.c.at <= oldest))


StateCounts = dict[tuple[str, str], int]


def counted(connection: sa.Connection) -> dict[str, StateCounts]:
    """Return {metric: {(cluster id, state): how many}}."""
    live = _by_state(connection, jobs.c.cluster_id, jobs.c.state, jobs.c.state.in_(LIVE))
    left = _by_state(connection, tasks.c.cluster_id, tasks.c.state, tasks.c.state.in_(set(TaskState) - ENDED))
    there = _by_state(connection, workers.c.cluster_id, workers.c.state, sa.true())
    queues: Counter[tuple[str, str]] = Counter()
    for (cluster_id, state), count in left.items():
        queues[(cluster_id, "running" if state in BOOKED else "waiting")] += count
    return {"rainbow_jobs": live, "rainbow_tasks": dict(queues), "rainbow_workers": there}


def _by_state(
    connection: sa.Connection, cluster: sa.Column[str], state: sa.Column[str], which: sa.ColumnElement[bool]
) -> StateCounts:
    query = sa.select(cluster, state, sa.func.count()).where(which).group_by(cluster, state)
    return {(row[0], str(row[1])): row[2] for row in connection.execute(query)}
