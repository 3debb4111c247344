"""Workers that each class is entitled to, and loans of idle ones.

Whole workers for fractional shares:

    quota     a class's exact share of the workers; its target is the quota rounded up or down
    seat      the n-th worker of a class: due no later than n / weight, and never before its quota exceeds n - 1

`targets` is the quota method of Balinski and Young ("The quota method of apportionment", American Mathematical
Monthly 82, 1975): seat by seat the one that is due first, so one more worker never costs a class one. `divide` hands
out what is free one by one to the class with least for its weight (Jefferson's divisor rule), which is monotone too
and takes into account what each holds already. See docs/design/targets-keep-the-quota.md.

A class whose share is less than one worker runs its share over time:

    credit   the part of all starts a class was due since it waits, less the starts it had
    turn     the class with the most credit, once that is a whole start: it has the first seat until it runs something

A class of 1 % of 50 workers has a target of 0, but every hundredth start is its own. See
docs/design/targets-keep-the-quota.md.

What each class may take now is first its entitlement, then loans of workers no class is entitled to:

    target       workers a class's percent stands for
    entitlement  its target; unused is what is missing to it, while it has tasks waiting
    loan         workers beyond the target, lent because the classes they belong to have nothing waiting
    credit       the part of all starts a class was due while it waited and had nothing running (entitlements.py)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import gcd, lcm

MANY = 1_000  # from here on units are not handed out one by one
HALVINGS = 100
MOST_SEATS = 200_000  # given one by one; of more (bytes, say) only the last few, and they may move by one


def targets(workers: int, weights: Mapping[str, float], first: str = "") -> dict[str, int]:
    """Apportion workers by weight; `first` names a class that gets its first seat before all others.

    Whichever comes first, every target stays its quota rounded up or down: one seat leaves room for all others.

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
    grants = dict.fromkeys((name for name, _ in weights), 0)
    if whole:
        # after as many seats as the weights sum to, everybody has exactly its weight and it begins anew
        times, rest = divmod(workers, sum(whole.values()))
        grants |= {name: times * weight for name, weight in whole.items()}
        if rest > MOST_SEATS:
            grants, rest = _floors(rest, whole, grants)
        for name in _seats(rest, whole, first if not times else ""):
            grants[name] += 1
    return tuple(grants.items())


