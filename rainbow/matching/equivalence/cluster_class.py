"""The class of a whole cluster, and the rows of its subsystems that meet a requirement.

A row stands for equal vertices of a subsystem. A matcher reads one field (and the type), so each distinct value of a
field is asked once.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from rainbow.cache import cached_property
from rainbow.jobspec.quantities import base_unit, quantity
from rainbow.matching.equivalence.subtree_classes import root_of
from rainbow.matching.model.layout import Pools
from rainbow.matching.needs import field_of, matchers

if TYPE_CHECKING:
    from collections.abc import Collection

    from rainbow.graph import Cluster
    from rainbow.jobspec import Condition, Need
    from rainbow.matching.equivalence.subtree_classes import ClassRun, Pool, SubtreeClass


_numbers = count()
Key = tuple[int, str, frozenset[str]]
_known: WeakValueDictionary[Key, ClusterClass] = WeakValueDictionary()


class ClusterClass:
    """A root's kind with a cluster's types of workers; equal ones are one object."""

    def __init__(self, kind: SubtreeClass, worker_type: str, level_types: frozenset[str]) -> None:
        self.number = next(_numbers)
        self.kind = kind
        self.worker_type = worker_type
        self.worker_level_types = level_types
        self.root_is_worker = worker_type not in kind.types or kind.type == worker_type
        self.closure = kind.closure()

    def is_worker(self, kind: SubtreeClass) -> bool:
        """Return whether a vertex that lies in no worker is one."""
        return kind.type == self.worker_type or (self.root_is_worker and kind is self.kind)

    @cached_property
    def compound(self) -> frozenset[str]:
        """The types of which some vertex contains others."""
        return frozenset(kind.type for kind in self.closure if not kind.is_leaf)

    @cached_property
    def leaves(self) -> frozenset[str]:
        """The types of which some vertex contains nothing."""
        return frozenset(kind.type for kind in self.closure if kind.is_leaf)

    def has_outside(self, type_: str) -> bool:
        """Return whether a vertex of a type lies outside every worker."""
        return any(kind.type == type_ for kind in self.outer)

    @cached_property
    def outer(self) -> dict[SubtreeClass, int]:
        """How many vertices of every kind lie outside every worker."""
        many: dict[SubtreeClass, int] = {self.kind: 1}
        for kind in reversed(self.closure):
            if kind in many and not self.is_worker(kind):
                for below, times in kind.children.items():
                    many[below] = many.get(below, 0) + many[kind] * times
        return {kind: times for kind, times in many.items() if not self.is_worker(kind)}

    def below(self, kind: SubtreeClass) -> ClusterClass:
        """Return a kind of this cluster read as a root itself."""
        return rooted_kind(kind, self.worker_type, self.worker_level_types)

    def single(self, type_: str) -> bool:
        """Return whether every vertex of a type is of size 1."""
        return all(kind.size == 1 for kind in self.closure if kind.type == type_)

    @cached_property
    def nested(self) -> frozenset[str]:
        """The types of which some vertex lies in another one of the type."""
        return frozenset(kind.type for kind in self.closure for below in kind.children if kind.type in below.types)

    @cached_property
    def has_nested_workers(self) -> bool:
        """Whether some worker lies in another one."""
        return self.worker_type in self.nested

    @cached_property
    def inside(self) -> dict[str, frozenset[str]]:
        """The types that lie in vertices of a type."""
        result: dict[str, frozenset[str]] = {}
        for kind in self.closure:
            for below in kind.children:
                result[kind.type] = result.get(kind.type, frozenset()) | below.types
        return result

    @cached_property
    def forms(self) -> tuple[object, ...]:
        """What roots must agree in to be counted in one batch."""
        inside = frozenset(self.inside.items())
        types = (self.worker_type, self.worker_level_types, self.root_is_worker)
        return (*types, self.compound, self.leaves, inside, frozenset(self.pools.items()))

    @cached_property
    def largest(self) -> int:
        """No count can come out larger than this."""
        return max(*self.kind.content.values(), *self.totals.values()) * self.kind.vertices

    @cached_property
    def pools(self) -> Pools:
        """Every pool there is, with the largest unit its leaves are counted in."""
        pools: dict[Pool, int] = {}
        for kind in self.closure:
            if kind.is_leaf:
                pools[kind.pool] = max(pools.get(kind.pool, 1), quantity(kind.unit)[1])
        return Pools(sorted(pools.items()))

    @cached_property
    def loose(self) -> frozenset[int]:
        """The numbers of kinds that contain a leaf outside every worker, if they lie outside themselves."""
        results: set[int] = set()
        for kind in self.closure:
            inside = any(below.number in results for below in kind.children)
            if not self.is_worker(kind) and (kind.is_leaf or inside):
                results.add(kind.number)
        return frozenset(results)

    @cached_property
    def outside(self) -> dict[int, dict[Pool, int]]:
        """By number of a kind that lies in no worker: the amounts in its subtree that lie in none either."""
        result: dict[int, dict[Pool, int]] = {}
        for kind in self.closure:
            sums: dict[Pool, int] = {}
            result[kind.number] = sums
            if self.is_worker(kind):
                continue
            if kind.is_leaf:
                sums[kind.pool] = kind.amount
            for below, many in kind.children.items():
                for pool, amount in result[below.number].items():
                    sums[pool] = sums.get(pool, 0) + amount * many
        return result

    @cached_property
    def many(self) -> dict[SubtreeClass, int]:
        """How many vertices there are of every kind."""
        many = dict.fromkeys(self.closure, 0)
        many[self.kind] = 1
        for kind in reversed(self.closure):
            for below, times in kind.children.items():
                many[below] += many[kind] * times
        return many

    @cached_property
    def totals(self) -> dict[str, int]:
        """The size of all vertices by type."""
        sums: dict[str, int] = {}
        for kind, many in self.many.items():
            sums[kind.type] = sums.get(kind.type, 0) + kind.size * many
        return sums

    @cached_property
    def models(self) -> dict[str, set[str]]:
        """The models of the vertices of each type; "" is among them where one has none."""
        models: dict[str, set[str]] = {}
        for kind in self.closure:
            models.setdefault(kind.type, set()).add(kind.model)
        return models

    @cached_property
    def amounts(self) -> dict[str, int]:
        """The amounts of all vertices by type, in base units."""
        sums: dict[str, int] = {}
        for kind, many in self.many.items():
            sums[kind.type] = sums.get(kind.type, 0) + kind.amount * many
        return sums

    def sizes_of(self, type_: str) -> frozenset[tuple[int, str, bool]]:
        """Return (size, unit, whether it contains nothing) of the vertices of a type."""
        return self._sizes.get(type_, frozenset())

    @cached_property
    def _sizes(self) -> dict[str, frozenset[tuple[int, str, bool]]]:
        results: dict[str, set[tuple[int, str, bool]]] = {}
        for kind in self.closure:
            results.setdefault(kind.type, set()).add((kind.size, kind.unit, kind.is_leaf))
        return {type_: frozenset(sizes) for type_, sizes in results.items()}

    def total(self, type_: str, unit: str) -> int | None:
        """The total of a type in `unit`; None where some vertex's unit cannot be compared."""
        if not unit:
            return self.totals[type_]
        measured, factor = quantity(unit)
        own = [kind for kind in self.closure if kind.type == type_]
        if any(quantity(kind.unit)[0] != measured for kind in own):
            return None
        return sum(kind.amount * self.many[kind] for kind in own) // factor

    @cached_property
    def tables(self) -> dict[str, RowTable]:
        """The distinct rows of every subsystem, wherever they hang."""
        return tables({row for kind in self.closure for row in kind.rows})

    def meeting(self, need: Need) -> frozenset[ClassRun]:
        """Return the distinct rows that meet a need."""
        table = self.tables.get(need.subsystem)
        return table.meeting(need) if table else frozenset()


