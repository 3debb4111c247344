"""The tasks of jobs. Every change of a task's state is an event, written with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import chain, groupby
from operator import attrgetter
from string import digits
from typing import Any, NamedTuple

import sqlalchemy as sa

from rainbow.state_machine import BOOKED, ENDED, ForAgents, Hold, Task, TaskState, concerns, task_id
from rainbow.store import events
from rainbow.store.accounts import charges
from rainbow.store.engine import note_for_agents
from rainbow.store.jobs import staged_tasks
from rainbow.store.schema import Plain, clusters, jobs, tasks

NAMED = 500  # tasks named in one statement
REPLICAS = 50  # from so many on they are copied in the store

_WAITS = tasks.c.state == TaskState.WAITING
_NAMES = [column.name for column in fields(Task)]
_SAVE = Plain(
    tasks.update()
    .where(tasks.c.id == sa.bindparam("new_id"))
    .values({name: sa.bindparam(f"new_{name}") for name in _NAMES if name != "id"})
)
_COLUMNS = [tasks.c[name] for name in _NAMES]
_ADD = Plain(tasks.insert(), [*_NAMES, "cluster_id"])
_fixed = attrgetter("job", "state", "attempt", "retries_left", "slots", "expected", "placement")


def _copy() -> sa.Insert:
    """Return what stores copies 1, 2, ... `last` of a task, each with the next index."""
    counted = sa.select(sa.literal(1, sa.Integer).label("n")).cte("counted", recursive=True)
    counted = counted.union_all(
        sa.select(counted.c.n + 1).where(counted.c.n < sa.bindparam("last", type_=sa.Integer))
    )
    index, step, number = (
        tasks.c.index + counted.c.n,
        *(sa.bindparam(key, type_=sa.Integer) for key in ("step", "number")),
    )
    changed = {
        "id": tasks.c.job + "-" + sa.cast(index, sa.String),
        "index": index,
        "gang": tasks.c.gang + counted.c.n * step,
        "name": sa.bindparam("stem", type_=sa.String) + sa.cast(number + counted.c.n, sa.String),
    }
    columns = [changed.get(column.name, column) for column in tasks.columns]
    of_first = tasks.join(counted, sa.true())
    query = sa.select(*columns).select_from(of_first).where(tasks.c.id == sa.bindparam("first"))
    return tasks.insert().from_select([column.name for column in tasks.columns], query, include_defaults=False)


_COPY = _copy()
_NAMED = sa.select(*_COLUMNS, tasks.c.cluster_id)
_SOME = _NAMED.where(tasks.c.id.in_(sa.bindparam("wanted", expanding=True)))
_WHERE = (
    sa.select(clusters.c.id, clusters.c.name)
    .join(tasks, tasks.c.cluster_id == clusters.c.id)
    .where(tasks.c.id == sa.bindparam("wanted"))
)
_BRIEF_NAMES = [name for name in _NAMES if name not in ("output", "errors", "detail")]
_CHANGED = Plain(
    sa.select(*(tasks.c[name] for name in _BRIEF_NAMES))
    .where(
        tasks.c.cluster_id == sa.bindparam("cluster"),
        sa.text("tasks.stamp > 0"),  # written out: the index is of these alone
        tasks.c.stamp >= sa.bindparam("since"),
    )
    .order_by(tasks.c.stamp)  # what one gave back before another took it is read before it
)


class WaitingTasks(NamedTuple):
    """Tasks of one job that wait: their indexes, and what those of known names are expected to take."""

    indexes: Sequence[int]
    expected: Mapping[int, float]


class TasksInState(NamedTuple):
    """Tasks of one job in one state: how many, since when the first is, its agent, and what that says of them.

    `preempted`: by whom those that stop are, and how.
    """

    number: int
    since: float | None
    agent: str
    pending: Mapping[str, Any] | None = None
    preempted: Mapping[str, Any] | None = None


_PREEMPTED = sa.select(tasks.c.job, tasks.c.preempted).where(
    tasks.c.job.in_(sa.bindparam("wanted", expanding=True)),
    tasks.c.state == sa.bindparam("state"),
    tasks.c.preempted.is_not(None),
)


def preempted(connection: sa.Connection, job_id: str) -> Mapping[str, Any] | None:
    """Return by whom a job was preempted whose tasks wait to start again; None: by nobody."""
    row = connection.execute(_PREEMPTED.limit(1), {"wanted": [job_id], "state": TaskState.WAITING}).first()
    return row.preempted if row else None


def standing(connection: sa.Connection, job_ids: Sequence[str]) -> dict[str, dict[TaskState, TasksInState]]:
    """Return {job: {state: its tasks there}} of the tasks that hold space."""
    result: dict[str, dict[TaskState, TasksInState]] = {}
    key = (tasks.c.job, tasks.c.state)
    query = sa.select(*key, sa.func.count(), sa.func.min(tasks.c.assigned_at), sa.func.min(tasks.c.agent)).group_by(
        *key
    )
    for k in range(0, len(job_ids), NAMED):
        own = (tasks.c.job.in_(job_ids[k : k + NAMED]), tasks.c.state.in_(BOOKED))
        for job, state, *answer in connection.execute(query.where(*own)):
            result.setdefault(job, {})[TaskState(state)] = TasksInState(*answer)
        said = (tasks.c.state == TaskState.ACCEPTED, tasks.c.pending.is_not(None))
        for job, answer in connection.execute(sa.select(tasks.c.job, tasks.c.pending).where(own[0], *said)):
            result[job][TaskState.ACCEPTED] = result[job][TaskState.ACCEPTED]._replace(pending=answer)
        stops = [job for job in job_ids[k : k + NAMED] if TaskState.STOPPING in result.get(job, ())]
        for job, answer in connection.execute(_PREEMPTED, {"wanted": stops, "state": TaskState.STOPPING}):
            result[job][TaskState.STOPPING] = result[job][TaskState.STOPPING]._replace(preempted=answer)
    return result


def add(connection: sa.Connection, cluster_id: str, new: Iterable[Task]) -> None:
    """Store a new job's tasks. Replicas, which differ in their numbers alone, are copied from the first of them."""
    runs = [(run, _replicas(run)) for run in (list(group) for _, group in groupby(new, _alike))]
    first = [task for run, how in runs for task in (run if how is None else run[:1])]
    rows = [{**{name: getattr(task, name) for name in _NAMES}, "cluster_id": cluster_id} for task in first]
    _ADD(connection, *rows)
    for _, how in runs:
        if how is not None:
            connection.execute(_COPY, how)


