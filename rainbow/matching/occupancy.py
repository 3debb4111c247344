"""What is taken of a cluster and what is free: take and release, with the semantics of matching.

`take` chooses what successive copies of a job get, lowest first, as `Verdict.fits` counts them. A request that takes
everything from workers is served from their states (filling.py); any other by the plain search over what is not
taken, which costs what the cluster is large.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from rainbow.matching.filling import Filling, Offers, shape_of
from rainbow.matching.holding import Holding
from rainbow.matching.memory import Memory
from rainbow.matching.question import Question
from rainbow.matching.searching import take_any, take_strict
from rainbow.matching.workers import workers_of

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request

MOST_FILLINGS = 64  # requests whose workers are kept track of
MOST_STATES = 100_000  # of one stand; beyond it those that no worker is in are forgotten


class Occupancy:
    """One cluster in use. Not for several threads at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.workers = workers_of(cluster)
        self._is_plain = self.workers.are_apart and cluster.levels != "strict"
        self.states = [stand.fresh for stand in self.workers.stands]
        self.held: dict[int, Holding] = {}
        self._numbers = count(1)
        self._fillings: Memory[bytes, Filling] = Memory(MOST_FILLINGS)

    def take(self, request: Request) -> Holding | None:
        """Take one copy of a job; None, and nothing changed, where it cannot run now."""
        holding = self._take(request)
        if holding is not None:
            holding.number = next(self._numbers)
            self.held[holding.number] = holding
        return holding

    def release(self, number: int) -> None:
        """Give back what a job holds; KeyError if nothing is held under that number."""
        holding = self.held.pop(number)
        for worker, part in (*holding.parts, *holding.blocked):
            self.states[worker] = self.states[worker].minus(part)
            self._changed(worker)

    def _take(self, request: Request) -> Holding | None:
        filling = self._fillings.get(request.key) or self._filling(request)
        if filling is None:
            return self._search(request)
        chosen = filling.take()
        if chosen is None:
            return None
        for worker, _, _ in chosen:
            self._changed(worker)
        takes = [(worker, offer.take) for worker, offer, _ in chosen]
        say = partial(self.workers.say, filling.shape.per_slot, takes)
        return Holding([(worker, offer.part) for worker, offer, _ in chosen], say)

    def _filling(self, request: Request) -> Filling | None:
        """Start to keep track of the workers for a request, if it takes from nothing else."""
        question = Question(request)
        plain = self._is_plain and question.by_kinds and not question.names_workers
        shape = shape_of(request.resources, self.workers.rooted) if plain and len(request.variants) == 1 else None
        if shape is None:
            return None
        return self._fillings.put(request.key, Filling(Offers(shape, question.passes), self.states))

    def _search(self, request: Request) -> Holding | None:
        if self.cluster.levels == "strict":
            return take_strict(request, self.cluster, self.held.values())
        holding = take_any(request, self.cluster, self.workers, self.held.values())
        for worker, part in (*holding.parts, *holding.blocked) if holding else ():
            self.states[worker] = self.states[worker].plus(part)
            self._changed(worker)
        return holding

    def _changed(self, worker: int) -> None:
        state = self.states[worker]
        for filling in self._fillings.values():
            filling.changed(worker, state)
        if state.stand.size > MOST_STATES:
            state.stand.forget()
            for filling in self._fillings.values():
                filling.forget()
