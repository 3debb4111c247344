"""Local time of a cluster: a fixed offset from UTC, or a zone whose offset changes over the year.

Local seconds are those of the wall clock, counted from 1970 as if days had no gaps: local = time + offset(time).
Where clocks are put forward, an hour of the wall clock has no time; where they are put back, an hour has two.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from math import inf
from typing import Any, Protocol
from zoneinfo import ZoneInfo, available_timezones

from rainbow.text import LATEST, meant

DAY = 86_400
HORIZON = 400  # days in which the next change of an offset is looked for: zones that change do it every year


class Zone(Protocol):
    """What calendars and texts know of local time."""

    def offset(self, time: float) -> float:
        """Return how many seconds local time is ahead of UTC at a time."""

    def next_change(self, time: float) -> float:
        """Return the first moment after a time at which the offset is another one; inf: none is known."""

    def name(self, time: float) -> str:
        """Return how times of day are marked at a time."""


class FixedOffset:
    """Local time that is ahead of UTC by the same number of seconds all year."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def offset(self, time: float) -> float:
        """Return the offset, whatever the time."""
        return self.seconds

    def next_change(self, time: float) -> float:
        """Return that it never changes."""
        return inf

    def name(self, time: float) -> str:
        """Return UTC, with the offset in hours where there is one."""
        return "UTC" + (f"{self.seconds / 3600:+g}" if self.seconds else "")


class NamedZone:
    """Local time by the rules of a zone of the tz database."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.rules = ZoneInfo(key)

    def offset(self, time: float) -> float:
        """Return the offset at a time."""
        return _offset(_moment(time, self.rules))

    def next_change(self, time: float) -> float:
        """Return the first change after a time, to the second."""
        first = int(time // DAY)
        for day in range(first, first + HORIZON):
            for change in _changes(self.key, day):
                if change > time:
                    return change
        return inf

    def name(self, time: float) -> str:
        """Return the zone's abbreviation at a time; UTC and the hours where the zone has only a number.

        >>> NamedZone("Europe/Berlin").name(0), NamedZone("America/Sao_Paulo").name(1.7e9)
        ('CET', 'UTC-3')
        """
        at = _moment(time, self.rules)
        short = at.tzname() or self.key
        return FixedOffset(_offset(at)).name(time) if short[0] in "+-" else short


def _moment(time: float, rules: tzinfo) -> datetime:
    return datetime.fromtimestamp(min(max(time, -LATEST / 10), LATEST - DAY), rules)


def _offset(at: datetime) -> float:
    return (at.utcoffset() or timedelta()).total_seconds()


@lru_cache(maxsize=65_536)
def _changes(key: str, day: int) -> tuple[float, ...]:
    """Return the moments of one day, by UTC, at which a zone's offset changes: none or one."""
    zone = NamedZone(key)
    low, high = day * DAY - 1, (day + 1) * DAY - 1
    before = zone.offset(low)
    if zone.offset(high) == before:
        return ()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if zone.offset(middle) == before else (low, middle)
    return (float(high),)


@lru_cache(maxsize=256)
def named_zone(key: str) -> NamedZone:
    """Return a zone of the tz database; ValueError names those that are near.

    >>> named_zone("Europe/Berlim")
    Traceback (most recent call last):
    ...
    ValueError: time zone 'Europe/Berlim' not found; did you mean Europe/Berlin?
    """
    known = available_timezones()
    if key not in known:
        hint = meant(key, known) or "names are as in Europe/Berlin"
        raise ValueError(f"time zone {key[:100]!r} not found; {hint}")
    return NamedZone(key)


def zone_of(settings: Mapping[str, Any]) -> Zone:
    """Return the local time of checked settings."""
    return named_zone(settings["time_zone"]) if settings["time_zone"] else FixedOffset(settings["utc_offset"])


class NoSuchTime(ValueError):
    """A time of the wall clock that does not exist, or that comes twice."""


def moment_of(local: datetime, zone: Zone) -> float:
    """Return when a wall clock without a zone shows a time; NoSuchTime if that is never, or twice.

    >>> moment_of(datetime(1970, 7, 1, 2), named_zone("Europe/Berlin")) / 3600 - 181 * 24
    1.0
    """
    seconds = local.replace(tzinfo=UTC).timestamp()
    offsets = {zone.offset(seconds + step) for step in (-DAY, 0, DAY)}
    times = sorted({seconds - offset for offset in offsets if zone.offset(seconds - offset) == offset})
    if not times:
        raise NoSuchTime(f"{local:%Y-%m-%d %H:%M} does not exist there: clocks are put forward")
    if len(times) > 1:
        both = " or ".join(zone.name(time) for time in times)
        raise NoSuchTime(f"{local:%Y-%m-%d %H:%M} comes twice, as {both}: give its offset from UTC")
    return times[0]
