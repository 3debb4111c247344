"""The state of a worker's use: equal states are one object that remembers what a request would take.

stand   workers of one kind below equal things: alike until something is taken
used    {position: base units taken} of leaves, and the positions taken whole; positions count within the worker
float   an amount owed by the worker as a whole, of leaves that nobody has chosen; positions below zero are its pools
part    what a request takes of one worker; two states and a part between them are found once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from rainbow.cache import cached_property
from rainbow.certificate.document import Row as CertificateRow
from rainbow.jobspec.request import PROPERTIES
from rainbow.matching.equivalence.cluster_class import cluster_class_of
from rainbow.matching.equivalence.query import Query
from rainbow.matching.equivalence.reduced_layout import Reduced
from rainbow.matching.equivalence.subtree_classes import classify, nameless, root_of
from rainbow.matching.model.base_units import variants_on
from rainbow.matching.model.conditions import barred
from rainbow.matching.model.layout import layout, parts
from rainbow.matching.model.verdict import Reason, Take
from rainbow.matching.rows import add_rows, by_slot, held_by, whole_rows
from rainbow.matching.solution import search
from rainbow.matching.trail import Trail
from rainbow.matching.upper_bound import UpperBound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rainbow.graph import Cluster
    from rainbow.graph.outline import Copy
    from rainbow.jobspec import Request, Resource
    from rainbow.matching.equivalence.cluster_class import ClusterClass
    from rainbow.matching.equivalence.subtree_classes import ClassRun, SubtreeClass
    from rainbow.matching.model.layout import Layout, Pool


def eligible_worker_classes(request: Request, cluster: Cluster) -> frozenset[str]:
    """Return the kinds (see worker_kinds) that could take a slot, or a whole node, of the preferred variant."""
    question, workers = Query(request), workers_of(cluster)
    by_kinds = workers.are_apart and question.by_kinds and not question.asks_names & nameless(cluster)
    if not by_kinds or question.names_workers:
        return _walked(request, cluster)
    open_ones = [stand for stand in workers.alike() if question.passes is None or question.passes(stand.kind)]
    requirements = [part for tree in variants_on(request, workers.rooted.pools)[0] for part in tree.walk()]
    hosts = {
        stand.kind.number
        for stand in open_ones
        for bound in [UpperBound(stand.layout, Trail(stand.layout))]
        if any(_could_host(part, 0, stand.layout, bound) for part in requirements)
    }
    return frozenset(map(str, hosts or {stand.kind.number for stand in open_ones}))


def _walked(request: Request, cluster: Cluster) -> frozenset[str]:
    """Look at one worker of each kind in the whole cluster."""
    laid_out, kinds = layout(cluster), worker_kinds(cluster)
    out = set(barred(request.constraint, laid_out))
    bound = UpperBound(laid_out, Trail(laid_out, out))
    one_of_each = {kinds[laid_out.worker_names[i]]: i for i in reversed(laid_out.workers) if i not in out}
    parts = [part for tree in variants_on(request, laid_out.pools)[0] for part in tree.walk()]
    hosts = {kind for kind, i in one_of_each.items() if any(_could_host(part, i, laid_out, bound) for part in parts)}
    return frozenset(hosts or one_of_each)


def worker_kinds(cluster: Cluster) -> dict[str, str]:
    """{worker: its kind}; workers of one kind are equal in everything that matching looks at."""
    return {name: str(kind.number) for name, kind in workers_of(cluster).by_name.items()}


def worker_capacity(cluster: Cluster) -> dict[str, dict[str, int]]:
    """{worker: {type: amount of all its vertices of that type, in base units}}, in natural order of workers."""
    workers = workers_of(cluster)
    return {name: dict(workers.capacities[kind]) for name, kind in workers.by_name.items()}


def largest_worker(cluster: Cluster, type_: str) -> int:
    """Return the largest amount of a type that one worker has, in base units."""
    return max((amounts.get(type_, 0) for amounts in workers_of(cluster).capacities.values()), default=0)


def is_located(cluster: Cluster) -> bool:
    """Return whether it is known of every task which vertices of a worker it holds; else amounts alone are."""
    return cluster.levels != "strict" and workers_of(cluster).are_apart


def types_in_workers(cluster: Cluster) -> frozenset[str]:
    """Return the types of what workers hold, their own among them."""
    return workers_of(cluster).types


def consumables(cluster: Cluster) -> dict[str, int]:
    """{type: amount of all its vertices that lie outside every worker, in base units}: racks, storage, licences."""
    sums: dict[str, int] = {}
    for kind, many in workers_of(cluster).rooted.outer.items():
        amount = kind.size if cluster.levels == "strict" else kind.amount
        sums[kind.type] = sums.get(kind.type, 0) + amount * many
    return sums


def cluster_totals(cluster: Cluster) -> dict[str, int]:
    """{type: amount of all vertices of that type, in base units}, in order of types."""
    root = cluster_class_of(cluster, root_of(cluster))
    totals = root.totals if cluster.levels == "strict" else root.amounts
    return dict(sorted(totals.items()))


def _could_host(part: Resource, i: int, laid_out: Layout, bound: UpperBound) -> bool:
    if part.is_slot:
        placed = parts(part, laid_out, 0, False).placed
        return bool(placed) and bound.capacity(placed, i, False, 1) > 0
    if part.type != laid_out.worker_type:
        return False
    return bound.can_host(part, i, False) if part.children else bound.meets(part.needs, i)


_numbers = count()
Amounts = tuple[tuple[int, int, bool], ...]  # (position, base units, whole)


class TakenAmounts:
    """What is taken of one worker."""

    __slots__ = ("amounts", "number")

    def __init__(self, amounts: Amounts) -> None:
        self.number = next(_numbers)
        self.amounts = amounts


class UseState:
    """One state of use of a stand."""

    __slots__ = ("_free", "after", "before", "number", "stand", "used", "whole")

    def __init__(self, stand: WorkerUse, used: Mapping[int, int], whole: frozenset[int]) -> None:
        self.number = next(_numbers)
        self.stand = stand
        self.used = used
        self.whole = whole
        self.after: dict[int, UseState] = {}  # by number of the part taken
        self.before: dict[int, UseState] = {}  # by number of the part given back
        self._free: dict[str, int] | None = None

    @property
    def free(self) -> Mapping[str, int]:
        """What is free of each type, in base units; a vertex in which something is held is free itself."""
        if self._free is None:
            self._free = self.stand.free_in(self)
        return self._free

    @property
    def is_overfull(self) -> bool:
        """Return whether more is held than there is, as after a change of the graph."""
        layout, pools = self.stand.layout, Counter[tuple[str, str]]()
        for i, amount in self.used.items():
            pools[self.stand.place(i)[1]] += amount
        beyond = any(i >= 0 and amount > layout.amount(i) for i, amount in self.used.items())
        return beyond or any(amount > layout.content[0].get(pool, 0) for pool, amount in pools.items())

    def plus(self, part: TakenAmounts) -> UseState:
        """The state after a part is taken."""
        if part.number not in self.after:
            used = dict(self.used)
            for i, amount, whole in part.amounts:
                if not whole:
                    used[i] = used.get(i, 0) + amount
            self.after[part.number] = self.stand.state(used, self.whole | _wholes(part))
        return self.after[part.number]

    def minus(self, part: TakenAmounts) -> UseState:
        """The state after a part is given back."""
        if part.number not in self.before:
            used = dict(self.used)
            for i, amount, whole in part.amounts:
                if not whole:
                    used[i] -= amount
            self.before[part.number] = self.stand.state(used, self.whole - _wholes(part))
        return self.before[part.number]


def _wholes(part: TakenAmounts) -> frozenset[int]:
    return frozenset(i for i, _, whole in part.amounts if whole)


class WorkerLayout(Reduced):
    """One worker, read as part of its cluster: pools and compound types are the cluster's, and what hangs above."""

    def __init__(self, kind: SubtreeClass, above: frozenset[ClassRun], whole_cluster: ClusterClass) -> None:
        super().__init__(whole_cluster.below(kind), None)
        self.pools = whole_cluster.pools
        self.compound = set(whole_cluster.compound)
        self.above = above
        self.cluster_tables = whole_cluster.tables

    def rows(self, subsystem: str, i: int) -> Iterator[Mapping[str, Any]] | None:
        """Yield the rows that serve position `i`, those above the worker included."""
        if subsystem == PROPERTIES:
            return self.rows_of_worker(i)
        if subsystem not in self.cluster_tables:
            return None
        return (row.vertex for row in self.above | self.serving(i) if row.subsystem == subsystem)


