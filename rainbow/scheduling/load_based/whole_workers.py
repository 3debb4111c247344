"""Places for gangs that take whole workers, and what is reserved for one that cannot start yet.

    unit   what percents count: here whole workers, each serving one gang at a time; shared_workers.py counts amounts

The matcher is asked about few workers first: were it shown every idle one for every start, a round would cost
starts times workers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge, nsmallest
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.scheduling.cluster_index import ClusterIndex, Place, Ranked
from rainbow.scheduling.interface import Start, View, Wait
from rainbow.scheduling.load_based.free_amounts import WorkerQueue
from rainbow.scheduling.load_based.gang_reservation import Amounts, Ends, Reserved
from rainbow.scheduling.snapshot import GangView, JobView, Placement

if TYPE_CHECKING:
    from rainbow.matching import Take


class IdleWorkers:
    """Workers to be taken; beginning and taking one cost the same however many there are, and of however many kinds.

    row   the workers of some kinds in their natural order, those that were taken first left behind
    """

    def __init__(self, kinds: Mapping[str, Ranked[Place]]) -> None:
        self._kinds = {kind: ranked.items() for kind, ranked in kinds.items()}
        self._all = frozenset(self._kinds)
        self._left = sum(map(len, self._kinds.values()))
        self._rows: dict[frozenset[str], WorkerQueue] = {}
        self._taken: set[str] = set()

    def __len__(self) -> int:
        return self._left

    def __iter__(self) -> Iterator[str]:
        return self.of_kinds(self._all)

    def of_kinds(self, kinds: frozenset[str]) -> Iterator[str]:
        """Yield the workers of these kinds in order."""
        row = self._row(kinds)
        return (name for name in row.ahead() if name not in self._taken)

    def first(self, kinds: frozenset[str], count: int) -> list[str]:
        """Return the first so many workers of these kinds."""
        if count == 1:  # asked for every start
            name = self._row(kinds).at(0)
            return [] if name is None else [name]
        return list(islice(self.of_kinds(kinds), count))

    def _row(self, kinds: frozenset[str]) -> WorkerQueue:
        """Return the workers of these kinds from the first on that is not taken."""
        row = self._rows.get(kinds)
        if row is None:
            row = self._rows[kinds] = WorkerQueue(merge(*(self._kinds[kind] for kind in kinds & self._all)))
        while row.at(0) in self._taken:
            row.drop()
        return row

    def count(self, kinds: frozenset[str]) -> int:
        """Count the workers of these kinds."""
        return self._left if self._all <= kinds else sum(1 for _ in self.of_kinds(kinds))

    def has(self, worker: str) -> bool:
        """Return whether a worker that was idle at first has not been taken."""
        return worker not in self._taken

    def give(self, workers: Collection[str]) -> None:
        """Put workers back that were taken."""
        self._taken.difference_update(workers)
        self._left += len(workers)
        self._rows.clear()

    def take(self, workers: Collection[str]) -> None:
        """Take workers out."""
        self._taken.update(workers)
        self._left -= len(workers)


class WholeWorkers:
    """The workers and consumables of one round, and the starts that took some."""

    unit = "worker"

    def __init__(self, view: View, census: ClusterIndex) -> None:
        self.view = view
        self.census = census
        self.orders: list[Start] = []
        self.ready = census.ready
        self.consumables = dict(view.consumables)
        self.hopeless: set[int | str] = set()  # questions that what is idle has no answer to in this round
        self.why: dict[int | str, Wait | None] = {}  # of questions: why amounts alone are large enough
        self._costs: dict[int | str, int] = {}
        self._sorted: dict[frozenset[str], list[str]] = {}  # kinds that host a gang and are there
        self._ends: Ends | None = None
        self._lenders: list[Reserved] = []  # whose reservations are given back at the moment, to be lent
        self._has_lent = False  # something started on what they gave back
        self._in_vain: set[int | str] = set()  # questions that have no answer with these
        self._begun: list[tuple[list[Start], float]] = []  # what starts in this round, and when it must have ended
        self._prepare()

    def _prepare(self) -> None:
        self._idle = IdleWorkers(self.census.idle)

    @property
    def ends(self) -> Ends:
        """When what runs must have ended; looked up when a job has to wait for it."""
        if self._ends is None:
            self._ends = Ends(self.census, self.view.now)
        while self._begun:
            begun, end = self._begun.pop()
            for start in begun:
                self._ends.add(start.placement, end)
        return self._ends

    @property
    def total(self) -> int:
        """How many units all ready workers have."""
        return self.ready

    @property
    def left(self) -> int:
        """How many units are idle."""
        return len(self._idle)

    def held(self, placements: Iterable[Placement]) -> int:
        """Count the units that are held by tasks of these placements."""
        return len({worker for placement in placements for worker in placement if worker})

    def held_by(self, requestors: Collection[str]) -> int:
        """Count the units that tasks of these requestors hold."""
        held = sum(len(self.census.held[requestor].workers) for requestor in requestors)
        shared = (sum(one in requestors for one in self.census.holders(worker)) for worker in self.census.mixed)
        return held - sum(max(0, times - 1) for times in shared)

    # ── start ──

    def cost(self, gang: GangView) -> int:
        """How many units a gang takes if all that is ready were idle; 0 if even that cannot host it."""
        result = self._costs.get(gang.question)
        if result is None:
            result = self._costs[gang.question] = self._cost(gang)
        return result

    def idle_for(self, gang: GangView) -> int:
        """Count the idle workers that could take a part of a gang."""
        return self._idle.count(self.view.hosts(gang.demand))

    def ready_for(self, gang: GangView) -> int:
        """Count the ready workers that could take a part of a gang."""
        kinds = self.census.kinds
        return sum(len(kinds[kind]) for kind in self.view.hosts(gang.demand) if kind in kinds)

    def _cost(self, gang: GangView) -> int:
        hosts = self.view.hosts(gang.demand)
        if hosts not in self._sorted:
            self._sorted[hosts] = sorted(hosts & self.census.kinds.keys())
        for kind in self._sorted[hosts]:
            if self.view.place(gang.demand, [self.census.kinds[kind].items()[0][1]]):
                return 1
        take = self.view.place(gang.demand, self.census.everyone()) if self.ready else None
        return len(take.by_worker) if take else 0

    def start(self, gang: GangView, most: int) -> int:
        """Start a gang on what is idle if it fits there; return how many units it took, none if it did not start."""
        cost, question = self.cost(gang), gang.question
        if cost > self.left:
            self.hopeless.add(question)  # what is idle only becomes less while a round lasts
        if question in self.hopeless or cost > most:
            return 0
        take = self._find(gang, most)
        if take is None:
            if self._has_tried_all(most):
                self.hopeless.add(question)
            return 0
        if not self._consume(take.placed):
            self._let_go()
            return 0
        starts = list(self._starts(gang, take))
        self.orders.extend(starts)
        self._begun.append((starts, self.view.now + gang.expected if gang.expected else inf))
        return self._book(gang, take)

    def _starts(self, gang: GangView, take: Take) -> Iterator[Start]:
        return map(Start, gang.tasks, self.view.divide(gang.demand, take))

    def _let_go(self) -> None:
        """Take back what was found and cannot be used."""

    def _has_tried_all(self, _most: int) -> bool:
        """Return whether a search of so many units that found nothing would find nothing with more."""
        return True

    def _book(self, gang: GangView, take: Take) -> int:
        self._idle.take(take.by_worker.keys())
        return self.cost(gang)

    def _find(self, gang: GangView, most: int) -> Take | None:
        cost = self.cost(gang)
        few = self._idle.first(self.view.hosts(gang.demand), cost) if cost <= most else []
        if not few:
            return None
        return self.view.place(gang.demand, few) or self.view.place(gang.demand, list(self._idle))

    def _consume(self, placed: Any) -> bool:
        """Take what a gang wants of the cluster's consumables, all or nothing."""
        requirements = _outside(placed)
        if not requirements:
            return True
        if any(amount > self.consumables.get(kind, 0) for kind, amount in requirements.items()):
            return False
        self.consumables.update({kind: self.consumables[kind] - amount for kind, amount in requirements.items()})
        return True

    # ── reserve ──

    def lacks_outside(self, gang: GangView) -> Amounts:
        """Return what a gang lacks of what is cluster-wide, although there are workers for it."""
        take = self._find(gang, self.cost(gang)) if gang.question not in self.hopeless else None
        requirements = _outside(take.placed) if take else {}
        return {kind: amount for kind, amount in requirements.items() if amount > self.consumables.get(kind, 0)}

    def reserve(self, job: JobView, gang: GangView, most: int) -> Reserved:
        """Hold back what is idle of the workers a gang can have soonest, of `most` units at most."""
        held = Reserved(job, gang)
        if self.cost(gang) > 1 or gang.question not in self.hopeless:  # else nothing idle is of use to it
            parts, held.at = self._soonest(gang)
            held.parts = parts
            held.units = self._hold_back(held, most)
        return held

    def delayed_by(self, _held: Reserved, _others: Sequence[Reserved]) -> Reserved | None:
        """Return for whom what a gang would start on is kept, where that can be said."""
        return None

    def reserve_outside(self, held: Reserved) -> None:
        """Hold back what is free of what a gang wants of the cluster beside its workers."""
        take = self.view.place(held.gang.demand, self.census.everyone())
        requirements = _outside(take.placed) if take else {}
        held.at = max(held.at, self.ends.room_at("", self.consumables, requirements))
        held.outside = {
            kind: min(amount, max(0, self.consumables.get(kind, 0))) for kind, amount in requirements.items()
        }
        self.consumables.update({kind: self.consumables[kind] - amount for kind, amount in held.outside.items()})

    def _soonest(self, gang: GangView) -> tuple[dict[str, Amounts], float]:
        """Return the workers a gang can have soonest, those without a known end last, and when it has them."""
        kinds = self.census.kinds
        places = (place for kind in self.view.hosts(gang.demand) if kind in kinds for place in kinds[kind].items())
        ready = [(self.ends.idle_at(place[1]), place) for place in places]
        count, take = max(1, self.cost(gang)), None
        while take is None and ready:
            names = [place[1] for _, place in nsmallest(count, ready)]
            take = self.view.place(gang.demand, names)
            if take is None and count >= len(ready):
                break
            count = min(len(ready), 4 * count)
        chosen = sorted(map(self.census.place_of, take.by_worker)) if take else []
        return {name: {} for _, name in chosen}, max((self.ends.idle_at(name) for _, name in chosen), default=inf)

    def _hold_back(self, held: Reserved, most: int) -> int:
        """Take out of what is idle what is reserved, and leave that alone in the reservation; return its units."""
        idle = [name for name in held.parts if not self.census.workers[name].tasks and self._idle.has(name)][:most]
        self._idle.take(idle)
        held.parts = {name: held.parts[name] for name in idle}
        return len(idle)

    def lend(self, lenders: Sequence[Reserved], gang: GangView) -> int:
        """Start a gang on what is idle or reserved for others; return its units, none if it did not start.

        What these have reserved remains given back until others lend: most gangs that ask start nothing.
        """
        if [*lenders] != self._lenders:
            self._exchange(lenders)
        if gang.question in self._in_vain:  # what is idle only becomes less
            return 0
        self.hopeless.discard(gang.question)
        took = self.start(gang, self.left)
        if took:
            self._has_lent = True
        else:
            self._in_vain.add(gang.question)
        return took

    def _exchange(self, lenders: Sequence[Reserved]) -> None:
        """Give back what others have reserved; who lends on and has lent nothing need not reserve it in between."""
        stay = set[Reserved]() if self._has_lent else {*self._lenders}.intersection(lenders)
        self.end_lending(stay)
        for held in lenders:
            if held not in stay:
                self._give_back(held)
        self._lenders = [*lenders]

    def end_lending(self, stay: Collection[Reserved] = ()) -> None:
        """Reserve again what is left of what was given back to be lent, but for some."""
        for held in self._lenders:
            if held not in stay:
                held.units = self._hold_back(held, held.units)
        self._lenders, self._in_vain, self._has_lent = [], set(), False

    def _give_back(self, held: Reserved) -> None:
        self._idle.give(held.parts)

    # ── stop ──

    def victims(self, gang: GangView, units: list[Unit]) -> list[Unit]:
        """Return the newest units whose workers can host the gang and no more; none if there are none."""
        hosts, demand = self.view.hosts(gang.demand), self.cost(gang)
        chosen: list[Unit] = []
        for unit in units:
            if unit.size <= demand and all(self._kind_of(worker) in hosts for worker in unit.workers):
                chosen.append(unit)
                demand -= unit.size
            if not demand:
                break
        freed = sorted(worker for unit in chosen for worker in unit.workers)
        return [] if demand or self.view.place(gang.demand, freed) is None else chosen

    def _kind_of(self, worker: str) -> str:
        return self.census.workers[worker].kind if worker in self.census.workers else ""


def _outside(placed: Any) -> dict[str, int]:
    """Sum what a take wants of what is cluster-wide."""
    requirements: dict[str, int] = {}
    for _, held in placed:
        for kind, amount in held.get("", {}).items():
            requirements[kind] = requirements.get(kind, 0) + amount
    return requirements


@dataclass(frozen=True, slots=True)
class Unit:
    """What stops together: its tasks, the workers that frees, and how many units of the policy."""

    started: float
    tasks: tuple[str, ...]
    workers: frozenset[str]
    size: int
