"""A cluster's vertices in depth-first order, so that a subtree is an interval; and where slots can be.

position   number of a vertex in depth-first order, children in natural order; 0 is the root
last       one past the last position of the subtree of a vertex
pool       (type, quantity): what divisible amounts are counted in, in base units of the quantity
leaf       a vertex that contains nothing: its size can be divided among requests
worker     position of the worker a vertex lies in (itself included), OUTSIDE if it lies in none
weight     how much a subtree contains, over all pools

A slot above the workers takes what is of worker level from one place. A slot's host is the vertex matched by the
request above it. If the host lies inside a worker, all of the slot comes from below the host. If it lies above the
workers, or there is none, the types of worker level come from one worker (or from what lies outside every worker) and
everything else from anywhere below the host.

A slot's needs belong to its host; without one to each worker it asks for, else to the place it takes from, else to
each vertex it takes.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.cache import cached_property
from rainbow.jobspec.attributes import OWN_FIELDS
from rainbow.jobspec.quantities import quantity
from rainbow.jobspec.request import CONTAINMENT, PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import networkx as nx

    from rainbow.graph import Cluster
    from rainbow.jobspec import Need, Resource


def pools_of(request: Resource, pools: Pools) -> Iterator[tuple[Pool, int]]:
    """Yield each of `pools` that can serve a request, with base units per unit asked for.

    A unit asked for must be of the pool's quantity; without one, amounts are in the vertices' own unit.
    """
    requirement, factor = quantity(request.unit)
    for pool, largest in pools.by_type.get(request.type, ()):
        if not request.unit or pool[1] == requirement:
            yield pool, factor if request.unit else largest


OUTSIDE = -1
Pool = tuple[str, str]


class Pools(dict[Pool, int]):
    """Every pool there is, with the largest unit its leaves are counted in."""

    @cached_property
    def by_type(self) -> dict[str, list[tuple[Pool, int]]]:
        """The same by type: a cluster may have thousands of types, and a request asks for each."""
        result: dict[str, list[tuple[Pool, int]]] = {}
        for pool, largest in self.items():
            result.setdefault(pool[0], []).append((pool, largest))
        return result

    @cached_property
    def scales(self) -> tuple[tuple[Pool, int], ...]:
        """The pools that are counted in units of a quantity: what a request's amounts depend on."""
        mixed = {type_ for type_, own in self.by_type.items() if len(own) > 1}
        return tuple((pool, n) for pool, n in self.items() if pool[1] or n > 1 or pool[0] in mixed)


