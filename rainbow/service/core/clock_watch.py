"""Whether the time of day may be believed: nothing is forgotten by a clock that jumped."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import structlog

from rainbow.service.core.memory import place

if TYPE_CHECKING:
    from rainbow.service.core.service import Service

AGREE = 3_600.0  # seconds by which clocks may differ
REMEMBERED = 86_400.0  # seconds for which a move of the clock is remembered
APART = 60.0  # seconds between two readings that are kept, unless the clock has moved by as much
log = structlog.get_logger("rainbow.clock")


@place("clock", most="one", of="what the database's clock said last")
class ClockWatch:
    """The time of day of this process beside one that is never set, during the last day."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float]] = deque()  # (the monotonic clock, how far the day is ahead of it)
        self._doubt = ""

    def note(self, day: float, monotonic: float) -> float:
        """Note what both clocks say; return by how many seconds one has moved against the other.

        >>> watch = ClockWatch()
        >>> [watch.note(1e9 + day, at) for day, at in ((0, 0.0), (60, 60.0), (7_320, 120.0), (180, 180.0))]
        [0.0, 0.0, 7200.0, 7200.0]
        >>> watch.note(1e9 + 90_000, 90_000.0)
        0.0
        """
        ahead = day - monotonic
        last = self._readings[-1] if self._readings else None
        if last is None or monotonic - last[0] >= APART or abs(ahead - last[1]) >= APART:
            self._readings.append((monotonic, ahead))
        while self._readings[0][0] < monotonic - REMEMBERED:
            self._readings.popleft()
        results = [ahead, *(one for _, one in self._readings)]
        return max(results) - min(results)

    def say(self, doubt: str) -> None:
        """Log a doubt when it begins, and when there is none any more."""
        if bool(doubt) != bool(self._doubt):
            if doubt:
                log.warning("nothing-forgotten", reason=doubt)
            else:
                log.warning("forgetting-again")
        self._doubt = doubt


def may_forget(service: Service) -> bool:
    """Return whether the day is certain enough to forget what is older than the settings say; the log says if not.

    Database and process must agree, and the clock must not have been set within the last day.
    """
    watch = service.state(ClockWatch)
    moved = watch.note(service.clock(), service.monotonic())
    doubt = f"the clock was set by {moved / 3_600:.1f} hours within the last day" if moved > AGREE else ""
    if service.clock is time.time:  # who brings a clock brings it for the database, too
        differs = service.store.day() - service.clock()
        if abs(differs) > AGREE:
            where = "ahead" if differs > 0 else "behind"
            doubt = f"the clock of the database is {abs(differs) / 3_600:.1f} hours {where}"
    watch.say(doubt)
    return not doubt
