"""Durations as users of Slurm and Flux write them."""

from __future__ import annotations

import math
import re

import click

UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}  # RFC 23: Flux Standard Duration
FSD = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|[smhd]?)", re.ASCII)
CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]+):([0-5][0-9]):([0-5][0-9])", re.ASCII)  # as Slurm writes its limits
WANTED = "seconds, or a duration such as 90s, 10m, 2h, 1d or 01:30:00 (HH:MM:SS)"


def seconds_of(text: str) -> float | None:
    """Return how many seconds a duration has; None if it is none.

    >>> [seconds_of(text) for text in ("90", "1.5h", "1d", "01:30:00", "2-00:00:10", "10 minutes")]
    [90.0, 5400.0, 86400.0, 5400.0, 172810.0, None]
    """
    if clock := CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        found = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    elif duration := FSD.fullmatch(text):
        found = float(duration[1]) * UNITS[duration[2]]
    else:
        return None
    return found if math.isfinite(found) else None


def duration(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Read an option's value."""
    found = None if value is None else seconds_of(value.strip())
    if value is not None and found is None:
        raise click.BadParameter(f"{value[:100]!r} is no duration: give {WANTED}")
    return found


def some_duration(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Read an option's value, which is not 0."""
    found = duration(context, option, value)
    if found == 0:
        raise click.BadParameter("a duration is longer than 0")
    return found
