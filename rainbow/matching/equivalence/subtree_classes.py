"""The class (kind) of every subtree, and a cluster's short form in the store.

Equal subtrees have one kind: a cluster of ten thousand equal nodes has a handful of kinds.

    row      a vertex of a subsystem as needs see it; equal rows are one object
    kind     a vertex with everything below it as matching sees it: type, size, unit, properties, the rows attached to
             it, and the run-length sequence of its children's kinds in natural order; equal kinds are one object
    closure  the kinds in a subtree, children before parents

Names, ids, ranks and paths of vertices are no part of a kind, nor are the fields of a subsystem's vertices that
only tell them apart (HIDDEN). Kinds are shared by all clusters and live as long as one of them does. Children are
kept as a sequence, not as a set, because what a job takes, lowest first, depends on it.

The short form has the kinds of the root and the cluster's totals, which is enough to match without its graphs.

    kinds    [[type, size, unit, properties, [[place of a kind, how many], ...]], ...], the root last
    sizes    {type: size of all vertices}            numbers    {type: how many vertices}
    hung     of a cluster with subsystems: {subsystems: their names, nameless,
             rows: [[subsystem, attributes of a vertex], ...], on: [[place of a row, ...] of each kind]}

It is JSON, compressed. A change of what it says, or of what kinds are, makes other FORMATS: others are not read.
"""

from __future__ import annotations

import json
import zlib
from itertools import compress, count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from rainbow.cache import cached_property
from rainbow.graph import Cluster
from rainbow.graph.cluster import DeferredSubsystems
from rainbow.graph.outline import Deferred, marks
from rainbow.graph.site import read_site
from rainbow.jobspec.attributes import OWN_FIELDS
from rainbow.jobspec.quantities import quantity
from rainbow.jobspec.request import CONTAINMENT
from rainbow.matching.model.layout import Amounts, threads_of
from rainbow.matching.needs import has_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rainbow.graph import Subsystem


HIDDEN = frozenset({"id", "uniq_id", "paths", "rank"})  # fields that number the vertices of a subsystem

Pool = tuple[str, str]
Rows = frozenset["ClassRun"]

_numbers = count()
_rows: WeakValueDictionary[Any, ClassRun] = WeakValueDictionary()
_kinds: WeakValueDictionary[Any, SubtreeClass] = WeakValueDictionary()


class ClassRun:
    """Equal vertices of subsystems; `vertex` has the attributes of one of them, see graph/cluster.py."""

    __slots__ = ("__weakref__", "number", "subsystem", "vertex")

    def __init__(self, subsystem: str, vertex: Mapping[str, Any]) -> None:
        self.number = next(_numbers)
        self.subsystem = subsystem
        self.vertex = vertex


class SubtreeClass:
    """Equal subtrees. `runs`: (kind, how many) of the children in natural order."""

    def __init__(
        self,
        type_: str,
        size: int,
        unit: str,
        properties: frozenset[str],
        rows: Rows,
        runs: tuple[tuple[SubtreeClass, int], ...],
    ) -> None:
        self.number = next(_numbers)
        self.type = type_
        self.size = size
        self.unit = unit
        self.properties = properties
        self.rows = rows
        self.runs = runs
        self.pool: Pool = (type_, quantity(unit)[0])
        self.amount = size * quantity(unit)[1]
        self.types: frozenset[str] = frozenset({type_}).union(*(kind.types for kind, _ in runs))
        self.height: int = 1 + max((kind.height for kind, _ in runs), default=-1)
        self.content = self._content()  # the divisible amounts in the subtree
        self.hung: bool = bool(rows) or any(kind.hung for kind, _ in runs)  # whether anything hangs in the subtree
        self.vertices: int = 1 + sum(kind.vertices * many for kind, many in runs)

    @property
    def is_leaf(self) -> bool:
        """Return whether such a vertex contains nothing."""
        return not self.runs

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What a constraint may ask of such a worker, whatever it is called."""
        return {"properties": self.properties, "name": None, "rank": None, "amounts": KindAmounts(self)}

    @property
    def threads(self) -> int:
        """How many hardware threads a core has."""
        rows = (row.vertex["metadata"] for row in self.rows if row.subsystem == CONTAINMENT)
        return max((threads_of(metadata) for metadata in rows), default=1)

    @property
    def model(self) -> str:
        """The model that such a vertex says it is, "" for none."""
        rows = (row.vertex["metadata"] for row in self.rows if row.subsystem == CONTAINMENT)
        return next((str(metadata["model"]) for metadata in rows if "model" in metadata), "")

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The amounts of all vertices in the subtree by type, in base units."""
        sums = {self.type: self.amount}
        for kind, many in self.runs:
            for type_, amount in kind.sizes.items():
                sums[type_] = sums.get(type_, 0) + amount * many
        return sums

    @cached_property
    def children(self) -> dict[SubtreeClass, int]:
        """How many children of every kind there are."""
        many: dict[SubtreeClass, int] = {}
        for kind, times in self.runs:
            many[kind] = many.get(kind, 0) + times
        return many

    def _content(self) -> dict[Pool, int]:
        if self.is_leaf:
            return {self.pool: self.amount}
        sums: dict[Pool, int] = {}
        for kind, many in self.runs:
            for pool, amount in kind.content.items():
                sums[pool] = sums.get(pool, 0) + amount * many
        return sums

    def closure(self) -> list[SubtreeClass]:
        """Return the kinds in the subtree, children before parents."""
        seen: dict[int, SubtreeClass] = {self.number: self}
        stack = [self]
        while stack:
            for kind in stack.pop().children:
                if kind.number not in seen:
                    seen[kind.number] = kind
                    stack.append(kind)
        return [seen[number] for number in sorted(seen)]  # a parent is made after its children


