"""Promised starts: kept by later runs, or broken with a reason.

    promise   the start that the first reservation of a gang named: it starts then at the latest
    kept at   the space that the last run kept for it, at that time or earlier; a run can always fall back on it
    danger    a gang that a run starts later than promised, or not at all

A run that endangers a promise is made again with the kept space of such gangs entered first, except for items with a
higher POSIX priority. What is late even then is broken: something took its space that no run decides about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any
from zlib import crc32

from rainbow.cache import LruCache, Same
from rainbow.scheduling.interface import View
from rainbow.scheduling.priority.config.settings import FCFS, GRID_ENGINE
from rainbow.scheduling.priority.model import Item, QueueInstance, SlotAssignment
from rainbow.scheduling.priority.placement.lines import ResourceLines
from rainbow.scheduling.snapshot import Broken, Promise
from rainbow.state_machine import WorkerState

GRACE = 60.0  # seconds: steps come a little late, and tasks are stopped a little after their limits
BASES: LruCache[Same, str] = LruCache(1_024)  # settings that were named, a plan names its own again and again
Key = tuple[str, int]


def are_made(settings: Mapping[str, Any]) -> bool:
    """Return whether reservations under these settings are promises: no later arrival may change the order."""
    ordered = settings["order"] in ("", FCFS)
    return bool(ordered and settings["discipline"] != FCFS and settings["compat"] != GRID_ENGINE)


def basis(settings: Mapping[str, Any]) -> str:
    """Name settings in short.

    >>> basis({"a": 1, "b": 2}) == basis({"b": 2, "a": 1}) != basis({"a": 1})
    True
    """
    key = Same(settings)
    return BASES.get(key) or BASES.put(key, f"{crc32(repr(sorted(settings.items())).encode()):08x}")


def asked(item: Item, settings: Mapping[str, Any]) -> float:
    """Return the POSIX priority of an item."""
    return item.job.priority + min(item.asks.priority, float(settings["most_asked_priority"]))


def key_of(item: Item) -> Key:
    """Name an item's gang."""
    return item.job.id, item.gang.number


@dataclass
class Entered:
    """The promises whose space is entered in a run before items of no higher priority are decided."""

    lines: ResourceLines
    settings: Mapping[str, Any]
    left: list[tuple[float, Promise]]  # still to be entered, the highest priority last
    booked: dict[Key, Promise] = field(default_factory=dict)

    @classmethod
    def of(
        cls, lines: ResourceLines, settings: Mapping[str, Any], waiting: Sequence[Item], promises: Iterable[Promise]
    ) -> Entered:
        """Return them of what waits, but for those of which a worker is lost."""
        priority = {key_of(item): asked(item, settings) for item in waiting}
        results = [(priority[one.key], one) for one in promises if one.key in priority and not lost(lines.view, one)]
        return cls(lines, settings, sorted(results, key=lambda pair: (pair[0], pair[1].key)))

    def enter_for(self, item: Item) -> Iterator[Promise]:
        """Enter what comes before an item; yield it."""
        while self.left and self.left[-1][0] >= asked(item, self.settings):
            one = self.left.pop()[1]
            self.lines.timeline.add(one.booking, max(one.at, self.lines.view.now), one.until)
            self.booked[one.key] = one
            yield one

    def lift(self, item: Item) -> Promise | None:
        """Take out again what is kept for an item, whose turn it is."""
        one = self.booked.pop(key_of(item), None)
        if one is not None:
            self.lines.timeline.remove(one.booking, max(one.at, self.lines.view.now), one.until)
        return one

    def as_kept(self, item: Item, one: Promise) -> SlotAssignment | None:
        """Return the space that is kept for an item that cannot start now, if it is free at a time to come."""
        start = one.at if one.at > self.lines.view.now else one.start  # amounts alone do not make it start
        end = start + item.duration
        if start <= self.lines.view.now or not self.lines.timeline.fits(one.booking, start, end):
            return None
        spots = tuple((QueueInstance(line), 1) for line in one.booking if line in self.lines.workers)
        return SlotAssignment(start, end, len(spots), (), one.booking, item.environments[0], spots)


