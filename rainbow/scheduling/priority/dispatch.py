"""One scheduling run: every item in order of priority is started, given a reservation, or told why not.

1 start     the item fits now for its whole duration, around every reservation made before it
    2 reserve   else, while reservations are left, it is promised the earliest time it fits
    3 judge     else its category cannot start in this run: nothing is freed while the run lasts

Backfilling needs no pass of its own: an item of lower priority starts only where it leaves reservations alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rainbow.scheduling.interface import View
from rainbow.scheduling.priority.config.settings import FCFS, GRID_ENGINE, most_reservations
from rainbow.scheduling.priority.model import Grant, Item
from rainbow.scheduling.priority.placement.assign import Assigner
from rainbow.scheduling.priority.placement.lines import Lines
from rainbow.scheduling.priority.reasons import Explainer, Reasons
from rainbow.scheduling.priority.suspension import suspended_spots

STARTED, RESERVED, REFUSED, BEHIND, LIMITED, FAULTY = "started", "reserved", "refused", "behind", "limited", "faulty"

MOST = 100_000  # answers of workers in one run; what is refused after that is told shortly


@dataclass(slots=True)
class Judged:
    """What this run knows of a category."""

    refused: bool = False  # cannot start now
    never: bool = False  # cannot be promised any time
    reasons: Reasons | None = None  # why not now, when it was first refused


@dataclass(slots=True)
class Outcome:
    """What was decided of one item."""

    item: Item
    verdict: str
    grant: Grant | None = None
    never: bool = False  # no time was found for it
    reasons: Reasons | None = None


@dataclass
class Dispatch:
    """The state of one run."""

    view: View
    settings: Mapping[str, Any]
    lines: Lines
    assigner: Assigner
    outcomes: list[Outcome] = field(default_factory=list)
    reservations: int = 0
    explained: int = 0  # answers of workers collected
    blocked: bool = False  # first come, first served: somebody waits
    categories: dict[Hashable, Judged] = field(default_factory=dict)

    def __post_init__(self) -> None:
        jobs = {run.job: run.requestor for run in self.view.runs}
        self.running = set(jobs)
        self.by_user = Counter(jobs.values())
        self.tasks = Counter(run.job for run in self.view.runs)
        self.explainer = Explainer(self.lines)
        self.most = most_reservations(self.settings)
        if self.lines.queues:
            self._sort_out()

    def run(self, ordered: Sequence[Item]) -> list[Outcome]:
        """Decide about every item, best first."""
        stops = self.settings["compat"] == GRID_ENGINE
        for k, item in enumerate(ordered):
            if stops and (k or not self._may_reserve()) and self._full():
                self.outcomes.extend(Outcome(left, BEHIND) for left in ordered[k:])
                break
            self.outcomes.append(self._decide(item))
        return self.outcomes

    def _decide(self, item: Item) -> Outcome:
        if item.asks.fault:
            return Outcome(item, FAULTY)
        if self._limited(item):
            return Outcome(item, LIMITED)
        if self.blocked:
            return Outcome(item, BEHIND)
        judged = self.categories.setdefault(item.category, Judged())
        if not judged.refused:
            grant = self.assigner.now_for(item)
            if grant is not None:
                self._started(item, grant)
                return Outcome(item, STARTED, grant)
            judged.refused, judged.reasons = True, self._reasons(item)
        self.blocked = self.settings["discipline"] == FCFS
        if not judged.never and item.reserve and self._may_reserve():
            grant = self.assigner.later_for(item)
            if grant is not None:
                self.reservations += 1
                self._book(grant)
                return Outcome(item, RESERVED, grant, False, judged.reasons)
            judged.never = True
        return Outcome(item, REFUSED, None, judged.never, judged.reasons)

    def _reasons(self, item: Item) -> Reasons:
        """Say why an item does not start; beyond a bound of work only that it does not."""
        if self.explained > MOST:
            return Reasons(len(self.lines.workers), {"not asked one by one": len(self.lines.workers)})
        self.explained += len(self.lines.workers)
        return self.explainer.explain(item)

    def _limited(self, item: Item) -> bool:
        """Tell whether an owner's jobs or a job's tasks that run are as many as may."""
        most, together = self.settings["max_jobs_per_user"], item.asks.tasks_at_once
        if most and item.job.id not in self.running and self.by_user[item.user] >= most:
            return True
        return bool(together) and self.tasks[item.job.id] + len(item.gang.tasks) > together

    def _started(self, item: Item, grant: Grant) -> None:
        """Book a start and everything that follows from it for the rest of the run."""
        self._book(grant)
        if item.job.id not in self.running:
            self.running.add(item.job.id)
            self.by_user[item.user] += 1
        self.tasks[item.job.id] += len(item.gang.tasks)
        if self.settings["load_adjustments"]:
            for spot, count in grant.spots:
                self.lines.load.add(spot.worker, count)
        if self.lines.reacts:
            self._sort_out()

    def _book(self, grant: Grant) -> None:
        self.lines.timeline.add(grant.booking, grant.start, grant.end)
        self.explainer.forget(grant.booking)

    def _sort_out(self) -> None:
        """Drop the spots that became overloaded or suspended, and order the others again by load."""
        if self.lines.sort_out(suspended_spots(self.lines) if self.lines.queues else set()):
            self.assigner.alive.clear()
            self.assigner.later.clear()

    def _may_reserve(self) -> bool:
        return self.reservations < self.most

    def _full(self) -> bool:
        """Tell whether no worker has anything free at this moment."""
        kind, now = self.settings["slot_type"], self.view.now
        counted = [spot for spot in self.lines.spots if kind in self.lines.workers[spot.worker].capacity]
        return bool(counted) and all(self.lines.timeline.free_at(spot.worker, kind, now) <= 0 for spot in counted)