class KindAmounts(Amounts):
    """How much is in such a subtree."""

    def __init__(self, kind: SubtreeClass) -> None:
        self.kind = kind

    def total(self, type_: str) -> int:
        """Return the amount of a type."""
        return self.kind.sizes.get(type_, 0)

    def largest(self, of: str, type_: str) -> int:
        """Return the most of a type in one vertex of another."""
        return max((kind.sizes.get(type_, 0) for kind in self.kind.closure() if kind.type == of), default=0)

    @property
    def threads(self) -> int:
        """The threads of a core."""
        return self.kind.threads


class Compiler:
    """Makes the kinds of one cluster, from the leaves up."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hung: dict[int, list[ClassRun]] = {}
        self.nameless: set[str] = set()
        for subsystem in cluster.subsystems.values():
            self._read(subsystem)

    def _read(self, subsystem: Subsystem) -> None:
        known: dict[str, ClassRun] = {}
        for entry, names in subsystem.ties.items():
            for name in names:
                if name not in known:
                    vertex = subsystem.graph.nodes[name]
                    if not has_name(vertex):
                        self.nameless.add(subsystem.name)
                    known[name] = row_of(subsystem.name, vertex)
            self.hung.setdefault(entry, []).extend({known[name].number: known[name] for name in names}.values())

    def kinds(self) -> list[SubtreeClass]:
        """Return the kind of every entry of the cluster's outline."""
        made: list[SubtreeClass] = [None] * len(self.cluster.outline.below)  # type: ignore[list-item] # filled now
        self.make(made, range(len(made) - 1, -1, -1))
        return made

    def make(self, made: list[SubtreeClass], entries: Iterable[int]) -> None:
        """Make the kinds of some entries, given from the last to the first; what is below them is made."""
        outline, hung, none = self.cluster.outline, self.hung, frozenset[ClassRun]()
        below, leaves = outline.below, dict[Any, SubtreeClass]()
        for entry in entries:
            fields = outline.fields[entry]
            rows = frozenset(hung[entry]) if entry in hung else none
            rows |= own_rows(fields.type, fields.metadata)
            if not below[entry] and not rows:
                own = (fields.type, fields.size, fields.unit, fields.properties)
                made[entry] = leaves.get(own) or leaves.setdefault(own, kind_of(*own, rows, ()))
            else:
                runs = _runs(below[entry], made)
                made[entry] = kind_of(fields.type, fields.size, fields.unit, fields.properties, rows, runs)


NO_ROWS = frozenset[ClassRun]()


def own_rows(type_: str, metadata: Mapping[str, Any]) -> Rows:
    """Return the row of what a vertex says of itself, none if it says nothing that a request may ask for."""
    own = {field: metadata[field] for field in OWN_FIELDS if metadata.get(field) is not None}
    if not own:
        return NO_ROWS
    fields = {"type": type_, "name": "", "size": 1, "unit": "", "path": "", "rank": None, "properties": frozenset()}
    return frozenset({row_of(CONTAINMENT, {**fields, "metadata": own})})


def row_of(subsystem: str, vertex: Mapping[str, Any]) -> ClassRun:
    """Return the one row of such vertices; the name of one that only tells it apart is no part of it."""
    hidden = HIDDEN if has_name(vertex) else HIDDEN | {"name"}
    shown = [
        (field, value if value.__class__ is str else repr(value), value.__class__)
        for field, value in sorted(vertex["metadata"].items(), key=_field)
        if field not in hidden
    ]
    name = "" if "name" in hidden else vertex["name"]
    key = (subsystem, vertex["type"], name, vertex["size"], vertex["unit"], tuple(shown))
    row = _rows.get(key)
    if row is None:
        row = _rows[key] = ClassRun(subsystem, vertex)
    return row


def _field(item: tuple[Any, Any]) -> str:
    return str(item[0])


def kind_of(
    type_: str,
    size: int,
    unit: str,
    properties: frozenset[str],
    rows: Rows,
    runs: tuple[tuple[SubtreeClass, int], ...],
) -> SubtreeClass:
    """Return the one kind that is made so."""
    key = (type_, size, unit, properties, rows, tuple((kind.number, many) for kind, many in runs))
    kind = _kinds.get(key)
    if kind is None:
        kind = _kinds[key] = SubtreeClass(type_, size, unit, properties, rows, runs)
    return kind