def in_danger(
    starts: Mapping[Key, float], waiting: Collection[Key], promises: Iterable[Promise]
) -> Iterator[Promise]:
    """Yield the promises to what waits that a run does not keep; `starts`: what it starts or reserves."""
    for one in promises:
        if one.key in waiting and not starts.get(one.key, inf) <= one.start + GRACE:
            yield one


def renewed(
    view: View, settings: Mapping[str, Any], decided: Iterable[tuple[Item, SlotAssignment | None, bool]]
) -> tuple[tuple[Promise, ...], tuple[Broken, ...]]:
    """Return the promises that hold after a run, and those that do not: of (item, its grant, whether it starts)."""
    before, decided = {one.key: one for one in view.promises}, list(decided)
    making = are_made(settings)
    promises, broken, by = [], [], ""
    for item, grant, starts in decided:
        if starts or (grant is None and not before):
            continue
        old = before.get(key_of(item))
        reserved = grant if grant is not None and not grant.after and making else None
        new, fault = reserved.start if reserved else None, None
        if old is not None and (new is None or new > old.start + GRACE):
            fault = Broken(*old.key, old.start, new, view.now, *_why(view, settings, old, item, decided))
            broken.append(fault)
        if reserved is not None and old is not None and fault is None:
            promises.append(replace(old, at=reserved.start, until=reserved.end, booking=reserved.booking))
        elif reserved is not None:
            at, until = reserved.start, reserved.end
            now, by = view.now, by or basis(settings)
            promises.append(Promise(*key_of(item), at, now, at, until, reserved.booking, by, fault))
    return tuple(promises), tuple(broken)


def lost(view: View, one: Promise) -> str:
    """Name a worker of a promise's space that is lost; "": none is."""
    ready = {worker.id for worker in view.workers if worker.state is WorkerState.READY}
    kept_in = {line for reserved in view.reservations for line in reserved.placement}
    return next((line for line in one.booking if _is_worker(line) and line not in ready | kept_in), "")


def _is_worker(line: str) -> bool:
    return bool(line) and not line.startswith(("queue ", "pe ", "quota ", "in "))


def _why(
    view: View,
    settings: Mapping[str, Any],
    one: Promise,
    item: Item,
    decided: Iterable[tuple[Item, SlotAssignment | None, bool]],
) -> tuple[str, str]:
    """Say why a promise is not kept."""
    if worker := lost(view, one):
        return "worker-lost", f"worker {worker} is not ready"
    if one.basis != basis(settings):
        return "settings", "the cluster's scheduling settings were changed"
    if item.duration > one.until - one.at + GRACE:
        return "limit", f"its limit is {item.duration:g} s now"
    held = {line for line in one.booking if line}
    for reserved in view.reservations:
        if reserved.start < one.until and reserved.end > one.at and held & reserved.placement.keys():
            return "reservation", f"{reserved.called} keeps a part of its space"
    if job := _higher(view, settings, held, one, item, decided):
        return "priority", f"job {job} has a higher priority"
    for run in view.runs:
        if run.until and run.until <= view.now and held & run.placement.keys():
            return "overrun", f"task {run.task} has not ended at its limit"
    return "space-lost", "its space is no longer free"


def _higher(
    view: View,
    settings: Mapping[str, Any],
    held: set[str],
    one: Promise,
    item: Item,
    decided: Iterable[tuple[Item, SlotAssignment | None, bool]],
) -> str:
    """Name a job of higher priority that holds or keeps a part of a promise's space."""
    mine = asked(item, settings)
    for other, grant, _ in decided:
        first = grant is not None and asked(other, settings) > mine
        if first and grant and grant.start < one.until and grant.end > one.at and held & grant.booking.keys():
            return other.job.id
    for run in view.runs:
        if run.priority > item.job.priority and run.started >= one.made and held & run.placement.keys():
            return run.job
    return ""