class Layout:
    """Numbered vertices; a pure function of what they are read from, see ClusterLayout and reduced_layout.py."""

    name: str
    worker_type: str
    worker_level_types: frozenset[str]
    size: int  # vertices of the cluster

    def __init__(
        self,
        types: Sequence[str],
        sizes: Sequence[int],
        units: Sequence[str],
        parents: Sequence[int],
        workers: Mapping[int, str],
    ) -> None:
        self.types = types
        self.sizes = sizes
        self.units = units
        self.parents = parents
        self.last = self._ends()
        self.by_type: dict[str, list[int]] = {}
        for i, kind in enumerate(self.types):
            self.by_type.setdefault(kind, []).append(i)
        self.workers = list(workers)
        self.worker_names = workers
        self.worker = self._workers_of()
        self._workers = sorted(self.workers)
        self._loose = [i for i in range(len(types)) if self.loose(i)]
        self.compound = {kind for i, kind in enumerate(self.types) if not self.is_leaf(i)}
        self.content = self._content()
        self.pools = self._pools()
        self.kinds: Sequence[int] = ()

    def __len__(self) -> int:
        """How many vertices are numbered."""
        return len(self.types)

    def vertex(self, i: int) -> str:
        """The id of a vertex."""
        raise NotImplementedError

    def facts(self, i: int) -> Mapping[str, Any]:
        """What a constraint asks of a worker: its properties, name and rank."""
        raise NotImplementedError

    def rows_of_worker(self, i: int) -> Iterator[Mapping[str, Any]]:
        """Yield a row for each property of the worker that position `i` lies in."""
        worker = self.worker[i]
        fields = {"type": PROPERTIES, "name": "", "size": 1, "unit": "", "path": "", "rank": None}
        for name in self.facts(worker)["properties"] if worker != OUTSIDE else ():
            yield {**fields, "properties": frozenset(), "metadata": {"property": name}}

    def rows(self, subsystem: str, i: int) -> Iterator[Mapping[str, Any]] | None:
        """Yield the vertices of a subsystem that serve position `i`: attached to it, above it or inside it."""
        raise NotImplementedError

    @cached_property
    def subsystem_names(self) -> tuple[str, ...]:
        """The names of the subsystems."""
        return ()

    def subsystem(self, name: str) -> nx.DiGraph[str] | None:
        """The graph of a subsystem."""
        raise NotImplementedError

    def weight(self, i: int) -> int:
        """How much the subtree of a vertex contains."""
        return sum(self.content[i].values())

    @cached_property
    def leaves(self) -> frozenset[str]:
        """The types of which some vertex contains nothing."""
        return frozenset(kind for i, kind in enumerate(self.types) if self.is_leaf(i))

    @cached_property
    def inside(self) -> dict[str, frozenset[str]]:
        """The types that lie in vertices of a type."""
        below: list[set[str]] = [set() for _ in self.types]
        results: dict[str, set[str]] = {}
        for i in range(len(below) - 1, 0, -1):
            below[self.parents[i]] |= {self.types[i]} | below[i]
            results.setdefault(self.types[i], set()).update(below[i])
        results.setdefault(self.types[0], set()).update(below[0])
        return {kind: frozenset(types) for kind, types in results.items()}

    @cached_property
    def nested(self) -> frozenset[str]:
        """The types of which some vertex lies in another one of the type."""
        return frozenset(kind for kind, below in self.inside.items() if kind in below)

    def single(self, type_: str) -> bool:
        """Return whether every vertex of a type is of size 1."""
        return all(self.sizes[i] == 1 for i in self.by_type.get(type_, []))

    def sizes_of(self, type_: str) -> frozenset[tuple[int, str, bool]]:
        """Return (size, unit, whether it contains nothing) of the vertices of a type."""
        return self._sizes.get(type_, frozenset())

    @cached_property
    def _sizes(self) -> dict[str, frozenset[tuple[int, str, bool]]]:
        results: dict[str, set[tuple[int, str, bool]]] = {}
        for i, kind in enumerate(self.types):
            results.setdefault(kind, set()).add((self.sizes[i], self.units[i], self.is_leaf(i)))
        return {kind: frozenset(sizes) for kind, sizes in results.items()}

    def total(self, kind: str, unit: str) -> int | None:
        """The total of a type in `unit`; None where some vertex's unit cannot be compared."""
        if not unit:
            return sum(self.sizes[i] for i in self.by_type[kind])
        measured, factor = quantity(unit)
        if any(quantity(self.units[i])[0] != measured for i in self.by_type[kind]):
            return None
        return sum(self.amount(i) for i in self.by_type[kind]) // factor

    def _ends(self) -> list[int]:
        ends = list(range(1, len(self.types) + 1))
        for i in range(len(ends) - 1, 0, -1):
            ends[self.parents[i]] = max(ends[self.parents[i]], ends[i])
        return ends

    def _workers_of(self) -> list[int]:
        worker = [OUTSIDE] * len(self.types)
        for start in self.workers:
            if worker[start] == OUTSIDE:
                worker[start : self.last[start]] = [start] * (self.last[start] - start)
        return worker

    def _content(self) -> list[dict[Pool, int]]:
        """Sum, for every vertex, the divisible amounts in its subtree by pool."""
        content: list[dict[Pool, int]] = [{} for _ in self.types]
        for i in range(len(content) - 1, -1, -1):
            own = content[i]
            if not own:  # nothing was added from below: a leaf
                own[self.pool(i)] = self.amount(i)
            if i:
                above = content[self.parents[i]]
                for pool, amount in own.items():
                    above[pool] = above.get(pool, 0) + amount
        return content

    def _pools(self) -> Pools:
        """Name every pool there is, with the largest unit its leaves are counted in."""
        pools: dict[Pool, int] = {}
        for i in filter(self.is_leaf, range(len(self.types))):
            pools[self.pool(i)] = max(pools.get(self.pool(i), 1), quantity(self.units[i])[1])
        return Pools(sorted(pools.items()))

    def is_leaf(self, i: int) -> bool:
        """Return whether vertex `i` contains nothing."""
        return self.last[i] == i + 1

    def pool(self, i: int) -> Pool:
        """The pool a leaf's size is counted in."""
        return self.types[i], quantity(self.units[i])[0]

    def amount(self, i: int) -> int:
        """The size of a vertex in base units."""
        return int(self.sizes[i]) * quantity(self.units[i])[1]

    def of_type(self, kind: str, first: int, last: int) -> Iterator[int]:
        """Yield the topmost vertices of a type among positions first..last-1."""
        positions = self.by_type.get(kind, [])
        after = first
        for at in range(bisect_left(positions, first), len(positions)):
            i = positions[at]
            if i >= last:
                return
            if i >= after:
                yield i
                after = self.last[i]

    def outside(self, pool: Pool, scope: int) -> list[int]:
        """Return the leaves of a pool below `scope` that lie in no worker."""
        below = range(scope, self.last[scope])
        return [i for i in self.by_type.get(pool[0], []) if i in below and self.loose(i) and self.pool(i) == pool]

    def loose(self, i: int) -> bool:
        """Return whether a vertex is a leaf outside every worker."""
        return self.worker[i] == OUTSIDE and self.is_leaf(i)

    def has_outside(self, scope: int) -> bool:
        """Return whether anything below `scope` lies outside every worker."""
        at = bisect_left(self._loose, scope)
        return at < len(self._loose) and self._loose[at] < self.last[scope]

    def workers_between(self, first: int, last: int) -> list[int]:
        """Return the workers among positions first..last-1."""
        return self._workers[bisect_left(self._workers, first) : bisect_left(self._workers, last)]

    def up(self, i: int) -> Iterator[int]:
        """Yield a vertex and everything that contains it, innermost first."""
        while i >= 0:
            yield i
            i = self.parents[i]


