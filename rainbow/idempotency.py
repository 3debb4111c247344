"""Idempotency keys: when they were made (UUIDv7, RFC 9562), and how hard they are to guess.

Who comes later than a key was made has not seen it before. Of a key that is hard to guess a secret can be derived.
"""

from __future__ import annotations

import re
import secrets
import time
from math import log2
from uuid import UUID

STRONG = 128  # random bits of a key of which a secret is derived
FEWEST = 8  # different characters of something random
_RANDOM_BITS = {"4": 122, "7": 74}  # of a UUID, by its version
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", re.I)
_HEXADECIMAL = re.compile(r"[0-9a-f]*|[0-9A-F]*")
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


def new_strong_key() -> str:
    """Make a key of which secrets may be derived."""
    return f"{new_key()}/{secrets.token_urlsafe(16)}"


def is_strong(key: str) -> bool:
    """Return whether a key has room for 128 random bits: 32 hexadecimal digits, or 22 of base 64.

    >>> is_strong("0f8a1c2b7d6e5f4a3b2c1d0e9f8a7b6c"), is_strong("Zk3vQ9yB-x7Tn0uR_pW2sL"), is_strong("nightly-7")
    (True, True, False)
    >>> is_strong("9d1e1b5c-6f0a-4c3e-8a57-0d2f4b6c8e1a"), is_strong("a" * 100)  # a UUID has 122
    (False, False)
    """
    bits = sum(_RANDOM_BITS.get(uuid[1], 0) for uuid in _UUID.finditer(key))
    rest = re.sub(r"[^A-Za-z0-9_-]", "", _UUID.sub("", key))
    alphabet = 10 if rest.isdigit() else 16 if _HEXADECIMAL.fullmatch(rest) else 64
    random = len(rest) * log2(alphabet) if len(set(rest)) >= FEWEST else 0.0
    return bits + random >= STRONG
