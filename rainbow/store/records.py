"""Long parts of decisions. Jobs that were decided alike share them, so each is kept once, by its digest."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from rainbow.store.schema import record_uses, records

FAST = 1  # of zlib's levels: names and numbers shrink to a tenth anyway
_KNOWN = sa.select(records.c.digest).where(records.c.digest.in_(sa.bindparam("wanted", expanding=True)))
_ADD, _USE = records.insert(), record_uses.insert()


def keep(connection: sa.Connection, job_id: str, texts: Mapping[str, str]) -> None:
    """Keep texts, given by digest, as long as the job is kept."""
    if not texts:
        return
    known = set(connection.execute(_KNOWN, {"wanted": list(texts)}).scalars())
    new = [{"digest": key, "content": zlib.compress(texts[key].encode(), FAST)} for key in texts if key not in known]
    if new:
        connection.execute(_ADD, new)
    connection.execute(_USE, [{"job": job_id, "digest": key} for key in texts])


def get(connection: sa.Connection, digests: Collection[str]) -> dict[str, str]:
    """Return {digest: text} of those that are kept."""
    found = connection.execute(sa.select(records).where(records.c.digest.in_(digests))) if digests else ()
    return {row.digest: zlib.decompress(row.content).decode() for row in found}


def forget_unused(connection: sa.Connection) -> None:
    """Forget the texts of jobs that are all gone."""
    used = sa.exists().where(record_uses.c.digest == records.c.digest)
    connection.execute(records.delete().where(~used))
