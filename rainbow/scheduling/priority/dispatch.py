"""One scheduling run: every item in order of priority is started, given a reservation, or told why not.

    1 start     the item fits now for its whole duration, around every reservation made before it
    2 reserve   else, while reservations are left, it is promised the earliest time it fits
    3 judge     else its category cannot start in this run: nothing is freed while the run lasts

Backfilling needs no pass of its own: an item of lower priority starts only where it leaves reservations alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rainbow.scheduling.policy import Reserve, Start, View
from rainbow.scheduling.priority.assign import Assigner
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.model import Grant, Item, Spot
from rainbow.scheduling.priority.settings import FCFS, GRID_ENGINE, most_reservations


@dataclass(slots=True)
class Judged:
    """What this run knows of a category."""

    spots: list[Spot]  # where it may still start now; the skip list of Grid Engine, turned round
    refused: bool = False  # cannot start now
    never: bool = False  # cannot be promised any time


@dataclass(slots=True)
class Outcome:
    """What was decided of one item."""

    item: Item
    verdict: str  # started, reserved, refused, skipped, behind
    grant: Grant | None = None


@dataclass
class Dispatch:
    """The state of one run."""

    view: View
    settings: Mapping[str, Any]
    lines: Lines
    assigner: Assigner
    outcomes: list[Outcome] = field(default_factory=list)
    reservations: int = 0
    blocked: bool = False  # first come, first served: somebody waits
    categories: dict[Hashable, Judged] = field(default_factory=dict)

    def run(self, ordered: list[Item]) -> list[Outcome]:
        """Decide about every item, best first."""
        stops = self.settings["compat"] == GRID_ENGINE
        for k, item in enumerate(ordered):
            if stops and (k or not self._may_reserve()) and self._full():
                self.outcomes.extend(Outcome(left, "skipped") for left in ordered[k:])
                break
            self.outcomes.append(self._decide(item))
        return self.outcomes

    def _decide(self, item: Item) -> Outcome:
        if item.asks.fault:
            return Outcome(item, "refused")
        if self.blocked:
            return Outcome(item, "behind")
        judged = self._judged(item)
        if not judged.refused:
            grant = self._start(item, judged)
            if grant is not None:
                return Outcome(item, "started", self._book(grant))
            judged.refused = True
            self.blocked = self.settings["discipline"] == FCFS
        if not judged.never and item.reserve and self._may_reserve():
            grant = self.assigner.later_for(item, self.lines.reachable(item))
            if grant is not None:
                self.reservations += 1
                return Outcome(item, "reserved", self._book(grant))
            judged.never = True
        return Outcome(item, "refused")

    def _judged(self, item: Item) -> Judged:
        if item.category not in self.categories:
            self.categories[item.category] = Judged(list(self.lines.reachable(item)))
        return self.categories[item.category]

    def _start(self, item: Item, judged: Judged) -> Grant | None:
        return self.assigner.now_for(item, judged.spots)

    def _book(self, grant: Grant) -> Grant:
        self.lines.timeline.add(grant.booking, grant.start, grant.end)
        return grant

    def _may_reserve(self) -> bool:
        return self.reservations < most_reservations(self.settings)

    def _full(self) -> bool:
        """Tell whether no worker has anything free at this moment."""
        kind, now = self.settings["slot_type"], self.view.now
        return all(self.lines.timeline.free_at(spot.worker, kind, now) <= 0 for spot in self.lines.spots)


def orders(view: View, outcomes: list[Outcome]) -> list[Start | Reserve]:
    """Return what is to be done about the outcomes."""
    made: list[Start | Reserve] = []
    for outcome in outcomes:
        grant, gang = outcome.grant, outcome.item.gang
        if grant is None:
            continue
        if outcome.verdict == "reserved":
            held = {line: dict(amounts) for line, amounts in grant.booking.items() if line in ("", *_workers(grant))}
            made.append(Reserve(outcome.item.job.id, held, grant.start, grant.end))
        else:
            made.extend(_starts(view, gang.demand, gang.tasks, grant))
    return made


def _workers(grant: Grant) -> set[str]:
    return {worker for _, held in grant.slots for worker in held}


def _starts(view: View, demand: str, tasks: tuple[str, ...], grant: Grant) -> list[Start]:
    placed = view.divide(demand, grant.take())
    return [Start(task, placement) for task, placement in zip(tasks, placed, strict=True)]