def _runs(below: Sequence[tuple[int, int, int]], made: list[SubtreeClass]) -> tuple[tuple[SubtreeClass, int], ...]:
    runs: list[tuple[SubtreeClass, int]] = []
    last, times = None, 0
    for entry, _, many in below:
        kind = made[entry]
        if kind is last:
            times += many
        else:
            if last is not None:
                runs.append((last, times))
            last, times = kind, many
    if last is not None:
        runs.append((last, times))
    return tuple(runs)


_compiled: WeakKeyDictionary[Cluster, tuple[list[SubtreeClass], frozenset[str]]] = WeakKeyDictionary()


def classify(cluster: Cluster) -> tuple[list[SubtreeClass], frozenset[str]]:
    """Return the kind of every entry of a cluster's outline, and the nameless subsystems.

    Made at the first call and kept as long as the cluster. Of a cluster that was changed, only what changed and what
    that lies in is made.
    """
    if cluster not in _compiled:
        compiler = Compiler(cluster)
        made = _taken_over(cluster, compiler) or compiler.kinds()
        _compiled[cluster] = (made, frozenset(compiler.nameless))
        cluster.forget_origin()
    return _compiled[cluster]


def _taken_over(cluster: Cluster, compiler: Compiler) -> list[SubtreeClass] | None:
    """Return the kinds of a cluster that was changed, if those of the one before are there."""
    if cluster.origin is None or cluster.origin[0] not in _compiled:
        return None
    (before, revision), outline = cluster.origin, cluster.outline
    known = _compiled[before][0]
    made = list(compress(known, marks(len(known), revision.removed)))
    made += made[:1] * (len(outline.ids) - len(made))
    changed = {above for entry in revision.changed for above in outline.chain(entry)}
    compiler.make(made, sorted(changed, reverse=True))
    return made


_roots: WeakKeyDictionary[Cluster, tuple[SubtreeClass, frozenset[str]]] = WeakKeyDictionary()


def root_of(cluster: Cluster) -> SubtreeClass:
    """Return the kind of a cluster's root."""
    return _roots[cluster][0] if cluster in _roots else classify(cluster)[0][0]


def nameless(cluster: Cluster) -> frozenset[str]:
    """Return the subsystems of which kinds leave out names of vertices: some are called by their number alone."""
    return _roots[cluster][1] if cluster in _roots else classify(cluster)[1]


FORMATS = (3, 4)  # without subsystems, and with some
FAST = 1  # of zlib's levels
MOST_ROWS = 20_000


def summarise(cluster: Cluster) -> tuple[int, bytes] | None:
    """Return a cluster in short, and its format; None where subsystems are about as long as their graphs."""
    kinds = root_of(cluster).closure()
    at = {kind.number: place for place, kind in enumerate(kinds)}
    rows = {row.number: row for kind in kinds for row in sorted(kind.rows, key=lambda row: row.number)}
    if len(rows) > MOST_ROWS:
        return None
    results = {
        "kinds": [_written(kind, at) for kind in kinds],
        "sizes": cluster.outline.sizes,
        "numbers": cluster.outline.numbers,
    }
    if cluster.site:
        results["site"] = cluster.site.words
    if cluster.subsystems or rows:
        places = {number: place for place, number in enumerate(rows)}
        results["hung"] = {
            "subsystems": [*cluster.subsystems],
            "nameless": sorted(nameless(cluster)),
            "rows": [[row.subsystem, _plain(row.vertex)] for row in rows.values()],
            "on": [sorted(places[row.number] for row in kind.rows) for kind in kinds],
        }
    return FORMATS["hung" in results], zlib.compress(json.dumps(results).encode(), FAST)


def _written(kind: SubtreeClass, at: dict[int, int]) -> list[Any]:
    runs = [[at[below.number], many] for below, many in kind.runs]
    return [kind.type, kind.size, kind.unit, sorted(kind.properties), runs]


def _plain(vertex: Mapping[str, Any]) -> dict[str, Any]:
    return {**vertex, "properties": sorted(vertex["properties"])}


def restored(content: bytes, name: str, levels: str, worker_type: str, read: Callable[[], Cluster]) -> Cluster:
    """Return a cluster from what was said of it in short; `read` gives the whole when more of it is needed."""
    results = json.loads(zlib.decompress(content))
    hung = results.get("hung", {"subsystems": [], "nameless": [], "rows": [], "on": [[]] * len(results["kinds"])})
    outline = Deferred(lambda: read().outline, results["sizes"], results["numbers"])
    subsystems = DeferredSubsystems(lambda: read().subsystems, hung["subsystems"])
    site = read_site(results.get("site"), "")
    cluster = Cluster(name, outline, levels, worker_type, subsystems=subsystems, site=site)
    rows = [row_of(of, {**vertex, "properties": frozenset(vertex["properties"])}) for of, vertex in hung["rows"]]
    made: list[SubtreeClass] = []
    for (type_, size, unit, properties, runs), on in zip(results["kinds"], hung["on"], strict=True):
        below = tuple((made[place], many) for place, many in runs)
        hang = frozenset(rows[place] for place in on)
        made.append(kind_of(type_, size, unit, frozenset(properties), hang, below))
    _roots[cluster] = made[-1], frozenset(hung["nameless"])
    return cluster
