"""The clusters' states for selection, and what booking adds to them.

Effective nodes_free = nodes_free as reported
    - nodes of live jobs placed there that the cluster had not accepted when it reported
    + nodes of jobs it had accepted then (so they were not in its free nodes) and that have ended since.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import sqlalchemy as sa

from rainbow.state_machine import BOOKED, ENDED, TaskState
from rainbow.store import clusters
from rainbow.store.engine import kept_of
from rainbow.store.jobs import LIVE, staged_tasks
from rainbow.store.schema import clusters as schema_clusters
from rainbow.store.schema import events, jobs, states, tasks

# clusters that a statement names one by one; more are one parameter, which costs nothing to compile
FEW_CLUSTERS = 32


IDS = "ids"


def _chosen(connection: sa.Connection, ids: Collection[str]) -> tuple[str, dict[str, Any]]:
    """Return how a statement names these clusters, and the parameter that does."""
    if len(ids) <= FEW_CLUSTERS:
        return "few", {IDS: list(ids)}
    return connection.dialect.name, {IDS: json.dumps(list(ids))}


def _among(column: sa.Column[str], how: str) -> sa.ColumnElement[bool]:
    """Return whether a column is one of the clusters that a parameter names."""
    if how == "few":
        return column.in_(sa.bindparam(IDS, expanding=True))
    listed = sa.bindparam(IDS, type_=sa.Text)
    if how == "postgresql":
        each = sa.func.json_array_elements_text(sa.cast(listed, sa.JSON)).table_valued("value")
    else:
        each = sa.func.json_each(listed).table_valued("value")
    return column.in_(sa.select(each.c.value))


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A state as reported."""

    values: Mapping[str, Any]
    reported_at: float
    text: str = ""  # the values as they are stored


@lru_cache(maxsize=65_536)  # most have not changed since they were read last
def read(text: str) -> Mapping[str, Any]:
    """Read the values of a state as they are stored."""
    found: Mapping[str, Any] = json.loads(text)
    return found


def put(connection: sa.Connection, cluster_id: str, values: Mapping[str, Any], now: float) -> None:
    """Store a whole new report."""
    clock = clusters.tick(connection, cluster_id)
    connection.execute(states.delete().where(states.c.cluster_id == cluster_id))
    row = {"cluster_id": cluster_id, "values": dict(values), "reported_at": now, "reported_clock": clock}
    connection.execute(states.insert().values(row))


def change(connection: sa.Connection, cluster_id: str, values: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Store a report of some variables; return the whole state.

    One that does not count the free nodes again leaves the count, and what was booked on it, as old as it is.
    """
    stored = get(connection, [cluster_id]).get(cluster_id)
    whole = {**(stored.values if stored else {}), **values}
    if stored and "nodes_free" not in values:
        query = states.update().where(states.c.cluster_id == cluster_id)
        connection.execute(query.values({"values": whole, "reported_at": now}))
        clusters.note(connection, cluster_id)
    else:
        put(connection, cluster_id, whole, now)
    return whole


_TEXTS = sa.select(states.c.cluster_id, sa.cast(states.c["values"], sa.Text), states.c.reported_at)


def get(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, StateRecord]:
    """Return {cluster id: state as reported} of those that have reported."""
    how, named = _chosen(connection, cluster_ids)
    rows = connection.execute(_texts(how), named)
    return {row[0]: StateRecord(read(row[1]), row[2], row[1]) for row in rows}


# what every decision asks is put together once: that costs more than carrying it out
@cache
def _texts(how: str) -> sa.Select[Any]:
    return _TEXTS.where(_among(states.c.cluster_id, how))


def booked(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, int]:
    """Return {cluster id: what booking adds to its reported nodes_free}, mostly negative."""
    how, named = _chosen(connection, cluster_ids)
    taken, freed = (connection.execute(_nodes(how, which), named) for which in ("unseen", "given back"))
    found = dict.fromkeys(cluster_ids, 0)
    for rows, sign in ((freed, 1), (taken, -1)):
        for cluster_id, nodes in rows:
            found[cluster_id] += sign * int(nodes)
    return found


@cache
def _nodes(how: str, which: str) -> sa.Select[Any]:
    """Return the statement that sums the nodes of these jobs by cluster."""
    before = states.c.reported_clock
    unseen = sa.and_(jobs.c.state.in_(LIVE), sa.or_(jobs.c.accepted_clock.is_(None), jobs.c.accepted_clock > before))
    given_back = sa.and_(jobs.c.ended_clock > before, jobs.c.accepted_clock <= before)
    return (
        sa.select(jobs.c.cluster_id, sa.func.sum(jobs.c.nodes))
        .join(states, states.c.cluster_id == jobs.c.cluster_id)
        .where(_among(jobs.c.cluster_id, how), unseen if which == "unseen" else given_back)
        .group_by(jobs.c.cluster_id)
    )


_EVENTS = sa.select(events.c.cluster_id).where(events.c.number > sa.bindparam("known")).distinct()
_NEWEST = sa.select(sa.func.max(events.c.number))
_NOTED = sa.select(schema_clusters.c.id).where(schema_clusters.c.noted >= sa.bindparam("known"))


def newest(connection: sa.Connection) -> int:
    """Return the number of the newest event that is stored, 0 without one."""
    return connection.execute(_NEWEST).scalar() or 0


def changed(connection: sa.Connection, known: int) -> tuple[set[str], int] | None:
    """Return the clusters whose state, booking or queue may have changed after an event, and the newest event.

    Each such change comes with an event of its cluster or is noted (`clusters.note`). None if nobody can say: events
    so old are forgotten.
    """
    if (now := newest(connection)) < known:
        return None
    found = set(connection.execute(_NOTED, {"known": known}).scalars())
    if now > known:
        found |= {row[0] for row in connection.execute(_EVENTS, {"known": known})}
    kept = kept_of(connection)
    return found | {row["cluster_id"] for row in (kept.events if kept else ())}, now


def queues(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """Return {cluster id: {"waiting_tasks", "running_tasks"}}; running ones are those that hold workers."""
    how, named = _chosen(connection, cluster_ids)
    found = {key: {"waiting_tasks": 0, "running_tasks": 0} for key in cluster_ids}
    for cluster_id, state, count in connection.execute(_tasks(how), named):
        found[cluster_id]["running_tasks" if state in BOOKED else "waiting_tasks"] += count
    for cluster_id, count in staged_tasks(connection).items():
        if cluster_id in found:
            found[cluster_id]["waiting_tasks"] -= count
    return found


@cache
def _tasks(how: str) -> sa.Select[Any]:
    return (
        sa.select(tasks.c.cluster_id, tasks.c.state, sa.func.count())
        .where(_among(tasks.c.cluster_id, how), tasks.c.state.in_(set(TaskState) - ENDED))
        .group_by(tasks.c.cluster_id, tasks.c.state)
    )
