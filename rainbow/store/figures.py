"""Counts of what there is."""

from __future__ import annotations

from collections import Counter

import sqlalchemy as sa

from rainbow.jobs import BOOKED, ENDED, TaskState
from rainbow.store.jobs import LIVE
from rainbow.store.schema import jobs, tasks, workers

Counts = dict[tuple[str, str], int]


def counted(connection: sa.Connection) -> dict[str, Counts]:
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
) -> Counts:
    query = sa.select(cluster, state, sa.func.count()).where(which).group_by(cluster, state)
    return {(row[0], str(row[1])): row[2] for row in connection.execute(query)}
