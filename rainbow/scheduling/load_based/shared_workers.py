"""Places for gangs on workers shared by capacity (`unit: core`), and what a round leaves free there.

stream   the workers of one kind that had room for certain amounts when the round began, in their natural order.
         What is free only shrinks in a round, so nobody else comes to have room, and each is looked at once

Percents count amounts of one type, and a worker serves many gangs:

    template   what a gang holds when its workers are empty, as the matcher says: {worker: amounts}
    room       a worker has it for a part of a template if it has that much of everything free

What a template has on one worker stays on one worker, of the same kind: then the matcher's answer holds there too.

Where the view knows vertices, what fits is what `view.free` takes; percents, costs and reservations stay amounts, and
what is reserved floats on its worker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from rainbow.scheduling.cluster_index import ClusterIndex, Place
from rainbow.scheduling.interface import Free, Start, Taken, View
from rainbow.scheduling.load_based.gang_reservation import Reserved
from rainbow.scheduling.load_based.whole_workers import WholeWorkers
from rainbow.scheduling.snapshot import GangView, Placement

if TYPE_CHECKING:
    from rainbow.matching import Take
    from rainbow.scheduling.load_based.whole_workers import Unit


Amounts = Mapping[str, int]


class FreeCapacity:
    """The free amounts of one round: those of the vertices, where they are known; else of the census."""

    def __init__(self, census: ClusterIndex, vertices: Free | None) -> None:
        self._census = census
        self._vertices = vertices
        self._touched: dict[str, dict[str, int]] = {}
        self._streams: dict[tuple[str, frozenset[tuple[str, int]]], WorkerQueue] = {}

    def free(self, worker: str) -> Amounts:
        """Return what is free on a worker."""
        if self._vertices is not None:
            return self._vertices.amounts(worker)
        return self._touched.get(worker) or self._census.workers[worker].free

    def has(self, worker: str, amounts: Amounts) -> bool:
        """Return whether a worker has an amount free."""
        return _holds(self.free(worker), amounts)

    def take(self, worker: str, amounts: Amounts) -> None:
        """Take amounts of a worker, where no vertices were taken; negative ones are given back."""
        if self._vertices is not None:
            return
        free = self._touched.setdefault(worker, dict(self._census.workers[worker].free))
        free.update({kind: free.get(kind, 0) - amount for kind, amount in amounts.items()})

    def empty(self) -> list[str]:
        """Name the workers that hold nothing."""
        places = merge(*(ranked.items() for ranked in self._census.idle.values()))
        return [name for _, name in places if name not in self._touched]

    def with_room(self, kind: str, amounts: Amounts, but: Collection[str]) -> Iterator[str]:
        """Yield the workers of a kind with so much room, in order."""
        key = kind, frozenset(amounts.items())
        if key not in self._streams:
            self._streams[key] = WorkerQueue(self._had_room(kind, amounts))
        stream = self._streams[key]
        while (first := stream.at(0)) is not None and not self.has(first, amounts):
            stream.drop()
        k = 0
        while (name := stream.at(k)) is not None:
            k += 1
            if name not in but and self.has(name, amounts):
                yield name

    def _had_room(self, kind: str, amounts: Amounts) -> Iterator[Place]:
        rooms = self._census.rooms.get(kind, {})
        return merge(*(ranked.items() for free, ranked in rooms.items() if _holds(dict(free), amounts)))

    def roomiest(self, kind: str, unit: str, most: int) -> list[Place]:
        """Return the workers of a kind that had most of a unit free when the round began, so many of them."""
        rooms = sorted(self._census.rooms.get(kind, {}).items(), key=lambda room: -dict(room[0]).get(unit, 0))
        return list(islice((place for _, ranked in rooms for place in ranked.items()), most))

    def total(self, kinds: Collection[str], unit: str) -> int:
        """Count how much of a unit the workers of these kinds have free."""
        names = (name for kind in kinds if kind in self._census.kinds for _, name in self._census.kinds[kind].items())
        return sum(max(0, self.free(name).get(unit, 0)) for name in names)

    def begin(self) -> None:
        """Look at all workers again: something was given back."""
        self._streams.clear()


class WorkerQueue:
    """A row of workers, read as far as a caller has looked."""

    def __init__(self, places: Iterator[Place]) -> None:
        self._places = places
        self._seen: list[str] = []
        self._begin = 0

    def at(self, k: int) -> str | None:
        """Name the k-th worker that was not dropped; None after the last."""
        while len(self._seen) <= self._begin + k:
            place = next(self._places, None)
            if place is None:
                return None
            self._seen.append(place[1])
        return self._seen[self._begin + k]

    def drop(self) -> None:
        """Look at the first no more."""
        self._begin += 1


def _holds(free: Amounts, wanted: Amounts) -> bool:
    return all(free.get(kind, 0) >= amount for kind, amount in wanted.items())


LOOKED_AT = 256  # workers of a kind for every part of a gang: those with most room
Template = Mapping[str, Amounts]


class SharedWorkers(WholeWorkers):
    """The free amounts of one round."""

    def __init__(self, view: View, census: ClusterIndex, unit: str) -> None:
        self.unit = unit
        self._templates: dict[int | str, list[Template]] = {}
        self._rooms = FreeCapacity(census, view.free)
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

    def templates(self, gang: GangView) -> list[Template]:
        """Return what a gang may hold, the cheapest first."""
        if gang.question not in self._templates:
            found = [merged(take) for take in self._asked(gang)]
            self._templates[gang.question] = sorted(found, key=self._price)
        return self._templates[gang.question]

    def _asked(self, gang: GangView) -> Iterator[Take]:
        ones = [one for kind in sorted(self.view.hosts(gang.demand)) if (one := self._one_of(kind)) is not None]
        takes = [take for one in ones if (take := self.view.place(gang.demand, [one]))]
        if not takes and ones and (take := self.view.place(gang.demand, self.census.everyone())):
            takes = [take]
        yield from takes

    def _price(self, template: Template) -> int:
        return max(1, self.held([template]))

    def _cost(self, gang: GangView) -> int:
        return min((self._price(template) for template in self.templates(gang)), default=0)

    def _find(self, gang: GangView, most: int) -> Take | None:
        for template in self.templates(gang):
            if self._price(template) <= most:
                for chosen in (list(template), self._mapped(template)):
                    take = self._checked(gang, chosen)
                    if take:
                        return take
        empty = self._rooms.empty()
        take = self.view.place(gang.demand, empty) if empty and self.cost(gang) <= most else None
        return take if take and self._price(merged(take)) <= most else None

    def _has_tried_all(self, most: int) -> bool:
        return most >= self._left

    def _checked(self, gang: GangView, chosen: list[str]) -> Take | None:
        """Ask the matcher about the chosen workers, and whether they have room for what it says."""
        take = self.view.place(gang.demand, chosen) if chosen else None
        return take if take and all(self._rooms.has(*part) for part in merged(take).items()) else None

    def _mapped(self, template: Template) -> list[str]:
        """Choose a worker with room for every part of a template; none if one has none."""
        chosen: list[str] = []
        for worker, amounts in template.items():
            name = next(self._rooms.with_room(self._kind_of(worker), amounts, chosen), None)
            if name is None:
                return []
            chosen.append(name)
        return chosen

    def _book(self, gang: GangView, take: Take) -> int:
        template = merged(take)
        for worker, amounts in template.items():
            self._take(worker, amounts)
        return self._price(template)

    def _take(self, worker: str, amounts: Amounts) -> None:
        self._rooms.take(worker, amounts)
        self._left -= amounts.get(self.unit, 0)

    # ── reserve ──

    def idle_for(self, gang: GangView) -> int:
        """Count how much of the unit is free where a gang's parts could lie."""
        hosts = self.view.hosts(gang.demand)
        if self.census.rooms.keys() <= hosts:
            return self._left
        return self._rooms.total(hosts, self.unit)

    def _soonest(self, gang: GangView) -> tuple[dict[str, Amounts], float]:
        """Return where a gang's parts can lie soonest, and when they can."""
        found: dict[str, Amounts] = {}
        template = next(iter(self.templates(gang)), {})
        most = LOOKED_AT + len(template)
        ordered: dict[tuple[str, frozenset[tuple[str, int]]], Iterator[Place]] = {}
        for worker, amounts in template.items():
            key = self._kind_of(worker), frozenset(amounts.items())
            if key not in ordered:
                ordered[key] = iter(self._by_room(key[0], amounts, most))
            name = next((name for _, name in ordered[key] if name not in found), worker)
            found[name] = amounts
        if len(found) < len(template) or self.view.place(gang.demand, list(found)) is None:
            found = dict(template)
        return found, max((self._room_at(name, amounts) for name, amounts in found.items()), default=inf)

    def _by_room(self, kind: str, amounts: Amounts, most: int) -> list[Place]:
        """Return workers of a kind, those that have room first before the others; ties by how much is free."""
        roomy = self._rooms.roomiest(kind, self.unit, most)
        return sorted(
            roomy, key=lambda p: (self._room_at(p[1], amounts), -self._rooms.free(p[1]).get(self.unit, 0), p)
        )

    def _room_at(self, worker: str, amounts: Amounts) -> float:
        return self.ends.room_at(worker, self._rooms.free(worker), amounts)

    def _hold_back(self, held: Reserved, most: int) -> int:
        """Take out of what is free what is reserved, and leave that alone in the reservation; return its units."""
        kept, parts = 0, dict[str, Amounts]()
        for worker, amounts in held.parts.items():
            free = self._rooms.free(worker)
            part = {kind: min(amount, max(0, free.get(kind, 0))) for kind, amount in amounts.items()}
            part[self.unit] = min(part.get(self.unit, 0), most - kept)
            self._take(worker, part)
            kept += part[self.unit]
            parts[worker] = part
        held.parts = parts
        return kept

    def _give_back(self, held: Reserved) -> None:
        self._rooms.begin()
        for worker, part in held.parts.items():
            self._take(worker, {kind: -amount for kind, amount in part.items()})

    # ── stop ──

    def victims(self, gang: GangView, units: list[Unit]) -> list[Unit]:
        """Return the newest units that, stopped, make room for the gang, on one worker before on several."""
        by_worker: dict[frozenset[str], list[Unit]] = {}
        for unit in units:
            by_worker.setdefault(unit.workers, []).append(unit)
        single = [found for workers, found in by_worker.items() if len(workers) == 1]
        for found in [*single, units]:
            if chosen := self._enough(gang, found):
                return chosen
        return []

    def _enough(self, gang: GangView, units: list[Unit]) -> list[Unit]:
        wanted = self.cost(gang)
        chosen: list[Unit] = []
        for unit in units:
            if unit.size <= wanted and all(self.census.is_ready(worker) for worker in unit.workers):
                chosen.append(unit)
                wanted -= unit.size
                if self._would_fit(gang, chosen):
                    return chosen
        return []

    def _would_fit(self, gang: GangView, chosen: list[Unit]) -> bool:
        """Return whether a gang would fit on the workers of the chosen units, and book it there if it would."""
        names = sorted({worker for unit in chosen for worker in unit.workers})
        take = self.view.place(gang.demand, names)
        if take is None:
            return False
        parts = [part for unit in chosen for part in unit.amounts.items()]
        self._give(parts, 1)
        fits = all(self._rooms.has(*part) for part in merged(take).items())
        if fits:
            self._book(gang, take)
        else:
            self._give(parts, -1)
        return fits

    def _give(self, parts: Iterable[tuple[str, Amounts]], sign: int) -> None:
        for worker, amounts in parts:
            self._rooms.take(worker, {kind: -sign * amount for kind, amount in amounts.items()})


