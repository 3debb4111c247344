"""Sessions of browsers: a cookie represents the credentials that its user signed in with.

The store keeps the SHA-256 of the cookie and of each credential, as it does of every credential: who reads the store
can neither take over a session nor learn a token. Who asks is worked out at each request, so a revoked token ends in
every session at once.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rainbow.errors import Unauthenticated
from rainbow.service.core.access import Caller, caller_by
from rainbow.store import credentials
from rainbow.store.credentials import SessionRecord, digest

if TYPE_CHECKING:
    from rainbow.service.core.service import Service

LONGEST = 8 * 3600.0  # seconds of a session
IDLE = 3600.0  # seconds without a request after which it ends
ACTING = 3600.0  # seconds in which it may change something
NOTED = 60.0  # seconds between two notes that it was used
MOST_CREDENTIALS = 64  # of one session


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
    now, name = service.clock(), digest(cookie)
    with service.store.look() as connection:
        record = credentials.get_session(connection, name)
        if record is None or record.begun_at + LONGEST < now or record.used_at + IDLE < now:
            return None
        try:
            who = caller_by(service, connection, record.credentials)
        except Unauthenticated:
            return None
    if notes and record.used_at + NOTED < now:
        with service.store.write() as connection:
            credentials.use_session(connection, name, now)
    until = record.acts_until if record.acts_until is not None and record.acts_until > now else None
    return Session(cookie, who, tuple(record.credentials), until)


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
