"""The recurrence for many clusters at once: columns of all their kinds, level by level, as arrays.

    state   (kind, within): a kind inside a worker, or not; shared by all roots of the batch
    level   states of one height; what they contain has its columns already
    group   neighbouring states of a level that are alike but for their amounts, see columns.Vertex

A level's sums are one product of a sparse matrix (states × what they contain) with the columns of what is below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from rainbow.cache import LazyModule, LruCache, Overlay, cached_property
from rainbow.matching.equivalence.cluster_class import RowTable, tables
from rainbow.matching.equivalence.count_recurrence import CountRecurrence
from rainbow.matching.equivalence.subtree_classes import ClassRun
from rainbow.matching.model.base_units import variants_on
from rainbow.matching.model.budget import FREE, Budget, Meter, OutOfBudgetError
from rainbow.matching.upper_bound import bound_is_exact, may_take_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rainbow.graph import Cluster
    from rainbow.jobspec import Need, Resource
    from rainbow.matching.equivalence.cluster_class import ClusterClass
    from rainbow.matching.equivalence.count_scalar import Satisfied
    from rainbow.matching.equivalence.query import Query
    from rainbow.matching.equivalence.subtree_classes import Pool, SubtreeClass
else:  # few clusters are counted one by one
    np = LazyModule("numpy")


NONE: frozenset[int] = frozenset()
MOST_CELLS = 4_000_000  # of a batch's columns; a request too wide for them is counted one cluster at a time
LARGEST = 2**62  # amounts beyond it are counted in Python's integers, one cluster at a time


class BatchState(NamedTuple):
    """A kind, inside a worker or not; `place` sorts a level into groups."""

    kind: SubtreeClass
    within: bool
    is_worker: bool

    @property
    def place(self) -> tuple[Any, ...]:
        """Sort key: the level, then what a group has in common."""
        kind = self.kind
        return (kind.height, kind.type, kind.unit, kind.is_leaf, self.is_worker, self.within)


@dataclass(slots=True)
class Group:
    """A run of states, as columns ask about them."""

    first: int
    last: int
    type: str
    unit: str
    pool: Pool
    is_leaf: bool
    is_worker: bool
    within: bool
    amount: NDArray[np.int64]
    loose: NDArray[np.bool_]
    kinds: list[SubtreeClass]
    asking: _Asking | None = None

    def own(self, need: Need) -> Any:
        """How many rows attached to each meet a need."""
        return self.asking.own(need)[self.first : self.last] if self.asking else 0

    def inherits(self, need: Need) -> bool:
        """Whether something attached to the root meets a need."""
        return self.asking is not None and need.number in self.asking.inherited


class Contents(NamedTuple):
    """The children of a group's states, one state after another; `starts` tells where each begins."""

    states: NDArray[np.int64]
    many: NDArray[np.int64]
    starts: NDArray[np.int64]


class _Asking:
    """The needs of one question, asked of all states."""

    def __init__(self, states: Sequence[BatchState], satisfied: Satisfied, inherited: frozenset[int]) -> None:
        self.states = states
        self.satisfied = satisfied
        self.inherited = inherited
        self._own: dict[int, NDArray[np.int64]] = {}

    def own(self, need: Need) -> NDArray[np.int64]:
        if need.number not in self._own:
            rows = self.satisfied[need.number]
            met = [bool(state.kind.rows) and not rows.isdisjoint(state.kind.rows) for state in self.states]
            self._own[need.number] = np.array(met, dtype=np.int64)
        return self._own[need.number]


