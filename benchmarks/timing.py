"""How long something takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def timed(work: Callable[[], object], runs: int = 5, pick: Callable[[list[float]], float] = median) -> float:
    """Return the median time (or what `pick` takes) of some runs in microseconds, after one that is not counted."""
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return pick(times) * 1e6