def _alike(task: Task) -> tuple[Any, str]:
    return _fixed(task), task.name.rstrip(digits)


def _replicas(run: Sequence[Task]) -> dict[str, Any] | None:
    """Return how replicas are numbered; None where they are not worth a statement, or not in order."""
    begin, stem = run[0], run[0].name.rstrip(digits)
    number = begin.name[len(stem) :]
    if len(run) < REPLICAS or not number or begin.id != task_id(begin.job, begin.index):
        return None
    step, index, gang, named = min(run[-1].gang - begin.gang, 1), begin.index, begin.gang, int(number)
    for k, task in enumerate(run):
        if (task.index, task.gang, task.name) != (index + k, gang + k * step, f"{stem}{named + k}"):
            return None
    return {"first": begin.id, "last": len(run) - 1, "step": step, "stem": stem, "number": named}


def of_job(connection: sa.Connection, *job_ids: str) -> list[Task]:
    """Return the tasks of a job, or of several, in the order of their jobspecs."""
    return [task for part in _parts(job_ids) for task in _tasks(connection, tasks.c.job.in_(part))]


def some_of(connection: sa.Connection, job_id: str, states: Collection[TaskState], most: int) -> list[Task]:
    """Return some of a job's tasks that are in these states."""
    query = sa.select(*_COLUMNS).where(tasks.c.job == job_id, tasks.c.state.in_(states)).limit(most)
    return [_task(row) for row in connection.execute(query)]


