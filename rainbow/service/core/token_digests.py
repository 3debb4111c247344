"""Credentials made and digested."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from rainbow.store import credentials
from rainbow.store.credentials import CredentialRecord

if TYPE_CHECKING:
    import sqlalchemy as sa


SECRET, TOKEN, MONITOR = "secret", "token", "monitor"
PREFIXES = {"registration": "rbr_", SECRET: "rbs_", TOKEN: "rbt_", MONITOR: "rbm_", "admin": "rba_"}


def mint(kind: str) -> str:
    """Make a new credential."""
    return PREFIXES[kind] + secrets.token_urlsafe(32)


def digest(credential: str) -> str:
    """Return what is stored of a credential."""
    return hashlib.sha256(credential.encode("utf-8", "surrogateescape")).hexdigest()


def new_credential(connection: sa.Connection, kind: str, cluster_id: str, now: float) -> str:
    """Mint a credential for a cluster, store its digest, and return it for the only time."""
    made, record = minted(kind, now, (cluster_id,))
    credentials.add(connection, record)
    return made


def minted(kind: str, now: float, cluster_ids: tuple[str, ...], **more: Any) -> tuple[str, CredentialRecord]:
    """Make a credential, and what is stored of it."""
    made = mint(kind)
    return made, CredentialRecord(secrets.token_hex(8), kind, digest(made), now, cluster_ids, **more)