def _floors(count: int, weights: Mapping[str, int], grants: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Give every class its quota rounded down; return that and what is left, fewer than there are classes."""
    total = sum(weights.values())
    floors = {name: count * weight // total for name, weight in weights.items()}
    return {name: grants[name] + floors.get(name, 0) for name in grants}, count - sum(floors.values())


def _whole(weights: Mapping[str, float]) -> dict[str, int]:
    """Return the smallest whole numbers of the same proportions."""
    exact = {name: Fraction(str(weight)) for name, weight in weights.items()}
    scale = lcm(*(weight.denominator for weight in exact.values()))
    numbers = {name: int(weight * scale) for name, weight in exact.items()}
    common = gcd(*numbers.values())
    return {name: number // common for name, number in numbers.items()}


def _seats(count: int, weights: Mapping[str, int], first: str) -> list[str]:
    """Name who gets each seat: of those whose quota allows one more, the one due first."""
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
    grants = dict.fromkeys(weights, 0)
    wanting = [name for name in weights if most.get(name, 0) > 0 and weights[name] > 0]
    if sum(most[name] for name in wanting) <= free:
        return grants | {name: most[name] for name in wanting}
    if free > MANY:
        grants |= _in_bulk(free, {name: weights[name] for name in wanting}, held, most)
    queue = [_next(name, weights, held, grants[name]) for name in wanting if grants[name] < most[name]]
    heapify(queue)
    for _ in range(free - sum(grants.values())):
        if not queue:
            break
        _, name = heappop(queue)
        grants[name] += 1
        if grants[name] < most[name]:
            heappush(queue, _next(name, weights, held, grants[name]))
    return grants


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


def _next(name: str, weights: Mapping[str, float], held: Mapping[str, int], grants: int) -> tuple[float, str]:
    """Rank a class's next worker: who has least for its weight first, then by name.

    Ties must not go by weight: a weight that grows by one could then take two workers and leave another with less.
    """
    return (held.get(name, 0) + grants + 1) / weights[name], name


WHOLE = 1 - 1e-6  # a start, less what summing fractions may lose


@dataclass(frozen=True, slots=True)
class ClassCount:
    """One class: its percent, and how many workers its tasks hold and wait for."""

    name: str
    percent: float
    running: int
    waiting: int


def turn(classes: Sequence[ClassCount], credit: Mapping[str, float]) -> str:
    """Name the class that is due a worker its percent may not round up to; an empty text if there is none.

    The number of workers has no part in it: one more must not pass the turn, and so a seat, to another class.

    >>> turn([ClassCount("a", 99, 5, 5), ClassCount("b", 1, 0, 1)], {"b": 1.0})
    'b'
    """
    due = [
        (-credit[c.name], c.name)
        for c in classes
        if credit.get(c.name, 0.0) >= WHOLE and c.percent > 0 and c.waiting and not c.running
    ]
    return min(due)[1] if due else ""


def credited(
    credit: Mapping[str, float], classes: Sequence[ClassCount], target: Mapping[str, int], granted: Mapping[str, int]
) -> dict[str, float]:
    """Return the credit after a round in which so many workers were granted; `target` without any turn."""
    total, all_granted = sum(c.percent for c in classes), sum(granted.values())
    reserved = {}
    for c in classes:
        gains = c.waiting > granted[c.name] and (not target[c.name] or not c.running + granted[c.name])
        due = credit.get(c.name, 0.0) - granted[c.name] + c.percent / total * all_granted
        if gains and due > 0:
            reserved[c.name] = round(due, 9)
    return reserved


def targets_now(workers: int, classes: Sequence[ClassCount], credit: Mapping[str, float]) -> dict[str, int]:
    """Return the workers each class's percent stands for; the class whose turn it is has one."""
    percents = {c.name: c.percent for c in classes}
    return targets(workers, percents, turn(classes, credit))


def starts(
    idle: int, workers: int, classes: Sequence[ClassCount], credit: Mapping[str, float] | None = None
) -> dict[str, int]:
    """Say how many idle workers each class may take, out of `workers` in all.

    >>> starts(2, 4, [ClassCount("a", 50, 1, 5), ClassCount("b", 50, 1, 5)])
    {'a': 1, 'b': 1}
    """
    credit = credit or {}
    target = targets_now(workers, classes, credit)
    granted = _first_workers(idle, classes, target, credit)
    for weights, held, most in (
        _entitlements(classes, target, dict(granted)),
        _loans(classes, target),
        _unwanted(classes),
    ):
        remaining = idle - sum(granted.values())
        most = {c.name: min(most[c.name], c.waiting - granted[c.name]) for c in classes}
        for name, more in divide(remaining, weights, held, most).items():
            granted[name] += more
    return granted


def stops(classes: Sequence[ClassCount], target: Mapping[str, int]) -> dict[str, int]:
    """Say how many workers each class over its target must give back: never more than the others will take.

    >>> stops([ClassCount("a", 50, 3, 0), ClassCount("b", 50, 1, 5)], {"a": 2, "b": 2})
    {'a': 1, 'b': 0}
    """
    excess = {c.name: max(0, c.running - target[c.name]) for c in classes}
    weights = {name: float(workers) for name, workers in excess.items()}
    return divide(sum(needs(classes, target).values()), weights, {}, excess)


def needs(classes: Sequence[ClassCount], target: Mapping[str, int]) -> dict[str, int]:
    """Say how many workers each class is entitled to and has tasks for, when what was idle is handed out."""
    return {c.name: max(0, min(target[c.name] - c.running, c.waiting)) for c in classes}


def spread(workers: int, classes: Sequence[ClassCount]) -> float:
    """Return the delta entitlement spread in percent points, over classes that wait or hold more than their share.

    >>> spread(10, [ClassCount("a", 70, 2, 5), ClassCount("b", 30, 8, 0)])
    100.0
    """
    total = sum(c.percent for c in classes)
    if not workers or not total:
        return 0.0
    short = {c.name: 100 * c.percent / total - 100 * c.running / workers for c in classes}
    answers = [short[c.name] for c in classes if short[c.name] < 0 or c.waiting]
    return round(max([0.0, *answers]) - min([0.0, *answers]), 9)


Shares = tuple[dict[str, float], dict[str, int], dict[str, int]]  # weights, held already, wanted at most


def _first_workers(
    idle: int, classes: Sequence[ClassCount], target: Mapping[str, int], credit: Mapping[str, float]
) -> dict[str, int]:
    """Give a worker to each class that is entitled to some and runs nothing: no other, however large, starves it."""
    granted = dict.fromkeys((c.name for c in classes), 0)
    empty = [c for c in classes if not c.running and c.waiting and target[c.name]]
    empty.sort(key=lambda c: (-credit.get(c.name, 0.0), -c.percent, c.name))
    return granted | {c.name: 1 for c in empty[: max(0, idle)]}


def _entitlements(classes: Sequence[ClassCount], target: Mapping[str, int], granted: dict[str, int]) -> Shares:
    """Divide by what is missing, among classes with tasks waiting, up to what is missing."""
    missing = {c.name: max(0, target[c.name] - c.running) if c.waiting else 0 for c in classes}
    remaining = {name: lack - granted[name] for name, lack in missing.items()}
    return {name: float(lack) for name, lack in missing.items()}, granted, remaining


def _loans(classes: Sequence[ClassCount], target: Mapping[str, int]) -> Shares:
    """Divide by percent, counting the loans each class has already."""
    weights = {c.name: c.percent if c.waiting else 0.0 for c in classes}
    loaned = {c.name: max(0, c.running - target[c.name]) for c in classes}
    return weights, loaned, {c.name: c.waiting for c in classes}


def _unwanted(classes: Sequence[ClassCount]) -> Shares:
    """What no class with a percent wants goes to those with none, evenly."""
    weights = {c.name: 1.0 if c.percent == 0 else 0.0 for c in classes}
    return weights, {c.name: c.running for c in classes}, {c.name: c.waiting for c in classes}
