"""What accounts use: written in the transaction that ends or moves a task, and summed by day.

An attempt counts from its start until its space is given back, exactly. Budgets hold the most a job can cost from its
submit; the end of each attempt charges what it took, the last end of a task gives its part of the hold back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from rainbow.accounts.budget import Budget
from rainbow.accounts.usage import ChargedRun, days, decayed, held, used
from rainbow.state_machine import BOOKED, ENDED, Task
from rainbow.store.accounts import registry
from rainbow.store.accounts.tables import budgets, former_clusters, holds, usage_days, usages
from rainbow.store.schema import Plain, clusters, jobs, tasks

NAMED = 500  # tasks named in one statement
_OF_JOB = (jobs.c.account, jobs.c.requestor, jobs.c.cluster_id, jobs.c.rate)
_BEFORE = (
    sa.select(tasks.c.id, tasks.c.job, tasks.c.state, tasks.c.started_at, tasks.c.placement, *_OF_JOB)
    .join(jobs, jobs.c.id == tasks.c.job)
    .where(tasks.c.id.in_(sa.bindparam("wanted", expanding=True)))
)
_RUNNING = (
    sa.select(tasks.c.job, tasks.c.started_at, tasks.c.placement, *_OF_JOB)
    .join(jobs, jobs.c.id == tasks.c.job)
    .where(tasks.c.account != "", tasks.c.state.in_(BOOKED))
)
Pair = tuple[str, str]  # account and user
SLACK = 1e-9  # of a budget: sums of fractions
_OF_BUDGET = (budgets.c.account == sa.bindparam("of_account"), budgets.c.period == sa.bindparam("of_period"))
_BALANCE = sa.select(budgets.c.held, budgets.c.charged).where(*_OF_BUDGET)
_TAKE = Plain(
    budgets.update()
    .where(*_OF_BUDGET, budgets.c.held + budgets.c.charged + sa.bindparam("more") <= sa.bindparam("most"))
    .values(held=budgets.c.held + sa.bindparam("more"))
)
_HOLD = Plain(holds.insert())


class Balance(NamedTuple):
    """What is held and charged of an account's budget in a period."""

    held: float = 0.0
    charged: float = 0.0


def settle(connection: sa.Connection, changed: Sequence[Task], now: float) -> None:
    """Charge tasks of accounts that give their space back; call it before their new states are stored."""
    runs: list[ChargedRun] = []
    after = {task.id: task for task in changed}
    for k in range(0, len(changed), NAMED):
        requirements = [task.id for task in changed[k : k + NAMED]]
        results = (_run(row, after[row.id], now) for row in connection.execute(_BEFORE, {"wanted": requirements}))
        runs += [run for run in results if run is not None]
    if runs:
        _note(connection, runs, now)
    ended = Counter(task.job for task in changed if task.state in ENDED)
    _give_back(connection, runs, ended)


def _run(row: Any, after: Task, now: float) -> ChargedRun | None:
    """Return what a task ran as it was stored; a message can say that it started and ended."""
    began = after.started_at if row.started_at is None else row.started_at
    if row.state not in BOOKED or began is None:
        return None
    end = max(began, now if after.ended_at is None else after.ended_at)  # a clock may be set back meanwhile
    return ChargedRun(row.account, row.requestor, row.cluster_id, held(row.placement), began, end, row.rate, row.job)


def _note(connection: sa.Connection, runs: Iterable[ChargedRun], now: float) -> None:
    """Add runs to the sums of their days and to the decayed usage."""
    daily: Counter[tuple[Any, ...]] = Counter()
    recent: Counter[Pair] = Counter()
    rules = registry.rules(connection)
    for run in runs:
        recent[run.account, run.user] += run.weighed(rules, now)  # type: ignore[assignment]
        for day, seconds in days(run.began, run.ended):
            for kind, amount in used(run.amounts, seconds, run.rate).items():
                daily[day, run.account, run.user, run.cluster, kind] += amount  # type: ignore[assignment]
    keys = ("day", "account", "user", "cluster", "type")
    add_up(connection, [{**dict(zip(keys, key, strict=True)), "used": amount} for key, amount in daily.items()])
    for (account, user), amount in recent.items():
        _add_recent(connection, account, user, amount, now, rules.half_life)


