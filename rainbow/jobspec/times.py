"""Times as people write them: durations, and moments as `sbatch --begin` and `--deadline` read them.

90        a plain number: seconds in a jobspec (as RFC 14 has it), minutes to sbatch
1.5h      RFC 23 (Flux): a number with ms, s, m, h or d
10:30     minutes:seconds                1-12        days-hours
1:30:00   hours:minutes:seconds          1-12:30     days-hours:minutes, and :seconds
1-        one day; every field may exceed its base: 00:90:00 is 90 minutes
UNLIMITED, INFINITE, -1                  no limit: 0

2030-01-31  2030-01-31T12:00[:30]  01/31/30  01/31  0131[30]   a day; a time follows after T, a blank or a dash
16:00[:30]  4:00pm  midnight  noon  teatime  fika  elevenses    the next such time
today  tomorrow                                                a day, at midnight if no time is said
now  now+60  now+1hour  now-2days                              from now; seconds if no unit is said

Times without a date that are over today are tomorrow's. All are in the zone of `now`; if it has none, they are local,
by the rules of the machine for daylight saving.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_FSD = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|[smhd]?)", re.ASCII)
_CLOCK = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9})?(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?", re.ASCII)
_ENDLESS = ("unlimited", "infinite", "-1")
WANTED = "seconds, or a duration such as 90s, 10m, 2h, 1d, 10:30 (MM:SS), 01:30:00 or 1-12 (D-HH)"


def seconds_of(text: str, plain: float = 1) -> float | None:
    """Return how many seconds a duration has, 0 for no limit; None if it is none. `plain`: the unit of a bare number.

    >>> [seconds_of(text) for text in ("90", "1.5h", "1d", "01:30:00", "2-00:00:10", "10 minutes")]
    [90.0, 5400.0, 86400.0, 5400.0, 172810.0, None]
    >>> [seconds_of(text, plain=60) for text in ("90", "90s", "10:30", "1-12", "1-12:30", "infinite")]
    [5400.0, 90.0, 630.0, 129600.0, 131400.0, 0.0]
    """
    if text.lower() in _ENDLESS:
        return 0.0
    if result := _FSD.fullmatch(text):
        seconds = float(result[1]) * (UNITS[result[2]] if result[2] else plain)
        return seconds if math.isfinite(seconds) else None
    return _of_clock(text)


def _of_clock(text: str) -> float | None:
    result = _CLOCK.fullmatch(text)
    if result is None or not (result[1] or (result[2] and result[3])) or (result[3] and not result[2]):
        return None
    days, *rest = result.groups()  # each may exceed its base, as Slurm reads it: 00:90:00 is 90 minutes
    parts = [int(part) for part in rest if part is not None]
    if days is None and len(parts) == 2:
        parts = [0, *parts]
    hours, minutes, seconds = [*parts, 0, 0, 0][:3]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


_NAMED = {"midnight": (0, 0), "elevenses": (11, 0), "noon": (12, 0), "fika": (15, 0), "teatime": (16, 0)}
_WORDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_NOW = re.compile(r"now(?:\s*([+-])\s*([0-9]{1,9})\s*([a-z]*))?", re.ASCII)
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\s*(am|pm)?", re.ASCII)
_DATES = (
    re.compile(r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})", re.ASCII),
    re.compile(r"(?P<month>[0-9]{1,2})[/.](?P<day>[0-9]{1,2})(?:[/.](?P<year>[0-9]{2,4}))?", re.ASCII),
    re.compile(r"(?P<month>[0-9]{2})(?P<day>[0-9]{2})(?P<year>[0-9]{2})?", re.ASCII),
)


def moment(text: str, now: datetime) -> float | None:
    """Return the moment in seconds since 1970; None if it is none.

    >>> from datetime import UTC
    >>> noon = datetime(2030, 1, 31, 12, tzinfo=UTC)
    >>> [moment(text, noon) - noon.timestamp() for text in ("now+1hour", "16:00", "11:00", "tomorrow")]
    [3600.0, 14400.0, 82800.0, 43200.0]
    """
    words = text.strip().lower()
    if result := _NOW.fullmatch(words):
        return _from_now(result, now)
    day, rest = _day(words, now)
    time = _time_of_day(rest) if rest else (0, 0, 0)
    if time is None or (day is None and not rest):
        return None
    at = (day or now).replace(hour=time[0], minute=time[1], second=time[2], microsecond=0)
    if day is None and at <= now:
        at += timedelta(days=1)
    return at.timestamp()


def _from_now(match: re.Match[str], now: datetime) -> float | None:
    unit = (match[3] or "seconds").removesuffix("s")
    if unit not in _WORDS:
        return None
    return now.timestamp() + (-1 if match[1] == "-" else 1) * int(match[2] or 0) * _WORDS[unit]


def _day(words: str, now: datetime) -> tuple[datetime | None, str]:
    """Return the day that is named, and what follows it."""
    for name, days in (("today", 0), ("tomorrow", 1)):
        if words.startswith(name):
            return now + timedelta(days=days), words.removeprefix(name).strip(" t-")
    for form in _DATES:
        result = form.match(words)
        if result and (result.end() == len(words) or words[result.end()] in "t -"):
            return _date(result, now), words[result.end() :].strip(" t-")
    return None, words


def _date(match: re.Match[str], now: datetime) -> datetime | None:
    year = int(match["year"] or now.year)
    try:
        day = now.replace(year=year + 2000 if year < 100 else year, month=int(match["month"]), day=int(match["day"]))
    except ValueError:
        return None
    return day.replace(year=day.year + 1) if not match["year"] and day < now else day


def _time_of_day(text: str) -> tuple[int, int, int] | None:
    if text in _NAMED:
        return (*_NAMED[text], 0)
    result = _TIME.fullmatch(text)
    if not result:
        return None
    hour, minute, second = int(result[1]), int(result[2]), int(result[3] or 0)
    if result[4]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if result[4] == "pm" else 0)
    return (hour, minute, second) if hour < 24 and minute < 60 and second < 60 else None
