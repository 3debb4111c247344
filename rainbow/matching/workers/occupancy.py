"""Which vertices of a cluster are held, by whom: take and release, try and undo, book what a store says.

`take` chooses what successive copies of a job get, lowest first, as `Verdict.fits` counts them. A request that takes
everything from workers is served from their states (allocation.py), several groups of slots one group after the
other; any other by the plain search over what is not taken, which costs what the cluster is large. Where workers lie
in workers, and under strict levels, nothing is served from states: what is held is positions of the whole cluster,
and what floats holds its worker whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

from rainbow.cache import LruCache, cached_property
from rainbow.certificate.document import Row as CertificateRow
from rainbow.matching.depth_first import takes_whole
from rainbow.matching.equivalence.query import Query
from rainbow.matching.fluxion import verdicts
from rainbow.matching.fluxion.traversal import Traversal, exclusive
from rainbow.matching.fluxion.traversal import TraversalState as Charged
from rainbow.matching.model.base_units import variants_on
from rainbow.matching.model.budget import FREE
from rainbow.matching.model.conditions import barred
from rainbow.matching.model.layout import OUTSIDE, layout
from rainbow.matching.model.verdict import Reason, Take
from rainbow.matching.quick_check import quick_check
from rainbow.matching.rows import by_slot
from rainbow.matching.solution import search_or_pack
from rainbow.matching.trail import Trail
from rainbow.matching.upper_bound import bound_is_exact
from rainbow.matching.workers.allocation import Allocator, CandidateHeap, shape_of
from rainbow.matching.workers.held_paths import Held, as_placed, read_ids, written, written_ids
from rainbow.matching.workers.worker_use import TakenAmounts, is_located, workers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.fluxion.traversal import TraversalResult
    from rainbow.matching.model.layout import ClusterLayout
    from rainbow.matching.rows import Row
    from rainbow.matching.workers.worker_use import UseState


class Located(NamedTuple):
    """What one slot holds of one worker; `worker` OUTSIDE: positions of the whole cluster."""

    label: str
    worker: int
    part: TakenAmounts


@dataclass(eq=False)
class Allocation:
    """What is taken, by slot, and `say`, which works it out in words of the cluster when that is looked at.

    `slots` says the same without its vertices.
    """

    pieces: Sequence[Located]
    say: Callable[[], Take]
    number: int = 0
    slots: Callable[[], Take] | None = None

    @cached_property
    def take(self) -> Take:
        """What is held by slot and worker, and by vertex."""
        return self.say()

    @property
    def vertices(self) -> Mapping[str, int]:
        """{vertex: amount}, whole subtrees by their top."""
        return self.take.vertices


Key = int | str  # of what is held: a number given out, or a name its holder gave
Pieces = tuple[Located, ...]
Groups = tuple[tuple["Request", int], ...]  # each group of slots as a request, and its place among all requests
MOST_FILLINGS = 64  # requests whose workers are kept track of
MOST_STATES = 100_000  # of one stand; beyond it those that no worker is in are forgotten


class Occupancy:
    """One cluster in use. Not for several threads at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.workers = workers_of(cluster)
        self.is_located = is_located(cluster)  # workers have states
        self.states = list(self.workers.fresh)
        self.closed: set[int] = set()  # workers that offer nothing, and keep what they hold
        self._shut, self._overfull = (
            set[int](),
            set[int](),
        )  # not ready; more was held than there is, as graphs change
        self.held: dict[Key, Pieces] = {}
        self._numbers = count(1)
        self._fillings: LruCache[tuple[bytes, frozenset[str] | None], Allocator] = LruCache(MOST_FILLINGS)
        self._groups: LruCache[bytes, Groups] = LruCache(MOST_FILLINGS)
        self._log: list[Callable[[], None]] | None = None

    # ── take and release ──

    def take(
        self, request: Request, among: Collection[str] | None = None, kinds: frozenset[str] | None = None
    ) -> Allocation | None:
        """Take one copy of a job (of these workers or kinds); None, and nothing changed, where it cannot run."""
        holding = self._found(request, among, kinds)
        if holding is not None:
            holding.number = self.number()
            self.hold(holding.number, tuple(holding.pieces))
        return holding

    def number(self) -> int:
        """Return a number that nothing was ever held under."""
        return next(self._numbers)

    def hold(self, key: Key, pieces: Pieces) -> None:
        """Hold pieces under a key that nothing is held under."""
        self.held[key] = pieces
        for _, worker, part in pieces:
            if worker != OUTSIDE:
                self._enter(worker, self.states[worker].plus(part))
        if self._log is not None:
            self._log.append(partial(self.held.__delitem__, key))

    def release(self, key: Key) -> Pieces:
        """Give back and return what is held under a key; KeyError if nothing is."""
        pieces = self.held.pop(key)
        for _, worker, part in pieces:
            if worker != OUTSIDE:
                self._enter(worker, self.states[worker].minus(part))
        if self._log is not None:
            self._log.append(partial(self.held.__setitem__, key, pieces))
        return pieces

    def hold_amounts(self, worker: str, amounts: Mapping[str, int], floating: bool = False) -> int | None:
        """Hold amounts by type of a worker, of its lowest leaves or of none in particular; None: too little free."""
        number = self.workers.numbers.get(worker)
        part = None
        if number is not None:
            stand = self.states[number].stand
            part = stand.floating(amounts) if floating else stand.loose(self.states[number], amounts)
        if number is None or part is None:
            return None
        key = self.number()
        self.hold(key, (Located("", number, part),))
        return key

    def has(self, pieces: Iterable[Located]) -> bool:
        """Return whether all of these pieces are free."""
        located = ((self.states[worker], part) for _, worker, part in pieces if worker != OUTSIDE)
        return all(state.stand.has(state, part) for state, part in located)

    def free(self, worker: str) -> Mapping[str, int]:
        """Return what is free of a worker by type."""
        return self.states[self.workers.numbers[worker]].free

    def containers(self, worker: str) -> Collection[str]:
        """Return the types of a worker's vertices that contain others: of them nothing floats."""
        return self.states[self.workers.numbers[worker]].stand.layout.compound

    def was_overfull(self, worker: str) -> bool:
        """Return whether more was held of a worker than there is, as after a change of the graph."""
        return self.workers.numbers[worker] in self._overfull

    def is_like(self, other: Occupancy, worker: str) -> bool:
        """Return whether the same vertices of a worker are held in another occupancy of the cluster."""
        number = self.workers.numbers[worker]
        return self.states[number] is other.states[number]

    def _enter(self, worker: int, state: UseState) -> None:
        if self._log is not None:
            self._log.append(partial(self._enter_quietly, worker, self.states[worker]))
        self._enter_quietly(worker, state)

    def _enter_quietly(self, worker: int, state: UseState) -> None:
        self.states[worker] = state
        if worker in self._overfull:
            self._judge(worker)
        self._changed(worker)

    def _judge(self, worker: int) -> None:
        """Close a worker that is not ready, or of which more is held than there is."""
        is_closed = worker in self._shut or (worker in self._overfull and self.states[worker].is_overfull)
        (self.closed.add if is_closed else self.closed.discard)(worker)

    def _changed(self, worker: int) -> None:
        for filling in self._fillings.values():
            filling.changed(worker)
        stand = self.states[worker].stand
        if stand.size > MOST_STATES:
            stand.forget()
            for filling in self._fillings.values():
                filling.offers.forget()

    # ── try and undo ──

    def begin(self) -> None:
        """Begin a trial: all that is done from here on can be undone. One that was not ended is undone now."""
        self.end()
        self._log = []

    def end(self) -> None:
        """Undo the trial."""
        self.undo(0)
        self._log = None

    def mark(self) -> int:
        """Return a point of the trial to come back to."""
        return len(self._log or ())

    def undo(self, mark: int) -> None:
        """Take back everything since a mark."""
        while self._log and len(self._log) > mark:
            self._log.pop()()

    # ── what a store says ──

    def book(self, key: str, held: Held | None, placement: Mapping[str, Mapping[str, int]]) -> None:
        """Hold what a store says of a task; what it does not locate, or others hold, floats by its amounts."""
        pieces: list[Located] = []
        for worker, amounts in placement.items():
            number = self.workers.numbers.get(worker)
            if number is None or not self.is_located:
                continue
            stand, state = self.states[number].stand, self.states[number]
            result = as_placed(self.workers, number, (held or {}).get(worker, ()), amounts)
            part = stand.part(result)
            part = part if stand.is_apart(state, part) else stand.part({})  # leaves may be held beyond their size
            located = stand.amounts(part)
            remaining = {type_: n - located[type_] for type_, n in amounts.items() if n > located[type_]}
            floats = stand.floating(
                {type_: n for type_, n in remaining.items() if type_ not in stand.layout.compound}
            )
            pieces += [Located("", number, each) for each in (part, floats) if each.amounts]
        pieces += self._outside(held, placement)
        self.hold(key, tuple(pieces))
        for at in {at for _, at, _ in pieces if at != OUTSIDE and self.states[at].is_overfull}:
            self._overfull.add(at)
            self._judge(at)

    def _outside(self, held: Held | None, placement: Mapping[str, Mapping[str, int]]) -> Iterator[Located]:
        """Read what lies in no worker; where workers have no states, all of what is held."""
        paths = (held or {}).get("", ())
        if paths:
            laid_out = layout(self.cluster)
            yield Located("", OUTSIDE, _part(read_ids(laid_out, paths)))
        elif held is None and not self.is_located:
            laid_out = layout(self.cluster)
            starts = {laid_out.worker_names[i]: i for i in laid_out.workers}
            wholes = {(starts[worker], True): 0 for worker in placement if worker in starts}
            yield Located("", OUTSIDE, _part(wholes))

    def words(self, pieces: Iterable[Located]) -> Held:
        """Say where pieces lie, as a store keeps it."""
        results: dict[int, dict[tuple[int, bool], int]] = {}
        for _, worker, part in pieces:
            into = results.setdefault(worker, {})
            for i, amount, whole in part.amounts:
                into[i, whole] = into.get((i, whole), 0) + amount
        outside = results.pop(OUTSIDE, None)
        said = {self.workers.names[worker]: written(self.workers, worker, held) for worker, held in results.items()}
        return {"": written_ids(layout(self.cluster), outside), **said} if outside else said

    def close(self, worker: str) -> None:
        """Let a worker offer nothing."""
        if worker in self.workers.numbers:
            self._shut.add(self.workers.numbers[worker])
            self._judge(self.workers.numbers[worker])

    def open(self, worker: str) -> None:
        """Let a worker offer what it has again."""
        number = self.workers.numbers.get(worker)
        if number is not None and number in self._shut:
            self._shut.discard(number)
            self._judge(number)
            self._changed(number)

    # ── find ──

    def offers(self, request: Request) -> CandidateHeap | None:
        """Return what workers give to a request that takes from nothing else."""
        filling = self._fillings.get((request.key, None)) or self._filling(request, None)
        return filling.offers if filling else None

    def _found(
        self, request: Request, among: Collection[str] | None, kinds: frozenset[str] | None
    ) -> Allocation | None:
        filling = self._fillings.get((request.key, kinds)) or self._filling(request, kinds)
        if filling is None and kinds is not None:
            kind_of = {name: str(kind.number) for name, kind in self.workers.by_name.items()}
            among = [name for name in (kind_of if among is None else among) if kind_of[name] in kinds]
        if filling is None:
            groups = self._groups.get(request.key)
            groups = self._groups.put(request.key, self._grouped(request)) if groups is None else groups
            taken = self._in_turn(groups, among) if groups else None
            return self._search(request, among) if taken is None else taken or None
        if among is None:
            chosen = filling.take()
        else:
            numbers = {self.workers.numbers[name] for name in among if name in self.workers.numbers}
            chosen = filling.offers.lowest(sorted(numbers - self.closed), self.states)
        if chosen is None:
            return None
        takes = [(worker, offer.take) for worker, offer in chosen]
        say = partial(self.workers.say, filling.shape.per_slot, filling.shape.unit.label, takes)
        pieces = [Located(label, w, part) for w, offer in chosen for label, part in offer.slots]
        return Allocation(pieces, say, slots=partial(say, by_vertex=False))

    def _filling(self, request: Request, kinds: frozenset[str] | None) -> Allocator | None:
        """Start to keep track of the workers for a request, if it takes from nothing else."""
        question = Query(request)
        plain = self.is_located and question.by_kinds and not question.names_workers
        variants = variants_on(request, self.workers.rooted.pools)
        shape = shape_of(variants[0], self.workers.rooted) if plain and len(variants) == 1 else None
        if shape is None:
            return None
        offers = CandidateHeap(shape, question.passes, kinds)
        return self._fillings.put((request.key, kinds), Allocator(offers, self.states, self.closed))

    def _grouped(self, request: Request) -> Groups:
        """Return a request as one for each of its groups of slots, in the search's order; none if it is more."""
        plain = len(request.variants) == 1 and 1 < len(request.resources) <= MOST_FILLINGS // 2
        trees, compound = variants_on(request, self.workers.rooted.pools)[0], self.workers.rooted.compound
        leaves = all(tree.is_slot and not any(part.children for part in tree.children) for tree in trees)
        if not (plain and leaves) or any(takes_whole(tree, compound) for tree in trees):
            return ()  # beside other groups a search chooses the smallest whole vertices, each by itself the lowest
        last_first = trees[::-1]
        ordered = sorted(last_first, key=lambda r: -r.count.min)
        groups = tuple((replace(request, variants=((tree,),)), tree.place) for tree in ordered)
        return groups if all(self._filling(one, None) is not None for one, _ in groups) else ()

    def _in_turn(self, groups: Groups, among: Collection[str] | None) -> Allocation | Literal[False] | None:
        """Take the groups in turn; False: one has no room alone; None: they are in each other's way."""
        allocations: list[Allocation] = []
        numbers: list[int] = []
        for group, _ in groups:
            holding = self._found(group, among, None)
            if holding is None:
                break
            numbers.append(self.number())
            self.hold(numbers[-1], tuple(holding.pieces))
            allocations.append(holding)
        for number in numbers:
            self.release(number)
        if len(allocations) < len(groups):
            alone = not allocations or self._found(groups[len(allocations)][0], among, None) is None
            return False if alone else None
        pieces = [piece for holding in allocations for piece in holding.pieces]
        parts = [(place, holding) for (_, place), holding in zip(groups, allocations, strict=True)]
        return Allocation(pieces, partial(_merged, parts, True), slots=partial(_merged, parts, False))

    def _search(self, request: Request, among: Collection[str] | None) -> Allocation | None:
        laid_out = layout(self.cluster)
        names = self.workers.names
        busy = {names[worker] for worker in self.closed}
        if among is not None:
            busy |= set(laid_out.worker_names.values()) - set(among)
        closed = [i for i in laid_out.workers if laid_out.worker_names[i] in busy] if busy else []
        if self.cluster.levels == "strict":
            return take_strict(request, laid_out, closed, self.held.values())
        return self._take_any(request, laid_out, closed)

    def _take_any(self, request: Request, laid_out: ClusterLayout, busy: list[int]) -> Allocation | None:
        """Take one copy of any request by the plain search."""
        taken = self.trail(request, laid_out, busy)
        starts = sorted(laid_out.workers) if self.is_located else []
        for number, resources in enumerate(variants_on(request, laid_out.pools)):
            if quick_check(resources, laid_out.by_type, laid_out):
                continue
            results = search_or_pack(
                resources, laid_out, taken, FREE if bound_is_exact(resources, laid_out) else None
            )
            if not isinstance(results, Reason):
                take = replace(results[0], variant=number)
                return Allocation(list(self._divided(results[1], laid_out, starts)), partial(_itself, take))
        return None

    def trail(self, request: Request, laid_out: ClusterLayout, busy: list[int]) -> Trail:
        """Return what is held as a search knows it."""
        taken = Trail(laid_out, barred(request.constraint, laid_out), busy)
        starts = sorted(laid_out.workers) if self.is_located else []
        held = Counter[tuple[bool, int]]()
        for i, amount, whole in _positions(self.held.values(), starts):
            held[not whole, i] += amount
        for (divisible, i), amount in sorted(held.items()):
            self._retake(taken, starts, i, amount, not divisible)
        taken.keep()
        return taken

    def _retake(self, taken: Trail, starts: list[int], i: int, amount: int, whole: bool) -> None:
        worker, k = divmod(-1 - i, _MANY) if i < 0 else (OUTSIDE, 0)  # what floats, see _positions
        at = i if i >= 0 else starts[worker]
        if taken.shut(at):
            taken.touch(at)  # it offers nothing as it is
        elif i < 0:
            taken.owe(at, self.workers.stands[worker].pools[k], amount)
        elif whole:
            taken.take_whole(at)
        else:
            taken.hold_amount(at, amount)

    def _divided(self, rows: Sequence[Row], laid_out: ClusterLayout, starts: list[int]) -> Iterator[Located]:
        """Divide what was found among slots and workers; of workers inside what is taken whole, all is taken."""
        number = {start: worker for worker, start in enumerate(starts)}
        for label, amounts in by_slot(rows):
            inside: dict[int, dict[tuple[int, bool], int]] = {}
            for (i, whole), amount in amounts.items():
                start = laid_out.worker[i]
                if start in number:
                    inside.setdefault(number[start], {})[i - start, whole] = amount
                    continue
                inside.setdefault(OUTSIDE, {})[i, whole] = amount
                for at in starts if whole else ():
                    if i <= at < laid_out.last[i]:
                        inside.setdefault(number[at], {})[0, True] = laid_out.amount(at)
            for worker, held in sorted(inside.items()):
                part = _part(held) if worker == OUTSIDE else self.workers.stands[worker].part(held)
                yield Located(label, worker, part)


