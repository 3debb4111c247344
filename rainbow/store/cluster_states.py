"""The clusters' states for selection, and what booking adds to them.

Effective nodes_free = nodes_free as reported
    - nodes of live jobs placed there that the cluster had not accepted when it reported
    + nodes of jobs it had accepted then (so they were not in its free nodes) and that have ended since.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from rainbow.state_machine import BOOKED, ENDED, TaskState
from rainbow.store import clusters
from rainbow.store.jobs import LIVE, staged_tasks
from rainbow.store.schema import jobs, states, tasks

# clusters that a statement names one by one; more are one parameter, which costs nothing to compile
FEW_CLUSTERS = 32


def _among(connection: sa.Connection, column: sa.Column[str], ids: Collection[str]) -> sa.ColumnElement[bool]:
    """Return whether a column is one of some clusters."""
    if len(ids) <= FEW_CLUSTERS:
        return column.in_(ids)
    listed = sa.bindparam(None, json.dumps(list(ids)), sa.Text)
    if connection.dialect.name == "postgresql":
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
def _read(text: str) -> Mapping[str, Any]:
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
    else:
        put(connection, cluster_id, whole, now)
    return whole


_TEXTS = sa.select(states.c.cluster_id, sa.cast(states.c["values"], sa.Text), states.c.reported_at)


def get(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, StateRecord]:
    """Return {cluster id: state as reported} of those that have reported."""
    query = _TEXTS.where(_among(connection, states.c.cluster_id, cluster_ids))
    return {row[0]: StateRecord(_read(row[1]), row[2], row[1]) for row in connection.execute(query)}


def booked(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, int]:
    """Return {cluster id: what booking adds to its reported nodes_free}, mostly negative."""
    before = states.c.reported_clock
    unseen = sa.and_(jobs.c.state.in_(LIVE), sa.or_(jobs.c.accepted_clock.is_(None), jobs.c.accepted_clock > before))
    given_back = sa.and_(jobs.c.ended_clock > before, jobs.c.accepted_clock <= before)
    taken, freed = (_nodes(connection, cluster_ids, which) for which in (unseen, given_back))
    return {key: freed.get(key, 0) - taken.get(key, 0) for key in cluster_ids}


def _nodes(connection: sa.Connection, cluster_ids: Collection[str], which: sa.ColumnElement[bool]) -> dict[str, int]:
    """Return {cluster id: sum of the nodes of these jobs}."""
    query = (
        sa.select(jobs.c.cluster_id, sa.func.sum(jobs.c.nodes))
        .join(states, states.c.cluster_id == jobs.c.cluster_id)
        .where(_among(connection, jobs.c.cluster_id, cluster_ids), which)
        .group_by(jobs.c.cluster_id)
    )
    return {cluster_id: int(nodes) for cluster_id, nodes in connection.execute(query)}


def queues(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """Return {cluster id: {"waiting_tasks", "running_tasks"}}; running ones are those that hold workers."""
    query = (
        sa.select(tasks.c.cluster_id, tasks.c.state, sa.func.count())
        .where(_among(connection, tasks.c.cluster_id, cluster_ids), tasks.c.state.in_(set(TaskState) - ENDED))
        .group_by(tasks.c.cluster_id, tasks.c.state)
    )
    found = {key: {"waiting_tasks": 0, "running_tasks": 0} for key in cluster_ids}
    for cluster_id, state, count in connection.execute(query):
        found[cluster_id]["running_tasks" if state in BOOKED else "waiting_tasks"] += count
    for cluster_id, count in staged_tasks(connection).items():
        if cluster_id in found:
            found[cluster_id]["waiting_tasks"] -= count
    return found
