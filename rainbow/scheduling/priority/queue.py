"""What waits, in the order in which it is tried.

    row     the items in that order, and as arrays what refusals are compared with
    queue   a row that is kept from plan to plan: what has come, gone or changed since is put in and taken out

A queue is kept for quiet plans of the same cluster, where an item's turn depends neither on the time nor on others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rainbow.scheduling.cluster_index import ClusterIndex
from rainbow.scheduling.interface import View
from rainbow.scheduling.priority.items import Noted, items_of, noted
from rainbow.scheduling.priority.job_order import prioritise, turn
from rainbow.scheduling.priority.model import Item
from rainbow.scheduling.snapshot import JobView

NO_FAMILY = -1.0
Columns = NDArray[np.float64]  # family, fewest slots and duration; a column for each item


class Row:
    """Items in the order in which they are tried."""

    def __init__(
        self, items: list[Item], columns: Columns | None = None, of_job: Mapping[str, list[Item]] | None = None
    ) -> None:
        self.items = items
        self._columns = columns  # may have room for more
        self._of_job = of_job

    def __len__(self) -> int:
        return len(self.items)

    @property
    def columns(self) -> Columns:
        """Return what refusals of each item are compared with."""
        if self._columns is None:
            self._columns = _columns(self.items)
        return self._columns[:, : len(self.items)]

    def of(self, jobs: Collection[str]) -> Iterable[Item]:
        """Return the items of some jobs."""
        if self._of_job is None:
            return (item for item in self.items if item.job.id in jobs)
        return (item for job in jobs for item in self._of_job.get(job, ()))

    def put(self, own: Sequence[Item]) -> None:
        """Put the items of one job in at their turn."""
        at, count, more = self._place(own[0]), len(self.items), len(own)
        self.items[at:at] = own
        if self._columns is None:
            return
        if self._columns.shape[1] < count + more:
            self._columns = np.concatenate([self._columns, np.empty((3, count + more))], axis=1)
        self._columns[:, at + more : count + more] = self._columns[:, at:count]
        self._columns[:, at : at + more] = _columns(own)

    def drop(self, own: Sequence[Item]) -> None:
        """Take the items of one job out: no other lies between them."""
        at, count, less = self._place(own[0]), len(self.items), len(own)
        del self.items[at : at + less]
        if self._columns is not None:
            self._columns[:, at : count - less] = self._columns[:, at + less : count]

    def led_by(self, own: Sequence[Item]) -> Row:
        """Return the row with the items of one job before all others."""
        at = self._place(own[0])
        if not at:
            return self
        items, parts = self.items, [slice(at, at + len(own)), slice(at), slice(at + len(own), None)]
        columns = np.concatenate([self.columns[:, part] for part in parts], axis=1)
        return Row([item for part in parts for item in items[part]], columns, self._of_job)

    def _place(self, item: Item) -> int:
        return bisect_left(self.items, turn(item), key=turn)


def _columns(items: Sequence[Item]) -> Columns:
    requests = [(NO_FAMILY if item.family is None else item.family, item.counts[0], item.duration) for item in items]
    return np.array(requests, float).reshape(-1, 3).T.copy()


class Queue:
    """The row of the plan before."""

    def __init__(self, noted: Noted, ordered: Sequence[Item]) -> None:
        self.noted = noted
        self.of_job: dict[str, list[Item]] = {}  # by submission
        self.row = Row([*ordered], of_job=self.of_job)
        for item in sorted(ordered, key=lambda item: item.place):
            self.of_job.setdefault(item.job.id, []).append(item)
        self._places = len(ordered)
        self._last = max((item.job.submitted for item in ordered), default=-inf)

    def follow(self, view: View, settings: Mapping[str, Any], census: ClusterIndex) -> bool:
        """Take over what has changed; return whether that was possible."""
        changed, census.changed = census.changed or {}, {}
        return all(self._renew(name, census.jobs.get(name), view, settings) for name in changed)

    def _renew(self, name: str, job: JobView | None, view: View, settings: Mapping[str, Any]) -> bool:
        before = self.of_job.pop(name, []) if job is None else self.of_job.get(name, [])
        if before:
            self.row.drop(before)
        if job is None:
            return True
        own = list(items_of(view, settings, job, self.noted.names))
        if not own or any(map(changes_alone, own)) or not self._follows(job, before, len(own)):
            return False
        self._place(own, before)
        prioritise(own, view.now, settings, [0.0] * len(own))
        self.row.put(own)
        self.of_job[name] = own
        return True

    def _follows(self, job: JobView, before: Sequence[Item], count: int) -> bool:
        """Return whether a job has the place it had, with no more items, or is the last by submission."""
        if before:
            return count <= len(before) and before[0].job.submitted == job.submitted
        return job.submitted >= self._last

    def _place(self, own: Sequence[Item], before: Sequence[Item]) -> None:
        first = before[0].place if before else self._places
        for place, item in enumerate(own, start=first):
            item.place = place
        if not before:
            self._places += len(own)
            self._last = own[0].job.submitted

    def led_by(self, job: str) -> Row:
        """Return the row with the items of one job before all others; "": as it is."""
        return self.row.led_by(self.of_job[job]) if job else self.row


def kept_queue(view: View, settings: Mapping[str, Any]) -> Queue | None:
    """Return the queue of the plan before as it is now; None: there is none, or it must be made again."""
    if not view.quiet or view.census is None:
        return None
    queue: Queue | None = view.census.notes.pop(Queue, None)
    if queue is None or queue.noted is not noted(view, settings) or not queue.follow(view, settings, view.census):
        return None
    view.census.notes[Queue] = queue
    return queue


def keep_queue(view: View, settings: Mapping[str, Any], ordered: Sequence[Item]) -> None:
    """Keep what was put in order for the next plan, if that may take it over."""
    if not view.quiet or view.census is None or not _lasts(settings) or any(map(changes_alone, ordered)):
        return
    view.census.changed = {}
    view.census.notes[Queue] = Queue(noted(view, settings), ordered)


def _lasts(settings: Mapping[str, Any]) -> bool:
    """Return whether an item's turn stays what it is while time goes by and others come and go."""
    weights, options = settings["weights"], settings["tickets"]
    by_others = (
        weights["fair_share"] or options["share"] or options["functional"] or any(options["override"].values())
    )
    by_time = settings["urgency"] or weights["waiting_time"] or settings["order"] or settings["starve"]
    return bool(settings["categories"]) and not (by_others or by_time)


def changes_alone(item: Item) -> bool:
    """Return whether an item becomes another one, or has another turn, although its job stays as it is."""
    return bool(item.asks.reservation or item.asks.fault or item.asks.deadline)