_MANY = 1 << 20  # pools of a worker, at most


def _positions(held: Iterable[Pieces], starts: list[int]) -> Iterator[tuple[int, int, bool]]:
    """Yield what is held by positions of the whole cluster; what floats by worker and pool, below zero."""
    for pieces in held:
        for _, worker, part in pieces:
            for i, amount, whole in part.amounts:
                if worker == OUTSIDE:
                    yield i, amount, whole
                else:
                    yield (starts[worker] + i if i >= 0 else -1 - (worker * _MANY - 1 - i)), amount, whole


def _merged(parts: Sequence[tuple[int, Allocation]], by_vertex: bool) -> Take:
    """Say what several groups hold together; each has its place among all requests."""
    takes = [
        (place, one.take if by_vertex or one.slots is None else one.slots())
        for place, one in sorted(parts, key=itemgetter(0))
    ]
    vertices: Counter[str] = Counter()
    rows: list[CertificateRow] = []
    for place, take in takes:
        vertices.update(take.vertices)
        first = len(rows)
        for row in take.rows:
            up = row.up if row.up < 0 else row.up + first
            rows.append(row._replace(request=row.request + place, up=up))
    placed = sorted((one for _, take in takes for one in take.placed), key=itemgetter(0))
    return Take(tuple(placed), dict(vertices), tuple(rows))


