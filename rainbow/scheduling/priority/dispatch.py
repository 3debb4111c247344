"""One scheduling run: every item in order of priority is started, given a reservation, or told why not.

1 start     the item fits now for its whole duration, around every reservation made before it
    2 reserve   else, while reservations are left, it is promised the earliest time it fits, or space behind what has
                no known end (placement/endless_tasks.py); the first that does not start is promised one in any case
    3 judge     else its category cannot start in this run: nothing is freed while the run lasts

Backfilling needs no pass of its own: an item of lower priority starts only where it leaves reservations alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rainbow.cache import cached_property
from rainbow.scheduling.interface import Free, View, Wait
from rainbow.scheduling.priority.config.settings import CONSERVATIVE, FCFS, GRID_ENGINE, most_reservations
from rainbow.scheduling.priority.model import Item, SlotAssignment
from rainbow.scheduling.priority.placement.assign import Assigner
from rainbow.scheduling.priority.placement.endless_tasks import SomeDay
from rainbow.scheduling.priority.placement.lines import ResourceLines
from rainbow.scheduling.priority.promises import Entered, Key, key_of
from rainbow.scheduling.priority.queue import Row
from rainbow.scheduling.priority.reasons import FITS, KEPT, MAINTENANCE, Ahead, Explainer, Reasons
from rainbow.scheduling.priority.suspension import suspended_spots

STARTED, RESERVED, REFUSED, BEHIND, LIMITED, FAULTY = "started", "reserved", "refused", "behind", "limited", "faulty"

FEW = 100  # items that are looked at one by one sooner than in arrays
BLOCK = 256  # items that are compared with refusals at once at first, then twice as many each time
MOST_ANSWERS = 100_000  # answers of workers in one run; what is refused after that is told shortly


@dataclass(slots=True)
class ItemResult:
    """What this run knows of a category."""

    refused: bool = False  # cannot start now
    never: bool = False  # cannot be promised any time
    reasons: Reasons | None = None  # why not now, when it was first refused
    ahead: Ahead | None = None  # what is kept for others that it would outlast
    why: Wait | None = None  # what is free in amounts alone


@dataclass(slots=True)
class Refusals:
    """How many slots were refused for how long: as many or more for as long or longer do not start in this run.

    Counts ascend and durations descend: what another refusal covers is not kept.
    """

    counts: list[int] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)

    def cover(self, count: int, duration: float) -> bool:
        """Return whether this is refused, as less was."""
        at = bisect_right(self.counts, count) - 1
        return at >= 0 and self.durations[at] <= duration

    def covering(self, counts: NDArray[np.float64], durations: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return of many whether they are refused."""
        at = np.searchsorted(self.counts, counts, side="right") - 1
        result: NDArray[np.bool_] = (at >= 0) & (np.array(self.durations)[at] <= durations)
        return result

    def add(self, count: int, duration: float) -> None:
        """Note what is refused, if nothing covers it."""
        low = high = bisect_left(self.counts, count)
        while high < len(self.counts) and self.durations[high] >= duration:
            high += 1
        self.counts[low:high], self.durations[low:high] = [count], [duration]


@dataclass(slots=True)
class Outcome:
    """What was decided of one item."""

    item: Item
    verdict: str
    grant: SlotAssignment | None = None
    never: bool = False  # no time was found for it
    reasons: Reasons | None = None
    ahead: Ahead | None = None
    why: Wait | None = None


