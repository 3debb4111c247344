"""Tokens and secrets, and the clusters each is good for; sessions of browsers; answers that hold a secret.

Of all secrets only the SHA-256 is kept.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from rainbow.store.engine import pending_of
from rainbow.store.schema import answers, credentials, grants, sessions

SECRET, TOKEN, MONITOR = "secret", "token", "monitor"
PREFIXES = {"registration": "rbr_", SECRET: "rbs_", TOKEN: "rbt_", MONITOR: "rbm_", "admin": "rba_"}


@dataclass(frozen=True, slots=True)
class CredentialRecord:
    """One credential. `requestors` are those it may act for, None: any; `clusters` are ids."""

    id: str
    kind: str
    hash: str
    created_at: float
    clusters: tuple[str, ...]
    name: str | None = None
    requestors: list[str] | None = None
    expires_at: float | None = None
    revoked_at: float | None = None
    accounts: list[str] | None = None  # that its submits may be paid by; None: any


_COLUMNS = [credentials.c[column.name] for column in fields(CredentialRecord) if column.name != "clusters"]


_NAMES = [column.name for column in _COLUMNS]
_VALID = sa.select(credentials.c.id, credentials.c.changes).where(
    credentials.c.hash == sa.bindparam("brought"),
    credentials.c.revoked_at.is_(None),
    sa.or_(credentials.c.expires_at.is_(None), credentials.c.expires_at > sa.bindparam("now")),
)


def mint(kind: str) -> str:
    """Make a new credential."""
    return PREFIXES[kind] + secrets.token_urlsafe(32)


def digest(credential: str) -> str:
    """Return what is stored of a credential."""
    return hashlib.sha256(credential.encode("utf-8", "surrogateescape")).hexdigest()


def minted(made: str, kind: str, now: float, cluster_ids: tuple[str, ...], **more: Any) -> CredentialRecord:
    """Return what is stored of a new credential."""
    return CredentialRecord(secrets.token_hex(8), kind, digest(made), now, cluster_ids, **more)


def add(connection: sa.Connection, record: CredentialRecord) -> None:
    """Store a new credential."""
    row = asdict(record)
    named = row.pop("clusters")
    connection.execute(credentials.insert().values(row))
    if named:
        connection.execute(grants.insert(), [{"credential_id": record.id, "cluster_id": each} for each in named])


def valid(connection: sa.Connection, hashes: Collection[str], now: float) -> dict[str, int]:
    """Return, of these hashes, the credentials that are neither revoked nor past their end: {id: changes}.

    What a credential is good for stays the same until it has changed once more.
    """
    requests = ({"brought": each, "now": now} for each in sorted(hashes))  # nearly always one
    return {row.id: row.changes for each in requests for row in connection.execute(_VALID, each)}


def some(connection: sa.Connection, ids: Collection[str]) -> list[CredentialRecord]:
    """Return the credentials of these ids, the oldest first."""
    return _found(connection, credentials.c.id.in_(ids))


def get(connection: sa.Connection, credential_id: str) -> CredentialRecord | None:
    """Return the credential of this id."""
    return next(iter(_found(connection, credentials.c.id == credential_id)), None)


def listing(connection: sa.Connection, clusters: Collection[str] | None) -> list[CredentialRecord]:
    """Return the credentials good for one of these clusters (None: all there are), the oldest first."""
    if clusters is None:
        return _found(connection)
    of_them = sa.select(grants.c.credential_id).where(grants.c.cluster_id.in_(clusters))
    return _found(connection, credentials.c.id.in_(of_them))


def change(connection: sa.Connection, credential_id: str, **values: object) -> None:
    """Store new values of a credential's columns."""
    connection.execute(credentials.update().where(credentials.c.id == credential_id).values(**values))
    note_rights(connection)


def note_rights(connection: sa.Connection) -> None:
    """Note that what is remembered of rights ends with this transaction."""
    if (pending := pending_of(connection)) is not None:
        pending.changes_rights = True


def lose(connection: sa.Connection, cluster_id: str) -> None:
    """Note that the credentials good for a cluster change, because it is about to be removed."""
    of_it = sa.select(grants.c.credential_id).where(grants.c.cluster_id == cluster_id)
    changed = credentials.update().where(credentials.c.id.in_(of_it))
    connection.execute(changed.values(changes=credentials.c.changes + 1))
    note_rights(connection)


def remove_useless(connection: sa.Connection) -> None:
    """Remove the credentials that are good for no cluster any more; a monitor's was never for one."""
    useless = credentials.c.id.not_in(sa.select(grants.c.credential_id))
    connection.execute(credentials.delete().where(useless, credentials.c.kind != "monitor"))


def _found(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[CredentialRecord]:
    """One statement with its grants, so that a name that is not yours costs what one that does not exist costs."""
    joined = credentials.outerjoin(grants, grants.c.credential_id == credentials.c.id)
    query = sa.select(*_COLUMNS, grants.c.cluster_id.label("granted")).select_from(joined).where(*where)
    order = (credentials.c.created_at, credentials.c.id, grants.c.cluster_id)
    rows = [tuple(row) for row in connection.execute(query.order_by(*order))]
    result = []
    for _, group in groupby(rows, key=itemgetter(0)):  # the id stands first
        own = list(group)
        values = dict(zip(_NAMES, own[0], strict=False))
        result.append(CredentialRecord(**values, clusters=tuple(row[-1] for row in own if row[-1])))
    return result


# ── sessions of browsers ──


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A browser that is signed in. `acts_until` None: it may look only."""

    id: str
    credentials: list[str]
    begun_at: float
    used_at: float
    acts_until: float | None = None


def put_session(connection: sa.Connection, record: SessionRecord) -> None:
    """Store a new session."""
    connection.execute(sessions.insert().values(**asdict(record)))


def get_session(connection: sa.Connection, session_id: str) -> SessionRecord | None:
    """Return the session of this id."""
    row = connection.execute(sa.select(sessions).where(sessions.c.id == session_id)).one_or_none()
    return SessionRecord(**row._mapping) if row else None


def use_session(connection: sa.Connection, session_id: str, now: float) -> None:
    """Note that a session was used."""
    connection.execute(sessions.update().where(sessions.c.id == session_id).values(used_at=now))


def end_session(connection: sa.Connection, session_id: str) -> None:
    """Forget a session."""
    connection.execute(sessions.delete().where(sessions.c.id == session_id))
    note_rights(connection)


def end_old_sessions(connection: sa.Connection, begun: float, used: float) -> None:
    """Forget the sessions that began, or were used last, before these times."""
    connection.execute(sessions.delete().where(sa.or_(sessions.c.begun_at < begun, sessions.c.used_at < used)))


# ── answers under an Idempotency-Key ──


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """What was answered: `digest` is of what was asked, `secrets` are [kind, salt, SHA-256] by name."""

    id: str
    digest: str
    answer: dict[str, Any]
    secrets: dict[str, list[str]]
    at: float


def put_answer(connection: sa.Connection, record: AnswerRecord, since: float) -> None:
    """Store an answer, and forget those that are older than this time."""
    connection.execute(answers.delete().where(answers.c.at < since))
    connection.execute(answers.insert().values(**asdict(record)))


def get_answer(connection: sa.Connection, answer_id: str, since: float) -> AnswerRecord | None:
    """Return the answer of this id, unless it is older than this time."""
    own = answers.c.id == answer_id, answers.c.at >= since
    row = connection.execute(sa.select(answers).where(*own)).one_or_none()
    return AnswerRecord(**row._mapping) if row else None