class Locating(SharedWorkers):
    """What is free in one round, and what a plan took of it."""

    def __init__(self, view: View, census: ClusterIndex, unit: str, free: Free) -> None:
        super().__init__(view, census, unit)
        self._free = free
        self._mark = free.mark()
        self._taken: Taken | None = None
        self._too_dear = False  # something fits that costs more than is granted

    # ── start ──

    def start(self, gang: GangView, most: int) -> int:
        """Start a gang if it fits; where only amounts are large enough, note why it does not."""
        took = super().start(gang, most)
        if not took and gang.question in self.hopeless and gang.question not in self.why:
            self.why[gang.question] = self._free.why(gang.demand)
        return took

    def _find(self, gang: GangView, most: int) -> Take | None:
        self._too_dear = False
        for kinds in self._kinds_by_price(gang, most):
            self._mark = self._free.mark()
            self._taken = self._free.take(gang.demand, kinds=kinds)
            if self._taken is not None and self._price(merged(self._taken.take)) <= most:
                return self._taken.take
            self._too_dear = self._too_dear or self._taken is not None
            self._free.undo(self._mark)
        return None

    def _has_tried_all(self, most: int) -> bool:
        return not self._too_dear or super()._has_tried_all(most)

    def _kinds_by_price(self, gang: GangView, most: int) -> Iterator[frozenset[str] | None]:
        """Yield the kinds on which a gang costs least first, then all of them."""
        prices: dict[str, int] = {}
        templates = self.templates(gang)
        for template in templates if len(templates) > 1 else ():
            prices.setdefault(self._kind_of(next(iter(template), "")), self._price(template))
        for price in sorted(set(prices.values())) if len(set(prices.values())) > 1 else ():
            if price <= most:
                yield frozenset(kind for kind, own in prices.items() if own == price)
        yield None

    def _let_go(self) -> None:
        self._free.undo(self._mark)

    def _starts(self, gang: GangView, take: Take) -> Iterator[Start]:
        taken = self._taken
        if taken is not None:
            yield from map(Start, gang.tasks, taken.placements, taken.located)

    # ── reserve ──

    def lacks_outside(self, gang: GangView) -> Amounts:
        """Return what a gang lacks of what is cluster-wide, although there are workers for it."""
        mark = self._free.mark()
        lacking = super().lacks_outside(gang)
        self._free.undo(mark)
        return lacking

    def _hold_back(self, held: Reserved, most: int) -> int:
        kept = super()._hold_back(held, most)
        held.floats = [self._free.keep(worker, part) for worker, part in held.parts.items()]
        return kept

    def _give_back(self, held: Reserved) -> None:
        super()._give_back(held)
        for number in held.floats:
            self._free.give_back(number)

    # ── stop ──

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


def merged(take: Take) -> dict[str, dict[str, int]]:
    """Return {worker: all that a take holds there}."""
    found: dict[str, dict[str, int]] = {}
    for _, held in take.placed:
        for worker, amounts in held.items():
            if worker:
                there = found.setdefault(worker, {})
                for kind, amount in amounts.items():
                    there[kind] = there.get(kind, 0) + amount
    return found
