"""Idempotency keys that say when they were made (UUIDv7, RFC 9562): who comes later has not seen them before."""

from __future__ import annotations

import re
import secrets
import time
from uuid import UUID

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def new_key() -> str:
    """Make a key."""
    moment, chance = time.time_ns() // 1_000_000, secrets.randbits(74)
    return str(UUID(int=moment << 80 | 7 << 76 | (chance >> 62) << 64 | 2 << 62 | chance & (1 << 62) - 1))


def made_at(key: str) -> float | None:
    """Return when a key was made, in seconds since 1970; None if it does not say. Of a batch's "KEY/3" as of KEY.

    >>> made_at("00000000-03e8-7000-8000-000000000000/2"), made_at("nightly")
    (1.0, None)
    """
    own = key.partition("/")[0].lower()
    return (UUID(own).int >> 80) / 1000 if _UUID7.fullmatch(own) else None