class WorkerUse:
    """Workers of one kind below equal things; `layout` is one of them."""

    def __init__(self, kind: SubtreeClass, above: frozenset[ClassRun], whole_cluster: ClusterClass) -> None:
        self.kind = kind
        self.layout = WorkerLayout(kind, above, whole_cluster)
        self.pools = sorted(self.layout.content[0])
        self.capacity = Counter[str]()
        for i, type_ in enumerate(self.layout.types):
            self.capacity[type_] += self.layout.amount(i)
        self._states: dict[Any, UseState] = {}
        self._laid: tuple[int, Trail] | None = None  # the state last looked at: a search follows its bound
        self._parts: dict[Amounts, TakenAmounts] = {}
        self._leaves_by_type: dict[str, list[tuple[int, int, Pool]]] = {}
        self.fresh = self.state({}, frozenset())

    def state(self, used: Mapping[int, int], whole: frozenset[int]) -> UseState:
        """Return the one state of such use."""
        remaining = {i: amount for i, amount in used.items() if amount}
        key = (frozenset(remaining.items()), whole)
        return self._states.get(key) or self._states.setdefault(key, UseState(self, remaining, whole))

    def part(self, amounts: Mapping[tuple[int, bool], int]) -> TakenAmounts:
        """Return the one part of {(position, whole): base units}; a leaf is held whole by holding all its units."""
        held: dict[tuple[int, bool], int] = {}
        for (i, whole), amount in amounts.items():
            key = (i, whole and not (i > 0 and self.layout.is_leaf(i)))
            held[key] = held.get(key, 0) + amount
        known = tuple((i, amount, whole) for (i, whole), amount in sorted(held.items()))
        return self._parts.get(known) or self._parts.setdefault(known, TakenAmounts(known))

    def place(self, i: int) -> tuple[int, Pool]:
        """Return the vertex and the pool that an amount is owed by."""
        return (i, self.layout.pool(i)) if i >= 0 else (0, self.pools[-1 - i])

    def floating(self, amounts: Mapping[str, int]) -> TakenAmounts:
        """Return the part that holds amounts by type of no vertices in particular, as much as there is of them."""
        remaining, held = dict(amounts), dict[tuple[int, bool], int]()
        for k, pool in enumerate(self.pools):
            if units := min(remaining.get(pool[0], 0), self.layout.content[0][pool]):
                held[-1 - k, False] = units
                remaining[pool[0]] -= units
        return self.part(held)

    def amounts(self, part: TakenAmounts) -> Counter[str]:
        """Sum a part by type; what is held in a vertex that it holds whole counts once."""
        result, inside = Counter[str](), set[int]()
        for i, _, whole in part.amounts:
            if whole:
                inside.update(range(i, self.layout.last[i]))
        for i in inside:
            result[self.layout.types[i]] += self.layout.amount(i)
        for i, amount, whole in part.amounts:
            if not whole and i not in inside:
                result[self.place(i)[1][0]] += amount
        return result

    def free_in(self, state: UseState) -> dict[str, int]:
        """Return what is free of each type in a state."""
        held = self.amounts(
            TakenAmounts((*((i, n, False) for i, n in state.used.items()), *((i, 0, True) for i in state.whole)))
        )
        return {type_: max(0, amount - held[type_]) for type_, amount in self.capacity.items()}

    def has(self, state: UseState, part: TakenAmounts) -> bool:
        """Return whether what a part names is free, floating amounts aside."""
        leaves = ((i, n) for i, n, whole in part.amounts if not whole and i >= 0)
        room = all(state.used.get(i, 0) + n <= self.layout.amount(i) for i, n in leaves)
        return room and self.is_apart(state, part)

    def is_apart(self, state: UseState, part: TakenAmounts) -> bool:
        """Return whether nothing of a part is in what is held whole, and what it holds whole is not used."""
        for i, _, whole in part.amounts:
            above = set(self.layout.up(i)) if i >= 0 else set[int]()
            inside = range(i, self.layout.last[i]) if whole else ()
            if above & state.whole or any(at in state.used or at in state.whole for at in inside):
                return False
        return True

    def loose(self, state: UseState, amounts: Mapping[str, int]) -> TakenAmounts | None:
        """Choose leaves for amounts by type, lowest first; None where too little is free."""
        blocked = {at for i in state.whole for at in range(i, self.layout.last[i])}
        chosen: dict[tuple[int, bool], int] = {}
        for type_, requirement in amounts.items():
            leaves = [
                (i, size - state.used.get(i, 0), pool) for i, size, pool in self._leaves(type_) if i not in blocked
            ]
            spare = {pool: -state.used.get(-1 - k, 0) for k, pool in enumerate(self.pools) if pool[0] == type_}
            for _, room, pool in leaves:
                spare[pool] += room
            for i, room, pool in leaves if requirement else ():
                if (units := min(requirement, room, spare[pool])) > 0:
                    chosen[i, False] = units
                    spare[pool] -= units
                    requirement -= units
            if requirement:
                return None
        return self.part(chosen)

    def _leaves(self, type_: str) -> list[tuple[int, int, Pool]]:
        """Return the leaves of a type: position, size in base units, pool."""
        if type_ not in self._leaves_by_type:
            layout = self.layout
            positions = filter(layout.is_leaf, layout.by_type.get(type_, ()))
            self._leaves_by_type[type_] = [(i, layout.amount(i), layout.pool(i)) for i in positions]
        return self._leaves_by_type[type_]

    def forget(self) -> None:
        """Forget the states on the way; workers keep the ones they are in."""
        for state in self._states.values():
            state.after.clear()
            state.before.clear()
        self._parts.clear()
        self._states = {(frozenset(), frozenset()): self.fresh}

    @property
    def size(self) -> int:
        """How many states are remembered."""
        return len(self._states)

    def find(self, resource: Resource, state: UseState) -> tuple[TakenAmounts, Take, Slots] | None:
        """Choose what a request takes of a worker in some state, lowest first: in all, in words, and by slot."""
        if 0 in state.whole:
            return None
        if self.is_whole(resource):
            return self._all_of(resource) if state is self.fresh else None
        result = search((resource,), self.layout, self.taken(state))
        if isinstance(result, Reason):
            return None
        take, rows = result
        slots = [(label, self.part(held)) for label, held in by_slot(rows)]
        return (slots[0][1] if len(slots) == 1 else self.part(held_by(rows))), take, tuple(slots)

    def most(self, resource: Resource, state: UseState, enough: int) -> int:
        """Bound how many units of a request a worker in some state gives."""
        if 0 in state.whole:
            return 0
        if self.is_whole(resource):
            return int(state is self.fresh)
        return UpperBound(self.layout, self.taken(state)).available(resource, 0, 0, enough=enough)

    def is_whole(self, resource: Resource) -> bool:
        """Return whether a request, or a slot of it alone, is one worker with all in it: no search is needed."""
        inner = resource.children[0] if resource.is_slot and len(resource.children) == 1 else resource
        plain = not (resource.needs or inner.needs or inner.children) and inner.count.min == resource.count.min == 1
        return plain and inner.type == self.layout.types[0] and not self.layout.is_leaf(0)

    def _all_of(self, resource: Resource) -> tuple[TakenAmounts, Take, Slots]:
        """Return what `find` does of a worker that is taken whole."""
        amount = self.layout.amount(0)
        part, label = self.part({(0, True): amount}), resource.label if resource.is_slot else ""
        held = {self.layout.worker_names[0]: dict(self.capacity)}
        rows = whole_rows(resource, self.layout.vertex(0), amount, self.layout.worker_level_types)
        return part, Take(((label, held),), {self.layout.vertex(0): amount}, rows), ((label, part),)

    def taken(self, state: UseState) -> Trail:
        """Lay out what is taken in a state, to be searched; a search that changes it undoes that."""
        if self._laid is None or self._laid[0] != state.number:
            taken = Trail(self.layout)
            for i in sorted(state.whole):
                taken.take_whole(i)
            for i, amount in state.used.items():
                if i >= 0:
                    taken.hold_amount(i, amount)
                else:
                    taken.promise(*self.place(i), amount)
            taken.keep()
            self._laid = (state.number, taken)
        return self._laid[1]


