"""Calls under an Idempotency-Key: sent again within a day, they are answered as the first time.

The answer is stored in the transaction of what it tells, so that there is never one without the other, and without
its secrets. Those are derived, HMAC-SHA-256 of a secret of the server and of the key, so that a caller with the key
and the same credentials can be told them again; what is stored opens nothing. The key must be hard to guess.

It is looked up before the credentials are checked: a caller that rotates a secret with that same secret has no other
when the answer is lost.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, RequestError
from rainbow.idempotency import STRONG, is_strong
from rainbow.outcome import note_repeat
from rainbow.store.credentials import PREFIXES, AnswerRecord, digest, get_answer, mint, put_answer

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service


DAY = 86_400.0  # seconds that an answer is kept
HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class KeyedCall:
    """One call, by what tells it from others; without a key it is a new one each time, and its secrets are random."""

    service: Service
    key: str | None = None
    callers: tuple[str, ...] = ()  # digests of the credentials that it brings: a key is its sender's
    asked: str = ""  # digest of the operation and its body
    salt: str = field(default_factory=lambda: secrets.token_hex(8))  # a key of yesterday gives another secret today

    @classmethod
    def of(cls, service: Service, key: str | None, brought: Iterable[str], *requests: Any) -> KeyedCall:
        """Read a call; RequestError for a key that may be guessed."""
        if key is not None and not is_strong(key):
            message = f"{HEADER} must have at least {STRONG} random bits, such as 32 hexadecimal digits"
            raise RequestError(f"{message}: a secret is derived from it", pointer="")
        text = json.dumps(requests, sort_keys=True) if key is not None else ""
        return cls(service, key, tuple(sorted(map(digest, brought))), _sha256(text))

    @property
    def id(self) -> str:
        """What its answer is stored under."""
        return _sha256(json.dumps([self.key, self.callers]))

    def look(self) -> dict[str, Any] | None:
        """Return what was answered to this call before, in a look of its own."""
        if self.key is None:
            return None
        with self.service.store.look() as connection:
            return self.earlier(connection)

    def earlier(self, connection: sa.Connection) -> dict[str, Any] | None:
        """Return what was answered to this call before; Conflict if its key was used for another."""
        if self.key is None:
            return None
        record = get_answer(connection, self.id, self.service.clock() - DAY)
        if record is None:
            return None
        if record.digest != self.asked:
            raise Conflict(f"this {HEADER} was already used for a different request")
        note_repeat()
        shown = {name: self._derived(name, kind, salt) for name, (kind, salt, _) in record.secrets.items()}
        if any(digest(shown[name]) != known for name, (_, _, known) in record.secrets.items()):
            text = "this call was answered by a server with another admin token: its secret cannot be told again"
            raise Conflict(f"{text}; rotate the credential, or ask that server")
        return {**record.answer, **shown}

    def credential(self, name: str, kind: str) -> str:
        """Return a new credential, which the answer to this call calls by this name."""
        return mint(kind) if self.key is None else self._derived(name, kind, self.salt)

    def _derived(self, name: str, kind: str, salt: str) -> str:
        text = json.dumps([self.key, self.callers, self.asked, name, salt])
        value = hmac.digest(self.service.derivation, text.encode(), "sha256")
        return PREFIXES[kind] + urlsafe_b64encode(value).decode().rstrip("=")

    def keep(self, connection: sa.Connection, answer: dict[str, Any], **made: tuple[str, str]) -> dict[str, Any]:
        """Store the answer to this call, and return it with its credentials: (kind, value) by name."""
        if self.key is not None:
            stored = {name: [kind, self.salt, digest(value)] for name, (kind, value) in made.items()}
            now = self.service.clock()
            put_answer(connection, AnswerRecord(self.id, self.asked, answer, stored, now), now - DAY)
        return {**answer, **{name: value for name, (_, value) in made.items()}}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
