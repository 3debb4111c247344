"""What is taken of a cluster and released.

What is taken of a cluster and what is free: take and release, with the semantics of matching.

`take` chooses what successive copies of a job get, lowest first, as `Verdict.fits` counts them. A request that takes
everything from workers is served from their states (allocation.py); any other by the plain search over what is not
taken, which costs what the cluster is large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from rainbow.lazy import cached_property
from rainbow.lru_cache import Memory
from rainbow.matching.equivalence.query import Question
from rainbow.matching.fluxion import verdicts
from rainbow.matching.fluxion.traversal import Held, Traversal
from rainbow.matching.model.budget import FREE
from rainbow.matching.model.conditions import barred
from rainbow.matching.model.layout import layout
from rainbow.matching.model.verdict import Reason
from rainbow.matching.search.solution import search
from rainbow.matching.search.trail import Taken
from rainbow.matching.search.upper_bound import cannot_collide
from rainbow.matching.workers.allocation import Filling, Offers, shape_of
from rainbow.matching.workers.worker_use import workers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.fluxion.traversal import Found
    from rainbow.matching.model.layout import ClusterLayout
    from rainbow.matching.model.verdict import Take
    from rainbow.matching.search.solution import Piece
    from rainbow.matching.workers.worker_use import Amounts, Part, Workers


@dataclass(eq=False)
class Holding:
    """What is taken, and `say`, which works it out in words of the cluster when that is looked at.

    parts      of workers: (worker, part)
    blocked    workers inside something that is taken whole, with all of them as their part
    elsewhere  of what lies in no worker: (position, base units, whole)
    found      under strict levels, what the traversal found
    """

    parts: Sequence[tuple[int, Part]]
    say: Callable[[], Take]
    blocked: Sequence[tuple[int, Part]] = ()
    elsewhere: Sequence[tuple[int, int, bool]] = ()
    found: tuple[Found, ...] = ()
    number: int = 0

    @cached_property
    def take(self) -> Take:
        """What is held by slot and worker, and by vertex."""
        return self.say()

    @property
    def vertices(self) -> Mapping[str, int]:
        """{vertex: amount}, whole subtrees by their top."""
        return self.take.vertices


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


def take_strict(request: Request, cluster: Cluster, holdings: Iterable[Holding]) -> Holding | None:
    """Take one copy as Fluxion would."""
    laid_out, held = layout(cluster), Held()
    for holding in holdings:
        held.take(holding.found, laid_out)
    for resources in request.variants:
        found = verdicts.find(Traversal(laid_out, request.constraint, held), resources)
        if found:
            return Holding((), partial(verdicts.take_of, found, laid_out), found=found)
    return None


def take_any(request: Request, cluster: Cluster, workers: Workers, holdings: Collection[Holding]) -> Holding | None:
    """Take one copy of any request by the plain search."""
    laid_out = layout(cluster)
    taken = Taken(laid_out, barred(request.constraint, laid_out))
    starts = sorted(laid_out.workers) if workers.are_apart else []
    for holding in holdings:
        _retake(taken, holding, starts)
    taken.keep()
    for resources in request.variants:
        found = search(resources, laid_out, taken, FREE if cannot_collide(resources, laid_out) else None)
        if not isinstance(found, Reason):
            return _held(found[0], found[1], laid_out, workers, starts)
    return None


def _retake(taken: Taken, holding: Holding, starts: list[int]) -> None:
    for i, amount, whole in (*holding.elsewhere, *_positions(holding.parts, starts)):
        if taken.layout.worker[i] in taken.barred:
            taken.touch(i)  # it offers nothing as it is
        elif whole:
            taken.take_whole(i)
        else:
            taken.promise(i, taken.layout.pool(i), amount)


def _positions(parts: Iterable[tuple[int, Part]], starts: list[int]) -> Iterable[tuple[int, int, bool]]:
    for worker, part in parts:
        for i, amount, whole in sorted(part.amounts, key=lambda held: not held[2]):
            yield starts[worker] + i, amount, whole


def _held(take: Take, pieces: list[Piece], laid_out: ClusterLayout, workers: Workers, starts: list[int]) -> Holding:
    """Divide what was found among workers and what lies elsewhere."""
    number = {start: worker for worker, start in enumerate(starts)}
    amounts: dict[tuple[int, bool], int] = {}
    for piece in pieces:
        key = (piece.position, piece.whole)
        amounts[key] = amounts.get(key, 0) + piece.amount
    wholes = [i for i, whole in amounts if whole and laid_out.worker[i] not in number]
    elsewhere: list[tuple[int, int, bool]] = []
    inside: dict[int, list[tuple[int, int, bool]]] = {}
    for (i, whole), amount in sorted(amounts.items(), key=lambda held: (not held[0][1], held[0][0])):
        start = laid_out.worker[i]
        if start not in number:
            elsewhere.append((i, amount, whole))
        elif not any(top <= start < laid_out.last[top] for top in wholes):
            inside.setdefault(number[start], []).append((i - start, amount, whole))
    parts = [(worker, _part(workers, worker, tuple(sorted(held)))) for worker, held in sorted(inside.items())]
    blocked = sorted({w for top in wholes for w in range(len(starts)) if top <= starts[w] < laid_out.last[top]})
    return Holding(
        parts,
        lambda: take,
        [(worker, _part(workers, worker, ((0, laid_out.amount(starts[worker]), True),))) for worker in blocked],
        elsewhere,
    )


def _part(workers: Workers, worker: int, amounts: Amounts) -> Part:
    return workers.stands[worker].part(amounts)
