"""How many workers each class may take now: first its entitlement, then loans of what nobody is entitled to.

    target       workers a class's percent stands for
    entitlement  what is missing to its target, while it has tasks waiting
    loan         workers beyond the target, lent because the classes they belong to have nothing waiting

Source: the founding text of the load-based algorithm ("Get number of tasks to start").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rainbow.scheduling.apportion import divide, targets


@dataclass(frozen=True, slots=True)
class ClassCount:
    """One class: its percent, and how many workers its tasks hold and wait for."""

    name: str
    percent: float
    running: int
    waiting: int


def starts(idle: int, workers: int, classes: Sequence[ClassCount]) -> dict[str, int]:
    """Say how many idle workers each class may take, out of `workers` in all.

    >>> starts(2, 4, [ClassCount("a", 50, 1, 5), ClassCount("b", 50, 1, 5)])
    {'a': 1, 'b': 1}
    """
    target = targets(workers, {c.name: c.percent for c in classes})
    granted = dict.fromkeys((c.name for c in classes), 0)
    for weights, held, most in (
        _entitlements(classes, target),
        _loans(classes, target),
        _unwanted(classes),
    ):
        left = idle - sum(granted.values())
        most = {c.name: min(most[c.name], c.waiting - granted[c.name]) for c in classes}
        for name, more in divide(left, weights, held, most).items():
            granted[name] += more
    return granted


Shares = tuple[dict[str, float], dict[str, int], dict[str, int]]  # weights, held already, wanted at most


def _entitlements(classes: Sequence[ClassCount], target: dict[str, int]) -> Shares:
    """Divide by what is missing, among classes with tasks waiting, up to what is missing."""
    missing = {c.name: max(0, target[c.name] - c.running) if c.waiting else 0 for c in classes}
    return {name: float(lack) for name, lack in missing.items()}, {}, missing


def _loans(classes: Sequence[ClassCount], target: dict[str, int]) -> Shares:
    """Divide by percent, counting the loans each class has already."""
    weights = {c.name: c.percent if c.waiting else 0.0 for c in classes}
    loaned = {c.name: max(0, c.running - target[c.name]) for c in classes}
    return weights, loaned, {c.name: c.waiting for c in classes}


def _unwanted(classes: Sequence[ClassCount]) -> Shares:
    """What no class with a percent wants goes to those with none, evenly."""
    weights = {c.name: 1.0 if c.percent == 0 else 0.0 for c in classes}
    return weights, {c.name: c.running for c in classes}, {c.name: c.waiting for c in classes}
