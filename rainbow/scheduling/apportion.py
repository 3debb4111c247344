"""Whole workers for fractional shares.

`targets` is the quota method of Balinski and Young ("The quota method of apportionment", American Mathematical
Monthly 82, 1975): every class gets its exact share rounded up or down, and one more worker never costs a class
one. `divide` hands out what is free one by one to whoever has least for its weight (Jefferson's divisor rule),
which is monotone too and takes into account what each holds already. See docs/decisions/0003.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache


def targets(workers: int, percents: Mapping[str, float]) -> dict[str, int]:
    """Apportion workers by percent; no class with a percent ends with none while there are workers enough.

    >>> targets(10, {"a": 50, "b": 30, "c": 20})
    {'a': 5, 'b': 3, 'c': 2}
    >>> targets(50, {"large": 99, "small": 1})
    {'large': 49, 'small': 1}
    """
    return dict(_targets(workers, tuple(sorted(percents.items()))))


@lru_cache(maxsize=256)
def _targets(workers: int, percents: tuple[tuple[str, float], ...]) -> tuple[tuple[str, int], ...]:
    total = sum(percent for _, percent in percents)
    given = dict.fromkeys((name for name, _ in percents), 0)
    positive = [(name, percent) for name, percent in percents if percent > 0]
    for seat in range(1, workers + 1 if positive else 1):
        below = [(name, p) for name, p in positive if given[name] * total < seat * p]
        given[max(below, key=lambda found: (found[1] / (given[found[0]] + 1), found[1]))[0]] += 1
    _foot_in_the_door(given, [name for name, _ in positive])
    return tuple(given.items())


def _foot_in_the_door(given: dict[str, int], positive: list[str]) -> None:
    """Give a class that a small percent rounds to nothing one worker of the class that has most."""
    for name in positive:
        richest = max(positive, key=lambda other: (given[other], other))
        if given[name] == 0 and given[richest] > 1:
            given[name] += 1
            given[richest] -= 1


def divide(
    free: int, weights: Mapping[str, float], held: Mapping[str, int], most: Mapping[str, int]
) -> dict[str, int]:
    """Hand out `free` workers by weight among classes that hold some already and want at most so many more.

    >>> divide(140, {"c0": 100, "c3": 50}, {}, {"c0": 100, "c3": 50})
    {'c0': 94, 'c3': 46}
    """
    given = dict.fromkeys(weights, 0)
    open_ = [name for name in sorted(weights) if most.get(name, 0) > 0 and weights[name] > 0]
    while free > 0 and open_:
        name = max(open_, key=lambda n: (weights[n] / (held.get(n, 0) + given[n] + 1), weights[n]))
        given[name] += 1
        free -= 1
        if given[name] >= most[name]:
            open_.remove(name)
    return given
