"""Who asks, and what they may see and do.

    kind          prefix   right
    registration  rbr_     register clusters
    secret        rbs_     everything of its own cluster, except submitting to it
    token         rbt_     submit to its cluster, match against it, see it and its jobs
    admin         rba_     everything

A cluster outside one's credentials does not exist: the same statements run for it and for one that is not there.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa

from rainbow.errors import Forbidden, LimitError, NotFound, Unauthenticated
from rainbow.service.ids import random_id
from rainbow.store import clusters, credentials
from rainbow.store.clusters import ClusterRecord
from rainbow.store.credentials import CredentialRecord

ANONYMOUS = "anonymous"  # the requestor of a job when neither the request nor a token names one


class Kind(StrEnum):
    """What a credential is for."""

    REGISTRATION = "registration"
    SECRET = "secret"  # noqa: S105 - the name of a kind, not a secret
    TOKEN = "token"  # noqa: S105 - the name of a kind, not a token
    ADMIN = "admin"


PREFIX = {Kind.REGISTRATION: "rbr_", Kind.SECRET: "rbs_", Kind.TOKEN: "rbt_", Kind.ADMIN: "rba_"}


@dataclass(frozen=True, slots=True)
class Keys:
    """SHA-256 of the two credentials that belong to no cluster."""

    registration: str
    admin: str


@dataclass(frozen=True, slots=True)
class Caller:
    """Everything one request's credentials give."""

    admin: bool = False
    registrar: bool = False
    credentials: tuple[CredentialRecord, ...] = ()

    def sees(self, cluster_id: str) -> bool:
        """Tell whether the cluster exists for the caller."""
        return self.admin or any(held.cluster_id == cluster_id for held in self.credentials)

    def owns(self, cluster_id: str) -> bool:
        """Tell whether the caller may change the cluster and speak for it."""
        return self.admin or any(h.cluster_id == cluster_id and h.kind == Kind.SECRET for h in self.credentials)

    def may_submit(self, cluster_id: str, requestor: str) -> bool:
        """Tell whether the caller may place jobs of `requestor` there."""
        return self.admin or any(
            held.cluster_id == cluster_id and (held.requestors is None or requestor in held.requestors)
            for held in self.tokens
        )

    @property
    def tokens(self) -> list[CredentialRecord]:
        """The submit tokens among the credentials."""
        return [held for held in self.credentials if held.kind == Kind.TOKEN]

    @property
    def cluster_ids(self) -> set[str] | None:
        """The clusters that exist for the caller; None: all."""
        return None if self.admin else {held.cluster_id for held in self.credentials}

    @property
    def identity(self) -> str:
        """What stays the same as long as the same credentials are used."""
        return "admin" if self.admin else ",".join(sorted(held.id for held in self.credentials))

    def requestor(self, asked: str | None) -> str:
        """Say for whom the caller speaks: who is asked for, or the first a token names."""
        named = (name for held in self.tokens for name in held.requestors or ())
        return asked or next(named, ANONYMOUS)


def authenticate(connection: sa.Connection, keys: Keys, given: Sequence[str], now: float, limit: int) -> Caller:
    """Return the caller who holds the given credentials; Unauthenticated if there is none or one is not known."""
    if len(given) > limit:
        raise LimitError(f"more than {limit} credentials in one request")
    hashes = {digest(text) for text in given}
    found = credentials.valid(connection, hashes, now)
    admin, registrar = (_is_among(key, hashes) for key in (keys.admin, keys.registration))
    known = {record.hash for record in found} | {key for key in (keys.admin, keys.registration) if key in hashes}
    if not hashes or known != hashes:
        raise Unauthenticated()
    return Caller(admin=admin, registrar=registrar or admin, credentials=tuple(found))


def visible(connection: sa.Connection, caller: Caller, name: str) -> ClusterRecord:
    """Return the cluster of this name if it exists for the caller, else NotFound."""
    record = clusters.find(connection, name)
    if record is None or not caller.sees(record.id):
        raise NotFound(f"there is no cluster {name!r} for this credential")
    return record


def owned(connection: sa.Connection, caller: Caller, name: str) -> ClusterRecord:
    """Return the cluster of this name if the caller may change it; Forbidden if it may only be seen."""
    record = visible(connection, caller, name)
    if not caller.owns(record.id):
        raise Forbidden(f"this needs the secret of cluster {name!r}")
    return record


def issue(connection: sa.Connection, kind: Kind, cluster_id: str, now: float) -> str:
    """Make a credential of a cluster, store its hash and return it: the only time it can be read."""
    text = mint(kind)
    credentials.add(connection, CredentialRecord(random_id(), kind, digest(text), cluster_id, now))
    return text


def mint(kind: Kind) -> str:
    """Make a credential: its kind's prefix and 256 random bits."""
    return PREFIX[kind] + secrets.token_urlsafe(32)


def digest(text: str) -> str:
    """Return the SHA-256 a credential is kept as; its 256 random bits need no salt."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_among(key: str, hashes: set[str]) -> bool:
    return any([hmac.compare_digest(key, given) for given in hashes])  # a list: every one is compared