class ClusterLayout(Layout):
    """All vertices of a cluster, numbered by walking its graph."""

    def __init__(self, cluster: Cluster) -> None:
        import networkx as nx

        graph = cluster.graph
        order = list(
            nx.dfs_preorder_nodes(graph, cluster.root, sort_neighbors=lambda vs: sorted(vs, key=cluster.order))
        )
        data = [graph.nodes[vertex] for vertex in order]
        position = {vertex: i for i, vertex in enumerate(order)}
        super().__init__(
            [vertex["type"] for vertex in data],
            [vertex["size"] for vertex in data],
            [vertex["unit"] for vertex in data],
            [position[next(iter(graph.predecessors(v)))] if i else -1 for i, v in enumerate(order)],
            {position[vertex]: name for name, vertex in cluster.workers.items()},
        )
        self.cluster = cluster
        self.name = cluster.name
        self.worker_type = cluster.worker_type
        self.worker_level_types = cluster.worker_level_types
        self.size = len(order)
        self.vertices = order
        self.position = position
        self.kinds = self._kinds()
        self._hung_at: dict[str, list[int]] = {}

    def vertex(self, i: int) -> str:
        """The id of a vertex."""
        return self.vertices[i]

    def facts(self, i: int) -> Mapping[str, Any]:
        """What a constraint asks of a worker: its properties, name, rank and amounts."""
        return {**self.cluster.graph.nodes[self.vertices[i]], "amounts": LayoutAmounts(self, i)}

    def _kinds(self) -> list[int]:
        """Number equal subtrees equally: names, ids, ranks and paths are no part of a kind."""
        known: dict[Any, int] = {}
        below: list[list[int]] = [[] for _ in self.types]
        kinds = [0] * len(below)
        for i in range(len(kinds) - 1, -1, -1):
            own = (self.types[i], self.sizes[i], self.units[i], self._attached(i), tuple(sorted(below[i])))
            kinds[i] = known.setdefault(own, len(known))
            if i:
                below[self.parents[i]].append(kinds[i])
        return kinds

    def _attached(self, i: int) -> tuple[Any, ...]:
        rows = self.cluster.graph.nodes[self.vertices[i]]["properties"]
        hung = (
            (name, repr(subsystem.graph.nodes[v]["metadata"]), subsystem.graph.nodes[v]["type"])
            for name, subsystem in self.cluster.subsystems.items()
            for v in subsystem.attached.get(self.vertices[i], ())
        )
        own = self._own.get(i)
        return (tuple(sorted(rows)), tuple(sorted(hung)), repr(own and own["metadata"]))

    @cached_property
    def _own(self) -> dict[int, Mapping[str, Any]]:
        """The vertices that say something of themselves that a request may ask for."""
        fields = self.cluster.graph.nodes
        answers = ((i, fields[vertex]) for i, vertex in enumerate(self.vertices))
        return {i: one for i, one in answers if any(one["metadata"].get(key) is not None for key in OWN_FIELDS)}

    def _rows_of_own(self, i: int) -> Iterator[Mapping[str, Any]]:
        yield from (self._own[above] for above in self.up(i) if above in self._own)
        yield from (self._own[k] for k in range(i + 1, self.last[i]) if k in self._own)

    def rows(self, subsystem: str, i: int) -> Iterator[Mapping[str, Any]] | None:
        """Yield the vertices of a subsystem that serve position `i`: attached to it, above it or inside it."""
        if subsystem == PROPERTIES:
            return self.rows_of_worker(i)
        if subsystem == CONTAINMENT:
            return self._rows_of_own(i) if self._own else None
        graph = self.subsystem(subsystem)
        return None if graph is None else (graph.nodes[name] for name in self._hung(subsystem, i))

    @cached_property
    def subsystem_names(self) -> tuple[str, ...]:
        """The names of the subsystems."""
        return tuple(self.cluster.subsystems)

    def subsystem(self, name: str) -> nx.DiGraph[str] | None:
        """The graph of a subsystem."""
        return self.cluster.subsystems[name].graph if name in self.cluster.subsystems else None

    def _hung(self, subsystem: str, i: int) -> Iterator[str]:
        attached = self.cluster.subsystems[subsystem].attached
        if subsystem not in self._hung_at:
            self._hung_at[subsystem] = sorted(self.position[vertex] for vertex in attached)
        at = self._hung_at[subsystem]
        for above in self.up(i):
            yield from attached.get(self.vertices[above], ())
        for k in range(bisect_left(at, i + 1), bisect_left(at, self.last[i])):
            yield from attached[self.vertices[at[k]]]