class ArrayCount:
    """Roots that agree in worker types and in the forms of their vertices (Rooted.forms)."""

    def __init__(self, roots: Sequence[ClusterClass]) -> None:
        self.roots = roots
        self.like = roots[0]
        self.numbers = [root.number for root in roots]
        self._tables: dict[str, RowTable] | None = None
        self.states = sorted(self._states(), key=lambda state: state.place)
        at = {(state.kind, state.within): i for i, state in enumerate(self.states)}
        self.at_root = np.array([at[root.kind, False] for root in roots])
        self._loose = frozenset[int]().union(*(root.loose for root in roots))
        self.groups = [self._group(list(states)) for _, states in groupby(self.states, lambda s: s.place)]
        first = 0
        for group in self.groups:
            group.first, group.last = first, first + len(group.kinds)
            first = group.last
        self.below = [self._contents(group, at) for group in self.groups]
        self.rows = len(self.states) + sum(len(below.states) for below in self.below if below is not None)
        self.loose = np.array([root.kind.number in root.loose for root in roots])

    def _states(self) -> set[BatchState]:
        result: set[BatchState] = set()
        for root in self.roots:
            stack = [(root.kind, False)]
            while stack:
                kind, inside = stack.pop()
                is_worker = not inside and root.is_worker(kind)
                state = BatchState(kind, inside, is_worker)
                if state not in result:
                    result.add(state)
                    stack.extend((child, inside or is_worker) for child in kind.children)
        return result

    def _group(self, states: list[BatchState]) -> Group:
        kinds = [state.kind for state in states]
        one = states[0]
        return Group(
            0,
            0,
            one.kind.type,
            one.kind.unit,
            one.kind.pool,
            one.kind.is_leaf,
            one.is_worker,
            one.within or one.is_worker,
            np.array([kind.amount for kind in kinds], dtype=np.int64),
            np.array([not one.within and kind.number in self._loose for kind in kinds]),
            kinds,
        )

    def _contents(self, group: Group, at: dict[tuple[SubtreeClass, bool], int]) -> Contents | None:
        """What the states of a group contain."""
        if group.is_leaf:
            return None
        children = [(at[child, group.within], many) for kind in group.kinds for child, many in kind.children.items()]
        lengths = [len(kind.children) for kind in group.kinds]
        starts = np.cumsum([0, *lengths[:-1]])
        states, many = np.array(children, dtype=np.int64).T
        return Contents(states, many[:, None], starts)

    def holds(
        self, question: Query, resources: tuple[Resource, ...], meter: Meter = FREE
    ) -> NDArray[np.bool_] | None:
        """Tell of every root whether each part of a variant finds enough there; None if that cannot be batched."""
        if any(part.count.min >= LARGEST for top in resources for part in top.walk()):
            return np.zeros(len(self.roots), dtype=bool)  # more than any root has: see `largest` of ClusterClass
        if any(self._shares_out(child) for top in resources for r in top.walk() if r.is_slot for child in r.children):
            return None
        satisfied = {need.number: self._meeting(need) for need in question.needs}
        program = CountRecurrence(resources, self.like, np.minimum)
        if program.width * self.rows > MOST_CELLS:
            return None
        meter.check()
        if any(satisfied.values()) and self._hangs_between(program, satisfied):
            return None
        masks = self._inherited(satisfied) if any(satisfied.values()) else [NONE] * len(self.roots)
        holds = np.zeros(len(self.roots), dtype=bool)
        for mask in set(masks):
            mine = np.array([other == mask for other in masks])
            result = self._columns(program, question, _Asking(self.states, satisfied, mask), meter)[
                self.at_root[mine]
            ]
            holds[mine] = self._enough(program, resources, result, self.loose[mine])
        return holds

    def _shares_out(self, child: Resource) -> bool:
        """Return whether what one slot takes of whole vertices depends on their sizes, which differ between roots."""
        return may_take_whole(child, self.like.compound) and child.type not in self._single

    @cached_property
    def _single(self) -> frozenset[str]:
        """The types whose vertices are of size 1 in every root."""
        types = {state.kind.type for state in self.states}
        return frozenset(types - {state.kind.type for state in self.states if state.kind.amount != 1})

    def _meeting(self, need: Need) -> frozenset[ClassRun]:
        if self._tables is None:
            self._tables = tables({row for state in self.states for row in state.kind.rows})
        return self._tables[need.subsystem].meeting(need) if need.subsystem in self._tables else frozenset()

    def _inherited(self, satisfied: Satisfied) -> list[frozenset[int]]:
        """The needs that what is attached to each root meets for everything below it."""
        met = [(need, rows) for need, rows in satisfied.items() if rows]
        return [
            frozenset(need for need, rows in met if not rows.isdisjoint(root.kind.rows)) if root.kind.rows else NONE
            for root in self.roots
        ]

    def _hangs_between(self, program: CountRecurrence, satisfied: Satisfied) -> bool:
        """Return whether what meets a need hangs above a vertex with needs, and not on the root."""
        met = frozenset[ClassRun]().union(*satisfied.values())
        asking = program.types_with_needs()
        roots = {root.kind for root in self.roots}
        return any(
            not met.isdisjoint(state.kind.rows) and any(not asking.isdisjoint(k.types) for k in state.kind.children)
            for state in self.states
            if state.kind.rows and state.kind not in roots
        )

    def _columns(self, program: CountRecurrence, question: Query, asking: _Asking, meter: Meter) -> NDArray[np.int64]:
        columns = np.zeros((len(self.states), program.width), dtype=np.int64)
        for group, below in zip(self.groups, self.below, strict=True):
            meter.check()
            group = replace(group, asking=asking)
            numbers = np.zeros((len(group.kinds), program.width), dtype=np.int64)
            if below is not None:
                numbers = np.add.reduceat(below.many * columns[below.states], below.starts, axis=0)
            sums = [numbers[:, column] for column in range(program.width)]
            for column, values in enumerate(self._local(program, question, group, sums, meter)):
                columns[group.first : group.last, column] = values
        return columns

    def _local(
        self, program: CountRecurrence, question: Query, group: Group, sums: list[Any], meter: Meter
    ) -> list[Any]:
        result = program.local(group, sums)
        if not group.is_worker or question.passes is None:
            return result
        passing = np.array([question.passes(kind, meter) for kind in group.kinds])
        return [np.where(passing, f, b) for f, b in zip(result, program.barred(group, sums), strict=True)]

    def _enough(
        self,
        program: CountRecurrence,
        resources: tuple[Resource, ...],
        result: NDArray[np.int64],
        loose: NDArray[np.bool_],
    ) -> NDArray[np.bool_]:
        root = replace(self.groups[-1], loose=loose, within=False, asking=None)
        columns = [result[:, column] for column in range(program.width)]
        enough = np.ones(len(result), dtype=bool)
        for part, resource in zip(program.tops, resources, strict=True):
            enough &= program.available(part, root, columns) >= resource.count.min
        return enough


