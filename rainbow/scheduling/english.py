"""Counts and times in words."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite

LATEST = 253_402_300_799.0  # the last second of the year 9999, which is as far as RFC 3339 goes


def some(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun.

    >>> some(1, "job"), some(2, "job"), some(1, "is", "are"), some(0, "quantum", "quanta")
    ('1 job', '2 jobs', '1 is', '0 quanta')
    """
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def rfc3339(seconds: float) -> str | None:
    """Return a time, given in seconds since 1970, as RFC 3339 in UTC; None for one that is unknown or never comes.

    >>> rfc3339(0.5), rfc3339(float("inf"))
    ('1970-01-01T00:00:00.500Z', None)
    """
    if not isfinite(seconds) or not 0 <= seconds <= LATEST:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
