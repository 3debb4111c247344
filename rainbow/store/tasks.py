"""The tasks of jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from rainbow.jobs import ENDED, Task, TaskState
from rainbow.store.schema import tasks

NAMED = 500  # tasks named in one statement

_WAITS = tasks.c.state == TaskState.WAITING
_NAMES = [column.name for column in fields(Task)]
_SAVE = (
    tasks.update()
    .where(tasks.c.id == sa.bindparam("new_id"))
    .values({name: sa.bindparam(f"new_{name}") for name in _NAMES if name != "id"})
)
_COLUMNS = [tasks.c[name] for name in _NAMES]
_ADD = tasks.insert()


def add(connection: sa.Connection, cluster_id: str, new: Iterable[Task]) -> None:
    """Store a new job's tasks."""
    rows = [{**{name: getattr(task, name) for name in _NAMES}, "cluster_id": cluster_id} for task in new]
    connection.execute(_ADD, rows)


def of_job(connection: sa.Connection, job_id: str) -> list[Task]:
    """Return a job's tasks in the order of its jobspec."""
    return _tasks(connection, tasks.c.job == job_id)


def states_of(connection: sa.Connection, job_id: str) -> list[TaskState]:
    """Return the states a job's tasks are in, each once: one look for each state, however many tasks there are."""
    found = [
        sa.exists().where(tasks.c.job == job_id, tasks.c.state == state).label(state.lower()) for state in TaskState
    ]
    row = connection.execute(sa.select(*found)).one()
    return sorted(state for state, is_there in zip(TaskState, row, strict=True) if is_there)


def of_cluster(
    connection: sa.Connection, cluster_id: str, states: Collection[TaskState], most: int | None = None
) -> list[Task]:
    """Return the cluster's tasks in these states (the first so many), by job and in the order of its jobspec."""
    return _tasks(connection, tasks.c.cluster_id == cluster_id, tasks.c.state.in_(states), most=most)


def waiting_of(connection: sa.Connection, job_ids: Collection[str]) -> list[Task]:
    """Return all tasks of these jobs that wait, by job and in the order of its jobspec."""
    wanted = list(job_ids)
    parts = [wanted[k : k + NAMED] for k in range(0, len(wanted), NAMED)]
    return [task for part in parts for task in _tasks(connection, tasks.c.job.in_(part), _WAITS)]


def first_waiting(connection: sa.Connection, job_id: str, most: int) -> list[Task]:
    """Return the first tasks of a job that wait: the longest expected first, else as its jobspec has them."""
    mine = (tasks.c.job == job_id, _WAITS)
    # the index runs one way only: first what the last of them is expected to take, then those that take longer
    query = sa.select(tasks.c.expected).where(*mine).order_by(tasks.c.expected.desc()).limit(1).offset(most - 1)
    least = connection.execute(query).scalar_one_or_none()
    longer = _tasks(connection, *mine, tasks.c.expected > (-1.0 if least is None else least))
    equal = [] if least is None else _tasks(connection, *mine, tasks.c.expected == least, most=most - len(longer))
    return sorted(longer, key=lambda task: (-task.expected, task.index)) + equal


def count_waiting(connection: sa.Connection, job_id: str) -> int:
    """Count the tasks of a job that wait."""
    query = sa.select(sa.func.count()).select_from(tasks).where(tasks.c.job == job_id, _WAITS)
    return connection.execute(query).scalar_one()


def agents_of(connection: sa.Connection, cluster_id: str, states: Collection[TaskState]) -> set[str]:
    """Return the agents that have tasks in these states."""
    query = sa.select(tasks.c.agent).where(tasks.c.cluster_id == cluster_id, tasks.c.state.in_(states))
    return set(connection.execute(query.distinct()).scalars())


def get(connection: sa.Connection, cluster_id: str, task_ids: Collection[str]) -> dict[str, Task]:
    """Return {id: task} of those that exist at this cluster."""
    wanted = list(task_ids)
    parts = [wanted[k : k + NAMED] for k in range(0, len(wanted), NAMED)]
    found = (_tasks(connection, tasks.c.cluster_id == cluster_id, tasks.c.id.in_(part)) for part in parts)
    return {task.id: task for part in found for task in part}


def save_all(connection: sa.Connection, changed: Sequence[Task]) -> None:
    """Store many tasks' new values at once."""
    if changed:
        connection.execute(_SAVE, [{f"new_{name}": getattr(task, name) for name in _NAMES} for task in changed])


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
    save_all(connection, [changed])


def _tasks(connection: sa.Connection, *where: sa.ColumnElement[bool], most: int | None = None) -> list[Task]:
    query = sa.select(*_COLUMNS).where(*where).order_by(tasks.c.job, tasks.c.index)
    return [_task(row) for row in connection.execute(query.limit(most) if most is not None else query)]


def _task(row: sa.Row[Any]) -> Task:
    values = dict(zip(_NAMES, row, strict=True))
    return Task(**{**values, "state": TaskState(values["state"])})