def add_up(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add to the sums by day."""
    if rows:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        made = dialect.insert(usage_days)
        total = usage_days.c.used + made.excluded.used
        keys = list(usage_days.primary_key.columns)
        connection.execute(made.on_conflict_do_update(index_elements=keys, set_={"used": total}), list(rows))


def _add_recent(
    connection: sa.Connection, account: str, user: str, amount: float, now: float, half_life: float
) -> None:
    own = (usages.c.account == account, usages.c.user == user)
    row = connection.execute(sa.select(usages.c.amount, usages.c.at).where(*own)).one_or_none()
    if row is None:
        connection.execute(usages.insert().values(account=account, user=user, amount=amount, at=now))
        return
    total = amount + decayed(row.amount, row.at, now, half_life)
    connection.execute(usages.update().where(*own).values(amount=total, at=max(now, row.at)))


# ── budgets ──


def take(connection: sa.Connection, account: str, period: str, amount: float, whole: float) -> bool:
    """Hold an amount of a budget if so much is left of the whole; return whether it is."""
    most = whole * (1 + SLACK)
    named = {"of_account": account, "of_period": period, "more": amount, "most": most}
    if _TAKE(connection, named).rowcount:
        return True
    if amount > most or connection.execute(_BALANCE, named).one_or_none() is not None:
        return False
    connection.execute(budgets.insert(), {"account": account, "period": period, "held": amount, "charged": 0.0})
    return True


def give_up(connection: sa.Connection, account: str, period: str, amount: float) -> None:
    """Give back an amount that was held for no job."""
    _change(connection, account, period, -amount, 0.0)


def keep(connection: sa.Connection, job: str, count: int, held: Mapping[str, tuple[Budget, str, float]]) -> None:
    """Note what is held for a job of some tasks: {account: (budget, period, amount)}."""
    for account, (budget, period, amount) in held.items():
        row = {"job": job, "account": account, "period": period, "of": dict(budget.of), "held": amount}
        _HOLD(connection, {**row, "charged": 0.0, "per_task": amount / max(1, count)})


def balance(connection: sa.Connection, account: str, period: str) -> Balance:
    """Return what is held and charged of an account's budget."""
    row = connection.execute(_BALANCE, {"of_account": account, "of_period": period}).one_or_none()
    return Balance(*row) if row else Balance()


def give_back(connection: sa.Connection, job: str, count: int) -> None:
    """Give back what was held for tasks that have ended without having run."""
    _give_back(connection, [], {job: count})


def _give_back(connection: sa.Connection, runs: Iterable[ChargedRun], ended: Mapping[str, int]) -> None:
    """Charge runs to the budgets their jobs hold of, and give back what ended tasks held."""
    by_job: dict[str, list[ChargedRun]] = {}
    for run in runs:
        by_job.setdefault(run.job, []).append(run)
    requirements = sorted({*by_job, *ended})
    for k in range(0, len(requirements), NAMED):
        query = sa.select(holds).where(holds.c.job.in_(requirements[k : k + NAMED]))
        for row in connection.execute(query).all():
            budget = Budget(0.0, row.of)
            took = sum(budget.spent(run.used()) for run in by_job.get(row.job, ()))
            back = min(row.held, row.per_task * ended.get(row.job, 0))
            remaining = row.held - back if row.held - back > row.per_task / 2 else 0.0
            _change(connection, row.account, row.period, remaining - row.held, took)
            own = (holds.c.job == row.job, holds.c.account == row.account)
            connection.execute(holds.update().where(*own).values(held=remaining, charged=row.charged + took))


def _change(connection: sa.Connection, account: str, period: str, more_held: float, more_charged: float) -> None:
    own = (budgets.c.account == account, budgets.c.period == period)
    now = balance(connection, account, period)
    values = {"held": max(0.0, now.held + more_held), "charged": now.charged + more_charged}
    if not connection.execute(budgets.update().where(*own).values(values)).rowcount:
        connection.execute(budgets.insert().values(account=account, period=period, **values))


# ── queries ──


def recent(connection: sa.Connection, now: float) -> dict[Pair, float]:
    """Return the decayed usage of each account and user, with what runs now."""
    rules = registry.rules(connection)
    result = {
        (row.account, row.user): decayed(row.amount, row.at, now, rules.half_life) for row in _usages(connection)
    }
    for run in running(connection, now):
        key = run.account, run.user
        result[key] = result.get(key, 0.0) + run.weighed(rules, now)
    return result


def _usages(connection: sa.Connection) -> Iterable[sa.Row[Any]]:
    return connection.execute(sa.select(usages))


def running(connection: sa.Connection, now: float) -> list[ChargedRun]:
    """Return what holds space now for accounts, until now."""
    rows = connection.execute(_RUNNING)
    results = ((row, now if row.started_at is None else row.started_at) for row in rows)
    return [
        ChargedRun(row.account, row.requestor, row.cluster_id, held(row.placement), began, now, row.rate, row.job)
        for row, began in results
    ]


BY = ("day", "account", "user", "cluster")
_BY = ("account", "user", "cluster")
_KEY = (usage_days.c.account, usage_days.c.user, usage_days.c.cluster, usage_days.c.type)


def totals(
    connection: sa.Connection,
    by: Sequence[str],
    since: int,
    until: int | None,
    seen: Mapping[Collection[str] | None, Collection[str]] | None = None,
) -> list[dict[str, Any]]:
    """Return what was used from a day until before another by these columns: {**columns, "used": {type: amount}}.

    `seen`: {users: the clusters where theirs is counted}, with None for all users; None: everything is counted. The
    store sums along its primary key, without sorting; what is coarser is summed here.
    """
    key = (*_KEY, *((usage_days.c.day,) if "day" in by else ()))
    query = sa.select(*key, sa.func.sum(usage_days.c.used).label("amount")).where(usage_days.c.day >= since)
    if until is not None:
        query = query.where(usage_days.c.day < until)
    if seen is not None:
        query = query.where(sa.or_(sa.false(), *(_of(users, clusters) for users, clusters in seen.items())))
    names = _names(connection) if "cluster" in by else {}
    places = [[*_BY, "day"].index(name) for name in by]
    results: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in connection.execute(query.group_by(*key)).all():
        account, user, cluster, kind, *day, amount = row
        named = (account, user, names.get(cluster, cluster), *day)
        own = results.setdefault(tuple([named[k] for k in places]), {})
        own[kind] = own.get(kind, 0.0) + float(amount)
    return [{**dict(zip(by, key, strict=True)), "used": own} for key, own in sorted(results.items())]


def _names(connection: sa.Connection) -> dict[str, str]:
    """Return what clusters are called, those that are gone too; one name may be that of several."""
    now, before = (sa.select(table.c.id, table.c.name) for table in (clusters, former_clusters))
    return {row.id: row.name for row in connection.execute(before.union_all(now))}


def _of(users: Collection[str] | None, ids: Collection[str]) -> sa.ColumnElement[bool]:
    there = usage_days.c.cluster.in_(ids)
    return there if users is None else there & usage_days.c.user.in_(users)


_ELSEWHERE = (
    sa.select(jobs.c.account, jobs.c.requestor, jobs.c.qos, tasks.c.placement)
    .join(jobs, jobs.c.id == tasks.c.job)
    .where(tasks.c.cluster_id != sa.bindparam("here"), tasks.c.state.in_(BOOKED))
    .where(sa.or_(jobs.c.account != "", jobs.c.qos != ""))
)


def placed_elsewhere(
    connection: sa.Connection, cluster_id: str
) -> Iterator[tuple[tuple[str, str, str], Mapping[str, Mapping[str, int]]]]:
    """Give (account, user, quality of service) and placement of each task that holds space on another cluster."""
    for row in connection.execute(_ELSEWHERE, {"here": cluster_id}):
        yield (row.account, row.requestor, row.qos), row.placement


def active_of_qos(connection: sa.Connection, name: str, cluster: str | None = None) -> int:
    """Count the jobs of a quality of service that have not ended."""
    return _active(connection, cluster, jobs.c.qos == name)


_ACTIVE = ("WAITING", "RUNNING", "UNPLACED")


def active_jobs(connection: sa.Connection, accounts: Collection[str], cluster: str | None = None) -> int:
    """Count the jobs of some accounts that have not ended."""
    return _active(connection, cluster, jobs.c.account.in_(accounts), jobs.c.account != "")


def _active(connection: sa.Connection, cluster: str | None, *which: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.count()).where(*which, jobs.c.state.in_(_ACTIVE))
    return connection.execute(query if cluster is None else query.where(jobs.c.cluster == cluster)).scalar_one()
