"""Usage: the amounts that tasks held and for how long, by day, and decayed.

held(placement)       {"core": 8, "node": 2}: amounts by type in base units, and the workers as "node"
days(...)             seconds of a run on each day (UTC)
decayed(...)          an amount after some time, with a half-life
ChargedRun.weighed()  a run's weighted seconds as if they had decayed while it ran
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import log

DAY = 86_400
NODE = "node"  # a worker, whatever its type is called
COST = "cost"  # money: what a core second costs where the job runs
HALF_LIFE = 7.0 * DAY
WEIGHTS = {"core": 1.0}

Placement = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class ChargedRun:
    """An attempt of a task that ran: account and user of its job, the cluster's id, its amounts, and its times."""

    account: str
    user: str
    cluster: str
    amounts: Mapping[str, float]
    began: float
    ended: float
    rate: float = 0.0  # money for a core second
    job: str = ""

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return max(0.0, self.ended - self.began)

    def used(self) -> dict[str, float]:
        """Return its usage by type, amounts times seconds, and the cost of it.

        >>> ChargedRun("bio", "ann", "oak", {"core": 4}, 10.0, 12.5, rate=0.5).used()
        {'core': 10.0, 'cost': 5.0}
        """
        return used(self.amounts, self.seconds, self.rate)

    def weighed(self, rules: UsageRules, now: float) -> float:
        """Return its weighted seconds, each decayed since it was used."""
        return sum_of(self.amounts, rules.weights) * faded(self.began, self.ended, now, rules.half_life)


@dataclass(frozen=True, slots=True)
class UsageRules:
    """How usage counts for fair share: seconds until half of it is forgotten (0: never), and weights by type."""

    half_life: float = HALF_LIFE
    weights: Mapping[str, float] = field(default_factory=lambda: dict(WEIGHTS))


def used(amounts: Mapping[str, float], seconds: float, rate: float = 0.0) -> dict[str, float]:
    """Return amounts times seconds, and their cost at a rate for a core second."""
    results = {kind: amount * seconds for kind, amount in amounts.items()}
    return {**results, COST: results.get("core", 0.0) * rate} if rate else results


def held(placement: Placement) -> dict[str, float]:
    """Sum a placement by type; workers count as "node".

    >>> held({"n0": {"core": 4}, "n1": {"core": 2, "gpu": 1}, "": {"licence": 1}})
    {'core': 6.0, 'gpu': 1.0, 'licence': 1.0, 'node': 2.0}
    """
    results: dict[str, float] = {}
    for amounts in placement.values():
        for kind, amount in amounts.items():
            results[kind] = results.get(kind, 0.0) + amount
    return {**results, NODE: float(sum(1 for name in placement if name))}


def sum_of(amounts: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted sum of amounts."""
    return sum(weight * amounts.get(kind, 0.0) for kind, weight in weights.items())


def days(began: float, ended: float) -> Iterator[tuple[int, float]]:
    """Give (day since 1970, seconds) of a time.

    >>> list(days(86_390.0, 86_403.0))
    [(0, 10.0), (1, 3.0)]
    """
    day = int(began // DAY)
    while day * DAY < ended:
        yield day, min(ended, (day + 1) * DAY) - max(began, day * DAY)
        day += 1


def decayed(amount: float, at: float, now: float, half_life: float) -> float:
    """Return the rest of an amount after decay.

    >>> decayed(8.0, 0.0, 20.0, 10.0), decayed(8.0, 0.0, 20.0, 0.0)
    (2.0, 8.0)
    """
    return amount * 2.0 ** (-max(0.0, now - at) / half_life) if half_life else amount


def faded(began: float, ended: float, now: float, half_life: float) -> float:
    """Return the seconds between two times, each decayed until now.

    >>> round(faded(0.0, 10.0, 10.0, 10.0), 3), faded(0.0, 10.0, 99.0, 0.0)
    (7.213, 10.0)
    """
    if ended <= began:
        return 0.0
    if not half_life:
        return ended - began
    return half_life / log(2.0) * (decayed(1.0, ended, now, half_life) - decayed(1.0, began, now, half_life))
