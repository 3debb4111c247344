"""Why an item does not start: what each worker says, counted as people know it.

"0/40 workers: 25 too small, 15 busy until 14:20"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from rainbow.jobs import WorkerState
from rainbow.scheduling.policy import WorkerView
from rainbow.scheduling.priority.calendar import clock
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.model import Item, Need, Spot
from rainbow.scheduling.priority.queues import Tag, instances, tag

UNFIT, SMALL, STATE, ACCESS, LOADED, CLOSED = "unfit", "too small", "not ready", "no access", "overloaded", "closed"
BUSY, KEPT, QUOTA, ENVIRONMENT, CLUSTER = "busy", "kept for others", "quota used", "pe used", "cluster resource used"
FITS = "room for one slot"


@dataclass(slots=True)
class Reasons:
    """How many workers give which reason, and the first time one that is busy gives something back."""

    workers: int
    counts: Mapping[str, int]
    until: float = inf
    lines: dict[str, int] = field(default_factory=dict)  # limits used up, by line

    def text(self, now: float, offset: float) -> str:
        """Say it in one line, times of day by an offset from UTC."""
        until = f" until {clock(self.until + offset, now + offset)}" if isfinite(self.until) else ""
        ordered = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))
        parts = [f"{count} {reason}{until if reason == BUSY else ''}" for reason, count in ordered]
        return f"{self.counts.get(FITS, 0)}/{self.workers} workers: {', '.join(parts) or 'none'}"

    def facts(self) -> dict[str, Any]:
        """Return the same as facts."""
        found: dict[str, Any] = {"workers": self.workers, "reasons": dict(self.counts)}
        if isfinite(self.until):
            found["busy_until"] = self.until
        return {**found, "limits": sorted(self.lines)} if self.lines else found


def explain(lines: Lines, item: Item) -> Reasons:
    """Ask every worker why it cannot take a slot of an item now; the best of its queues speaks for it."""
    reasons = Reasons(len(lines.workers), {})
    usable = set(lines.spots)
    counts: Counter[str] = Counter()
    spots: dict[str, list[Spot]] = {}
    for spot in instances(lines.queues, lines.workers.values()):
        spots.setdefault(spot.worker, []).append(spot)
    for name, worker in lines.workers.items():
        said = [_say(lines, item, spot, spot in usable, reasons) for spot in spots.get(name, [])]
        early = _before_queues(item, worker)
        counts[early or max(said or [ACCESS], key=ORDER.index)] += 1
    reasons.counts = dict(sorted(counts.items()))
    return reasons


ORDER = (UNFIT, SMALL, STATE, ACCESS, CLOSED, LOADED, QUOTA, ENVIRONMENT, CLUSTER, BUSY, KEPT, FITS)


def _before_queues(item: Item, worker: WorkerView) -> str:
    if worker.kind not in item.kinds:
        return UNFIT
    if item.groups and not any(
        all(worker.capacity.get(kind, 0) >= amount for kind, amount in group.amounts.items()) for group in item.groups
    ):
        return SMALL
    return STATE if worker.state is not WorkerState.READY else ""


def _say(lines: Lines, item: Item, spot: Spot, usable: bool, reasons: Reasons) -> str:
    """Return what one queue on a worker says."""
    if all(tag(item, environment, spot, lines.queues) is Tag.NONE for environment in item.environments):
        return ACCESS
    if not lines.open_now(spot.queue):
        return CLOSED
    if not usable:
        return LOADED
    if not item.groups:
        return _whole(lines, spot, reasons)
    needs = lines.wanted(item, 0, spot, item.environments[0])
    said = [_line(lines, item, need, reasons) for need in (*needs.each, *needs.per_worker, *needs.per_job)]
    return min((word for word in said if word), key=ORDER.index, default=FITS)


def _whole(lines: Lines, spot: Spot, reasons: Reasons) -> str:
    """Return what a worker says to an item that wants it wholly."""
    now = lines.view.now
    in_use = [use for use in lines.timeline.lines.get(spot.worker, {}).values() if use.level(now)]
    for use in in_use:
        reasons.until = min(reasons.until, next(use.ends_after(now), inf))
    return BUSY if in_use else FITS


def _line(lines: Lines, item: Item, need: Need, reasons: Reasons) -> str:
    """Return what stands in the way on one line, "" if nothing does."""
    now, timeline = lines.view.now, lines.timeline
    if timeline.free(need.line, need.kind, now, now + item.duration) >= need.amount:
        return ""
    word = CLUSTER if need.line == "" else QUOTA if need.line.startswith("quota ") else ENVIRONMENT
    if need.line.startswith(("quota ", "pe ")) or need.line == "":
        reasons.lines[f"{need.line or 'cluster'} {need.kind}"] = need.amount
        return word
    if timeline.free_at(need.line, need.kind, now) >= need.amount:
        return KEPT
    use = timeline.lines.get(need.line, {}).get(need.kind)
    reasons.until = min(reasons.until, next(use.ends_after(now), inf) if use else inf)
    return BUSY