def cancel_waiting(connection: sa.Connection, job_ids: Sequence[str], now: float, why: str, most: int) -> int:
    """Cancel some of the tasks of some jobs that wait, by a few statements; return how many."""
    columns = (tasks.c.id, tasks.c.attempt, tasks.c.account, tasks.c.job, tasks.c.cluster_id)
    results = [
        row
        for part in _parts(job_ids)
        for row in connection.execute(sa.select(*columns).where(tasks.c.job.in_(part), _WAITS).limit(most))
    ]
    ended = {"state": TaskState.CANCELED, "ended_at": now, "detail": why, "placement": {}, "pending": None}
    for part in _parts([row.id for row in results]):
        connection.execute(tasks.update().where(tasks.c.id.in_(part)).values(**ended))
    for job, count in Counter(row.job for row in results if row.account).items():
        charges.give_back(connection, job, count)
    state, of_cluster = str(TaskState.CANCELED), attrgetter("cluster_id")
    for own in (list(group) for _, group in groupby(sorted(results, key=of_cluster), of_cluster)):
        facts = [{"job": row.job, "state": state, "task": row.id, "attempt": row.attempt} for row in own]
        _tell(connection, own[0].id, facts, now)
    return len(results)


def page(connection: sa.Connection, job_id: str, begin: int, most: int) -> list[Task]:
    """Return a job's tasks from an index on, so many at most, by their ids: a sort would look at all there are."""
    results: list[Task] = []
    for part in _parts([task_id(job_id, index) for index in range(begin, begin + most)]):
        rows = connection.execute(_SOME, {"wanted": part})
        results += [_named(row) for row in rows]
    return sorted(results, key=attrgetter("index"))


_STATES_OF = sa.select(
    *(
        sa.exists().where(tasks.c.job == sa.bindparam("wanted"), tasks.c.state == state).label(state.lower())
        for state in TaskState
    )
)


def states_of(connection: sa.Connection, job_id: str) -> list[TaskState]:
    """Return the states a job's tasks are in, each once: one look for each state, however many tasks there are."""
    row = connection.execute(_STATES_OF, {"wanted": job_id}).one()
    return sorted(state for state, is_there in zip(TaskState, row, strict=True) if is_there)


def of_cluster(
    connection: sa.Connection, cluster_id: str, states: Collection[TaskState], most: int | None = None
) -> list[Task]:
    """Return the cluster's tasks in these states (the first so many), by job and in the order of its jobspec."""
    query = _of_cluster(frozenset(states), most is not None)
    return [_task(row) for row in connection.execute(query, {"wanted": cluster_id, "most": most})]


def assigned_to(
    connection: sa.Connection, cluster_id: str, serves: Collection[str] | None, most: int | None
) -> list[Task]:
    """Return the first tasks assigned to one of these workers (None: to any), or to none, that no agent has."""
    if serves is None:
        return of_cluster(connection, cluster_id, [TaskState.ASSIGNED], most)
    mine = frozenset(serves) | {""}
    rows = connection.execute(_ASSIGNED, {"wanted": cluster_id})
    results = [row.id for row in rows if not row.placement or not mine.isdisjoint(row.placement)]
    return list(get(connection, cluster_id, results[:most]).values())


_ASSIGNED = (
    sa.select(tasks.c.id, tasks.c.placement)
    .where(tasks.c.cluster_id == sa.bindparam("wanted"), tasks.c.state == TaskState.ASSIGNED)
    .order_by(tasks.c.job, tasks.c.index)
)


@cache
def _of_cluster(states: frozenset[TaskState], some: bool) -> sa.Select[Any]:
    of_it = tasks.c.cluster_id == sa.bindparam("wanted")
    query = sa.select(*_COLUMNS).where(of_it, tasks.c.state.in_(states)).order_by(tasks.c.job, tasks.c.index)
    return query.limit(sa.bindparam("most", type_=sa.Integer)) if some else query


def changed(connection: sa.Connection, cluster_id: str, since: int) -> list[Task]:
    """Return the cluster's tasks that changed since an epoch, without their output; new ones come with their job."""
    rows = _CHANGED.found(connection, {"cluster": cluster_id, "since": since})
    return [_named(row, _BRIEF_NAMES) for row in rows]


def ended_since(connection: sa.Connection, cluster_id: str, since: float) -> list[Task]:
    """Return the cluster's tasks that have ended after a time and had held something."""
    own = (tasks.c.cluster_id == cluster_id, tasks.c.state.in_(ENDED), tasks.c.ended_at > since)
    return [task for task in _tasks(connection, *own, tasks.c.assigned_at.is_not(None)) if task.placement]


