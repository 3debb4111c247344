"""Which shares of a job go first: those that least is lost with.

A share that has not initialised goes before one that has; of two that have not, the one that initialised for the
shorter time; of two that have, the one with less invested; then the one in the most deeply nested nodepool, on the
larger machine, and last the newest. The order is total.

`classic` leaves out the depth, which the original compares with itself, and keeps shares that have not initialised in
the order they come (docs/decisions/0012).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Invested:
    """What eviction looks at in a share; the larger `serial`, the newer it is."""

    serial: Any  # a number, or anything else that is ordered
    initialised: bool
    initialising: float = 0.0  # time spent, until it was ready
    investment: float = 0.0
    depth: int = 0
    memory: int = 0


def eviction_order(shares: Iterable[Invested], classic: bool = False) -> list[Invested]:
    """Sort shares, the first to be given up first.

    >>> [s.serial for s in eviction_order([Invested(1, True), Invested(2, False), Invested(3, True)])]
    [2, 3, 1]
    """
    newest_first = sorted(shares, key=lambda share: share.serial, reverse=True)
    if classic:
        waiting = sorted((s for s in newest_first if not s.initialised), key=lambda s: s.serial)
        ready = sorted((s for s in newest_first if s.initialised), key=lambda s: (s.investment, -s.memory))
        return sorted(waiting, key=lambda s: s.initialising) + ready
    return sorted(newest_first, key=_rank)


def _rank(share: Invested) -> tuple[bool, float, int, int]:
    lost = share.investment if share.initialised else share.initialising
    return share.initialised, lost, -share.depth, -share.memory
