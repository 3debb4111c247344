"""Durations as people write them: RFC 23 (Flux) and the time limits of Slurm.

90        a plain number: seconds in a jobspec (as RFC 14 has it), minutes to sbatch
1.5h      RFC 23: a number with ms, s, m, h or d
10:30     minutes:seconds                1-12        days-hours
1:30:00   hours:minutes:seconds          1-12:30     days-hours:minutes, and :seconds
UNLIMITED, INFINITE                      no limit: 0
"""

from __future__ import annotations

import math
import re

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_FSD = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|[smhd]?)", re.ASCII)
_CLOCK = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?", re.ASCII)
_ENDLESS = ("unlimited", "infinite")
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
    if found := _FSD.fullmatch(text):
        seconds = float(found[1]) * (UNITS[found[2]] if found[2] else plain)
        return seconds if math.isfinite(seconds) else None
    return _of_clock(text)


def _of_clock(text: str) -> float | None:
    found = _CLOCK.fullmatch(text)
    if found is None or not (found[1] or found[3]) or any(int(part or 0) > 59 for part in found.groups()[2:]):
        return None
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is None and len(parts) == 2:
        parts = [0, *parts]
    hours, minutes, seconds = [*parts, 0, 0][:3]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)
