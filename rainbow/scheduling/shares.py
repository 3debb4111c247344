"""How many workers each class may take now: first its entitlement, then loans of what nobody is entitled to.

    target       workers a class's percent stands for
    entitlement  its target; unused is what is missing to it, while it has tasks waiting
    loan         workers beyond the target, lent because the classes they belong to have nothing waiting
    credit       the part of all starts a class was due while it waited and had nothing running (progress.py)

Source: the founding text of the load-based algorithm ("Get number of tasks to start").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rainbow.scheduling.apportion import divide, targets
from rainbow.scheduling.progress import ClassCount, turn


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
        left = idle - sum(granted.values())
        most = {c.name: min(most[c.name], c.waiting - granted[c.name]) for c in classes}
        for name, more in divide(left, weights, held, most).items():
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
    told = [short[c.name] for c in classes if short[c.name] < 0 or c.waiting]
    return round(max([0.0, *told]) - min([0.0, *told]), 9)


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
    left = {name: lack - granted[name] for name, lack in missing.items()}
    return {name: float(lack) for name, lack in missing.items()}, granted, left


def _loans(classes: Sequence[ClassCount], target: Mapping[str, int]) -> Shares:
    """Divide by percent, counting the loans each class has already."""
    weights = {c.name: c.percent if c.waiting else 0.0 for c in classes}
    loaned = {c.name: max(0, c.running - target[c.name]) for c in classes}
    return weights, loaned, {c.name: c.waiting for c in classes}


def _unwanted(classes: Sequence[ClassCount]) -> Shares:
    """What no class with a percent wants goes to those with none, evenly."""
    weights = {c.name: 1.0 if c.percent == 0 else 0.0 for c in classes}
    return weights, {c.name: c.running for c in classes}, {c.name: c.waiting for c in classes}
