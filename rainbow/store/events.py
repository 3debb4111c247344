"""Events in order, who changed which settings, and who asked for which change."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import sqlalchemy as sa

from rainbow.state_machine import JobState
from rainbow.store.accounts.tables import audit
from rainbow.store.engine import ADD_EVENT, pending_of
from rainbow.store.pages import MOST_RANGES, first_of
from rainbow.store.schema import changes, events


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that was changed; `before` and `after` None: it had, or has, no value."""

    at: float
    who: str
    what: str
    before: Any
    after: Any


def add_change(connection: sa.Connection, cluster_id: str, change: Change) -> None:
    """Store a change."""
    connection.execute(changes.insert().values(cluster_id=cluster_id, **asdict(change)))


def list_changes(connection: sa.Connection, cluster_id: str, most: int, what: str | None = None) -> list[Change]:
    """Return the last changes of a cluster (of one thing there), the newest first."""
    columns = [changes.c[name] for name in ("at", "who", "what", "before", "after")]
    of = [changes.c.cluster_id == cluster_id, *([] if what is None else [changes.c.what == what])]
    query = sa.select(*columns).where(*of).order_by(changes.c.id.desc()).limit(most)
    return [Change(**row._mapping) for row in connection.execute(query)]


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One event of one cluster. Readers go no further than `Store.event_horizon`: see postgresql.py."""

    number: int
    at: float
    cluster_id: str
    kind: str
    facts: dict[str, Any]


_COLUMNS = [events.c[column.name] for column in fields(EventRecord)]


def add(connection: sa.Connection, now: float, cluster_id: str, kind: str, **facts: Any) -> None:
    """Store an event."""
    add_all(connection, now, cluster_id, kind, [facts])


def add_all(connection: sa.Connection, now: float, cluster_id: str, kind: str, facts: Sequence[Any]) -> None:
    """Store several events of one kind, in order."""
    rows = [{"at": now, "cluster_id": cluster_id, "kind": kind, "facts": each} for each in facts]
    if (pending := pending_of(connection)) is not None:
        pending.events.extend(rows)
    else:
        ADD_EVENT(connection, *rows)


def after(
    connection: sa.Connection,
    number: int,
    clusters: Collection[str] | None,
    most: int = 500,
    upto: int | None = None,
) -> list[EventRecord]:
    """Return the events after one and up to another, of these clusters (None: all), the oldest first."""
    newer = [events.c.number > number, *([] if upto is None else [events.c.number <= upto])]
    query = sa.select(*_COLUMNS).order_by(events.c.number)
    if clusters is None or len(clusters) > MOST_RANGES:
        query = query.where(*newer).limit(most)
        query = query if clusters is None else query.where(events.c.cluster_id.in_(clusters))
    else:
        ranges = [[one] for one in clusters]
        results = first_of(connection, events.c.number, [events.c.cluster_id], ranges, most, newer)
        query = query.where(events.c.number.in_(results))
    return [EventRecord(**row._mapping) for row in connection.execute(query)]


def count_starts(connection: sa.Connection, number: int, upto: int) -> dict[str, int]:
    """Return {cluster id: how many jobs have begun to run} after an event and up to another."""
    begun = events.c.facts["state"].as_string() == str(JobState.RUNNING)
    chosen = sa.select(events.c.cluster_id, sa.func.count()).where(
        events.c.number > number, events.c.number <= upto, events.c.kind == "job"
    )
    return {row[0]: row[1] for row in connection.execute(chosen.where(begun).group_by(events.c.cluster_id))}


def forget(connection: sa.Connection, before: float, most: int) -> int:
    """Forget what happened before this time, at most so many events; return how many."""
    old = sa.select(events.c.number).where(events.c.at < before).order_by(events.c.at).limit(most)
    return connection.execute(events.delete().where(events.c.number.in_(old))).rowcount


def last(connection: sa.Connection, upto: int | None = None) -> int:
    """Return the number of the newest event up to one, 0 if there is none."""
    query = sa.select(sa.func.max(events.c.number))
    return connection.execute(query if upto is None else query.where(events.c.number <= upto)).scalar() or 0


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Who asked for one change."""

    id: int
    at: float
    request: str
    verb: str
    object: str
    cluster_id: str
    credential: str
    login: str
    address: str
    path: str


def list_audit(
    connection: sa.Connection, clusters: Collection[str] | None, most: int, before: int | None = None, **chosen: Any
) -> list[AuditRecord]:
    """Return who asked for what of these clusters (None: of all, and what is of none), the newest first.

    `chosen`: an `object`, a `credential`, and times, `since` and `until`; None is any.
    """
    having: list[sa.ColumnElement[bool]] = [] if clusters is None else [audit.c.cluster_id.in_(clusters)]
    if before is not None:
        having.append(audit.c.id < before)
    if chosen.get("object") is not None:
        having.append(audit.c.object == chosen["object"])
    if chosen.get("credential") is not None:
        ids = sa.literal(" ") + audit.c.credential + " "
        having.append(ids.contains(f" {chosen['credential']} ", autoescape=True))
    if chosen.get("since") is not None:
        having.append(audit.c.at >= chosen["since"])
    if chosen.get("until") is not None:
        having.append(audit.c.at < chosen["until"])
    query = sa.select(audit).where(*having).order_by(audit.c.id.desc()).limit(most)
    return [AuditRecord(**row._mapping) for row in connection.execute(query)]


def forget_audit(connection: sa.Connection, before: float, most: int) -> int:
    """Forget who asked for changes before a time, some at once; return how many rows."""
    old = sa.select(audit.c.id).where(audit.c.at < before).order_by(audit.c.at).limit(most)
    return connection.execute(audit.delete().where(audit.c.id.in_(old))).rowcount
