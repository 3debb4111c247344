"""When what runs is taken to end."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from rainbow.scheduling.policy import RunView
from rainbow.scheduling.priority.settings import GRID_ENGINE


def limit(run: RunView, settings: Mapping[str, Any]) -> float:
    """When a running task must have ended: one without a duration has the default one; inf: it may run for ever."""
    if run.until:
        return run.until
    return run.started + float(settings["default_duration"]) if settings["default_duration"] else inf


def end_of(run: RunView, now: float, settings: Mapping[str, Any]) -> float:
    """When a running task is taken to end: one that is over its time ends within the next interval."""
    until, soon = limit(run, settings), now + float(settings["schedule_interval"])
    if settings["compat"] == GRID_ENGINE:
        return max(until, soon)
    return until if until > now else soon
