"""Long parts of decisions. Jobs that were decided alike share them, so each is kept once, by its digest."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from rainbow.store.columns import together
from rainbow.store.schema import record_uses, records

FAST = 1  # of zlib's levels: names and numbers shrink to a tenth anyway
_KNOWN = sa.select(records.c.digest).where(records.c.digest.in_(sa.bindparam("wanted", expanding=True)))
_ADD = records.insert()
_KEPT = sa.select(sa.bindparam("user", type_=sa.String), records.c.digest).where(
    records.c.digest == sa.bindparam("wanted")
)
_USE = record_uses.insert().from_select(["job", "digest"], _KEPT).execution_options(preserve_rowcount=True)


def keep(connection: sa.Connection, job_id: str, texts: Mapping[str, str]) -> None:
    """Keep texts, given by digest, as long as the job is kept."""
    if texts and _use(connection, job_id, texts) < len(texts):
        known = set(connection.execute(_KNOWN, {"wanted": list(texts)}).scalars())
        new = {key: zlib.compress(text.encode(), FAST) for key, text in texts.items() if key not in known}
        connection.execute(_ADD, [{"digest": key, "content": content} for key, content in new.items()])
        _use(connection, job_id, new)


def _use(connection: sa.Connection, job_id: str, digests: Collection[str]) -> int:
    """Note that a job uses what is kept of these; return how many that are."""
    return connection.execute(_USE, together([{"user": job_id, "wanted": one} for one in digests])).rowcount


def get(connection: sa.Connection, digests: Collection[str]) -> dict[str, str]:
    """Return {digest: text} of those that are kept."""
    found = connection.execute(sa.select(records).where(records.c.digest.in_(digests))) if digests else ()
    return {row.digest: zlib.decompress(row.content).decode() for row in found}


def forget_unused(connection: sa.Connection) -> None:
    """Forget the texts of jobs that are all gone."""
    used = sa.exists().where(record_uses.c.digest == records.c.digest)
    connection.execute(records.delete().where(~used))
