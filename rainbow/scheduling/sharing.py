"""Workers shared by capacity: percents count amounts of one type (`unit: core`), and a worker serves many gangs.

    template   what a gang holds when its workers are empty, as the matcher says: {worker: amounts}
    room       a worker has it for a part of a template if it has that much of everything free

What a template has on one worker stays on one worker, of the same kind: then the matcher's answer holds there too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rainbow.scheduling.placing import Placing
from rainbow.scheduling.policy import GangView, Placement, View, WorkerView

if TYPE_CHECKING:
    from rainbow.matching import Take
    from rainbow.scheduling.victims import Unit

Amounts = Mapping[str, int]
Template = Mapping[str, Amounts]


class Sharing(Placing):
    """The free amounts of one round."""

    def __init__(self, view: View, unit: str) -> None:
        self.unit = unit
        self._templates: dict[str, list[Template]] = {}
        # free amounts only shrink in a round: whoever has no room for something is not looked at for it again
        self._begin: dict[tuple[str, frozenset[tuple[str, int]]], int] = {}
        super().__init__(view)

    def _prepare(self, ready: list[WorkerView]) -> None:
        self._free: dict[str, dict[str, int]] = {worker.id: dict(worker.free) for worker in ready}
        self._empty = {worker.id for worker in ready if not worker.tasks}
        self._of_kind: dict[str, list[str]] = {}
        for worker in ready:
            self._of_kind.setdefault(worker.kind, []).append(worker.id)
        self._total = sum(worker.capacity.get(self.unit, 0) for worker in ready)
        self._left = sum(max(0, free.get(self.unit, 0)) for free in self._free.values())

    @property
    def total(self) -> int:
        """How much of the unit all ready workers have."""
        return self._total

    @property
    def left(self) -> int:
        """How much of the unit is free."""
        return self._left

    def held(self, placements: Iterable[Placement]) -> int:
        """Count how much of the unit tasks of these placements hold."""
        return sum(amounts.get(self.unit, 0) for placement in placements for amounts in placement.values())

    # ── start ──

    def templates(self, gang: GangView) -> list[Template]:
        """Return what a gang may hold, the cheapest first."""
        if gang.demand not in self._templates:
            found = [merged(take) for take in self._asked(gang)]
            self._templates[gang.demand] = sorted(found, key=self._price)
        return self._templates[gang.demand]

    def _asked(self, gang: GangView) -> Iterator[Take]:
        ones = [self._one_of_kind[kind] for kind in sorted(self.view.hosts(gang.demand)) if kind in self._one_of_kind]
        takes = [take for one in ones if (take := self.view.place(gang.demand, [one]))]
        if not takes and ones and (take := self.view.place(gang.demand, list(self._free))):
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
        empty = [name for name in self._free if name in self._empty]
        take = self.view.place(gang.demand, empty) if empty and self.cost(gang) <= most else None
        return take if take and self._price(merged(take)) <= most else None

    def _checked(self, gang: GangView, chosen: list[str]) -> Take | None:
        """Ask the matcher about the chosen workers, and whether they have room for what it says."""
        take = self.view.place(gang.demand, chosen) if chosen else None
        return take if take and all(self._room(*part) for part in merged(take).items()) else None

    def _mapped(self, template: Template) -> list[str]:
        """Choose a worker with room for every part of a template; none if one has none."""
        chosen: list[str] = []
        for worker, amounts in template.items():
            name = next(self._with_room(self.kinds[worker], amounts, chosen), None)
            if name is None:
                return []
            chosen.append(name)
        return chosen

    def _with_room(self, kind: str, amounts: Amounts, taken: Collection[str]) -> Iterator[str]:
        names, key = self._of_kind[kind], (kind, frozenset(amounts.items()))
        begin = self._begin.get(key, 0)
        while begin < len(names) and not self._room(names[begin], amounts):
            begin += 1
        self._begin[key] = begin
        return (names[k] for k in range(begin, len(names)) if names[k] not in taken and self._room(names[k], amounts))

    def _room(self, worker: str, amounts: Amounts) -> bool:
        return all(self._free[worker].get(kind, 0) >= amount for kind, amount in amounts.items())

    def _book(self, gang: GangView, take: Take) -> int:
        template = merged(take)
        for worker, amounts in template.items():
            self._take(worker, amounts)
        return self._price(template)

    def _take(self, worker: str, amounts: Amounts) -> None:
        free = self._free[worker]
        free.update({kind: free.get(kind, 0) - amount for kind, amount in amounts.items()})
        self._left -= amounts.get(self.unit, 0)
        self._empty.discard(worker)

    def keep(self, gang: GangView, most: int) -> int:
        """Keep what is free on the workers that have most of it, so that the sum comes together in one place."""
        if not self.templates(gang) or self._find(gang, self.cost(gang)):
            return 0
        kept = 0
        for worker, amounts in self.templates(gang)[0].items():
            roomiest = max(self._of_kind[self.kinds[worker]], key=lambda name: self._free[name].get(self.unit, 0))
            part = {kind: min(amount, max(0, self._free[roomiest].get(kind, 0))) for kind, amount in amounts.items()}
            part[self.unit] = min(part.get(self.unit, 0), most - kept)
            self._take(roomiest, part)
            kept += part[self.unit]
        return kept

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
            if unit.size <= wanted and all(worker in self._free for worker in unit.workers):
                chosen.append(unit)
                wanted -= unit.size
                if self._would_fit(gang, chosen):
                    return chosen
        return []

    def _would_fit(self, gang: GangView, chosen: list[Unit]) -> bool:
        """Tell whether a gang would fit on the workers of the chosen units, and book it there if it would."""
        names = sorted({worker for unit in chosen for worker in unit.workers})
        take = self.view.place(gang.demand, names)
        if take is None:
            return False
        parts = [part for unit in chosen for part in unit.amounts.items()]
        self._give(parts)
        fits = all(self._room(*part) for part in merged(take).items())
        if fits:
            self._book(gang, take)
        else:
            self._give([(worker, {kind: -amount for kind, amount in held.items()}) for worker, held in parts])
        return fits

    def _give(self, parts: Iterable[tuple[str, Amounts]]) -> None:
        for worker, amounts in parts:
            free = self._free[worker]
            free.update({kind: free.get(kind, 0) + amount for kind, amount in amounts.items()})


def merged(take: Take) -> dict[str, dict[str, int]]:
    """Return {worker: all that a take holds there}."""
    found: dict[str, Counter[str]] = {}
    for _, held in take.placed:
        for worker, amounts in held.items():
            if worker:
                found.setdefault(worker, Counter()).update(amounts)
    plain: dict[str, Any] = {worker: dict(amounts) for worker, amounts in found.items()}
    return plain
