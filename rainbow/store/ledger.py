"""What each placement was decided from: digests, and under them the graphs and states themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import sqlalchemy as sa

from rainbow.store.schema import blobs, ledger


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One placement: digests of {cluster: digest of its graphs}, {cluster: state} and the policy, and the rest."""

    job: str
    graphs: str
    states: str
    policy: str
    settings: Mapping[str, Any]  # backend, selector, options, seed
    version: str


_COLUMNS = [ledger.c[column.name] for column in fields(LedgerRecord)]


def digest_of(content: Any) -> str:
    """Return the digest of a JSON value, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def forms(document: Any, subsystems: Mapping[str, Any], levels: str, worker_type: str) -> dict[str, Any]:
    """Return all that a cluster is compiled from."""
    return {"graph": document, "subsystems": dict(subsystems), "levels": levels, "worker_type": worker_type}


def add(connection: sa.Connection, record: LedgerRecord) -> None:
    """Store what a placement was decided from."""
    connection.execute(ledger.insert().values(asdict(record)))


def get(connection: sa.Connection, job_id: str) -> LedgerRecord | None:
    """Return what a job's placement was decided from."""
    row = connection.execute(sa.select(*_COLUMNS).where(ledger.c.job == job_id)).one_or_none()
    return LedgerRecord(**row._mapping) if row else None


def keep(connection: sa.Connection, digest: str, content: Any, now: float) -> None:
    """Store a blob under its digest, or note that it is used still."""
    if not connection.execute(blobs.update().where(blobs.c.digest == digest).values(used_at=now)).rowcount:
        connection.execute(blobs.insert().values(digest=digest, content=content, used_at=now))


def blob(connection: sa.Connection, digest: str) -> Any:
    """Return the blob, None if it is not known (any more)."""
    return connection.execute(sa.select(blobs.c.content).where(blobs.c.digest == digest)).scalar()