def waiting_at(connection: sa.Connection, cluster_id: str) -> dict[str, WaitingTasks]:
    """Return by job which tasks of a cluster wait."""
    results: dict[str, tuple[list[int], dict[int, float]]] = {}
    query = sa.select(tasks.c.job, tasks.c.index, tasks.c.expected).where(tasks.c.cluster_id == cluster_id, _WAITS)
    for job, index, expected in connection.execute(query):
        indexes, known = results.setdefault(job, ([], {}))
        indexes.append(index)
        if expected:
            known[index] = expected
    return {job: WaitingTasks(*each) for job, each in results.items()}


def waiting_of(connection: sa.Connection, job_id: str, whole: int) -> WaitingTasks:
    """Return which tasks of a job wait; `whole`: how many tasks it has.

    Those of a new job all wait, and mostly nothing is known of them: one look into the index says that.
    """
    [(count, longest)] = _WAITING_OF.found(connection, {"wanted": job_id, "waits": TaskState.WAITING})
    if count == whole and not longest:
        return WaitingTasks(range(whole), {})
    mine = (tasks.c.job == job_id, _WAITS)
    rows = connection.execute(sa.select(tasks.c.index, tasks.c.expected).where(*mine)).all()
    return WaitingTasks([row[0] for row in rows], {row[0]: row[1] for row in rows if row[1]})


_OF_JOB = (tasks.c.job == sa.bindparam("wanted"), tasks.c.state == sa.bindparam("waits"))
_WAITING_OF = Plain(sa.select(sa.func.count(), sa.func.max(tasks.c.expected)).where(*_OF_JOB))


def resting(connection: sa.Connection, cluster_id: str) -> list[Task]:
    """Return the cluster's tasks that were lost and wait for their time."""
    return _tasks(connection, tasks.c.cluster_id == cluster_id, _WAITS, tasks.c.not_before.is_not(None))


_ANYTHING = sa.select(
    sa.exists().where(tasks.c.cluster_id == sa.bindparam("of_cluster"), tasks.c.state == TaskState.ASSIGNED),
    sa.exists().where(
        tasks.c.cluster_id == sa.bindparam("of_cluster"),
        tasks.c.agent == sa.bindparam("of_agent"),
        tasks.c.state.in_((TaskState.STOPPING, TaskState.RUNNING, TaskState.SUSPENDED, TaskState.ACCEPTED)),
    ),
)


def anything(connection: sa.Connection, cluster_id: str, agent: str) -> tuple[bool, bool]:
    """Return whether tasks of a cluster are assigned, and whether an agent has some that run or are to stop."""
    assigned, runs = connection.execute(_ANYTHING, {"of_cluster": cluster_id, "of_agent": agent}).one()
    return bool(assigned), bool(runs)


def for_agents(connection: sa.Connection, cluster_ids: Collection[str]) -> set[ForAgents]:
    """Return whom tasks of some clusters concern that are assigned and not accepted, or to be stopped."""
    waits = tasks.c.state.in_((TaskState.ASSIGNED, TaskState.STOPPING))
    query = _NAMED.where(tasks.c.cluster_id.in_(cluster_ids), waits).limit(NAMED)
    rows = connection.execute(query).all()
    if len(rows) == NAMED:
        return {ForAgents(one) for one in cluster_ids}
    return {one for row in rows for one in concerns(row[-1], _named(row))}


def note_holders(connection: sa.Connection, cluster_id: str, job_id: str) -> None:
    """Note that there may be something for those who run a job: its owner has suspended it, or lets it continue."""
    run = tasks.c.state.in_((TaskState.RUNNING, TaskState.SUSPENDED))
    named = connection.execute(sa.select(tasks.c.agent).where(tasks.c.job == job_id, run).distinct()).scalars()
    note_for_agents(connection, [ForAgents(cluster_id, agent=name) for name in named])


def orders_to(connection: sa.Connection, cluster_id: str, agent: str) -> dict[str, list[Task]]:
    """Return an agent's tasks that are to stop, be held or continue, and those to give back unless they run."""
    result: dict[str, list[Task]] = {verb: [] for verb in _VERBS.values()}
    for row in connection.execute(_orders_query(), {"of_cluster": cluster_id, "of_agent": agent}):
        task = _task(row)
        result[_VERBS[task.state]].append(task)
    return result


