"""Starts and stops per class as Scoot counts them, with its rounding.

    target  workers of a class: its percent, floored; the largest class takes the remainder
    share   percent of what is handed out that a class gets in one pass
    order   classes by percent, the largest first (equal ones by name; Scoot draws lots)

Its 0/0 is not carried over: where Scoot divides nothing by nothing and starts tasks at random, what is idle
is lent by percent. See docs/design/targets-keep-the-quota.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(slots=True)
class ClassLoad:
    """One class during a round; `start` below zero counts tasks to stop."""

    percent: int
    target: int
    running: int
    wait: int
    start: int = 0
    share: int = 0

    @property
    def loaned(self) -> int:
        """Workers beyond the target at the start of the round."""
        return max(0, self.running - self.target)


def targets(workers: int, percents: Mapping[str, int]) -> dict[str, int]:
    """Return the workers each class's percent stands for; `percents` as `normalise` returns them."""
    largest, *others = percents
    rest = {name: math.floor(workers * percents[name] / 100.0) for name in others}
    return {largest: workers - sum(rest.values()), **rest}


def starts(idle: int, workers: int, percents: Mapping[str, int], running: Counts, waiting: Counts) -> dict[str, int]:
    """Say how many tasks each class starts: entitlements, then loans."""
    loads = _loads(workers, percents, running, waiting)
    idle = _entitle(idle, loads)
    for _ in loads:
        if idle <= 0 or not any(load.wait > 0 for load in loads):
            break
        _lend(idle, loads, rebalancing=False)
        idle -= _allocate(idle, loads)
    return dict(zip(percents, (load.start for load in loads), strict=True))


def rebalanced(workers: int, percents: Mapping[str, int], running: Counts, waiting: Counts) -> dict[str, int]:
    """Say how many tasks each class starts, or stops (below zero), to come back to its target."""
    loads = _loads(workers, percents, running, waiting)
    for load in loads:
        short = load.running <= load.target and load.running + load.wait < load.target
        load.start = load.wait if short else load.target - load.running
    remaining = workers - sum(load.running + load.start for load in loads)
    if remaining > 0:
        _lend(remaining, loads, rebalancing=True)
        _allocate(remaining, loads)
    return dict(zip(percents, (load.start for load in loads), strict=True))


def spread(workers: int, percents: Mapping[str, int], running: Counts, waiting: Counts) -> float:
    """Return the delta entitlement spread in percent points, over classes that wait or hold too much."""
    if len(percents) < 2:
        return 0
    if not workers:
        # the original divides by nought, which is its least integer: the spread exceeds every threshold, or none
        # when a class of 0 % makes it wrap around
        return math.inf if all(percents.values()) else -math.inf
    low = high = 0
    for name, percent in percents.items():
        short = percent - math.floor(running.get(name, 0) * 100.0 / workers)
        if short < 0 or waiting.get(name, 0) > 0:
            low, high = min(low, short), max(high, short)
    return high - low


Counts = Mapping[str, int]


def _loads(workers: int, percents: Mapping[str, int], running: Counts, waiting: Counts) -> list[ClassLoad]:
    """Classes of 0 % are skipped: what they run and wait for is not counted."""
    target = targets(workers, percents)
    counted = [name for name in percents if percents[name]]
    return [
        ClassLoad(percents[n], target[n], running.get(n, 0), waiting.get(n, 0))
        if n in counted
        else ClassLoad(0, target[n], 0, 0)
        for n in percents
    ]


def _entitle(idle: int, loads: list[ClassLoad]) -> int:
    """Hand out idle workers by what is missing to the targets; return how many are left."""
    for _ in loads:
        missing = [_missing(load) for load in loads]
        total = sum(missing)
        if not total:
            break
        for load, lack in zip(loads[1:], missing[1:], strict=True):
            load.share = math.floor(lack * 100.0 / total)
        # the largest class takes the remainder even if nothing is missing to it
        loads[0].share = 100 - sum(load.share for load in loads[1:])
        idle -= _allocate(min(idle, total), loads)
        if idle <= 0 or not any(load.wait > 0 for load in loads):
            break
    return idle


def _missing(load: ClassLoad) -> int:
    held = load.running + load.start
    return load.target - held if load.wait > 0 and held <= load.target else 0


def _lend(free: int, loads: list[ClassLoad], rebalancing: bool) -> None:
    """Set the shares by percent among the classes that wait, less what each has been lent already."""
    percents = sum(load.percent for load in loads if load.wait > 0)
    if not percents:
        return
    lent = free + (0 if rebalancing else sum(load.loaned for load in loads))
    deserved = [_deserved(load, percents, lent, rebalancing) for load in loads]
    total = sum(deserved)
    if not total:  # everybody has what it deserves, or more: by percent, as if nothing had been lent
        deserved, total = [load.percent if load.wait > 0 else 0 for load in loads], percents
    for load, more in zip(loads, deserved, strict=True):
        load.share = int(more / total * 100)


def _deserved(load: ClassLoad, percents: int, lent: int, rebalancing: bool) -> int:
    part = math.floor(load.percent / percents * lent) if load.wait > 0 else 0
    reserved = load.loaned + (load.start if rebalancing and load.start < 0 else 0)
    return max(0, part - reserved)


def _allocate(free: int, loads: list[ClassLoad]) -> int:
    """Hand out workers by share in order, each part rounded up; the last ones may get less."""
    total = 0
    for load in loads:
        part = min(load.wait, math.ceil(np.float32(free) * np.float32(load.share / 100)))
        if load.start < 0:
            load.share = 0
        part = min(part, free - total)
        load.start += part
        load.wait -= part
        total += part
    return total
