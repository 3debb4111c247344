"""Places for gangs on workers shared by capacity (`unit: core`), and what a round leaves free there.

Percents, costs and reservations count amounts of one type, and a worker serves many gangs. What fits is what is taken
of the vertices (`view.free`), of amounts alone where the view knows no vertices (free_amounts.py); what is reserved
floats on its worker.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rainbow.scheduling.cluster_index import ClusterIndex, Place
from rainbow.scheduling.interface import Start, Taken, View
from rainbow.scheduling.load_based.free_amounts import FreeAmounts, Kinds, Template, templates
from rainbow.scheduling.load_based.gang_reservation import Reserved
from rainbow.scheduling.load_based.whole_workers import WholeWorkers
from rainbow.scheduling.snapshot import GangView, JobView, Placement

if TYPE_CHECKING:
    from rainbow.matching import Take
    from rainbow.scheduling.load_based.whole_workers import Unit


Amounts = Mapping[str, int]
PricedTemplates = list[tuple[int, Kinds, Template]]
End = tuple[float, float, Any]  # of a task: when, since when it runs, its id; of a start in this round its number
MOST_ANSWERS = 10_000  # questions whose answers are kept from plan to plan
LOOKED_AT = 256  # workers of a kind for every part of a gang: those with most room


@dataclass(frozen=True, slots=True)
class Answers:
    """What the matcher has answered about empty workers, as long as these stay what they are."""

    of: tuple[object, ...]
    templates: dict[int, PricedTemplates] = field(default_factory=dict)


def _answers(view: View, census: ClusterIndex, unit: str) -> Answers:
    """Return what was answered in the quiet plans before."""
    if not view.quiet:  # it would be kept as long as the cluster is there
        return Answers(())
    of = census.worker_changes, unit, view.place
    before: Answers | None = census.notes.get(Answers)
    if before is None or before.of != of or len(before.templates) > MOST_ANSWERS:
        before = census.notes[Answers] = Answers(of)
    return before


class SharedWorkers(WholeWorkers):
    """What is free in one round, and what a plan took of it."""

    def __init__(self, view: View, census: ClusterIndex, unit: str) -> None:
        self.unit = unit
        self._templates: dict[str, PricedTemplates] = {}  # a demand may ask for something else in the next plan
        self._answers = _answers(view, census, unit).templates
        self._free = FreeAmounts(view, census) if view.free is None else view.free
        self._mark = self._free.mark()
        self._taken: Taken | None = None
        self._too_dear = False  # something fits that costs more than is granted
        self._order: list[End] | None = None
        self._starting: dict[int, tuple[float, str]] = {}  # what starts in this round: its end and job, by number
        super().__init__(view, census)

    def _prepare(self) -> None:
        self._left = self.census.free[self.unit]

    @property
    def total(self) -> int:
        """How much of the unit all ready workers have."""
        return self.census.capacity[self.unit]

    @property
    def left(self) -> int:
        """How much of the unit is free."""
        return self._left

    def held(self, placements: Iterable[Placement]) -> int:
        """Count how much of the unit tasks of these placements hold."""
        return sum(amounts.get(self.unit, 0) for placement in placements for amounts in placement.values())

    def held_by(self, requestors: Collection[str]) -> int:
        """Count how much of the unit tasks of these requestors hold."""
        return sum(self.census.held[requestor].amounts[self.unit] for requestor in requestors)

    # ── start ──

    def start(self, gang: GangView, most: int) -> int:
        """Start a gang if it fits; where only amounts are large enough, note why it does not."""
        took = super().start(gang, most)
        if not took and gang.question in self.hopeless and gang.question not in self.why:
            self.why[gang.question] = self._free.why(gang.demand)
        return took

    def templates(self, gang: GangView) -> PricedTemplates:
        """Return what a gang may hold: its price, of which kinds of workers, what; the cheapest first."""
        known: dict[Any, PricedTemplates] = self._answers if gang.alike else self._templates
        if gang.question not in known:
            result = templates(self.view, self.census, gang.demand)
            priced = [(self._price(template), kinds, template) for kinds, template in result]
            known[gang.question] = sorted(priced, key=itemgetter(0))
        return known[gang.question]

    def _price(self, template: Template) -> int:
        return max(1, self.held([template]))

    def _cost(self, gang: GangView) -> int:
        return next((price for price, _, _ in self.templates(gang)), 0)

    def _find(self, gang: GangView, most: int) -> Take | None:
        self._too_dear = False
        if self._is_on_several(gang):
            result = self._try(gang, self.cost(gang))
            if result is not None or not self._too_dear:
                return result
        for among, kinds in self._choices(gang, most):
            if (result := self._try(gang, most, among, kinds)) is not None:
                return result
        # the search takes the lowest, which may be dear; on an idle cluster nothing cheaper is to come
        return self._try(gang, inf) if self._too_dear and self._left == self.total else None

    def _try(
        self, gang: GangView, most: float, among: Collection[str] | None = None, kinds: Kinds | None = None
    ) -> Take | None:
        """Take a gang's space for a price of `most`; nothing is taken where it is dearer, which is noted."""
        self._mark = self._free.mark()
        self._taken = self._free.take(gang.demand, among=among, kinds=kinds)
        if self._taken is not None and self._price(self._taken.take.by_worker) <= most:
            return self._taken.take
        self._too_dear = self._too_dear or self._taken is not None
        self._free.undo(self._mark)
        return None

    def _has_tried_all(self, most: int) -> bool:
        return not self._too_dear or most >= self._left

    def _is_on_several(self, gang: GangView) -> bool:
        return any(len(template) > 1 for _, _, template in self.templates(gang)[:1])

    def _choices(self, gang: GangView, most: int) -> Iterator[tuple[Collection[str] | None, Kinds | None]]:
        """Yield the workers, or the kinds of workers, on which a gang costs least first, then all of them."""
        result = self.templates(gang)
        cheap = [(price, kinds, template) for price, kinds, template in result if price <= most]
        if self._is_on_several(gang):
            yield from ((None, kinds) for _, kinds, _ in cheap)
            yield from ((template, None) for _, _, template in cheap)
        elif len({price for price, _, _ in result}) > 1:
            for _, same in groupby(cheap, key=itemgetter(0)):
                yield None, frozenset[str]().union(*(kinds for _, kinds, _ in same))
        yield None, None

    def _let_go(self) -> None:
        self._free.undo(self._mark)

    def _starts(self, gang: GangView, take: Take) -> Iterator[Start]:
        taken = self._taken
        if taken is not None:
            yield from map(Start, gang.tasks, taken.placements, taken.located)

    def _book(self, gang: GangView, take: Take) -> int:
        self._left -= sum(amounts.get(self.unit, 0) for amounts in take.by_worker.values())
        if self._taken is not None:
            end = self.view.now + gang.expected if gang.expected else inf
            self._starting[self._taken.number] = end, gang.job
            if self._order is not None:
                insort(self._order, (end, inf, self._taken.number))
        return self._price(take.by_worker)

    # ── reserve ──

    def lacks_outside(self, gang: GangView) -> Amounts:
        """Return what a gang lacks of what is cluster-wide, although there are workers for it."""
        mark = self._free.mark()
        lacking = super().lacks_outside(gang)
        self._free.undo(mark)
        return lacking

    def idle_for(self, gang: GangView) -> int:
        """Count how much of the unit is free where a gang's parts could lie."""
        hosts, kinds = self.view.hosts(gang.demand), self.census.kinds
        if self.census.rooms.keys() <= hosts:
            return self._left
        names = (name for kind in hosts if kind in kinds for _, name in kinds[kind].items())
        return sum(max(0, self._free.amounts(name).get(self.unit, 0)) for name in names)

    def reserve(self, job: JobView, gang: GangView, most: int) -> Reserved:
        """Hold back what is free of the place that a gang will have first, of `most` units at most.

        Others may start wherever they leave that place alone: the gang starts no later for it.
        """
        if self.view.free is None:
            return super().reserve(job, gang, most)
        held = Reserved(job, gang)
        if self.cost(gang) <= 1 and self._left <= 0:
            return held  # nothing that is free is of use to it
        results = self._first_fit(gang)
        if results is None:
            return super().reserve(job, gang, most)
        held.at, held.after, held.located = results
        held.units = self._hold_back(held, most)
        return held

    def _first_fit(self, gang: GangView) -> tuple[float, str, tuple[Any, ...]] | None:
        """Return when a gang fits first as tasks end, whose end it is, and where; None if their ends do not do.

        Twice as many ends are tried until it fits, then those between by halves: what ends first may be all there is.
        """
        mark, ends, low, high = self._free.mark(), self._ends_in_order(), 0, 0
        try:
            taken = None if gang.question in self.hopeless else self._free.take(gang.demand)
            while taken is None and high < len(ends):
                low, high = high, min(2 * high or 1, len(ends))
                self._end(ends[low:high])
                taken = self._free.take(gang.demand)
            if taken is None:
                return None
            self._free.undo(mark)
            self._end(ends[:low])
            at_low = self._free.mark()  # where it does not fit
            while high - low > 1:
                middle = (low + high) // 2
                self._end(ends[low:middle])
                ended, earlier = self._free.mark(), self._free.take(gang.demand)
                if earlier is None:
                    low, at_low = middle, ended
                else:
                    high, taken = middle, earlier
                    self._free.undo(at_low)
            at, _, last = ends[high - 1] if high else (0.0, 0.0, "")
            job = self._starting[last][1] if last in self._starting else self.census.runs[last].job if high else ""
            return max(at, self.view.now), job, taken.located
        finally:
            self._free.undo(mark)

    def delayed_by(self, held: Reserved, others: Sequence[Reserved]) -> Reserved | None:
        """Return the first for whom what a gang would start on is kept; None if it would not start without that."""
        reserved = [other for other in others if other.located and other.job is not held.job]
        mark = self._free.mark()
        for other in (*reserved, held):
            for number in other.floats:
                self._free.give_back(number)
        fits = bool(reserved) and self._free.take(held.gang.demand) is not None
        self._free.undo(mark)
        return min(reserved, key=lambda one: (one.job.submitted, one.job.id)) if fits else None

    def _ends_in_order(self) -> list[End]:
        """Return the ends of what runs and of what starts in this round."""
        if self._order is None:
            starting = [(end, inf, number) for number, (end, _) in self._starting.items()]
            self._order = sorted([*self.census.ends.items(), *starting])
        return self._order

    def _end(self, ends: Iterable[End]) -> None:
        """Continue as if tasks had ended."""
        for _, _, task in ends:
            if task in self._starting:
                self._free.give_back(task)
            else:
                self._free.release([task])

    def _soonest(self, gang: GangView) -> tuple[dict[str, Amounts], float]:
        """Return where a gang's parts can lie soonest, and when they can."""
        results: dict[str, Amounts] = {}
        template = next((template for _, _, template in self.templates(gang)), dict[str, Amounts]())
        most = LOOKED_AT + len(template)
        ordered: dict[tuple[str, frozenset[tuple[str, int]]], Iterator[Place]] = {}
        for worker, amounts in template.items():
            key = self._kind_of(worker), frozenset(amounts.items())
            if key not in ordered:
                ordered[key] = iter(self._by_room(key[0], amounts, most))
            name = next((name for _, name in ordered[key] if name not in results), worker)
            results[name] = amounts
        if len(results) < len(template) or self.view.place(gang.demand, list(results)) is None:
            results = dict(template)
        return results, max((self._room_at(name, amounts) for name, amounts in results.items()), default=inf)

    def _by_room(self, kind: str, amounts: Amounts, most: int) -> list[Place]:
        """Return workers of a kind, those that have room first before the others; ties by how much is free."""
        roomy = self._roomiest(kind, most)
        return sorted(
            roomy, key=lambda p: (self._room_at(p[1], amounts), -self._free.amounts(p[1]).get(self.unit, 0), p)
        )

    def _roomiest(self, kind: str, most: int) -> list[Place]:
        """Return the workers of a kind that had most of the unit free when the round began, so many of them."""
        rooms = sorted(self.census.rooms.get(kind, {}).items(), key=lambda room: -dict(room[0]).get(self.unit, 0))
        return list(islice((place for _, ranked in rooms for place in ranked.items()), most))

    def _room_at(self, worker: str, amounts: Amounts) -> float:
        return self.ends.room_at(worker, self._free.amounts(worker), amounts)

    def _hold_back(self, held: Reserved, most: int) -> int:
        """Take out of what is free what is reserved, and leave that alone in the reservation; return its units."""
        if held.located and self.view.free is not None:
            number, result, held.vertices = self.view.free.keep_place(held.located, self.unit, most)
            held.parts, held.floats, reserved = dict(result), [number], self.held([result])
            self._left -= reserved
            return reserved
        reserved, parts = 0, dict[str, Amounts]()
        for worker, amounts in held.parts.items():
            free = self._free.amounts(worker)
            part = {kind: min(amount, max(0, free.get(kind, 0))) for kind, amount in amounts.items()}
            part[self.unit] = min(part.get(self.unit, 0), most - reserved)
            reserved += part[self.unit]
            parts[worker] = part
        self._left -= reserved
        held.parts, held.floats = parts, [self._free.keep(worker, part) for worker, part in parts.items()]
        return reserved

    def _give_back(self, held: Reserved) -> None:
        self._left += sum(part.get(self.unit, 0) for part in held.parts.values())
        for number in held.floats:
            self._free.give_back(number)

    # ── stop ──

    def victims(self, gang: GangView, units: list[Unit]) -> list[Unit]:
        """Return the newest units that, stopped, make room for the gang, on one worker before on several."""
        by_worker: dict[frozenset[str], list[Unit]] = {}
        for unit in units:
            by_worker.setdefault(unit.workers, []).append(unit)
        single = [result for workers, result in by_worker.items() if len(workers) == 1]
        for result in [*single, units]:
            if chosen := self._enough(gang, result):
                return chosen
        return []

    def _enough(self, gang: GangView, units: list[Unit]) -> list[Unit]:
        requirement = self.cost(gang)
        chosen: list[Unit] = []
        for unit in units:
            if unit.size <= requirement and all(self.census.is_ready(worker) for worker in unit.workers):
                chosen.append(unit)
                requirement -= unit.size
                if self._would_fit(gang, chosen):
                    return chosen
        return []

    def _would_fit(self, gang: GangView, chosen: list[Unit]) -> bool:
        """Return whether a gang would fit on the workers of the chosen units, and book it there if it would."""
        mark = self._free.mark()
        self._free.release(task for unit in chosen for task in unit.tasks)
        taken = self._free.take(gang.demand, among={worker for unit in chosen for worker in unit.workers})
        if taken is None:
            self._free.undo(mark)
            return False
        self._book(gang, taken.take)
        return True
