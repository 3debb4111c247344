"""The clusters' states as they are stored, kept in memory and read again where they have changed.

board     what the store said of every cluster at some event; it is replaced, never changed
overlay   a board for one transaction: with what has changed since, and with what the transaction itself wrote
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rainbow.lazy import cached_property
from rainbow.selection.expression.scalar import is_number
from rainbow.selection.named_rows import Names
from rainbow.selection.state_table import StatesAt, StateTable
from rainbow.store import cluster_states, workers
from rainbow.store.cluster_states import StateRecord

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service

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
        found: list[int] = np.flatnonzero(self.changed > version).tolist()
        return found

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
        values |= cluster_states.read(text)
    if is_number(free := values.get("nodes_free")):
        values["nodes_free"] = free + booked
    return values, nan if reported is None else reported


def made_of(report: StateRecord | None, booked: int, counts: Mapping[str, int]) -> Made:
    """Return what a state is made of."""
    return (*((report.text, report.reported_at) if report else ("", None)), booked, *counts.items())


def read_made(connection: sa.Connection, ids: Collection[str], idle: bool = False) -> dict[str, Made]:
    """Read what the states of clusters are made of, by id; with the number of idle workers if that is wanted."""
    reported, booked = cluster_states.get(connection, ids), cluster_states.booked(connection, ids)
    queued: Mapping[str, dict[str, int]] = cluster_states.queues(connection, ids)
    for cluster_id, count in (workers.idle(connection, ids) if idle else {}).items():
        queued[cluster_id]["idle_workers"] = count
    return {one: made_of(reported.get(one), booked[one], queued[one]) for one in ids}


class StateBoard:
    """The board of a process."""

    def __init__(self) -> None:
        self.board: Board | None = None
        self.behind = 0  # clusters that the last transaction had to read again
        self._lock = threading.Lock()

    def advance(self, service: Service, ids: Collection[str]) -> None:
        """Bring the board up to date if it is far behind or lacks one of these: outside a transaction that writes."""
        lacks = self.board is None or not self.board.places.keys() >= set(ids)
        if (lacks or self.behind > MOST_BEHIND) and self._lock.acquire(blocking=lacks):
            try:
                upto = service.store.event_horizon().number  # later ones may be stored after what is read now
                with service.store.read() as connection:
                    found = self._seen(service, connection, ids, self.board)
                self.board = found if upto is None else replace(found, event=min(found.event, upto))
                self.behind = 0
            finally:
                self._lock.release()

    def seen(self, service: Service, connection: sa.Connection, ids: Mapping[str, str]) -> BoardStates:
        """Return what a transaction sees of the states of these clusters."""
        board, now = self.board, service.clock()
        found = self._seen(service, connection, ids, board)
        shared = board is not None and found.places is board.places
        return BoardStates(now, ids, board if board is not None and shared else found, found)

    def _seen(self, service: Service, connection: sa.Connection, ids: Collection[str], board: Board | None) -> Board:
        if board is None or not board.places.keys() >= set(ids):
            return _whole(service, connection)
        if (found := cluster_states.changed(connection, board.event)) is None:
            return _whole(service, connection)
        names, event = found
        known = names & board.places.keys()
        self.behind = len(known)
        return board.with_read(read_made(connection, known) if known else {}, event)


def _whole(service: Service, connection: sa.Connection) -> Board:
    event = cluster_states.newest(connection)
    entries = {entry.id: entry.cluster for entry in service.catalogue.values()}
    order = sorted(entries, key=lambda one: entries[one].sort_key)
    made = read_made(connection, order)
    rows = [row_of(made[one]) for one in order]
    table = StateTable(
        Names([entries[one].name for one in order]), [row for row, _ in rows], np.array([at for _, at in rows], float)
    )
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
        """Their variables by name, which nobody else has."""
        states = self.table
        return {name: states[name] for name in self._ids.values()}

    def says_all(self, more: Collection[str]) -> bool:
        """Return whether all stands in the table: nothing `more` is read beside, and no waits are reported."""
        return not more and not self.board.table.has("expected_wait")

    def made(self, name: str) -> Made:
        """Return what a cluster's state was made of."""
        return self.board.made[self.board.table.names.places[name]]
