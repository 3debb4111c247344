"""The clusters' states for selection, and what booking adds to them.

Effective nodes_free = nodes_free as reported
    - nodes of live jobs placed there that the cluster had not accepted when it reported
    + nodes of jobs it had accepted then (so they were not in its free nodes) and that have ended since
    - nodes that are booked for a job without a cluster; that job, and those that end before it starts, may use them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import nan
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from rainbow.cache import cached_property
from rainbow.selection.choice import Names, is_number
from rainbow.selection.variables import StatesAt, StateTable
from rainbow.state_machine import BOOKED, ENDED, TaskState
from rainbow.store import clusters, workers
from rainbow.store.engine import Store, pending_of
from rainbow.store.events import last
from rainbow.store.jobs import LIVE, staged_tasks
from rainbow.store.reservations import unplaced_bookings
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
    result: Mapping[str, Any] = json.loads(text)
    return result


def put(connection: sa.Connection, cluster_id: str, values: Mapping[str, Any], now: float) -> None:
    """Store a whole new report."""
    clock = clusters.tick(connection, cluster_id)
    connection.execute(states.delete().where(states.c.cluster_id == cluster_id))
    row = {"cluster_id": cluster_id, "values": dict(values), "reported_at": now, "reported_clock": clock}
    connection.execute(states.insert().values(row))


def change(
    connection: sa.Connection, cluster_id: str, values: Mapping[str, Any], now: float, removed: Collection[str] = ()
) -> dict[str, Any]:
    """Store a report of some variables, and without others; return the whole state.

    One that does not count the free nodes again leaves the count, and what was booked on it, as old as it is.
    """
    stored = get(connection, [cluster_id]).get(cluster_id)
    before = {key: value for key, value in (stored.values if stored else {}).items() if key not in removed}
    whole = {**before, **values}
    if stored and "nodes_free" not in {*values, *removed}:
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
    result = dict.fromkeys(cluster_ids, 0)
    for rows, sign in ((freed, 1), (taken, -1), (connection.execute(_unplaced(how), named), -1)):
        for cluster_id, nodes in rows:
            result[cluster_id] += sign * int(nodes)
    return result


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


@cache
def _unplaced(how: str) -> sa.Select[Any]:
    columns = (unplaced_bookings.c.cluster_id, unplaced_bookings.c.nodes)
    return sa.select(*columns).where(_among(unplaced_bookings.c.cluster_id, how))


_EVENTS = sa.select(events.c.cluster_id).where(events.c.number > sa.bindparam("known")).distinct()
_NOTED = sa.select(schema_clusters.c.id).where(schema_clusters.c.noted >= sa.bindparam("known"))


def changed(connection: sa.Connection, known: int) -> set[str] | None:
    """Return the clusters whose state, booking or queue may have changed after an event.

    Each such change comes with an event of its cluster or is noted (`clusters.note`). None if that is unknown: events
    so old are forgotten.
    """
    if (now := last(connection)) < known:
        return None
    results = set(connection.execute(_NOTED, {"known": known}).scalars())
    if now > known:
        results |= set(connection.execute(_EVENTS, {"known": known}).scalars())
    pending = pending_of(connection)
    return results | {row["cluster_id"] for row in (pending.events if pending else ())}


def queues(connection: sa.Connection, cluster_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """Return {cluster id: {"waiting_tasks", "running_tasks"}}; running ones are those that hold workers."""
    how, named = _chosen(connection, cluster_ids)
    result = {key: {"waiting_tasks": 0, "running_tasks": 0} for key in cluster_ids}
    for cluster_id, state, count in connection.execute(_tasks(how), named):
        result[cluster_id]["running_tasks" if state in BOOKED else "waiting_tasks"] += count
    for cluster_id, count in staged_tasks(connection).items():
        if cluster_id in result:
            result[cluster_id]["waiting_tasks"] -= count
    return result


@cache
def _tasks(how: str) -> sa.Select[Any]:
    return (
        sa.select(tasks.c.cluster_id, tasks.c.state, sa.func.count())
        .where(_among(tasks.c.cluster_id, how), tasks.c.state.in_(set(TaskState) - ENDED))
        .group_by(tasks.c.cluster_id, tasks.c.state)
    )


# ── a board keeps in memory what the store said of all clusters after an event; it is replaced, never changed. One
# for a transaction has beside it what has changed since, and what the transaction itself wrote. ──

Order = Callable[[], Mapping[str, str]]  # gives {id: name} of all clusters in order of name
MOST_BEHIND = 16  # clusters that every transaction reads again, before the board is brought up to date
Made = tuple[Any, ...]  # what a state is made of: the report as stored, its time, and what the store counts


@dataclass(frozen=True, slots=True)
class Board:
    """The states of all clusters after an event; `changed` has, by place, the version that changed a state last."""

    event: int
    version: int
    places: Mapping[str, int]  # {cluster id: place}
    table: StateTable
    made: Sequence[Made]
    changed: NDArray[np.int64]

    def with_read(self, read: Mapping[str, Made], event: int) -> Board:
        """Return the board of a later event, with the states that differ."""
        new = {self.places[one]: made for one, made in read.items() if self.made[self.places[one]] != made}
        if not new:
            return self if event == self.event else Board(event, *_rest(self))
        made_of, changed, version = [*self.made], self.changed.copy(), self.version + 1
        for place, made in new.items():
            made_of[place] = made
        changed[[*new]] = version
        table = self.table.with_rows({place: row_of(made) for place, made in new.items()})
        return Board(event, version, self.places, table, made_of, changed)

    def since(self, version: int) -> list[int]:
        """Return the places of the states that have changed since a version."""
        result: list[int] = np.flatnonzero(self.changed > version).tolist()
        return result

    def kept(self, places: Iterable[int]) -> dict[str, list[Any]]:
        """Return some clusters' variables without the ages of their reports, and the times of those, by name."""
        names, rows, made = self.table.names.all, self.table.rows, self.made
        return {names[at]: [rows[at], made[at][1]] for at in places}