def threads_of(metadata: Mapping[str, Any]) -> int:
    """Return how many hardware threads a core has, by the metadata of its node."""
    result = metadata.get("threads")
    return result if isinstance(result, int) and result > 0 else 1


class Amounts:
    """How much is in one vertex: `core` units of a type, `socket/core` in the largest of a type, `threads`, `cpu`."""

    @property
    def threads(self) -> int:
        """The threads of a core."""
        raise NotImplementedError

    def total(self, type_: str) -> int:
        """Return the amount of a type."""
        raise NotImplementedError

    def largest(self, of: str, type_: str) -> int:
        """Return the most of a type in one vertex of another."""
        raise NotImplementedError

    def has(self, fact: str, least: int) -> bool:
        """Return whether there is as much as a fact of `at_least` says."""
        if fact == "threads":
            return self.threads >= least
        if fact == "cpu":
            return self.total("core") * self.threads >= least
        of, slash, type_ = fact.partition("/")
        if not slash:
            return self.total(of) >= least
        if type_ == "cpu":  # as much of the first for each cpu
            return self.total(of) >= least * self.total("core") * self.threads
        return self.largest(of, type_) >= least


class LayoutAmounts(Amounts):
    """How much is in the subtree of a position."""

    def __init__(self, layout: ClusterLayout, i: int) -> None:
        self.layout = layout
        self.at = i

    def total(self, type_: str) -> int:
        """Return the amount of a type."""
        return self._below(self.at, type_)

    def largest(self, of: str, type_: str) -> int:
        """Return the most of a type in one vertex of another."""
        return max((self._below(i, type_) for i in self._positions(self.at, of)), default=0)

    @property
    def threads(self) -> int:
        """The threads of a core."""
        return threads_of(self.layout.cluster.graph.nodes[self.layout.vertices[self.at]]["metadata"])

    def _positions(self, top: int, type_: str) -> Iterator[int]:
        every = self.layout.by_type.get(type_, [])
        return (every[k] for k in range(bisect_left(every, top), bisect_left(every, self.layout.last[top])))

    def _below(self, top: int, type_: str) -> int:
        sizes, units = self.layout.sizes, self.layout.units
        return sum(sizes[i] * quantity(units[i])[1] for i in self._positions(top, type_))


