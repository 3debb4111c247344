"""The tasks of jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa

from rainbow.jobs import ENDED, Task, TaskState
from rainbow.store.schema import tasks

NAMED = 500  # tasks named in one statement

_COLUMNS = [tasks.c[column.name] for column in fields(Task)]


def add(connection: sa.Connection, cluster_id: str, new: Iterable[Task]) -> None:
    """Store a new job's tasks."""
    connection.execute(tasks.insert(), [{**asdict(task), "cluster_id": cluster_id} for task in new])


def of_job(connection: sa.Connection, job_id: str) -> list[Task]:
    """Return a job's tasks in the order of its jobspec."""
    return _tasks(connection, tasks.c.job == job_id)


def states_of(connection: sa.Connection, job_id: str) -> list[TaskState]:
    """Return the states a job's tasks are in, each once."""
    rows = connection.execute(sa.select(tasks.c.state).where(tasks.c.job == job_id).distinct())
    return sorted(TaskState(state) for state in rows.scalars())


def of_cluster(connection: sa.Connection, cluster_id: str, states: Collection[TaskState]) -> list[Task]:
    """Return the cluster's tasks in these states, by job and in the order of its jobspec."""
    return _tasks(connection, tasks.c.cluster_id == cluster_id, tasks.c.state.in_(states))


def get(connection: sa.Connection, cluster_id: str, task_ids: Collection[str]) -> dict[str, Task]:
    """Return {id: task} of those that exist at this cluster."""
    wanted = list(task_ids)
    parts = [wanted[k : k + NAMED] for k in range(0, len(wanted), NAMED)]
    found = (_tasks(connection, tasks.c.cluster_id == cluster_id, tasks.c.id.in_(part)) for part in parts)
    return {task.id: task for part in found for task in part}


def save_all(connection: sa.Connection, changed: Sequence[Task]) -> None:
    """Store many tasks' new values at once."""
    if changed:
        columns: dict[str, sa.BindParameter[Any]] = {
            name: sa.bindparam(f"new_{name}") for name in asdict(changed[0]) if name != "id"
        }
        statement = tasks.update().where(tasks.c.id == sa.bindparam("new_id")).values(columns)
        connection.execute(statement, [{f"new_{k}": v for k, v in asdict(task).items()} for task in changed])


def move(connection: sa.Connection, job_id: str, cluster_id: str) -> None:
    """Let a job's tasks belong to another cluster."""
    connection.execute(tasks.update().where(tasks.c.job == job_id).values(cluster_id=cluster_id))


def unended(connection: sa.Connection, cluster_id: str) -> tuple[int, int]:
    """Count a cluster's tasks that wait, and those that hold space."""
    query = sa.select(tasks.c.state, sa.func.count()).where(tasks.c.cluster_id == cluster_id)
    rows = connection.execute(query.where(tasks.c.state.not_in(ENDED)).group_by(tasks.c.state))
    counts: dict[str, int] = {row[0]: row[1] for row in rows}
    waiting = counts.pop(TaskState.WAITING, 0)
    return waiting, sum(counts.values())


def save(connection: sa.Connection, changed: Task) -> None:
    """Store a task's new value."""
    connection.execute(tasks.update().where(tasks.c.id == changed.id).values(asdict(changed)))


def _tasks(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Task]:
    rows = connection.execute(sa.select(*_COLUMNS).where(*where).order_by(tasks.c.job, tasks.c.index))
    return [_task(row) for row in rows]


def _task(row: sa.Row[Any]) -> Task:
    return Task(**{**row._mapping, "state": TaskState(row.state)})
