"""Reservations behind tasks without a known end: space to keep where no time is known.

Such a task is taken to end some day, after everything with a known end, one after the other in order of start. For
an item that comes first for its age, the youngest comes first of those that ran when it was put first: what has run
long may never end, and has kept it waiting. What has started since comes after them, else each start beside the space
kept would make other space look better, and none would ever be empty.

The item is promised the earliest time that gives: then all the space it could use that holds no endless task is kept
for it, and what else it needs comes from the fewest endless tasks. What may run forever starts on none of the space
kept, so whenever one of those tasks ends there is more of it, until the item fits: it waits no longer than they run.

What has a known end may run on the space kept meanwhile: it delays the item once, as then the time is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from rainbow.scheduling.priority.model import Item, SlotAssignment
from rainbow.scheduling.priority.placement.assign import Assigner
from rainbow.scheduling.priority.placement.lines import ResourceLines
from rainbow.scheduling.snapshot import Placement

LATER = 30 * 86_400.0  # seconds from now, at least, that the first is taken to end: calendars are known as far


@dataclass(frozen=True, slots=True)
class Endless:
    """A task without a known end, what it holds of every line, and when it is taken to end."""

    task: str
    booking: Placement
    end: float


class SomeDay:
    """The resource diagram of a run once more, on which what has no known end ends some day."""

    def __init__(self, lines: ResourceLines, settings: Mapping[str, Any], overdue_since: float | None = None) -> None:
        self.lines = lines
        self.settings = settings
        self.endless: list[Endless] = []
        self.next = max([lines.view.now + LATER, *(end for end in lines.ends if end < inf)]) + 1
        self.then: ResourceLines | None = None
        endless = [run for run, end in zip(lines.view.runs, lines.ends, strict=True) if end == inf]
        by_start = sorted(endless, key=lambda run: (run.started, run.task))
        before = [run for run in by_start if overdue_since is not None and run.started < overdue_since]
        for run in (*reversed(before), *by_start[len(before) :]):
            self._note(run.task, lines.booking(run))

    def _note(self, task: str, booking: Placement) -> Endless:
        self.endless.append(Endless(task, booking, self.next))
        self.next += 1
        return self.endless[-1]

    def book(self, item: Item, grant: SlotAssignment) -> None:
        """Enter what was started or promised."""
        end = grant.end
        if grant.end == inf and not grant.after:
            end = self._note(item.gang.tasks[0], grant.booking).end
        if self.then is not None:
            self.then.timeline.add(grant.booking, grant.start, max(end, grant.start))

    def promise(self, item: Item) -> SlotAssignment | None:
        """Return what is kept for an item until some endless tasks have ended, None if that is of no use."""
        if not self.endless:
            return None
        then = self.then = self.then or self._drawn()
        result = Assigner(then, self.settings, {}).later_for(item)
        over = [one for one in self.endless if result and one.end <= result.start]
        if result is None or not over:
            return result
        result = self._sparing(then, item, result, over[-1]) or result
        short = {
            line
            for line, amounts in result.booking.items()
            if any(self.lines.timeline.free(line, kind, result.start, result.end) < n for kind, n in amounts.items())
        }
        return replace(
            result, after=tuple(one.task for one in over if short & one.booking.keys()) or (over[-1].task,)
        )

    def _drawn(self) -> ResourceLines:
        then = copy(self.lines)
        then.timeline = self.lines.timeline.copy()
        then.forget_reach()
        for one in self.endless:
            then.timeline.remove(one.booking, one.end, inf)
        return then

    def _sparing(
        self, then: ResourceLines, item: Item, assignment: SlotAssignment, last: Endless
    ) -> SlotAssignment | None:
        """Place a promise again with the least possible where the last endless task ends: it needs all the rest."""
        spots = then.spots
        then.spots = sorted(spots, key=lambda spot: spot.worker in last.booking)
        then.forget_reach()
        again = Assigner(then, self.settings, {}).at(item, assignment.environment, assignment.start, assignment.count)
        then.spots = spots
        then.forget_reach()
        return again
