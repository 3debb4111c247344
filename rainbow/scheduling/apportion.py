"""Whole workers for fractional shares.

    quota     a class's exact share of the workers; its target is the quota rounded up or down
    seat      the n-th worker of a class: due no later than n / weight, and never before its quota exceeds n - 1

`targets` is the quota method of Balinski and Young ("The quota method of apportionment", American Mathematical
Monthly 82, 1975): seat by seat the one that is due first, so one more worker never costs a class one. `divide` hands
out what is free one by one to whoever has least for its weight (Jefferson's divisor rule), which is monotone too and
takes into account what each holds already. See docs/decisions/0003 and 0031.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import gcd, lcm

MANY = 1_000  # from here on units are not handed out one by one
HALVINGS = 100
MOST_SEATS = 200_000  # given one by one; of more (bytes, say) only the last few, and they may move by one


def targets(workers: int, weights: Mapping[str, float], first: str = "") -> dict[str, int]:
    """Apportion workers by weight; `first` names a class that gets its first seat before all others.

    Whoever comes first, every target stays its quota rounded up or down: one seat leaves room for all others.

    >>> targets(10, {"a": 50, "b": 30, "c": 20})
    {'a': 5, 'b': 3, 'c': 2}
    >>> targets(50, {"large": 99, "small": 1})
    {'large': 50, 'small': 0}
    >>> targets(50, {"large": 99, "small": 1}, first="small")
    {'large': 49, 'small': 1}
    """
    return dict(_targets(workers, tuple(sorted(weights.items())), first))


@lru_cache(maxsize=256)
def _targets(workers: int, weights: tuple[tuple[str, float], ...], first: str) -> tuple[tuple[str, int], ...]:
    whole = _whole({name: weight for name, weight in weights if weight > 0})
    given = dict.fromkeys((name for name, _ in weights), 0)
    if whole:
        # after as many seats as the weights sum to, everybody has exactly its weight and it begins anew
        times, rest = divmod(workers, sum(whole.values()))
        given |= {name: times * weight for name, weight in whole.items()}
        if rest > MOST_SEATS:
            given, rest = _floors(rest, whole, given)
        for name in _seats(rest, whole, first if not times else ""):
            given[name] += 1
    return tuple(given.items())


def _floors(count: int, weights: Mapping[str, int], given: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Give every class its quota rounded down; return that and what is left, fewer than there are classes."""
    total = sum(weights.values())
    floors = {name: count * weight // total for name, weight in weights.items()}
    return {name: given[name] + floors.get(name, 0) for name in given}, count - sum(floors.values())


def _whole(weights: Mapping[str, float]) -> dict[str, int]:
    """Return the smallest whole numbers of the same proportions."""
    exact = {name: Fraction(str(weight)) for name, weight in weights.items()}
    scale = lcm(*(weight.denominator for weight in exact.values()))
    numbers = {name: int(weight * scale) for name, weight in exact.items()}
    common = gcd(*numbers.values())
    return {name: number // common for name, number in numbers.items()}


def _seats(count: int, weights: Mapping[str, int], first: str) -> list[str]:
    """Name who gets each of so many seats: of those whose quota allows one more, the one due first."""
    total, scale = sum(weights.values()), lcm(*weights.values())
    taken = [first] if count and first in weights else []
    ready: list[tuple[int, int, str, int]] = []  # due, larger weight first, name, seats held
    later = [_opening(name, taken.count(name), weights, total) for name in weights]
    heapify(later)
    for seat in range(len(taken) + 1, count + 1):
        while later and later[0][0] <= seat:
            _, name, held = heappop(later)
            heappush(ready, ((held + 1) * scale // weights[name], -weights[name], name, held))
        _, _, name, held = heappop(ready)
        taken.append(name)
        heappush(later, _opening(name, held + 1, weights, total))
    return taken


def _opening(name: str, held: int, weights: Mapping[str, int], total: int) -> tuple[int, str, int]:
    """Return from which number of workers on a class's quota exceeds what it holds."""
    return held * total // weights[name] + 1, name, held


def divide(
    free: int, weights: Mapping[str, float], held: Mapping[str, int], most: Mapping[str, int]
) -> dict[str, int]:
    """Hand out `free` workers by weight among classes that hold some already and want at most so many more.

    >>> divide(140, {"c0": 100, "c3": 50}, {}, {"c0": 100, "c3": 50})
    {'c0': 94, 'c3': 46}
    """
    given = dict.fromkeys(weights, 0)
    wanting = [name for name in weights if most.get(name, 0) > 0 and weights[name] > 0]
    if free > MANY:
        given |= _in_bulk(free, {name: weights[name] for name in wanting}, held, most)
    queue = [_next(name, weights, held, given[name]) for name in wanting if given[name] < most[name]]
    heapify(queue)
    for _ in range(free - sum(given.values())):
        if not queue:
            break
        _, name = heappop(queue)
        given[name] += 1
        if given[name] < most[name]:
            heappush(queue, _next(name, weights, held, given[name]))
    return given


def _in_bulk(
    free: int, weights: Mapping[str, float], held: Mapping[str, int], most: Mapping[str, int]
) -> dict[str, int]:
    """Give what ranks safely below the last one handed out: the same as one by one, found by halving."""

    def below(rank: float) -> dict[str, int]:
        reached = {name: int(rank * weight) - held.get(name, 0) - 1 for name, weight in weights.items()}
        return {name: max(0, min(most[name], number)) for name, number in reached.items()}

    low, high = 0.0, (free + sum(held.values()) + 2) / min(weights.values(), default=1.0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        safe = sum(below(middle).values()) + 2 * len(weights) <= free  # whatever rounding has left out of the count
        low, high = (middle, high) if safe else (low, middle)
    return below(low)


def _next(name: str, weights: Mapping[str, float], held: Mapping[str, int], given: int) -> tuple[float, str]:
    """Rank a class's next worker: who has least for its weight first, then by name.

    Ties must not go by weight: a weight that grows by one could then take two workers and leave another with less.
    """
    return (held.get(name, 0) + given + 1) / weights[name], name