def _rest(board: Board) -> tuple[Any, ...]:
    return board.version, board.places, board.table, board.made, board.changed


def row_of(made: Made) -> tuple[dict[str, Any], float]:
    """Return a cluster's variables, nodes_free as booked, without the age of its report; and the time of that."""
    text, reported, booked, *counts = made
    values: dict[str, Any] = {f"queue.{key}": value for key, value in counts}
    if text:
        values |= read(text)
    if is_number(free := values.get("nodes_free")):
        values["nodes_free"] = free + booked
    return values, nan if reported is None else reported


def made_of(report: StateRecord | None, booked: int, counts: Mapping[str, int]) -> Made:
    """Return what a state is made of."""
    return (*((report.text, report.reported_at) if report else ("", None)), booked, *counts.items())


def read_made(connection: sa.Connection, ids: Collection[str], idle: bool = False) -> dict[str, Made]:
    """Read what the states of clusters are made of, by id; with the number of idle workers if that is wanted."""
    reported, nodes = get(connection, ids), booked(connection, ids)
    queued: Mapping[str, dict[str, int]] = queues(connection, ids)
    for cluster_id, count in (workers.idle(connection, ids) if idle else {}).items():
        queued[cluster_id]["idle_workers"] = count
    return {one: made_of(reported.get(one), nodes[one], queued[one]) for one in ids}


class StateBoard:
    """The board of a process."""

    def __init__(self) -> None:
        self.board: Board | None = None
        self._covered: tuple[object, object] = (None, None)  # places, and ids that are all among them
        self.behind = 0  # clusters that the last transaction had to read again
        self._lock = threading.Lock()

    def advance(self, store: Store, order: Order, ids: Collection[str]) -> None:
        """Bring the board up to date if it is far behind or lacks one of these: outside a transaction that writes."""
        lacks = not self._covers(self.board, ids)
        if (lacks or self.behind > MOST_BEHIND) and self._lock.acquire(blocking=lacks):
            try:
                upto = store.event_horizon().number
                with store.look() as connection:  # first the event, then what is no older
                    event = last(connection, upto)
                    self.board = self._seen(connection, order, ids, event, self.board)
                self.behind = 0
            finally:
                self._lock.release()

    def seen(self, connection: sa.Connection, order: Order, ids: Mapping[str, str], now: float) -> BoardStates:
        """Return what a transaction sees of the states of these clusters."""
        board = self.board
        result = self._seen(connection, order, ids, 0, board)
        shared = board is not None and result.places is board.places
        return BoardStates(now, ids, board if board is not None and shared else result, result)

    def _seen(
        self, connection: sa.Connection, order: Order, ids: Collection[str], event: int, board: Board | None
    ) -> Board:
        if board is None or not self._covers(board, ids) or (names := changed(connection, board.event)) is None:
            return _whole(connection, order(), event)
        known = names & board.places.keys()
        self.behind = len(known)
        return board.with_read(read_made(connection, known) if known else {}, event or board.event)

    def _covers(self, board: Board | None, ids: Collection[str]) -> bool:
        """Return whether a board has all of these; those of the last decision are not looked through again."""
        if board is None:
            return False
        places, known = self._covered
        if places is not board.places or known is not ids:
            if not board.places.keys() >= set(ids):
                return False
            self._covered = board.places, ids
        return True


def _whole(connection: sa.Connection, ordered: Mapping[str, str], event: int) -> Board:
    order = [*ordered]
    made = read_made(connection, order)
    rows = [row_of(made[one]) for one in order]
    table = StateTable(Names([*ordered.values()]), [row for row, _ in rows], np.array([at for _, at in rows], float))
    places = {one: place for place, one in enumerate(order)}
    return Board(event, 0, places, table, [made[one] for one in order], np.zeros(len(order), np.int64))


class BoardStates:
    """The states of some clusters ({id: name}) as a transaction sees them; `base` is a board that others see, too."""

    def __init__(self, at: float, ids: Mapping[str, str], base: Board, board: Board) -> None:
        self.at = at
        self.base = base
        self.board = board
        self._ids = ids

    @cached_property
    def table(self) -> StatesAt:
        """The states of all clusters."""
        return StatesAt(self.board.table, self.at)

    @cached_property
    def values(self) -> dict[str, dict[str, Any]]:
        """Their variables by name, not shared."""
        return self.table.all_of(self._ids.values())

    def says_all(self, more: bool | Collection[str]) -> bool:
        """Return whether all is in the table: nothing `more` is wanted, and no waits are reported."""
        return not more and not self.waits

    @property
    def waits(self) -> bool:
        """Whether a cluster reports how long jobs wait."""
        return self.board.table.has("expected_wait")

    def made(self, name: str) -> Made:
        """Return what a cluster's state was made of."""
        return self.board.made[self.board.table.names.places[name]]
