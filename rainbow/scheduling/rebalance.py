"""When to bring the classes back to their targets by stopping tasks, and which.

spread     largest share a class lacks plus largest share a class has too much, in percent points
excess     since when the spread has been over the threshold
victims    of a class over its target, the tasks that were started last
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The two settings; both must be above 0 for anything to happen."""

    threshold: float = 0.0  # percent points
    minimum: float = 0.0  # minutes

    @property
    def on(self) -> bool:
        """Whether rebalancing is asked for at all."""
        return self.threshold > 0 and self.minimum > 0

    def due(self, spread: float, excess: float | None, now: float, *, clears: bool) -> tuple[bool, float | None]:
        """Tell whether to rebalance now, and since when the spread is over the threshold from here on.

        `clears`: a spread back under the threshold ends the excess (the original goes on counting).

        >>> Rebalance(10, 4).due(20, 0.0, 241.0, clears=True)
        (True, None)
        """
        if not self.on:
            return False, None if clears else excess
        if spread <= self.threshold:
            return False, None if clears else excess
        if excess is None:
            return False, now
        return (True, None) if now - excess > self.minimum * 60 else (False, excess)


def newest(running: Iterable[tuple[float, str]], most: int) -> list[str]:
    """Name the tasks that were started last, from (started, task); equal starts by name.

    >>> newest([(1.0, "a"), (3.0, "b"), (2.0, "c")], 2)
    ['b', 'c']
    """
    return [task for _, task in sorted(running, key=lambda run: (-run[0], run[1]))[: max(0, most)]]
