"""Space kept for a time to come: advance reservations, maintenance, promised starts, bookings of unplaced jobs.

A reservation that is over stays until it is history. A promise stays until its gang starts or it is broken. A booking
stays until its job is placed or ends, or its cluster is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any

import sqlalchemy as sa

from rainbow.scheduling import Broken, Promise
from rainbow.store.schema import ID, TIME, metadata, promises, reservations, together


@dataclass(frozen=True, slots=True)
class ReservationRecord:
    """Whose it is, whose jobs may run in it (None: all), what of which worker it keeps, over [start, end)."""

    id: str
    cluster_id: str
    requestor: str
    requestors: list[str] | None
    start: float
    end: float
    placement: Mapping[str, Mapping[str, int]]
    created_at: float
    name: str = ""
    maintenance: bool = False
    at_begin: str = ""  # of maintenance: requeue or cancel what still runs then; empty: it runs on


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


# ── promises ──

ENDLESS = 1e18  # a time that never comes, in JSON and in every database


def promised(connection: sa.Connection, cluster_id: str) -> list[Promise]:
    """Return a cluster's promises, by job and gang."""
    query = sa.select(promises).where(promises.c.cluster_id == cluster_id).order_by(promises.c.job, promises.c.gang)
    return [_read(row._mapping) for row in connection.execute(query)]


def _read(row: Mapping[Any, Any]) -> Promise:
    broken = Broken(**row["broken"]) if row["broken"] else None
    values = {column.name: row[column.name] for column in fields(Promise)}
    until = inf if row["until"] >= ENDLESS else row["until"]
    return Promise(**{**values, "until": until, "broken": broken})


def keep_promises(
    connection: sa.Connection, cluster_id: str, before: Iterable[Promise], after: Iterable[Promise]
) -> None:
    """Store the promises that hold now in place of those before: only what differs is written."""
    old, new = {one.key: one for one in before}, {one.key: one for one in after}
    gone = [key for key, one in old.items() if new.get(key) != one]
    if gone:
        rows = [{"its_job": job, "its_gang": gang} for job, gang in gone]
        own = (promises.c.job == sa.bindparam("its_job"), promises.c.gang == sa.bindparam("its_gang"))
        connection.execute(promises.delete().where(*own), rows)
    fresh = [_row(cluster_id, one) for key, one in new.items() if old.get(key) != one]
    if fresh:
        connection.execute(promises.insert(), together(fresh))


def _row(cluster_id: str, one: Promise) -> dict[str, Any]:
    answer = asdict(one)
    return {**answer, "cluster_id": cluster_id, "until": min(one.until, ENDLESS)}


def take_promises(connection: sa.Connection, *, cluster_id: str = "", job: str = "") -> list[Promise]:
    """Return the promises to a job, or of a cluster, and forget them."""
    own = promises.c.job == job if job else promises.c.cluster_id == cluster_id
    result = [_read(row._mapping) for row in connection.execute(sa.select(promises).where(own))]
    if result:
        connection.execute(promises.delete().where(own))
    return result


# ── nodes that are kept for jobs without a cluster, as they become free ──

unplaced_bookings = sa.Table(
    "unplaced_bookings",
    metadata,
    sa.Column("job", ID, sa.ForeignKey("unplaced.job", ondelete="CASCADE"), primary_key=True),
    sa.Column(
        "cluster_id", ID, sa.ForeignKey("clusters.id", ondelete="CASCADE"), nullable=False, index=True, unique=True
    ),
    sa.Column("nodes", sa.Integer, nullable=False),
    sa.Column("made", TIME, nullable=False),
    sa.Column("start", TIME),  # when the job was expected to start there; NULL: unknown
)


@dataclass(frozen=True, slots=True)
class UnplacedBooking:
    """A number of nodes of a cluster, kept for a job that waits for one; a cluster has one such booking at most."""

    job: str
    cluster_id: str
    nodes: int
    made: float
    start: float | None = None

    def spares(self, job: str, now: float, limit: float) -> bool:
        """Return whether a job may use these nodes: it is the one they are for, or ends before that starts."""
        return job == self.job or (self.start is not None and 0 < limit <= self.start - now)


_BOOKINGS = sa.select(*(unplaced_bookings.c[column.name] for column in fields(UnplacedBooking)))


def bookings(connection: sa.Connection) -> list[UnplacedBooking]:
    """Return all bookings, the first made first: they are few."""
    return sorted(
        (UnplacedBooking(*row) for row in connection.execute(_BOOKINGS)), key=lambda one: (one.made, one.job)
    )


def put_booking(connection: sa.Connection, booking: UnplacedBooking) -> None:
    """Store a new one."""
    connection.execute(unplaced_bookings.insert().values(**asdict(booking)))


def drop_booking(connection: sa.Connection, job: str) -> str | None:
    """Remove the booking of a job; return the cluster that has its nodes again, None: there was none."""
    cluster_id = connection.execute(
        sa.select(unplaced_bookings.c.cluster_id).where(unplaced_bookings.c.job == job)
    ).scalar()
    connection.execute(unplaced_bookings.delete().where(unplaced_bookings.c.job == job))
    return cluster_id