_VERBS = {
    TaskState.STOPPING: "stop",
    TaskState.RUNNING: "suspend",
    TaskState.SUSPENDED: "resume",
    TaskState.ACCEPTED: "withdraw",
}


@cache
def _orders_query() -> sa.Select[Any]:
    own = (tasks.c.cluster_id == sa.bindparam("of_cluster"), tasks.c.agent == sa.bindparam("of_agent"))
    request = sa.exists().where(jobs.c.id == tasks.c.job, jobs.c.suspended_at.is_not(None))
    requirement = sa.or_(tasks.c.hold == Hold.POLICY, sa.and_(request, tasks.c.hold != Hold.UNABLE))
    elsewhere = tasks.c.hold == Hold.SITE
    stop, running, held, accepted = (tasks.c.state == state for state in _VERBS)
    back = sa.and_(accepted, tasks.c.hold == Hold.WITHDRAW)
    which = sa.or_(stop, sa.and_(running, requirement), sa.and_(held, sa.not_(requirement), sa.not_(elsewhere)), back)
    return sa.select(*_COLUMNS).where(*own, tasks.c.state.in_(_VERBS), which).order_by(tasks.c.job, tasks.c.index)


def let_go(connection: sa.Connection, cluster_id: str) -> None:
    """Forget what a policy wanted to be held: another one plans from now on."""
    own = (tasks.c.cluster_id == cluster_id, tasks.c.hold == Hold.POLICY)
    connection.execute(tasks.update().where(*own).values(hold=Hold.NONE))


def ask_again(connection: sa.Connection, job_id: str, what: Hold = Hold.UNABLE) -> None:
    """Forget that a job's tasks could not be held, or that they should be given back."""
    own = (tasks.c.job == job_id, tasks.c.hold == what)
    connection.execute(tasks.update().where(*own).values(hold=Hold.NONE))


def counts(connection: sa.Connection, job_ids: Collection[str]) -> dict[str, dict[TaskState, int]]:
    """Return {job: {state: how many of its tasks are in it}}."""
    result: dict[str, dict[TaskState, int]] = {job: {} for job in job_ids}
    query = sa.select(tasks.c.job, tasks.c.state, sa.func.count()).group_by(tasks.c.job, tasks.c.state)
    for part in _parts(job_ids):
        for job, state, count in connection.execute(query.where(tasks.c.job.in_(part))):
            result[job][TaskState(state)] = count
    return result


LOOKED_AT = 10_000  # tasks of one job
NAMED_WORKERS = 64  # tasks whose workers are told


class Summary(NamedTuple):
    """How far a job's tasks have come: when the first started, the worst exit code, and the workers they are on.

    `paused`: how many seconds all of them were held in place, before the last time.
    """

    counts: Mapping[TaskState, int]
    started_at: float | None
    exit_code: int | None
    workers: Sequence[str]
    paused: float = 0.0
    site: Mapping[str, Any] | None = None  # how its site calls the first of them


def summaries(connection: sa.Connection, job_ids: Collection[str]) -> dict[str, Summary]:
    """Return {job: its summary}; of a job with very many tasks times, codes and workers are those of the first."""
    return {job: _summary(connection, job, result) for job, result in counts(connection, job_ids).items()}


def _summary(connection: sa.Connection, job_id: str, results: Mapping[TaskState, int]) -> Summary:
    mine = tasks.c.job == job_id
    read = (tasks.c.started_at, tasks.c.exit_code, tasks.c.state, tasks.c.paused)
    first = sa.select(*read).where(mine).limit(LOOKED_AT).subquery()
    failed = sa.func.max(sa.case((first.c.state == TaskState.FAILED, first.c.exit_code)))  # before what was stopped
    code = sa.func.coalesce(failed, sa.func.max(first.c.exit_code))
    answer = connection.execute(sa.select(sa.func.min(first.c.started_at), code, sa.func.min(first.c.paused))).one()
    query = sa.select(tasks.c.placement).where(mine, tasks.c.state != TaskState.WAITING).limit(NAMED_WORKERS)
    named = dict.fromkeys(name for placed in connection.execute(query).scalars() for name in placed if name)
    site = sa.select(tasks.c.site).where(mine, tasks.c.site.is_not(None)).order_by(tasks.c.index).limit(1)
    return Summary(results, answer[0], answer[1], list(named), answer[2] or 0.0, connection.execute(site).scalar())


