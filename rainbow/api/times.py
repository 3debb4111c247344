"""Times on the wire: RFC 3339 in UTC, wherever they stand in an answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

TIMES = frozenset(
    {
        *("submitted_at", "canceled_at", "ended_at", "assigned_at", "started_at", "suspended_at"),
        *("created_at", "reported_at", "since", "changed_at", "drained_at", "over_since", "expires_at", "revoked_at"),
    }
)


def timed(value: Any) -> Any:
    """Write the times of an answer, given in seconds since 1970, as RFC 3339.

    >>> timed({"since": 0.5, "steps": [{"since": None}]})
    {'since': '1970-01-01T00:00:00.500Z', 'steps': [{'since': None}]}
    """
    if isinstance(value, Mapping):
        return {key: rfc3339(item) if key in TIMES else timed(item) for key, item in value.items()}
    return [timed(item) for item in value] if isinstance(value, list) else value


def rfc3339(seconds: object) -> object:
    """Write one time; what is no number stays as it is."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return seconds
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
