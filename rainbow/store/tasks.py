"""The tasks of jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa

from rainbow.jobs import Task, TaskState
from rainbow.store.schema import tasks

_COLUMNS = [tasks.c[column.name] for column in fields(Task)]


def add(connection: sa.Connection, cluster_id: str, new: Iterable[Task]) -> None:
    """Store a new job's tasks."""
    connection.execute(tasks.insert(), [{**asdict(task), "cluster_id": cluster_id} for task in new])


def of_job(connection: sa.Connection, job_id: str) -> list[Task]:
    """Return a job's tasks in the order of its jobspec."""
    return _tasks(connection, tasks.c.job == job_id)


def of_cluster(connection: sa.Connection, cluster_id: str, states: Collection[TaskState]) -> list[Task]:
    """Return the cluster's tasks in these states, by job and in the order of its jobspec."""
    return _tasks(connection, tasks.c.cluster_id == cluster_id, tasks.c.state.in_(states))


def get(connection: sa.Connection, cluster_id: str, task_ids: Collection[str]) -> dict[str, Task]:
    """Return {id: task} of those that exist at this cluster."""
    found = _tasks(connection, tasks.c.cluster_id == cluster_id, tasks.c.id.in_(task_ids))
    return {task.id: task for task in found}


def save(connection: sa.Connection, changed: Task) -> None:
    """Store a task's new value."""
    connection.execute(tasks.update().where(tasks.c.id == changed.id).values(asdict(changed)))


def move(connection: sa.Connection, job_id: str, cluster_id: str) -> None:
    """Give a job's tasks to another cluster."""
    connection.execute(tasks.update().where(tasks.c.job == job_id).values(cluster_id=cluster_id))


def _tasks(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Task]:
    rows = connection.execute(sa.select(*_COLUMNS).where(*where).order_by(tasks.c.job, tasks.c.index))
    return [_task(row) for row in rows]


def _task(row: sa.Row[Any]) -> Task:
    return Task(**{**row._mapping, "state": TaskState(row.state)})
