"""Advance reservations: space of a cluster kept over a time. One that is over stays until it is history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

import sqlalchemy as sa

from rainbow.store.schema import reservations


@dataclass(frozen=True, slots=True)
class ReservationRecord:
    """Whose it is, whose jobs may run in it (None: anybody's), what of which worker it keeps, over [start, end)."""

    id: str
    cluster_id: str
    requestor: str
    requestors: list[str] | None
    start: float
    end: float
    placement: Mapping[str, Mapping[str, int]]
    created_at: float
    name: str = ""


_COLUMNS = [reservations.c[column.name] for column in fields(ReservationRecord)]


def add(connection: sa.Connection, record: ReservationRecord) -> None:
    """Store a new one."""
    connection.execute(reservations.insert().values(**asdict(record)))


def get(connection: sa.Connection, cluster_id: str, reservation_id: str) -> ReservationRecord | None:
    """Return one of a cluster."""
    mine = (reservations.c.cluster_id == cluster_id, reservations.c.id == reservation_id)
    return next(iter(_found(connection, *mine)), None)


def of_cluster(connection: sa.Connection, cluster_id: str, after: float | None = None) -> list[ReservationRecord]:
    """Return a cluster's reservations that end after a time (None: all), the first to start first."""
    later = () if after is None else (reservations.c.end > after,)
    return _found(connection, reservations.c.cluster_id == cluster_id, *later)


def over(connection: sa.Connection, cluster_id: str, now: float) -> set[str]:
    """Return the ids of those that are over."""
    query = sa.select(reservations.c.id).where(reservations.c.cluster_id == cluster_id, reservations.c.end <= now)
    return set(connection.execute(query).scalars())


def end(connection: sa.Connection, reservation_id: str, now: float) -> None:
    """Let one be over now; one that has not begun never does."""
    change = reservations.update().where(reservations.c.id == reservation_id)
    first = sa.case((reservations.c.start > now, now), else_=reservations.c.start)
    connection.execute(change.values(start=first, end=now))


def forget(connection: sa.Connection, before: float) -> None:
    """Forget those that were over before a time."""
    connection.execute(reservations.delete().where(reservations.c.end < before))


def _found(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[ReservationRecord]:
    query = sa.select(*_COLUMNS).where(*where).order_by(reservations.c.start, reservations.c.id)
    return [ReservationRecord(**row._mapping) for row in connection.execute(query)]
