"""Starts and stops per class, counted by `exact` or `classic` behind one interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rainbow.scheduling.load_based import classic_counts, entitlements
from rainbow.scheduling.load_based.entitlements import ClassCount, credited, targets

Counts = Sequence[ClassCount]
PerClass = dict[str, int]


class Counting(Protocol):
    """Divides one cluster's workers among its classes."""

    clears: bool  # a spread back under the threshold ends the excess
    repeats: bool  # what a class could not use is divided again in the same round

    def targets(self, counts: Counts) -> PerClass:
        """Return the workers each class's percent stands for."""

    def spread(self, counts: Counts) -> float:
        """Return the delta entitlement spread in percent points."""

    def starts(self, idle: int, counts: Counts, *, rebalancing: bool) -> PerClass:
        """Say how many idle workers each class may take."""

    def stops(self, before: Counts, after: Counts) -> tuple[PerClass, PerClass]:
        """Say, at a rebalance, how many workers classes give back after the starts, and how many others then take."""

    def credit(self, counts: Counts, granted: Mapping[str, int]) -> Mapping[str, float]:
        """Return what is remembered of a round that began with these counts."""


@dataclass
class Exact:
    """Keeps the invariants; `earned` is the credit the last round left."""

    workers: int
    earned: Mapping[str, float] = field(default_factory=dict)
    clears: bool = True
    repeats: bool = True

    def targets(self, counts: Counts) -> PerClass:
        """Apportion by the quota method; the class whose turn it is has one worker."""
        return entitlements.targets_now(self.workers, counts, self.earned)

    def spread(self, counts: Counts) -> float:
        """Return the spread between the class furthest below and the one furthest above its percent."""
        return entitlements.spread(self.workers, counts)

    def starts(self, idle: int, counts: Counts, *, rebalancing: bool) -> PerClass:
        """Divide by entitlement, then by loans."""
        return entitlements.starts(idle, self.workers, counts, self.earned)

    def stops(self, before: Counts, after: Counts) -> tuple[PerClass, PerClass]:
        """Give back what is beyond the target, up to what others are entitled to and wait for."""
        target = self.targets(before)
        return entitlements.stops(after, target), entitlements.needs(after, target)

    def credit(self, counts: Counts, granted: Mapping[str, int]) -> Mapping[str, float]:
        """Credit the classes that wait and have nothing running with their part of the starts."""
        percents = {c.name: c.percent for c in counts}
        return credited(self.earned, counts, targets(self.workers, percents), granted)


@dataclass
class Classic:
    """Counts as Scoot; `counts` in order of percents as it normalises them."""

    workers: int
    clears: bool = False
    repeats: bool = False

    def targets(self, counts: Counts) -> PerClass:
        """Floor every class but the largest, which takes the remainder."""
        return classic_counts.targets(self.workers, _column(counts, "percent"))

    def spread(self, counts: Counts) -> float:
        """Return the spread in whole points."""
        return classic_counts.spread(
            self.workers, _column(counts, "percent"), _column(counts, "running"), _column(counts, "waiting")
        )

    def starts(self, idle: int, counts: Counts, *, rebalancing: bool) -> PerClass:
        """Count what starts; at a rebalance that may be more than is idle."""
        if rebalancing:
            return {name: max(0, number) for name, number in self._rebalanced(counts).items()}
        columns = [_column(counts, name) for name in ("percent", "running", "waiting")]
        return classic_counts.starts(idle, self.workers, *columns)

    def stops(self, before: Counts, after: Counts) -> tuple[PerClass, PerClass]:
        """Count what stops, and what of the starts found no idle worker."""
        numbers, held = self._rebalanced(before), _column(after, "running")
        needs = {c.name: max(0, numbers[c.name] - held[c.name] + c.running) for c in before}
        return {name: max(0, -number) for name, number in numbers.items()}, needs

    def credit(self, counts: Counts, granted: Mapping[str, int]) -> Mapping[str, float]:
        """Remember nothing."""
        return {}

    def _rebalanced(self, counts: Counts) -> PerClass:
        columns = [_column(counts, name) for name in ("percent", "running", "waiting")]
        return classic_counts.rebalanced(self.workers, *columns)


def _column(counts: Counts, name: str) -> PerClass:
    return {c.name: int(getattr(c, name)) for c in counts}
