"""Budgets and limits of accounts, as values.

    budget   {"amount": 1000, "of": {"core": 1} or "cost", "period": "month", "over": "refuse"}
    limits   {"active_jobs": 20, "duration": 86400, "running_cores": 512, "user_running_cores": 64,
              "clusters": {"oak": {...}}}

An amount of types is in hours (of a core, of a GPU), of `cost` in money. A job holds the most it can cost from its
submit; each end of a task charges what it took and gives its part back. A job belongs to the period of its submit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rainbow.accounts.usage import COST, sum_of
from rainbow.errors import RequestError
from rainbow.text import meant

PERIODS = ("month", "quarter", "year", "always")
REFUSE, LOWEST = "refuse", "lowest"
HOUR = 3_600.0
LIMITS = ("active_jobs", "duration", "running_cores", "user_running_cores")
GUARANTEED = "guaranteed_cores"  # over all clusters: what others of its parent borrow of it comes back
Used = Mapping[str, float]  # amounts times seconds, by type


@dataclass(frozen=True, slots=True)
class Budget:
    """How much an account and those below it may use in a period."""

    amount: float
    of: Mapping[str, float]  # weights by type; {"cost": 1} is money
    period: str = "month"
    over: str = REFUSE

    def spent(self, used: Used) -> float:
        """Return the budget's units that used amounts take.

        >>> Budget(10, {"core": 1, "gpu": 20}).spent({"core": 3_600, "gpu": 360})
        3.0
        >>> Budget(9, {"cost": 1}).spent({"cost": 2})
        2.0
        """
        types = {kind: weight for kind, weight in self.of.items() if kind != COST}
        return sum_of(used, types) / HOUR + self.of.get(COST, 0.0) * used.get(COST, 0.0)

    def at(self, now: float) -> str:
        """Return the name of the period of a time.

        >>> [Budget(1, {}, period).at(0.0) for period in PERIODS]
        ['1970-01', '1970-Q1', '1970', 'always']
        """
        day = datetime.fromtimestamp(now, UTC)
        names = (f"{day:%Y-%m}", f"{day:%Y}-Q{(day.month + 2) // 3}", f"{day:%Y}", "always")
        return dict(zip(PERIODS, names, strict=True))[self.period]


def read_budget(options: Mapping[str, Any]) -> Budget | None:
    """Read a budget; None of an empty one. RequestError names the key."""
    if not options:
        return None
    _known(options, ("amount", "of", "period", "over"), "/budget")
    amount, of = options.get("amount"), options.get("of", {"core": 1})
    of = {COST: 1} if of == COST else of
    if amount is None or not _positive(amount):
        raise RequestError(f"amount must be a number of 0 or more, got {amount!r:.40}", pointer="/budget/amount")
    if not isinstance(of, Mapping) or not of or not all(map(_positive, of.values())):
        raise RequestError("of must be cost or weights by type, such as {core: 1}", pointer="/budget/of")
    period, over = options.get("period", "month"), options.get("over", REFUSE)
    for key, value, allowed in (("period", period, PERIODS), ("over", over, (REFUSE, LOWEST))):
        if value not in allowed:
            text = f"{key} must be one of {', '.join(allowed)}, got {value!r:.40}"
            raise RequestError(text, pointer=f"/budget/{key}")
    return Budget(float(amount), {str(kind): float(weight) for kind, weight in of.items()}, period, over)


def read_limits(options: Mapping[str, Any], at: str = "/limits") -> dict[str, Any]:
    """Check an account's limits and return them; RequestError names the key."""
    _known(options, (*LIMITS, GUARANTEED, "clusters"), at)
    clusters = options.get("clusters", {})
    if not isinstance(clusters, Mapping) or not all(isinstance(own, Mapping) for own in clusters.values()):
        raise RequestError("clusters must be limits by cluster", pointer=f"{at}/clusters")
    for name, own in clusters.items():
        _known(own, LIMITS, f"{at}/clusters/{name}")
        _numbers(own, f"{at}/clusters/{name}")
    _numbers({key: value for key, value in options.items() if key != "clusters"}, at)
    return dict(options)


def limit_of(limits: Mapping[str, Any], key: str, cluster: str | None = None) -> float | None:
    """Return a limit over all clusters, or that of one; None: there is none."""
    own = limits if cluster is None else limits.get("clusters", {}).get(cluster, {})
    result = own.get(key)
    return None if result is None else float(result)


def _known(options: Mapping[str, Any], known: tuple[str, ...], at: str) -> None:
    for key in options:
        if key not in known:
            hint = meant(key, known) or f"known are: {', '.join(known)}"
            raise RequestError(f"unknown key {key:.40}; {hint}", pointer=f"{at}/{key:.40}")


def _numbers(options: Mapping[str, Any], at: str) -> None:
    for key, value in options.items():
        if not _positive(value):
            raise RequestError(f"{key} must be a number of 0 or more, got {value!r:.40}", pointer=f"{at}/{key}")


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18
