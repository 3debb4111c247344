"""Sessions of browsers: a cookie represents the credentials that its user signed in with.

The store keeps the SHA-256 of the cookie and of each credential, as it does of every credential: who reads the store
can neither take over a session nor learn a token. A revoked token ends in every session at the next request: who asks
is remembered until this process changes any rights, and not at all where others change them too (PostgreSQL).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rainbow.errors import Unauthenticated
from rainbow.service.core.access import Caller, caller_by
from rainbow.service.core.memory import VERSION, Table
from rainbow.store import credentials
from rainbow.store.credentials import SessionRecord, digest

if TYPE_CHECKING:
    from rainbow.service.core.service import Service

LONGEST = 8 * 3600.0  # seconds of a session
IDLE = 3600.0  # seconds without a request after which it ends
ACTING = 3600.0  # seconds in which it may change something
NOTED = 60.0  # seconds between two notes that it was used
MOST_CREDENTIALS = 64  # of one session
REMEMBERED, FOR = 1_000, 15.0  # sessions, and for how many seconds: another process may have the SQLite file open


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that is signed in: what its cookie holds, who asks, and whether it may change something."""

    cookie: str
    caller: Caller
    credentials: tuple[str, ...]  # digests
    acts_until: float | None

    @property
    def acts(self) -> bool:
        """Return whether it may change something."""
        return self.acts_until is not None

    @property
    def form_token(self) -> str:
        """Return what each of its forms brings with it, which no other site can know."""
        return hmac.new(self.cookie.encode(), b"form", hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class KnownSession:
    """What was read of a session: good until a time, and while the store's `rights` are these."""

    record: SessionRecord
    caller: Caller
    rights: int
    until: float


class Remembered(
    Table[str, KnownSession], name="sessions", most=REMEMBERED, valid=VERSION, key="cookie; changes of rights here"
):
    """The last sessions that were asked for, by digest."""


def begin(service: Service, brought: Collection[str], *, acts: bool = False) -> Session:
    """Open a session for these credentials; Unauthenticated unless one of them is known.

    Those that are not known are left out: they may be known later, for another user.
    """
    now, known = service.clock(), []
    with service.store.read() as connection:
        for one in sorted({digest(credential) for credential in brought})[:MOST_CREDENTIALS]:
            try:
                caller_by(service, connection, [one])
            except Unauthenticated:
                continue
            known.append(one)
        who = caller_by(service, connection, known)
    return _kept(service, who, known, now, now, acts)


def find(service: Service, cookie: str, *, notes: bool = True) -> Session | None:
    """Return the session of a cookie; None if it has ended, or none of its credentials is known any more.

    `notes`: that it was asked for counts as use.
    """
    now, name, stored = service.clock(), digest(cookie), service.state(Remembered)
    session = None if service.store.many_processes else stored.get(name, service.store.rights)
    if session is None or session.until <= now:
        session = _read(service, name, now)
    if session is None or session.record.begun_at + LONGEST < now or session.record.used_at + IDLE < now:
        return None
    record = session.record
    if notes and record.used_at + NOTED < now:
        record = replace(record, used_at=now)
        with service.store.write() as connection:
            credentials.use_session(connection, name, now)
    stored.put(name, replace(session, record=record), session.rights)
    until = record.acts_until if record.acts_until is not None and record.acts_until > now else None
    return Session(cookie, session.caller, tuple(record.credentials), until)


def _read(service: Service, name: str, now: float) -> KnownSession | None:
    rights = service.store.rights  # before anything is read
    with service.store.look() as connection:
        record = credentials.get_session(connection, name)
        try:
            who = caller_by(service, connection, record.credentials) if record else None
        except Unauthenticated:
            return None
    return KnownSession(record, who, rights, min(now + FOR, who.until)) if record and who else None


def act(service: Service, session: Session, brought: str) -> Session:
    """Let a session change things for an hour, under a new cookie; it must bring one of its credentials once more."""
    if not any(hmac.compare_digest(digest(brought), one) for one in session.credentials):
        raise Unauthenticated("this is not one of the tokens that you signed in with")
    with service.store.write() as connection:
        record = credentials.get_session(connection, digest(session.cookie))
        credentials.end_session(connection, digest(session.cookie))
    now = service.clock()
    begun = record.begun_at if record else now
    return _kept(service, session.caller, list(session.credentials), now, begun, True)


def end(service: Service, cookie: str) -> None:
    """End a session."""
    with service.store.write() as connection:
        credentials.end_session(connection, digest(cookie))


def _kept(service: Service, who: Caller, known: list[str], now: float, begun: float, acts: bool) -> Session:
    cookie = secrets.token_urlsafe(32)
    until = now + ACTING if acts else None
    with service.store.write() as connection:
        credentials.end_old_sessions(connection, now - LONGEST, now - IDLE)
        credentials.put_session(connection, SessionRecord(digest(cookie), known, begun, now, until))
    return Session(cookie, who, tuple(known), until)
