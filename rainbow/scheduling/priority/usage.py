"""What owners have used, fading with a half-life; kept in the policy's memory from one run to the next.

Usage is what tasks held, by the record of them: those that run until now, those that have ended until their end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rainbow.scheduling.policy import Placement, RunView, View
from rainbow.scheduling.priority.asks import read_asks
from rainbow.scheduling.priority.ending import limit
from rainbow.scheduling.priority.model import Item, owners
from rainbow.scheduling.priority.share_tree import Leaf, key

NOTHING = 1e-9
USUAL = 3600.0  # seconds a job runs on average, while none has ended
REMEMBERED = 100  # ends that the average length is of, about
LEAST = 1.0  # of what is charged for a second, so that jobs without what is counted take turns too


def decayed(used: float, seconds: float, halftime: float) -> float:
    """Return what is left of usage after some seconds; without a half-life (0) all of it."""
    return used * 0.5 ** (seconds / halftime) if halftime else used


def counted(view: View, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the memory of usage, {"at", "used"}, brought up to now with what ran since the last time."""
    earlier = view.memory.get("usage", {})
    at = min(earlier.get("at", view.now), view.now)
    given = settings["tickets"]
    halftime = given["halftime"] * 3600
    used = {name: decayed(value, view.now - at, halftime) for name, value in earlier.get("used", {}).items()}
    for run, end in _spans(view):
        seconds = max(0.0, end - max(at, run.started))
        more = decayed(rate(run.placement, given["usage_weights"]) * seconds, view.now - end, halftime)
        used[name_of(run)] = used.get(name_of(run), 0.0) + more
    return {"at": view.now, "used": {name: value for name, value in sorted(used.items()) if value > NOTHING}}


def lengths(view: View) -> dict[str, float]:
    """Return the memory of lengths: the `mean` of what has ended, in seconds, and of how many `ends` that is."""
    earlier = view.memory.get("lengths", {})
    mean, ends = earlier.get("mean", USUAL), earlier.get("ends", 0)
    for ran in view.ended:
        ends = min(ends + 1, REMEMBERED)
        mean += (max(0.0, ran.end - ran.run.started) - mean) / ends
    return {"mean": mean, "ends": ends}


def _spans(view: View) -> Iterator[tuple[RunView, float]]:
    """Yield everything that has run since the last time, with its end so far."""
    for run in view.runs:
        yield run, view.now
    for ran in view.ended:
        yield ran.run, min(ran.end, view.now)


def expected(view: View, used: Mapping[str, float], length: float, settings: Mapping[str, Any]) -> dict[str, float]:
    """Return usage with what running tasks will probably still use: as much again as they have, at least the average.

    Limits only bound that: they say little of lengths.
    """
    weights, found = settings["tickets"]["usage_weights"], dict(used)
    for run in view.runs:
        left = min(limit(run, settings) - view.now, max(length, view.now - run.started))
        more = max(LEAST, rate(run.placement, weights)) * max(0.0, left)
        found[name_of(run)] = found.get(name_of(run), 0.0) + more
    return found


def charge(item: Item, weights: Mapping[str, float], length: float) -> float:
    """Return what an item will probably use, if it runs as long as the average and not longer than its limit."""
    each = sum(group.least * weights.get(kind, 0.0) * n for group in item.groups for kind, n in group.amounts.items())
    return max(LEAST, each) * min(item.duration, length)


def rate(placement: Placement, weights: Mapping[str, float]) -> float:
    """Return what a placement uses in a second."""
    return sum(weights.get(kind, 0.0) * amount for held in placement.values() for kind, amount in held.items())


def name_of(run: RunView) -> str:
    """Name the owner of a task in what is kept of usage."""
    return key(leaf_of(owners(run.job, run.requestor, read_asks(run))))


def leaf_of(of: Mapping[str, str]) -> Leaf:
    """Name the leaf of a share tree that stands for an owner."""
    return Leaf(of["project"], of["user"])
