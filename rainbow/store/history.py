"""Forgetting what ended long ago. Jobs that have not ended are never forgotten."""

from __future__ import annotations

import sqlalchemy as sa

from rainbow.store import records
from rainbow.store.schema import events, jobs


def has_older(connection: sa.Connection, before: float) -> bool:
    """Tell whether anything may be forgotten."""
    found = [
        sa.select(jobs.c.id).where(jobs.c.ended_at < before).limit(1),
        sa.select(events.c.number).where(events.c.at < before).limit(1),
    ]
    return any(connection.execute(query).first() for query in found)


def forget(connection: sa.Connection, before: float, most: int) -> int:
    """Forget what ended before this time, at most so many jobs with their tasks; return how many jobs."""
    old = sa.select(jobs.c.id).where(jobs.c.ended_at < before).order_by(jobs.c.ended_at).limit(most)
    gone = connection.execute(old).scalars().all()
    connection.execute(jobs.delete().where(jobs.c.id.in_(gone)))
    records.forget_unused(connection)
    connection.execute(events.delete().where(events.c.at < before))
    return len(gone)
