"""Going on through an outage: a server that is away is asked again, after longer and longer pauses.

For what waits anyway (a job's end, events to come): a server that is restarted is no reason to give up. One that has
never answered may be an address mistyped, and is said at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from rainbow.client.calls import Problem
from rainbow.errors import RainbowError, TryLater, Unavailable

if TYPE_CHECKING:
    from rainbow.client.calls import Calls

PATIENCE = 600.0  # seconds without any answer
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
PASSING = frozenset({429, 502, 503, 504})  # of ours, and of a proxy whose server is away


class Outage:
    """One server's absences, each from the first call that failed to the first that did not.

    `until`: when the caller stops waiting, by the calls' clock; else each may last PATIENCE seconds.
    """

    def __init__(self, calls: Calls, until: float | None = None) -> None:
        self._calls = calls
        self._until = until
        self.over()

    def over(self) -> None:
        """Note that the server has answered."""
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    def endure(self, fault: RainbowError, advice: str) -> None:
        """Pause before the next try; raise the fault if it will not pass, Unavailable with advice if it did not."""
        if not self._calls.answered or not _passes(fault):
            raise fault
        now = self._calls.clock()
        self._since = now if self._since is None else self._since
        left = (self._since + PATIENCE if self._until is None else self._until) - now
        if left <= 0:
            _give_up(fault, now - self._since, advice)
        asked = getattr(fault, "retry_after", None) or 0.0
        self._calls.sleep(min(max(self._pause, asked), LONGEST_PAUSE, left))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def _passes(fault: RainbowError) -> bool:
    return fault.status in PASSING if isinstance(fault, Problem) else isinstance(fault, TryLater)


def _give_up(fault: RainbowError, seconds: float, advice: str) -> NoReturn:
    raise Unavailable(f"{fault} (for {seconds:.0f} seconds); {advice}") from fault