def _itself(take: Take) -> Take:
    return take


def _part(amounts: Mapping[tuple[int, bool], int]) -> TakenAmounts:
    return TakenAmounts(tuple((i, amount, whole) for (i, whole), amount in sorted(amounts.items())))


def take_strict(
    request: Request, laid_out: ClusterLayout, busy: Iterable[int], held: Iterable[Pieces]
) -> Allocation | None:
    """Take one copy as Fluxion would."""
    charged = Charged()
    for i, _, whole in _positions(held, []):
        charged.fill(i, laid_out) if whole else charged.touch(i, laid_out)
    for i in busy:
        charged.fill(i, laid_out)
    for resources in request.variants:
        result = verdicts.find(Traversal(laid_out, request.constraint, charged), resources)
        if result:
            return Allocation(list(_charges(result)), partial(verdicts.take_of, result, laid_out))
    return None


def _charges(results: tuple[TraversalResult, ...]) -> Iterator[Located]:
    """Yield what a copy takes exclusively, by slot; and what it only uses, where it takes nothing below."""
    slots: dict[tuple[int, str], dict[tuple[int, bool], int]] = {}
    for i, slot in exclusive(results):
        slots.setdefault(slot, {})[i, True] = 0
    stack = list(results)
    while stack:
        hit = stack.pop()
        stack.extend(hit.below)
        if not hit.below and not hit.exclusive:
            slots.setdefault((0, ""), {})[hit.position, False] = 0
    for (_, label), amounts in sorted(slots.items()):
        yield Located(label, OUTSIDE, _part(amounts))
