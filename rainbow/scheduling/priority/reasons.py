"""Reasons why an item does not start, counted over the workers.

"0/40 workers: 25 too small, 15 busy until 14:20"
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf, isfinite
from typing import Any

from rainbow.jobspec.times import UNITS
from rainbow.scheduling.priority.config.calendar import clock
from rainbow.scheduling.priority.config.queues import Tag, instances, tag
from rainbow.scheduling.priority.config.time_zones import Zone
from rainbow.scheduling.priority.model import Item, Need, QueueInstance
from rainbow.scheduling.priority.placement.lines import ResourceLines
from rainbow.scheduling.resource_timeline import Line
from rainbow.scheduling.snapshot import Placement, ReservationView, WorkerView
from rainbow.state_machine import WorkerState
from rainbow.text import rfc3339

UNFIT, SMALL, STATE, ACCESS, LOADED, CLOSED = "unfit", "too small", "not ready", "no access", "overloaded", "closed"
OUTSIDE = "in use outside Rainbow"
BUSY, ADVANCE, KEPT, QUOTA = "busy", "reserved in advance", "reserved for other jobs", "quota exceeded"
DISABLED = "in no enabled queue"
MAINTENANCE = "in maintenance"
ENVIRONMENT, CLUSTER = "parallel environment full", "cluster-wide resource exhausted"
FITS = "room for one slot"


@dataclass(frozen=True, slots=True)
class Ahead:
    """Space kept for a job or in advance that an item would outlast; with a limit of `seconds` it would start now."""

    kind: str  # "job", "reservation" or "maintenance"
    name: str
    start: float
    end: float
    seconds: float
    unknown: bool = False  # its start: it waits for tasks without a known end

    def with_times(self, before: str, now: float, zone: Zone, *, endless: bool) -> str:
        """Name it with its times of day, and say what would start now: first, if only the limit is missing."""
        until = f" until {clock(self.end, now, zone)}" if isfinite(self.end) and not self.unknown else ""
        since = "" if self.unknown else f" from {clock(self.start, now, zone)}"
        first = limit = ""
        if self.seconds >= 1 and endless:
            first = f"it has no time limit; with -t {_limit(self.seconds)} or less it would start now; "
        elif self.seconds >= 1:
            limit = f"; \u2264 {int(self.seconds)} s would start now"
        return f"{first}{before}; kept{since}{until} for {self.kind} {self.name}{limit}"

    def facts(self) -> dict[str, Any]:
        """Return the same as facts."""
        start, end = (None, None) if self.unknown else (rfc3339(self.start), rfc3339(self.end))
        results: dict[str, Any] = {"kept_for": {self.kind: self.name, "start": start, "end": end}}
        return {**results, "starts_now_within": int(self.seconds)} if self.seconds >= 1 else results


def _limit(seconds: float) -> str:
    """Write a time limit as a submit reads it, rounded down.

    >>> _limit(59.9), _limit(3 * 3600 + 59), _limit(113_635_880)
    ('59s', '3h', '1315d')
    """
    unit = next((unit for unit in ("d", "h", "m") if seconds >= 2 * UNITS[unit]), "s")
    return f"{int(seconds // UNITS[unit])}{unit}"


@dataclass(slots=True)
class Reasons:
    """How many workers give which reason, and the first time one that is busy gives something back."""

    workers: int
    counts: Mapping[str, int]
    until: float = inf
    lines: dict[str, int] = field(default_factory=dict)  # limits used up, by line
    busy: list[Line] = field(default_factory=list)  # what is in use of workers
    maintained: dict[str, ReservationView] = field(default_factory=dict)  # by worker
    vacant: Sequence[str] = ()  # queues the item may go to that are on none of the workers
    _text: str = ""  # said once for all items it is about
    _facts: dict[str, Any] = field(default_factory=dict)

    def text(self, now: float, zone: Zone) -> str:
        """Say it in one line, times of day in a zone."""
        if not self._text:
            until = f" until {clock(self.until, now, zone)}" if isfinite(self.until) else ""
            ordered = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))
            named = {reason: self._limits(reason) for reason in self.counts} | dict.fromkeys((BUSY, ADVANCE), until)
            parts = [f"{count} {reason}{named[reason]}" for reason, count in ordered]
            self._text = f"{self.counts.get(FITS, 0)}/{self.workers} workers: {', '.join(parts) or 'none'}"
            self._text += "".join(self._maintenance(now, zone))
            self._text += "".join(f"; queue {name} has none of the cluster's workers" for name in self.vacant)
        return self._text

    def _limits(self, reason: str) -> str:
        """Name the quotas, environments or amounts of the whole cluster that are used up."""
        begin = {QUOTA: "quota ", ENVIRONMENT: "pe ", CLUSTER: "cluster "}.get(reason)
        lines = [line.removeprefix(begin) for line in self.lines if begin and line.startswith(begin)]
        names = sorted({re.split("[/ ]", line)[0] for line in lines})
        return f" ({', '.join(names)})" if names else ""

    def _maintenance(self, now: float, zone: Zone) -> Iterator[str]:
        """Say of the first workers in maintenance when that is."""
        for worker, reserved in sorted(self.maintained.items())[:NAMED]:
            begin, end = (clock(time, now, zone) for time in (reserved.start, reserved.end))
            yield f"; {worker} is in maintenance from {begin} to {end}"

    def facts(self) -> Mapping[str, Any]:
        """Return the same as facts."""
        if not self._facts:
            self._facts = {"workers": self.workers, "reasons": dict(self.counts)}
            if isfinite(self.until):
                self._facts["busy_until"] = rfc3339(self.until)
            if self.maintained:
                times = {name: (rfc3339(one.start), rfc3339(one.end)) for name, one in self.maintained.items()}
                self._facts["maintenance"] = {
                    name: {"start": times[name][0], "end": times[name][1]} for name in sorted(times)
                }
            if self.vacant:
                self._facts["queues_without_workers"] = [*self.vacant]
            if self.lines:
                self._facts["limits"] = sorted(self.lines)
        return self._facts


ORDER = (
    UNFIT,
    SMALL,
    STATE,
    DISABLED,
    ACCESS,
    CLOSED,
    LOADED,
    QUOTA,
    ENVIRONMENT,
    CLUSTER,
    OUTSIDE,
    BUSY,
    ADVANCE,
    MAINTENANCE,
    KEPT,
    FITS,
)
NAMED = 3  # workers in maintenance that a text names


class Explainer:
    """Asks workers why they cannot take a slot; what is free now is looked up once until it changes."""

    def __init__(self, lines: ResourceLines) -> None:
        self.lines = lines
        self.free: dict[Line, int] = {}  # line → free now
        self.more: dict[Line, float] = {}  # line → when more is
        self.told: dict[Hashable, tuple[Reasons, list[str]]] = {}  # since the last start; workers to be asked again
        self.maintenance = [one for one in lines.view.reservations if one.maintenance]
        self.spots: dict[str, list[QueueInstance]] = {}
        for spot in instances(lines.queues, lines.workers.values()):
            self.spots.setdefault(spot.worker, []).append(spot)

    def forget(self, booking: Placement, start: float) -> None:
        """Look again at the lines of a booking; what is kept for later changes nothing of what was before."""
        lines = [(line, kind) for line, amounts in booking.items() for kind in amounts]
        for line in lines:
            if self.more.get(line, -inf) >= start:
                del self.more[line]
        if start <= self.lines.view.now:
            self.told.clear()
            for line in lines:
                self.free.pop(line, None)

    def explain(self, item: Item) -> Reasons:
        """Ask every worker why it cannot take a slot of an item now; the best of its queues serves it.

        Workers with room now are asked again for every item: whether it is kept for others depends on the duration.
        """
        key = self._key(item)
        if key is None:
            return self._asked(item, self.lines.workers)[0]
        if key not in self.told:
            self.told[key] = self._asked(item, self.lines.workers)
            return self.told[key][0]
        before, again = self.told[key]
        until = min(map(self._more, before.busy), default=inf)
        if not again and until == before.until:
            return before
        counts = Counter(before.counts)
        request = self._asked(item, again)[0]
        maintained = {name: one for name, one in before.maintained.items() if name not in again}
        counts.subtract({said: counts[said] for said in (FITS, KEPT)})
        counts.subtract({MAINTENANCE: len(before.maintained) - len(maintained)})
        counts.update(request.counts)
        counted = {said: count for said, count in sorted(counts.items()) if count}
        both = maintained | request.maintained
        return Reasons(before.workers, counted, until, before.lines, before.busy, both)

    def _key(self, item: Item) -> Hashable:
        """Name what the workers' words depend on, None if that is more than one slot's amounts."""
        if len(item.groups) != 1 or self.lines.queues or item.asks.reservation:
            return None
        environment = item.environments[0]
        return (self.lines.shape(item, 0, environment), item.kinds)

    def _asked(self, item: Item, workers: Iterable[str]) -> tuple[Reasons, list[str]]:
        """Return what some workers say, and which of them have room now."""
        reasons = Reasons(len(self.lines.workers), {})
        usable = set(self.lines.spots) if self.lines.queues else None
        counts: Counter[str] = Counter()
        by_kind: dict[str, str] = {}
        room: list[str] = []
        for name in workers:
            worker = self.lines.workers[name]
            if worker.kind not in by_kind:
                by_kind[worker.kind] = _unsuited(item, worker)
            said = by_kind[worker.kind] or ("" if worker.state is WorkerState.READY else STATE)
            said = said or self._best(item, self.spots.get(name, ()), usable, reasons)
            reserved = self._maintained(item, name) if said in (KEPT, BUSY, ADVANCE) else None
            if said in (FITS, KEPT):
                room.append(name)
            if reserved is not None and (said == KEPT or reserved.start <= self.lines.view.now):
                reasons.maintained[name], said = reserved, MAINTENANCE
            counts[said] += 1
        reasons.counts = dict(sorted(counts.items()))
        if usable is not None and (DISABLED in counts or (ACCESS in counts and item.asks.queues)):
            reasons.vacant = self._vacant(item)
        return reasons, room

    def _vacant(self, item: Item) -> list[str]:
        """Return the first queues an item may go to that no worker is in."""
        there = {spot.queue for spots in self.spots.values() for spot in spots}
        patterns = [pattern.partition("@")[0] for pattern in item.asks.queues] or ["*"]
        return [
            name
            for name, queue in sorted(self.lines.queues.items())
            if name not in there and queue.given["enabled"] and any(fnmatchcase(name, one) for one in patterns)
        ][:NAMED]

    def _maintained(self, item: Item, worker: str) -> ReservationView | None:
        """Return the first maintenance of a worker before an item that starts now would end."""
        now = self.lines.view.now
        reserved = (one for one in self.maintenance if worker in one.placement)
        return next((one for one in reserved if one.start < now + item.duration and one.end > now), None)

    def _best(
        self, item: Item, spots: Iterable[QueueInstance], usable: set[QueueInstance] | None, reasons: Reasons
    ) -> str:
        said = [self._say(item, spot, usable is None or spot in usable, reasons) for spot in spots]
        return said[0] if len(said) == 1 else max(said or [DISABLED], key=ORDER.index)

    def _say(self, item: Item, spot: QueueInstance, usable: bool, reasons: Reasons) -> str:
        """Return what one queue on a worker says."""
        lines = self.lines
        if lines.queues and all(tag(item, env, spot, lines.queues) is Tag.NONE for env in item.environments):
            return ACCESS
        if not lines.open_now(spot.queue):
            return CLOSED
        if not usable:
            return LOADED
        if not item.groups:
            return self._whole(item, spot, reasons)
        needs = lines.wanted(item, 0, spot, item.environments[0])
        worst = FITS
        for need in (*needs.each, *needs.per_worker, *needs.per_job):
            said = self._line(item, need, reasons)
            worst = said if said and ORDER.index(said) < ORDER.index(worst) else worst
        return worst

    def _whole(self, item: Item, spot: QueueInstance, reasons: Reasons) -> str:
        """Return what a worker says to an item that wants it wholly."""
        now, uses = self.lines.view.now, self.lines.timeline.lines.get(spot.worker, {}).values()
        in_use = [use for use in uses if use.level(now)]
        for use in in_use:
            reasons.until = min(reasons.until, next(use.ends_after(now), inf))
        if in_use:
            return BUSY
        return KEPT if any(use.most(now, now + item.duration) for use in uses) else FITS

    def _line(self, item: Item, need: Need, reasons: Reasons) -> str:
        """Return what prevents a slot on one line, "" if nothing does."""
        now, line, kind = self.lines.view.now, need.line, need.kind
        if self._free(line, kind) >= need.amount:
            return "" if self.lines.timeline.free(line, kind, now, now + item.duration) >= need.amount else KEPT
        if line and not line.startswith(("quota ", "pe ")):
            reasons.busy.append((line, kind))
            reasons.until = min(reasons.until, self._more((line, kind)))
            if self._free(line, kind) + self.lines.outside.get(line, {}).get(kind, 0) >= need.amount:
                return OUTSIDE
            return ADVANCE if self._free(line, kind) + self._in_advance(line, kind) >= need.amount else BUSY
        reasons.lines[f"{line or 'cluster'} {kind}"] = need.amount
        return CLUSTER if not line else QUOTA if line.startswith("quota ") else ENVIRONMENT

    def _in_advance(self, line: str, kind: str) -> int:
        """Return what advance reservations keep of a line now."""
        now = self.lines.view.now
        reserved = [one.placement.get(line, {}) for one in self.lines.view.reservations if one.start <= now < one.end]
        return sum(amounts.get(kind, 0) for amounts in reserved)

    def _free(self, line: str, kind: str) -> int:
        """Return what of a line is free now."""
        if (line, kind) not in self.free:
            self.free[line, kind] = self.lines.timeline.free_at(line, kind, self.lines.view.now)
        return self.free[line, kind]

    def _more(self, line: Line) -> float:
        """Return when more of a line is free."""
        if line not in self.more:
            self.more[line] = self.lines.timeline.gain(*line, self.lines.view.now)
        return self.more[line]


def _unsuited(item: Item, worker: WorkerView) -> str:
    """Return why no worker of a kind can ever take a slot, "" if one can."""
    if worker.kind not in item.kinds:
        return UNFIT
    fits = any(
        all(worker.capacity.get(kind, 0) >= amount for kind, amount in group.amounts.items()) for group in item.groups
    )
    return SMALL if item.groups and not fits else ""
