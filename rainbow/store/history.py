"""Forgetting what ended long ago. Jobs that have not ended are never forgotten, nor what their decisions used."""

from __future__ import annotations

import sqlalchemy as sa

from rainbow.store.schema import blobs, events, jobs, ledger


def has_older(connection: sa.Connection, before: float) -> bool:
    """Tell whether anything may be forgotten."""
    found = [
        sa.select(jobs.c.id).where(jobs.c.ended_at < before).limit(1),
        sa.select(events.c.number).where(events.c.at < before).limit(1),
        sa.select(blobs.c.digest).where(blobs.c.used_at < before).limit(1),
    ]
    return any(connection.execute(query).first() for query in found)


def forget(connection: sa.Connection, before: float, now: float, most: int) -> int:
    """Forget what ended before this time, at most so many jobs with their tasks; return how many jobs."""
    old = sa.select(jobs.c.id).where(jobs.c.ended_at < before).order_by(jobs.c.ended_at).limit(most)
    gone = connection.execute(old).scalars().all()
    connection.execute(jobs.delete().where(jobs.c.id.in_(gone)))
    connection.execute(events.delete().where(events.c.at < before))
    _keep_what_is_named(connection, before, now)
    connection.execute(blobs.delete().where(blobs.c.used_at < before))
    return len(gone)


def _keep_what_is_named(connection: sa.Connection, before: float, now: float) -> None:
    """Renew the blobs that decisions still known were made from, and the graphs those name."""
    for column in (ledger.c.graphs, ledger.c.states):
        named = sa.select(ledger.c.job).where(column == blobs.c.digest).exists()
        query = sa.select(blobs.c.digest, blobs.c.content).where(blobs.c.used_at < before, named)
        for digest, content in connection.execute(query).all():
            parts = list(content.values()) if column is ledger.c.graphs else []
            connection.execute(blobs.update().where(blobs.c.digest.in_([digest, *parts])).values(used_at=now))
