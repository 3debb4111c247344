"""The matcher's answers about one form of a cluster, each asked for once; and what is free of it, for one plan.

What a request would hold on given workers depends on the graphs alone, not on what is free: answers stay true from
step to step, until the graphs change. What is free is the occupancy of the mirror, tried on and undone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any

import structlog

from rainbow.cache import LruCache
from rainbow.certificate.document import Certificate, folded
from rainbow.jobspec.request import SLOT
from rainbow.matching import (
    Take,
    backends,
    eligible_worker_classes,
    faults_of,
    fragmented,
    free_part,
    measures,
    others_on,
    rows_of_amounts,
    settled,
    types_in_workers,
    worker_capacity,
    worker_kinds,
)
from rainbow.scheduling import Gang, SlotsView, Taken, Wait, placements
from rainbow.scheduling.gangs import divided, slots_on
from rainbow.service.core.counters import count

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching import Occupancy
    from rainbow.matching.workers.occupancy import Allocation
    from rainbow.scheduling.snapshot import Placement
    from rainbow.service.jobs.jobspecs import Reading


MOST = 1_000_000  # names of workers in remembered questions


class MatcherCache:
    """The matcher's answers: equal questions are asked once."""

    def __init__(self, cluster: Cluster, backend: str, revision: int | None = None) -> None:
        self.cluster = cluster
        self.revision = revision  # of its graphs
        self.name = backend
        self.backend = backends.get(backend)
        self._settled: LruCache[int, Reading] = LruCache(4_096)  # by number of the request
        self.gangs: dict[str, tuple[Gang, list[str]]] = {}
        self.by_task: dict[str, Take] = {}  # what the tasks of the plan at hand were placed by
        self.proved: dict[str, bytes] = {}  # certificates of its starts, by the first task of each gang
        self.refused: dict[str, dict[str, Any]] = {}  # starts of it that were not made, by job: for an operator
        self.refusals: dict[str, tuple[Any, Wait]] = {}  # the last one of each gang, and of which question
        # by the number of a request: equal jobspecs share one (jobspecs.py)
        self._placed: dict[tuple[int, frozenset[str]], Take | None] = {}
        self._hosting: dict[int, frozenset[str]] = {}
        self._alike: dict[int, bool] = {}
        self._first_of_kind: dict[tuple[int, str], str] = {}
        self.kinds = worker_kinds(cluster)
        self.capacity = worker_capacity(cluster)
        self.units = {type_: measure.factor for type_, measure in measures(cluster).items() if measure.factor != 1}
        self._slots: dict[int, tuple[SlotsView, ...]] = {}
        self._size = 0
        self._many: tuple[Sequence[str], frozenset[str]] = ((), frozenset())

    def settled(self, read: Reading) -> Reading:
        """Return what a job asks for as this cluster answers it: its nodes, its queue."""
        known = self._settled.get(read.request.number)
        if known is None:
            request = {gang.request.number: gang.request for gang in read.gangs}
            plain = {number: settled(one, self.cluster, self.name) for number, one in request.items()}
            changed = any(plain[number] is not one for number, one in request.items())
            gangs = tuple(replace(gang, request=plain[gang.request.number]) for gang in read.gangs) if changed else ()
            known = self._settled.put(read.request.number, replace(read, gangs=gangs) if changed else read)
        return known

    def demand(self, job_id: str, gang: Gang, ids: list[str]) -> str:
        """Name what a gang asks for."""
        name = f"{job_id}/{gang.number}"
        self.gangs[name] = (gang, ids)
        return name

    def forget(self, demand: str) -> None:
        """Forget what a gang asked for: it waits no more."""
        self.gangs.pop(demand, None)
        self.refusals.pop(demand, None)

    def begin(self) -> None:
        """Let a plan begin: what the last one placed is forgotten, and what was asked if it was very much."""
        for known in (self.by_task, self.proved, self.refused):
            known.clear()
        if self._size > MOST:
            self._size = 0
            for answers in (self._placed, self._hosting, self._alike, self._first_of_kind, self._slots):
                answers.clear()

    def place(self, demand: str, free: Sequence[str]) -> Take | None:
        """Ask the matcher what a gang would hold on these workers."""
        gang, ids = self.gangs[demand]
        take = self._on_one(gang.request, free[0]) if len(free) == 1 else self._take(gang.request, free)
        if take is not None:
            self.by_task.update(dict.fromkeys(ids, take))
        return take

    def _take(self, request: Request, free: Sequence[str]) -> Take | None:
        names = self._named(free)
        key = (request.number, names)
        if key not in self._placed:
            self._size += len(names)
            self._placed[key] = self.backend.take(request, self.cluster, names)
        return self._placed[key]

    def _named(self, free: Sequence[str]) -> frozenset[str]:
        """Return a list of workers as a set; a long one that is shown again is the same set."""
        if len(free) > 1 and free is not self._many[0]:
            self._many = (free, frozenset(free))
        return self._many[1] if len(free) > 1 else frozenset(free)

    def _on_one(self, request: Request, worker: str) -> Take | None:
        """Ask about one worker; of equal workers only the first is asked about, where no more than kind counts."""
        first = self._first_of_kind.setdefault((request.number, self.kinds.get(worker, "")), worker)
        take = self._take(request, [first])
        if take is None or worker == first:
            return take if worker == first or self._by_kind(request) else self._take(request, [worker])
        if not self._by_kind(request) or any(set(held) != {first} for _, held in take.placed):
            return self._take(request, [worker])
        placed = tuple((label, {worker: held[first]}) for label, held in take.placed)
        return replace(take, placed=placed, vertices={})

    def _by_kind(self, request: Request) -> bool:
        """Return whether a request asks for nothing but what workers of one kind have alike."""
        if request.number not in self._alike:
            requirements = [part for tree in request.resources for part in tree.walk()]
            inside = {SLOT, self.cluster.worker_type, *types_in_workers(self.cluster)}
            plain = request.constraint is None and len(request.variants) == 1 and self.cluster.levels != "strict"
            self._alike[request.number] = plain and all(
                part.type in inside and not part.needs for part in requirements
            )
        return self._alike[request.number]

    def hosts(self, demand: str) -> frozenset[str]:
        """Ask which kinds of workers could take a part of a gang."""
        request = self.gangs[demand][0].request
        if request.number not in self._hosting:
            self._hosting[request.number] = eligible_worker_classes(request, self.cluster)
        return self._hosting[request.number]

    def slots(self, request: Request) -> tuple[SlotsView, ...]:
        """Say a request by amounts, where its slots lie free of each other."""
        if request.number not in self._slots:
            self._slots[request.number] = slots_on(self.cluster, request)
        return self._slots[request.number]

    def divide(self, demand: str, take: Take) -> tuple[Placement, ...]:
        """Say what each task of a gang holds of a take."""
        gang, ids = self.gangs[demand]
        self.by_task.update(dict.fromkeys(ids, take))
        return placements(gang, take)