def layout(cluster: Cluster) -> ClusterLayout:
    """Return the layout of a cluster, made at the first call and kept as long as the cluster."""
    result: ClusterLayout | None = cluster.memo.get(ClusterLayout)
    if result is None:
        result = cluster.memo.setdefault(ClusterLayout, ClusterLayout(cluster))
    return result


class Parts(NamedTuple):
    """A slot's children by where they come from, and the needs that its place must meet."""

    placed: tuple[Resource, ...]  # from one place
    spread: tuple[Resource, ...]  # from anywhere below the host
    needs: tuple[Need, ...]
    originals: Mapping[int, int]  # number of a child here → its number in the slot

    @property
    def has_place(self) -> bool:
        """Return whether each slot must be given a place."""
        return bool(self.placed or self.needs)


def parts(slot: Resource, layout: Layout, scope: int, hosted: bool) -> Parts:
    """Divide a slot found below `scope`; `hosted`: scope is the vertex of the request above the slot."""
    if layout.worker[scope] != OUTSIDE and hosted:
        return Parts((), slot.children, (), {child.number: child.number for child in slot.children})
    return parts_above(slot, layout.worker_type, layout.worker_level_types, hosted)


def parts_above(slot: Resource, worker_type: str, worker_level_types: frozenset[str], hosted: bool) -> Parts:
    """Divide a slot that is found above the workers."""
    spread, needs = slot.children, () if hosted else slot.needs
    if asks_workers(slot, worker_type):
        spread, needs = _needing(slot, {worker_type}), ()
    elif needs and spread and worker_level_types.isdisjoint(child.type for child in spread):
        spread, needs = _needing(slot, {child.type for child in spread}), ()
    placed = tuple(child for child in spread if child.type in worker_level_types)
    rest = tuple(child for child in spread if child.type not in worker_level_types)
    originals = {child.number: own.number for child, own in zip(spread, slot.children, strict=True)}
    return Parts(placed, rest, needs, originals)


def _needing(slot: Resource, types: Collection[str]) -> tuple[Resource, ...]:
    """Return a slot's children, those of some types with the slot's needs as well as their own."""
    if not slot.needs:
        return slot.children
    return tuple(replace(c, needs=c.needs + slot.needs) if c.type in types else c for c in slot.children)


def asks_workers(slot: Resource, worker_type: str) -> bool:
    """Return whether a slot asks for whole workers; its needs then belong to each of them."""
    return any(child.type == worker_type for child in slot.children)


def host_needs(request: Resource, worker_type: str) -> tuple[Need, ...]:
    """Return what a vertex matched by `request` must find in subsystems: its own needs and its slots'."""
    needs, slots = list(request.needs), [child for child in request.children if child.is_slot]
    while slots:
        slot = slots.pop(0)
        needs += () if asks_workers(slot, worker_type) else slot.needs
        slots += [child for child in slot.children if child.is_slot]
    return tuple(needs)


def called(resource: Resource) -> str:
    """Name a request as people do."""
    return f"slot {resource.label}".strip() if resource.is_slot else resource.type