MOST_BATCHES = 64


_batches: LruCache[tuple[int, ...], ArrayCount] = LruCache(MOST_BATCHES)


def batch_of(roots: Sequence[ClusterClass]) -> ArrayCount:
    """Return the batch of some roots, kept while it is used."""
    key = tuple(root.number for root in roots)
    return _batches.get(key) or _batches.put(key, ArrayCount(roots))


# ── a list of clusters ──

MOST_ROOTS = 2_048  # in one batch: a cluster that comes or goes makes one batch new, not all


MOST_ANSWERS = 1_024
OPEN = -1


class Division(NamedTuple):
    """A batch, and where its answers belong: `rows` of the batch at `places` of the catalogue."""

    batch: ArrayCount
    rows: NDArray[np.intp]
    places: NDArray[np.intp]


MOST_CHANGED = 16  # places in which a catalogue may differ from the one it is made of
MOST_DIVISIONS = 64  # more are divided anew
FEW_ROOTS = 16  # roots that are put into one batch with those that come after


class EarlierAnswers(NamedTuple):
    """What was answered, by place, and what marked the clusters then."""

    marks: Overlay[object]
    holds: NDArray[np.int8]


P = TypeVar("P", bound="Prepared")


class Prepared(Protocol):
    """What is kept of a cluster: its root, and what kinds can answer of it."""

    nameless: frozenset[str]
    rooted: ClusterClass
    is_plain: bool
    mark: object  # another of every other