FRAGMENTED, UNVERIFIED = "fragmented", "unverified"
UNVERIFIED_TEXT = (
    "internal error: the placement found does not meet the request ({fault}); the job waits, an operator must look"
)
MOST_FAULTS = 20  # that are logged
log = structlog.get_logger("rainbow")


class FreeSpace:
    """Answers in terms of demands what the occupancy answers in terms of requests."""

    def __init__(self, placing: MatcherCache, occupancy: Occupancy) -> None:
        self._placing = placing
        self._occupancy = occupancy
        self._filled: list[int] = []  # what the gang at hand holds by amounts
        self._holdings: dict[tuple[str, frozenset[Any]], Allocation] = {}  # by gang and what its tasks hold
        occupancy.begin()

    def begin(self) -> None:
        """Undo everything."""
        self._occupancy.begin()

    def empty(self) -> FreeSpace:
        """Return the same of the empty cluster, with all workers ready."""
        return FreeSpace(self._placing, type(self._occupancy)(self._placing.cluster))

    # ── take ──

    def take(
        self, demand: str, *, among: Collection[str] | None = None, kinds: frozenset[str] | None = None
    ) -> Taken | None:
        """Take what a gang asks for, lowest first, of these workers or kinds alone; None if it does not fit."""
        gang, _ = self._placing.gangs[demand]
        holding = self._occupancy.take(gang.request, among, kinds)
        if holding is None:
            return None
        take = holding.slots() if holding.slots else holding.take
        placements, located = self._placing.divide(demand, take), divided(gang, holding.pieces)
        self._holdings[demand, frozenset(located)] = holding
        return Taken(take, placements, located, holding.number)

    def fill(self, placement: Placement) -> tuple[Any, ...] | None:
        """Take amounts of workers, the lowest leaves first; where they lie, None if too little is free."""
        mark, pieces = self.mark(), list[Any]()
        for worker, amounts in placement.items():
            number = self._occupancy.hold_amounts(worker, amounts) if worker else 0
            if number is None:
                self.undo(mark)
                self._filled = []
                return None
            self._filled.append(number)
            pieces += self._occupancy.held.get(number, ())
        return tuple(pieces)

    def keep(self, worker: str, amounts: Mapping[str, int]) -> int:
        """Keep amounts of a worker, of no vertices in particular; the number to give them back by."""
        return self._occupancy.hold_amounts(worker, amounts, floating=True) or 0

    def keep_place(
        self, located: Iterable[Any], unit: str, most: int
    ) -> tuple[int, dict[str, dict[str, int]], dict[str, list[str]]]:
        """Keep what is free of a place, of a type no more than `most`: a number, amounts and vertices by worker."""
        pieces, number = (
            free_part(self._occupancy, chain.from_iterable(located), unit, most),
            self._occupancy.number(),
        )
        names, amounts = self._occupancy.workers.names, dict[str, dict[str, int]]()
        for _, worker, part in pieces:
            own, types = amounts.setdefault(names[worker], {}), self._occupancy.states[worker].stand.layout.types
            for i, amount, _ in part.amounts:
                own[types[i]] = own.get(types[i], 0) + amount
        self._occupancy.hold(number, pieces)
        return number, amounts, self.words(pieces)

    def give_back(self, number: int) -> None:
        """Give back what was taken or kept."""
        if number in self._occupancy.held:
            self._occupancy.release(number)

    def release(self, tasks: Iterable[str]) -> None:
        """Continue as if these tasks had ended."""
        for task in tasks:
            if task in self._occupancy.held:
                self._occupancy.release(task)

    def book(self, located: Iterable[Any]) -> bool:
        """Hold what was taken before, by task; return whether all of it is free."""
        mark = self.mark()
        for pieces in located:
            if not self._occupancy.has(pieces):
                self.undo(mark)
                return False
            self._occupancy.hold(self._occupancy.number(), pieces)
        return True

    def words(self, located: Any) -> dict[str, list[str]]:
        """Say where something lies, as a store keeps it."""
        return {worker: list(paths) for worker, paths in self._occupancy.words(located).items()}

    # ── undo and ask ──

    def mark(self) -> int:
        """Return a point to come back to."""
        return self._occupancy.mark()

    def undo(self, mark: int) -> None:
        """Take everything back since a mark."""
        self._occupancy.undo(mark)

    def amounts(self, worker: str) -> Mapping[str, int]:
        """Return what is free of a worker by type."""
        return self._occupancy.free(worker)

    def unproved(self, demand: str, located: Iterable[Any]) -> Wait | None:
        """Check the certificate of what a gang took; a wait if it is refused, of which the log has all."""
        of_tasks, (gang, ids) = tuple(located), self._placing.gangs[demand]
        holding, pieces = self._holdings.get((demand, frozenset(of_tasks))), list(chain.from_iterable(of_tasks))
        if holding is not None:
            certificate = holding.take.certificate(self._placing.revision)
        else:  # placed by amounts
            loose = bool(self._placing.slots(gang.request))
            rows = rows_of_amounts(gang.request, self._occupancy, pieces) if loose else None
            certificate = Certificate(0, rows or (), self._placing.revision)
        if not certificate.rows or self._placing.cluster.levels == "strict":
            self._filled = []
            count("rainbow_certificates", "none")
            return None
        mark = self.mark()
        numbers, self._filled = [holding.number] if holding is not None else self._filled, []
        for number in numbers:
            self.give_back(number)
        held, floats = others_on(self._occupancy, pieces)
        self.undo(mark)
        cluster = self._placing.cluster
        closed = {self._occupancy.workers.names[worker] for worker in self._occupancy.closed}
        question = certificate.rows, held, floats, closed
        before, wait = self._placing.refusals.get(demand, (None, None))
        if before == question:  # it is tried again when what is free has changed
            return wait
        began = perf_counter()
        faults = faults_of(gang.request, cluster, certificate, held, floats, closed)
        count("rainbow_certificates", "refused" if faults else "verified")
        if not faults:
            self._placing.proved[ids[0]] = folded(certificate, round((perf_counter() - began) * 1000, 2))
            return None
        job = demand.rpartition("/")[0]
        said = {"held": held, "floats": floats, "rows": [list(row) for row in certificate.rows]}
        log.error("unverified start", job=job, cluster=cluster.name, faults=faults[:MOST_FAULTS], **said)
        requests = [repr(tree) for tree in gang.request.variants[certificate.variant]]
        self._placing.refused[job] = {"faults": faults, "graph": certificate.graph, "request": requests, **said}
        refusal = Wait(job, UNVERIFIED, UNVERIFIED_TEXT.format(fault=faults[0]))
        self._placing.refusals[demand] = question, refusal
        return refusal

    def why(self, demand: str) -> Wait | None:
        """Say why a gang does not fit although amounts are large enough; None if they are not."""
        gang, _ = self._placing.gangs[demand]
        result = fragmented(self._occupancy, gang.request)
        return Wait(demand.rpartition("/")[0], FRAGMENTED, result.text, result.facts) if result else None
