"""How long tasks ran: a mean by job name and task name, for the tasks that ran last."""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa

from rainbow.store.schema import durations

REMEMBERED = 1_000_000  # tasks
SWEEP = 1_000  # new ones between two times of forgetting
_EXPECTED = sa.select(durations.c.task, durations.c.mean).where(durations.c.job == sa.bindparam("wanted"))


def job_key(cluster_id: str, requestor: str, name: str) -> str:
    """Return what stands for a job that is submitted again and again; parts cannot run into each other."""
    return hashlib.sha256(json.dumps([cluster_id, requestor, name]).encode()).hexdigest()


def expected(connection: sa.Connection, job: str) -> dict[str, float]:
    """Return {task name: mean seconds} of a job's tasks that ran before."""
    rows = connection.execute(_EXPECTED, {"wanted": job})
    return {row.task: row.mean for row in rows}


def learn(connection: sa.Connection, job: str, task: str, seconds: float, now: float) -> None:
    """Take another run into the mean; the first one is the mean."""
    own = (durations.c.job == job, durations.c.task == task)
    row = connection.execute(sa.select(durations.c.mean, durations.c.runs).where(*own)).one_or_none()
    if row is None:
        made = connection.execute(durations.insert().values(job=job, task=task, mean=seconds, runs=1, at=now))
        number = made.inserted_primary_key
        if number and int(number[0]) % SWEEP == 0:
            forget(connection, REMEMBERED)
        return
    runs = row.runs + 1
    changed = {"mean": row.mean + (seconds - row.mean) / runs, "runs": runs, "at": now}
    connection.execute(durations.update().where(*own).values(**changed))


def forget(connection: sa.Connection, most: int) -> None:
    """Keep the tasks that ran last."""
    oldest = connection.execute(
        sa.select(durations.c.at).order_by(durations.c.at.desc()).limit(1).offset(most)
    ).scalar()
    if oldest is not None:
        connection.execute(durations.delete().where(durations.c.at <= oldest))
