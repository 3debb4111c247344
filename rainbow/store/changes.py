"""Who changed what of a cluster's scheduling, when, from what, to what."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from rainbow.store.schema import changes


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that was changed; `before` and `after` None: it had, or has, no value."""

    at: float
    who: str
    what: str
    before: Any
    after: Any


def add(connection: sa.Connection, cluster_id: str, change: Change) -> None:
    """Store a change."""
    connection.execute(changes.insert().values(cluster_id=cluster_id, **asdict(change)))


def listing(connection: sa.Connection, cluster_id: str, most: int) -> list[Change]:
    """Return the last changes of a cluster, the newest first."""
    columns = [changes.c[name] for name in ("at", "who", "what", "before", "after")]
    query = sa.select(*columns).where(changes.c.cluster_id == cluster_id).order_by(changes.c.id.desc()).limit(most)
    return [Change(**row._mapping) for row in connection.execute(query)]