def mean_seconds(connection: sa.Connection, job_ids: Collection[str]) -> dict[str, float]:
    """Return {job: how long its tasks that completed ran on average}, of the jobs with any."""
    ran = sa.func.avg(tasks.c.ended_at - tasks.c.started_at)
    query = sa.select(tasks.c.job, ran).where(tasks.c.state == TaskState.COMPLETED).group_by(tasks.c.job)
    rows = [row for part in _parts(job_ids) for row in connection.execute(query.where(tasks.c.job.in_(part)))]
    return {row[0]: float(row[1]) for row in rows if row[1] is not None}


def get(connection: sa.Connection, cluster_id: str, task_ids: Collection[str]) -> dict[str, Task]:
    """Return {id: task} of those that exist at this cluster.

    They are looked up by id alone: SQLite would rather go through everything the cluster has.
    """
    results = {}
    for part in _parts(task_ids):
        for row in connection.execute(_SOME, {"wanted": part}):
            if row[-1] == cluster_id:
                results[row.id] = _named(row)
    return dict(sorted(results.items(), key=lambda item: (item[1].job, item[1].index)))


def save_all(connection: sa.Connection, changed: Sequence[Task], now: float) -> None:
    """Store the new states of many tasks of one cluster at once."""
    if changed:
        if remaining := [task for task in changed if task.account and task.state not in BOOKED]:
            charges.settle(connection, remaining, now)
        rows = [{f"new_{name}": getattr(task, name) for name in _NAMES} for task in changed]
        _SAVE(connection, *rows)
        cluster_id = _tell(connection, changed[0].id, list(map(_facts, changed)), now)
        note_for_agents(connection, chain.from_iterable(concerns(cluster_id, task) for task in changed))


def _tell(connection: sa.Connection, first: str, facts: Iterable[Mapping[str, Any]], now: float) -> str:
    """Store what has become of tasks, one of which is `first`; return their cluster's id."""
    where = connection.execute(_WHERE, {"wanted": first}).first()
    if where is None:
        return ""
    events.add_all(connection, now, where.id, "task", [{**each, "cluster": where.name} for each in facts])
    return str(where.id)


def _facts(task: Task) -> dict[str, Any]:
    answer = {"job": task.job, "task": task.id, "state": str(task.state), "attempt": task.attempt}
    return answer if task.exit_code is None else {**answer, "exit_code": task.exit_code}


def move(connection: sa.Connection, job_id: str, cluster_id: str, account: str | None = None) -> None:
    """Let a job's tasks belong to another cluster, and to another account if one is given."""
    paid = {} if account is None else {"account": account}
    connection.execute(tasks.update().where(tasks.c.job == job_id).values(cluster_id=cluster_id, **paid))


def unended(connection: sa.Connection, cluster_id: str) -> tuple[int, int]:
    """Count a cluster's tasks that wait, and those that hold space."""
    query = sa.select(tasks.c.state, sa.func.count()).where(tasks.c.cluster_id == cluster_id)
    rows = connection.execute(query.where(tasks.c.state.not_in(ENDED)).group_by(tasks.c.state))
    counts: dict[str, int] = {row[0]: row[1] for row in rows}
    waiting = counts.pop(TaskState.WAITING, 0) - staged_tasks(connection).get(cluster_id, 0)
    return waiting, sum(counts.values())


def save(connection: sa.Connection, changed: Task, now: float) -> None:
    """Store a task's new state."""
    save_all(connection, [changed], now)


def _parts(ids: Collection[str]) -> list[list[str]]:
    """Divide ids into as many as one statement names."""
    requirements = list(ids)
    return [requirements[k : k + NAMED] for k in range(0, len(requirements), NAMED)]


def _tasks(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Task]:
    query = sa.select(*_COLUMNS).where(*where).order_by(tasks.c.job, tasks.c.index)
    return [_task(row) for row in connection.execute(query)]


def _named(row: Sequence[Any], names: Sequence[str] = _NAMES) -> Task:
    """Return the task of a row of _NAMED, or of one with these columns."""
    task = Task(**dict(zip(names, row, strict=False)))
    return replace(task, state=TaskState(task.state))


def _task(row: sa.Row[Any]) -> Task:
    return Task(**{**row._mapping, "state": TaskState(row.state)})
