"""Times in microseconds of this thread's CPU: what else the machine does counts for less."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import numpy as np


def timed(work: Callable[[], object], runs: int = 5) -> float:
    """Return the median time of some runs in microseconds, after one that is not counted."""
    work()
    return median(once(work) for _ in range(runs))


def once(work: Callable[[], object]) -> float:
    """Return the time of one run in microseconds."""
    start = time.thread_time()
    work()
    return (time.thread_time() - start) * 1e6


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the exponent with which costs grow, fitted over all sizes by least squares.

    >>> round(exponent((10, 100, 1_000), (3, 6, 12)), 3)
    0.301
    """
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0]) if len(sizes) > 1 else math.nan


@contextmanager
def as_served() -> Iterator[None]:
    """Freeze what is there, as a server does when it has started: collecting garbage leaves it out."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def heading(title: str, *columns: str) -> None:
    """Print the head of a table."""
    print(f"\n{title}")
    print("".join(f"{column:>16}" for column in columns))


def row(*cells: object) -> None:
    """Print a line of a table; numbers with a decimal where they are small."""
    print("".join(f"{_cell(cell):>16}" for cell in cells))


def _cell(cell: object) -> str:
    return (
        f"{cell:.1f}"
        if isinstance(cell, float) and cell < 100
        else f"{cell:.0f}"
        if isinstance(cell, float)
        else str(cell)
    )
