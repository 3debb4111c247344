"""Tokens and secrets of clusters. Only their SHA-256 is kept."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields

import sqlalchemy as sa

from rainbow.store.schema import credentials


@dataclass(frozen=True, slots=True)
class CredentialRecord:
    """One credential of one cluster. `requestors` are those it may speak for, None: any."""

    id: str
    kind: str
    hash: str
    cluster_id: str
    created_at: float
    requestors: list[str] | None = None
    expires_at: float | None = None
    revoked_at: float | None = None


_COLUMNS = [credentials.c[column.name] for column in fields(CredentialRecord)]


def add(connection: sa.Connection, record: CredentialRecord) -> None:
    """Store a new credential."""
    connection.execute(credentials.insert().values(asdict(record)))


def valid(connection: sa.Connection, hashes: Collection[str], now: float) -> list[CredentialRecord]:
    """Return the credentials with these hashes that are neither revoked nor past their end, by id."""
    query = sa.select(*_COLUMNS).where(
        credentials.c.hash.in_(hashes),
        credentials.c.revoked_at.is_(None),
        sa.or_(credentials.c.expires_at.is_(None), credentials.c.expires_at > now),
    )
    return [CredentialRecord(**row._mapping) for row in connection.execute(query.order_by(credentials.c.id))]