class Catalogue(Generic[P]):
    """The clusters of one list; a list with another cluster in it is another catalogue."""

    def __init__(self, clusters: Sequence[Cluster], compiled: Callable[[Cluster], P]) -> None:
        self._given = clusters if isinstance(clusters, Overlay) else Overlay(clusters)  # the caller's list may grow
        self.clusters = Overlay(sorted(clusters, key=attrgetter("sort_key")))
        self.compiled = Overlay(compiled(cluster) for cluster in self.clusters)
        self._marks = Overlay(one.mark for one in self.compiled)
        self._nameless = frozenset[str]().union(*{one.nameless for one in self.compiled})
        self._divided: dict[frozenset[str], list[Division]] = {}  # by the nameless subsystems whose names are asked
        self._known: LruCache[bytes, EarlierAnswers] = LruCache(MOST_ANSWERS)  # one with those made of this catalogue

    def lists(self, clusters: Sequence[Cluster]) -> bool:
        """Return whether the catalogue was made of just these clusters."""
        return clusters is self._given or (
            len(clusters) == len(self._given) and next(self._given.differing(clusters), None) is None
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the clusters, the same of a catalogue made of this one."""
        return tuple(cluster.name for cluster in self.clusters)

    def with_others(self, clusters: Sequence[Cluster], compiled: Callable[[Cluster], P]) -> Catalogue[P] | None:
        """Return the catalogue of a list in order of name that has other clusters in few places; None of others."""
        if not isinstance(clusters, Overlay) or len(clusters) != len(self.clusters):
            return None
        changed = list(islice(self._given.differing(clusters), MOST_CHANGED + 1))
        if len(changed) > MOST_CHANGED or any(self.clusters[at] is not self._given[at] for at in changed):
            return None
        if any(clusters[at].name != self.clusters[at].name for at in changed):
            return None
        made, others = copy(self), {at: clusters[at] for at in changed}
        made._given, made.clusters = clusters, self.clusters.with_others(others)
        made.compiled = self.compiled.with_others({at: compiled(one) for at, one in others.items()})
        made._nameless = self._nameless.union(*(made.compiled[at].nameless for at in changed))
        made._marks = self._marks.with_others({at: made.compiled[at].mark for at in changed})
        divided = {asks: made._divided_again(known, asks, changed) for asks, known in self._divided.items()}
        made._divided = {asks: known for asks, known in divided.items() if len(known) <= MOST_DIVISIONS}
        return made

    def _divided_again(
        self, known: Sequence[Division], asks_names: frozenset[str], changed: list[int]
    ) -> list[Division]:
        """Return batches without the places that have changed, and those of these and of batches of few."""
        stored, others = [], set(changed)
        as_before = np.ones(len(self.clusters), dtype=bool)
        as_before[changed] = False
        for batch, rows, places in known:
            same = as_before[places]
            if np.count_nonzero(same) > FEW_ROOTS:
                stored.append(Division(batch, rows[same], places[same]))
            else:
                others |= set(places[same].tolist())
        return [*stored, *self._divide(asks_names, sorted(others))]

    def forget(self) -> None:
        """Forget every answer."""
        self._known.clear()

    def holds(self, question: Query, budget: Budget) -> NDArray[np.int8]:
        """Return by place whether the cluster holds the request: 1, 0, or OPEN where no batch decides it in time."""
        known = self._known.get(question.request.key)
        if known is not None and known.marks is self._marks:
            return known.holds
        result, is_whole = self._ask(question, Meter(budget.clock, budget.query), known)
        if is_whole:
            self._known.put(question.request.key, EarlierAnswers(self._marks, result))
        return result

    def _ask(self, question: Query, meter: Meter, known: EarlierAnswers | None) -> tuple[NDArray[np.int8], bool]:
        """Ask batch after batch what is not known; return whether there was time for all of them."""
        todo = np.full(len(self.clusters), known is None)
        if known is not None:
            todo[list(known.marks.differing(self._marks))] = True
        answers = np.where(todo, np.int8(OPEN), known.holds if known else np.int8(OPEN))
        if not question.by_kinds or question.names_workers:
            return answers, True
        for batch, rows, places in self.divisions(question.asks_names):
            if not todo[places].any():
                continue
            try:
                result = _holds(batch, question, meter)
            except OutOfBudgetError:
                return answers, False
            if result is not None:
                answers[places] = result[rows]
        return answers, True

    def divisions(self, asks_names: frozenset[str]) -> list[Division]:
        """Return the batches of the clusters that batches can decide."""
        key = asks_names & self._nameless
        if key not in self._divided:
            self._divided[key] = list(self._divide(key, range(len(self.compiled))))
        return self._divided[key]

    def _divide(self, asks_names: frozenset[str], among: Iterable[int]) -> Iterator[Division]:
        at: dict[int, list[int]] = {}  # number of a root: places
        roots: dict[int, ClusterClass] = {}
        for place in among:
            one = self.compiled[place]
            if one.is_plain and one.rooted.largest < LARGEST and not asks_names & one.nameless:
                at.setdefault(one.rooted.number, []).append(place)
                roots[one.rooted.number] = one.rooted
        for batch in _divide(roots):
            pairs = [(row, place) for row, number in enumerate(batch.numbers) for place in at[number]]
            rows, places = np.array(pairs, dtype=np.intp).T
            yield Division(batch, rows, places)


def _divide(roots: Mapping[int, ClusterClass]) -> Iterator[ArrayCount]:
    """Divide roots by their forms, and those of one form in the order of their numbers."""
    alike: dict[object, list[ClusterClass]] = {}
    for number in sorted(roots):
        alike.setdefault(roots[number].forms, []).append(roots[number])
    for some in alike.values():
        for first in range(0, len(some), MOST_ROOTS):
            yield batch_of(some[first : first + MOST_ROOTS])


def _holds(batch: ArrayCount, question: Query, meter: Meter) -> NDArray[np.bool_] | None:
    """Ask for every variant; None where siblings may collide, or a need is met in between."""
    variants = variants_on(question.request, batch.like.pools)
    if not all(bound_is_exact(resources, batch.like, meter) for resources in variants):
        return None
    results = [batch.holds(question, resources, meter) for resources in variants]
    known = [holds for holds in results if holds is not None]
    return reduce(lambda one, other: one | other, known) if len(known) == len(results) else None