def cluster_class_of(cluster: Cluster, kind: SubtreeClass) -> ClusterClass:
    """Return what `kind` is as the root of a cluster."""
    return rooted_kind(kind, cluster.worker_type, cluster.worker_level_types)


def rooted_kind(kind: SubtreeClass, worker_type: str, worker_level_types: frozenset[str]) -> ClusterClass:
    """Return what a kind is as a root, for these types of workers."""
    key = (kind.number, worker_type, worker_level_types)
    result = _known.get(key)
    if result is None:
        result = _known[key] = ClusterClass(kind, worker_type, worker_level_types)
    return result


BY_FIELD = frozenset({"match", "flat", "range"})  # the matchers that look at nothing but a field and the type


class RowTable:
    """The distinct rows of one subsystem, grouped by the values of a field when it is first asked for."""

    def __init__(self, rows: Collection[ClassRun]) -> None:
        self.rows = frozenset(rows)
        self._groups: dict[str, list[list[ClassRun]]] = {}

    def meeting(self, need: Need) -> frozenset[ClassRun]:
        """Return the rows that meet every condition of a need."""
        class_runs = self.rows
        for condition in need.conditions:
            if not class_runs:
                break
            class_runs = self._meeting(condition, class_runs)
        return class_runs

    def _meeting(self, condition: Condition, class_runs: frozenset[ClassRun]) -> frozenset[ClassRun]:
        groups = self._by_field(condition.options["field"])
        if len(class_runs) <= len(groups):
            return frozenset(row for row in class_runs if _meets(condition, row))
        return class_runs.intersection(row for group in groups if _meets(condition, group[0]) for row in group)

    def _by_field(self, field: str) -> list[list[ClassRun]]:
        if field not in self._groups:
            groups: dict[Any, list[ClassRun]] = {}
            for row in self.rows:
                value = field_of(row.vertex, field)
                groups.setdefault((row.vertex["type"], type(value), repr(value)), []).append(row)
            self._groups[field] = list(groups.values())
        return self._groups[field]


def tables(rows: Collection[ClassRun]) -> dict[str, RowTable]:
    """Make a table of every subsystem's rows."""
    results: dict[str, list[ClassRun]] = {}
    for row in rows:
        results.setdefault(row.subsystem, []).append(row)
    return {subsystem: RowTable(own) for subsystem, own in results.items()}


def _meets(condition: Condition, row: ClassRun) -> bool:
    return matchers.get(condition.matcher)(condition.options, row.vertex, NO_GRAPH) is None


NO_GRAPH = None  # matchers BY_FIELD do not look at the subsystem's graph


class Measure(NamedTuple):
    """How amounts of a type are counted: in whole numbers of `unit`; one unit of the graph is `factor` of them."""

    unit: str
    factor: int


def measures(cluster: Cluster) -> dict[str, Measure]:
    """{type: how its amounts are counted}, of the types whose vertices have a unit.

    Of vertices in several units of one quantity, the largest is the graph's. Under strict levels units are not read:
    amounts are in the graph's own.
    """
    if cluster.levels == "strict":
        return {}
    pools = cluster_class_of(cluster, root_of(cluster)).pools
    return {type_: Measure(base_unit(measured), largest) for (type_, measured), largest in pools.items() if measured}


def stated_units(cluster: Cluster) -> dict[str, str]:
    """{type: the base unit that amounts are shown in}, of the types whose vertices have a unit."""
    return {type_: measure.unit for type_, measure in measures(cluster).items()}