Slots = tuple[tuple[str, TakenAmounts], ...]  # what each slot holds of a worker, with its label


class WorkerSlot(NamedTuple):
    """One vertex: its entry in the outline, the copy it is, its kind, and the rows attached to what contains it."""

    entry: int
    copy: Copy
    kind: SubtreeClass
    above: frozenset[ClassRun]


class Workers:
    """The workers, depth first; none are numbered where one may lie in another (`are_apart` False)."""

    def __init__(self, cluster: Cluster) -> None:
        self.outline = cluster.outline
        self._named, self._strict = cluster.workers, cluster.levels == "strict"
        self.kinds, _ = classify(cluster)
        self.rooted = cluster_class_of(cluster, self.kinds[0])
        self.are_apart = not self.rooted.has_nested_workers
        self.spots = list(self._spots()) if self.are_apart else []
        self.names = [cluster.worker_names[spot.copy.id] for spot in self.spots]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        known: dict[tuple[SubtreeClass, frozenset[ClassRun]], WorkerUse] = {}
        for spot in self.spots:
            if (spot.kind, spot.above) not in known:
                known[spot.kind, spot.above] = WorkerUse(spot.kind, spot.above, self.rooted)
        self.stands = [known[spot.kind, spot.above] for spot in self.spots]
        self.fresh = [stand.fresh for stand in self.stands]

    def _spots(self) -> Iterator[WorkerSlot]:
        outline, root = self.outline, self.rooted
        stack = [WorkerSlot(0, next(outline.copies(0)), self.kinds[0], frozenset())]
        while stack:
            spot = stack.pop()
            if root.is_worker(spot.kind):
                yield spot
                continue
            above = spot.above | spot.kind.rows if spot.kind.rows else spot.above
            for entry, first, many in reversed(outline.below[spot.entry]):
                if root.worker_type in self.kinds[entry].types:  # other branches are not entered
                    numbers = range(first + many - 1, first - 1, -1) if outline.counts[entry] else (None,)
                    copies = (outline.copy(entry, spot.copy, number) for number in numbers)
                    stack.extend(WorkerSlot(entry, copy, self.kinds[entry], above) for copy in copies)

    @cached_property
    def by_name(self) -> Mapping[str, SubtreeClass]:
        """{name: kind} of all workers, those in others too, in natural order of names."""
        outline = self.outline
        entries = [e for e, fields in enumerate(outline.fields) if fields.type == self.rooted.worker_type] or [0]
        kinds = {copy.id: self.kinds[entry] for entry in entries for copy in outline.copies(entry)}
        return {name: kinds[vertex] for name, vertex in self._named.items()}

    @cached_property
    def capacities(self) -> dict[SubtreeClass, Mapping[str, int]]:
        """{kind of worker: {type: amount}}."""
        roots = {kind: self.rooted.below(kind) for kind in set(self.by_name.values())}
        return {kind: root.totals if self._strict else root.amounts for kind, root in roots.items()}

    @cached_property
    def types(self) -> frozenset[str]:
        """The types of all vertices in workers."""
        return frozenset().union(*self.capacities.values())

    def alike(self) -> dict[WorkerUse, list[int]]:
        """{stand: its workers}, in the order of their first workers."""
        result: dict[WorkerUse, list[int]] = {}
        for worker, stand in enumerate(self.stands):
            result.setdefault(stand, []).append(worker)
        return result

    def say(self, per_slot: int, outer: str, parts: Sequence[tuple[int, Take]], by_vertex: bool = True) -> Take:
        """Put together what single workers give; `per_slot` of them in turn make one slot `outer`, 0: no slot."""
        vertices: dict[str, int] = {}
        rows: list[CertificateRow] = []
        placed: list[tuple[str, dict[str, Mapping[str, int]]]] = []
        merged: dict[int, dict[str, Mapping[str, int]]] = {}
        for place, (worker, take) in enumerate(parts):
            name = self.names[worker]
            if by_vertex:
                add_rows(rows, take.rows, bool(per_slot and place % per_slot), partial(self.vertex, worker))
                vertices.update((self.vertex(worker, int(i)), amount) for i, amount in take.vertices.items())
            first = next((number for number, (label, _) in enumerate(take.placed) if label == outer), 0)
            for number, (label, held) in enumerate(take.placed):  # a slot in the slot may come before it by its label
                shared = not label or (per_slot and number == first)
                key = place // per_slot if per_slot and label else -1
                into = merged.get(key) if shared else None
                if into is None:
                    into = {}
                    placed.append((label, into))
                    if shared:
                        merged[key] = into
                into.update((name, amounts) for amounts in held.values())
        return Take(tuple(sorted(placed, key=lambda slot: slot[0])), vertices, tuple(rows))

    def vertex(self, worker: int, i: int) -> str:
        """The id of the vertex at a position within a worker."""
        inside, way = self.stands[worker].layout, []
        while i:
            way.append(i)
            i = inside.parents[i]
        entry, copy = self.spots[worker].entry, self.spots[worker].copy
        for at in reversed(way):
            entry, copy = self.outline.at(entry, copy, inside.places[at])
        return copy.id


_workers: WeakKeyDictionary[Cluster, Workers] = WeakKeyDictionary()


def workers_of(cluster: Cluster) -> Workers:
    """Return the workers of a cluster, found at the first call and kept as long as the cluster.

    Threads that ask at once get the same: states are compared by identity.
    """
    result = _workers.get(cluster)
    return _workers.setdefault(cluster, Workers(cluster)) if result is None else result