@dataclass
class Dispatch:
    """The state of one run."""

    view: View
    settings: Mapping[str, Any]
    lines: ResourceLines
    assigner: Assigner
    entered: Entered | None = None  # promised space that comes before what is decided
    overdue_since: float | None = None  # when the first item was put first for its age; None: it is not
    outcomes: list[Outcome] = field(default_factory=list)
    reservations: int = 0
    explained: int = 0  # answers of workers collected
    blocked: bool = False  # first come, first served: somebody waits
    categories: dict[Hashable, ItemResult] = field(default_factory=dict)
    refusals: dict[int | None, Refusals] = field(default_factory=dict)  # by family
    kept: list[Ahead] = field(default_factory=list)  # from times to come, by start

    def __post_init__(self) -> None:
        jobs = {run.job: run.requestor for run in self.view.runs}
        self.running = set(jobs)
        self.by_user = Counter(jobs.values())
        self.tasks = Counter(run.job for run in self.view.runs)
        self.most_of_user = self.settings["max_jobs_per_user"]
        self.most = most_reservations(self.settings)
        self.depth = self.most if self.settings["discipline"] == CONSERVATIVE else inf
        self.heads = self.settings["discipline"] != FCFS and self.settings["compat"] != GRID_ENGINE
        self.brief = self.view.quiet and self.settings["discipline"] != FCFS  # of what is refused nothing is told
        self.some_day = SomeDay(self.lines, self.settings, self.overdue_since) if self.heads else None
        for one in self.view.reservations:
            kind, name = ("maintenance", one.name) if one.maintenance else ("reservation", "")
            self._keep(kind, name or one.id, one.start, one.end)
        if self.lines.queues:
            self._sort_out()

    @cached_property
    def explainer(self) -> Explainer:
        """Return who asks workers why they do not take an item."""
        return Explainer(self.lines)

    def run(self, row: Row) -> list[Outcome]:
        """Decide about every item, best first; in a quiet plan one that earlier refusals cover has no outcome."""
        stops = self.settings["compat"] == GRID_ENGINE
        passes, promised = self.brief and not stops and self.entered is None, {one.key for one in self.view.promises}
        if row.items:
            self.assigner.foresee(row.items[0])
        for k, item in enumerate(row.items):
            if passes and not self.heads and not self._may_reserve() and len(row) - k > FEW:
                self._start_more(row, k, promised)
                break
            if passes and self._covered(item) and not self._may_promise(item) and key_of(item) not in promised:
                continue
            if stops and (k or not self._may_reserve()) and self._full():
                self.outcomes.extend(Outcome(remaining, BEHIND) for remaining in row.items[k:])
                break
            self.outcomes.append(self._decide(item))
        return self.outcomes

    def _start_more(self, row: Row, at: int, promised: set[Key]) -> None:
        """Decide about what is left when no more times are promised: what may start, and what was promised before."""
        self._refuse_least(row, at)
        unseen = promised.difference(key_of(outcome.item) for outcome in self.outcomes)
        answers = {k for k in range(at, len(row)) if key_of(row.items[k]) in unseen} if unseen else set[int]()
        for until in (*sorted(answers), len(row)):
            for k in self._uncovered(row, at, until):
                if not self._covered(row.items[k]):
                    self.outcomes.append(self._decide(row.items[k]))
            if until in answers:
                self.outcomes.append(self._decide(row.items[until]))
            at = until + 1

    def _refuse_least(self, row: Row, at: int) -> None:
        """Refuse all of a family, one of which was refused, if workers lack even the least that any of it asks."""
        for family, known in self.refusals.items():
            if known.cover(1, 0.0):  # nothing of it starts
                continue
            own = np.flatnonzero(row.columns[0, at:] == family)
            if not len(own):
                continue
            counts, durations = row.columns[1:, at:][:, own].min(axis=1).tolist()
            least = replace(row.items[at + int(own[0])], counts=(int(counts),), duration=durations)
            if not known.cover(int(counts), durations) and self.assigner.lacks(least):
                known.add(int(counts), durations)

    def _uncovered(self, row: Row, at: int, until: int) -> Iterator[int]:
        """Yield the places of items that no refusal of the moment covers, block by block."""
        size = BLOCK
        while at < until:
            block = row.columns[:, at : min(at + size, until)]
            free = np.ones(block.shape[1], bool)
            for family, known in self.refusals.items():
                free &= (block[0] != family) | ~known.covering(block[1], block[2])
            yield from (np.flatnonzero(free) + at).tolist()
            at, size = at + size, 2 * size

    def _decide(self, item: Item) -> Outcome:
        if item.asks.fault or self._limited(item):
            return Outcome(item, FAULTY if item.asks.fault else LIMITED)
        if self.entered is not None and (reserved := self._as_promised(self.entered, item)):
            return reserved
        if self.blocked:
            return Outcome(item, BEHIND)
        if self.brief and self._covered(item) and not self._may_promise(item):
            return Outcome(item, REFUSED)
        judged = self.categories.setdefault(item.category, ItemResult())
        if not judged.refused:
            grant = self._now_for(item)
            if grant is not None:
                self._started(item, grant)
                return Outcome(item, STARTED, grant)
            judged.refused = True
            if not self.view.quiet:
                self._explain(item, judged)
        self.blocked = self.settings["discipline"] == FCFS
        if not judged.never and self._may_promise(item):
            grant = self._promised(item)
            if grant is not None:
                return Outcome(item, RESERVED, grant, False, judged.reasons, judged.ahead, judged.why)
            judged.never = True
        verdict = BEHIND if self.reservations >= self.depth and not judged.never else REFUSED
        return Outcome(item, verdict, None, judged.never, judged.reasons, judged.ahead, judged.why)

    def _now_for(self, item: Item) -> SlotAssignment | None:
        """Return where an item may start now; what asks for no less than one that may not is not searched for."""
        if self._covered(item):
            return None
        grant = self.assigner.now_for(item)
        if grant is None and item.family is not None and self.lines.by_workers:
            most, known = self.assigner.most_now(item), self.refusals.setdefault(item.family, Refusals())
            known.add(*((most + 1, 0.0) if most < item.counts[0] else (item.counts[0], item.duration)))
        return grant

    def _covered(self, item: Item) -> bool:
        """Return whether as much for as long was refused."""
        known = self.refusals.get(item.family)
        return known is not None and known.cover(item.counts[0], item.duration)

    def _as_promised(self, entered: Entered, item: Item) -> Outcome | None:
        """Decide about an item whose promised space is entered: start it, or keep space no later than promised."""
        changed, promise = [*entered.enter_for(item)], entered.lift(item)
        for one in () if self.view.quiet else (*changed, promise) if promise else changed:
            self.explainer.forget(one.booking, one.at)
        if promise is None:
            return None
        own = replace(item, category=("promised", *promise.key))  # what was refused while its space was entered
        grant, judged, verdict = self.assigner.now_for(own), ItemResult(), RESERVED
        if grant is not None:
            verdict = STARTED
            self._started(item, grant)
        else:
            grant = self.assigner.later_for(own)
            if grant is None or grant.start > promise.start:
                grant = entered.as_kept(item, promise) or grant
            if grant is None:
                return None
            if not self.view.quiet:
                self._explain(item, judged)
            self._reserve(item, grant)
        if (grant.start, grant.booking) != (promise.at, promise.booking):
            self._forget_refusals()
        return Outcome(item, verdict, grant, False, judged.reasons, judged.ahead, judged.why)

    def _forget_refusals(self) -> None:
        """Ask again what was refused, after space was given back in a run."""
        self.assigner.alive.clear()
        self.assigner.later.clear()
        self.categories.clear()
        self.refusals.clear()

    def _promised(self, item: Item) -> SlotAssignment | None:
        """Promise an item a time, or space; what an advance reservation keeps already takes nobody's turn."""
        grant = self.assigner.later_for(item)
        if grant is None and self.some_day is not None:
            grant = self.some_day.promise(item)
        if grant is not None:
            self._reserve(item, grant)
        return grant

    def _reserve(self, item: Item, grant: SlotAssignment) -> None:
        """Book space for a time to come."""
        if not item.asks.reservation:
            self.reservations += item.reserve
            self.heads = False
        self._book(item, grant)
        self._keep("job", item.job.id, grant.start, grant.end, bool(grant.after))

    def _explain(self, item: Item, judged: ItemResult) -> None:
        """Note why an item does not start; what is tried for that is no experience, as nobody asked for it."""
        experience = self.assigner.experience
        judged.reasons = self._reasons(item)
        judged.ahead = self._ahead(item, judged.reasons)
        judged.why = self.view.free.why(item.gang.demand) if self.view.free and not item.groups else None
        self.assigner.experience = experience

    def _reasons(self, item: Item) -> Reasons:
        """Say why an item does not start; beyond a bound of work only that it does not."""
        if self.explained > MOST_ANSWERS:
            return Reasons(len(self.lines.workers), {"not asked one by one": len(self.lines.workers)})
        self.explained += len(self.lines.workers)
        return self.explainer.explain(item)

    def _ahead(self, item: Item, reasons: Reasons) -> Ahead | None:
        """Find the space kept for others that keeps an item from starting now, and what limit would let it start.

        An item fits for any shorter time if it does for a longer one, so halving the times at which space is kept
        finds the longest.
        """
        if not {KEPT, FITS, MAINTENANCE} & set(reasons.counts) or not item.groups:
            return None
        now, reserved = self.lines.view.now, self._kept(item)
        low, high = 0, len(reserved)
        while low < high and self.explained <= MOST_ANSWERS:
            self.explained += len(self.lines.workers)
            middle = (low + high + 1) // 2
            seconds = reserved[middle - 1].start - now
            shorter = replace(item, duration=seconds, category=("shorter", item.category, seconds))
            low, high = (middle, high) if self.assigner.now_for(shorter) else (low, middle - 1)
        return reserved[low - 1] if low else None

    def _kept(self, item: Item) -> list[Ahead]:
        """Return what is kept ahead of an item's end, by start: by reservations and for the items before it."""
        end, inside = self.lines.view.now + item.duration, item.asks.reservation
        ahead = self.kept[: bisect_left(self.kept, end, key=lambda one: one.start)]
        return [one for one in ahead if one.kind != "reservation" or one.name != inside] if inside else ahead

    def _keep(self, kind: str, name: str, start: float, end: float, unknown: bool = False) -> None:
        """Note space that is kept from a time to come."""
        now, offset = self.lines.view.now, float(self.settings["duration_offset"])
        if start > now and not self.view.quiet:  # it is only told
            insort(self.kept, Ahead(kind, name, start, end, start - now - offset, unknown), key=lambda one: one.start)

    def _limited(self, item: Item) -> bool:
        """Return whether an owner's jobs or a job's tasks that run are as many as may."""
        most, together = self.most_of_user, item.asks.tasks_at_once
        if not (most or together):
            return False
        if most and item.job.id not in self.running and self.by_user[item.user] >= most:
            return True
        return bool(together) and self.tasks[item.job.id] + len(item.gang.tasks) > together

    def _started(self, item: Item, grant: SlotAssignment) -> None:
        """Book a start and everything that follows from it for the rest of the run."""
        self._book(item, grant)
        if self.view.free is not None:
            self._locate(self.view.free, grant)
        if item.job.id not in self.running:
            self.running.add(item.job.id)
            self.by_user[item.user] += 1
        self.tasks[item.job.id] += len(item.gang.tasks)
        if self.settings["load_adjustments"]:
            for spot, count in grant.spots:
                self.lines.load.add(spot.worker, count)
        if self.lines.reacts:
            self._sort_out()

    def _locate(self, free: Free, grant: SlotAssignment) -> None:
        """Take the vertices of a start, so that nothing else of this run does."""
        if grant.located:
            free.book(grant.located)
        else:
            for _, held in grant.slots:
                free.fill(held)

    def _book(self, item: Item, grant: SlotAssignment) -> None:
        timeline = self.lines.timeline
        booking = timeline.room_for(grant.booking, grant.start, grant.end) if grant.after else grant.booking
        timeline.add(booking, grant.start, grant.end)
        if self.some_day is not None:
            self.some_day.book(item, grant)
        if not self.view.quiet:
            self.explainer.forget(grant.booking, grant.start)

    def _sort_out(self) -> None:
        """Drop the spots that became overloaded or suspended, and order the others again by load."""
        if self.lines.sort_out(suspended_spots(self.lines) if self.lines.queues else set()):
            self.assigner.alive.clear()
            self.assigner.later.clear()

    def _may_promise(self, item: Item) -> bool:
        return self.heads or (item.reserve and self._may_reserve())

    def _may_reserve(self) -> bool:
        return self.reservations < self.most

    def _full(self) -> bool:
        """Return whether no worker has anything free at this moment."""
        kind, now = self.settings["slot_type"], self.view.now
        counted = [spot for spot in self.lines.spots if kind in self.lines.workers[spot.worker].capacity]
        return bool(counted) and all(self.lines.timeline.free_at(spot.worker, kind, now) <= 0 for spot in counted)
