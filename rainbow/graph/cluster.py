"""A cluster: one dominant (containment) graph and the subsystem graphs hung on its vertices.

Both kinds of graph are NetworkX DiGraphs whose vertices carry

    type      text                        size      positive integer, units of the type
    unit      text, "" if none            name      text, shown to people
    path      containment path, "/cluster0/rack0/node3"; "" if it would be longer than 1024 characters
    rank      integer, or None            properties  frozenset of texts (RFC 31)
    metadata  the mapping the document gave, unchanged (copies of a template: without count, name and paths)

and whose edges all mean "contains".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rainbow.graph.order import natural
from rainbow.lazy import cached_property

if TYPE_CHECKING:
    import networkx as nx

    from rainbow.graph.outline import Copy, Fields, Outline

WORKER_TYPE = "node"
WORKER_LEVEL_TYPES = frozenset({"core", "gpu", "memory", "socket", "numanode", "ssd"})


@dataclass(frozen=True, eq=False)
class Subsystem:
    """A graph of another kind (io, spack, power, ...) and where it hangs.

    ties      {entry of the cluster's outline: vertices of the subsystem}: they hang on every copy of the entry
    attached  the same by vertices: {dominant vertex: its vertices}
    """

    name: str
    graph: nx.DiGraph[str]
    ties: Mapping[int, tuple[str, ...]]
    outline: Outline

    @cached_property
    def attached(self) -> Mapping[str, tuple[str, ...]]:
        """{dominant vertex: vertices of the subsystem}."""
        return {copy.id: hung for entry, hung in self.ties.items() for copy in self.outline.copies(entry)}


@dataclass(frozen=True, eq=False)
class Cluster:
    """A registered cluster; a change is a new value. `outline` is what its graph is written out from."""

    name: str
    outline: Outline
    levels: str = "any"  # any, or strict: Fluxion's own reading of levels
    worker_type: str = WORKER_TYPE
    worker_level_types: frozenset[str] = WORKER_LEVEL_TYPES
    subsystems: Mapping[str, Subsystem] = field(default_factory=dict)

    def with_subsystem(self, name: str, document: Any) -> Cluster:
        """Return this cluster with the subsystem graph `document` hung on it; GraphError says what is wrong."""
        from rainbow.graph.reading import hang_subsystem

        return hang_subsystem(self, name, document)

    def without_subsystem(self, name: str) -> Cluster:
        """Return this cluster without that subsystem and its edges."""
        from dataclasses import replace

        rest = {key: value for key, value in self.subsystems.items() if key != name}
        return replace(self, subsystems=rest)

    @property
    def graph(self) -> nx.DiGraph[str]:
        """The dominant graph, written out when it is first asked for."""
        return self.outline.graph

    @property
    def root(self) -> str:
        """The vertex that contains everything."""
        return self.outline.ids[0]

    @property
    def totals(self) -> Mapping[str, int]:
        """The size of all vertices by type: what the quick check compares."""
        return self.outline.sizes

    @property
    def worker_count(self) -> int:
        """How many workers there are, without naming them."""
        return self.outline.numbers.get(self.worker_type, 1)

    @cached_property
    def workers(self) -> Mapping[str, str]:
        """{name: vertex} of what tasks are placed on, in natural order; without any, the root is the one worker.

        A worker is called by its vertex's name where no other worker has it, else by its path, else by its id.
        """
        kinds = [fields.type for fields in self.outline.fields]
        entries = [entry for entry, kind in enumerate(kinds) if kind == self.worker_type] or [0]
        found = [copy for entry in entries for copy in self.outline.copies(entry)]
        found.sort(key=lambda copy: (natural(copy.path), natural(copy.id)))
        return dict(zip(unique_names(found), (copy.id for copy in found), strict=True))

    @cached_property
    def nodepools(self) -> Mapping[str, str]:
        """{worker: the nodepool it says it belongs to}: its `nodepool`, or its property nodepool=NAME (a label)."""
        named = {entry: _nodepool(fields) for entry, fields in enumerate(self.outline.fields)}
        said = {copy.id: pool for entry, pool in named.items() if pool for copy in self.outline.copies(entry)}
        return {name: said[vertex] for name, vertex in self.workers.items() if vertex in said}

    @cached_property
    def worker_names(self) -> Mapping[str, str]:
        """{vertex: name} of the workers."""
        return {vertex: name for name, vertex in self.workers.items()}

    @cached_property
    def sort_key(self) -> tuple[Any, ...]:
        """What clusters are ordered by: their name."""
        return natural(self.name)

    def order(self, vertex: str) -> tuple[Any, ...]:
        """Sort key of a vertex: its path, then its id, numbers by value (node2 before node10)."""
        return (natural(self.graph.nodes[vertex]["path"]), natural(vertex))

    def children(self, vertex: str) -> list[str]:
        """What a vertex contains, in natural order; not to be changed by the caller."""
        return self._children[vertex]

    @cached_property
    def _children(self) -> Mapping[str, list[str]]:
        return {vertex: sorted(self.graph.successors(vertex), key=self.order) for vertex in self.graph}


def _nodepool(fields: Fields) -> str:
    told = fields.metadata.get("nodepool")
    if isinstance(told, str):
        return told
    return next((name.partition("=")[2] for name in sorted(fields.properties) if name.startswith("nodepool=")), "")


def unique_names(copies: Sequence[Copy]) -> list[str]:
    """Call every vertex by its name, or by its path if the name is not unique, or by its id if neither is."""
    for names in ([copy.name for copy in copies], [copy.path for copy in copies]):
        if all(names) and len(set(names)) == len(names):
            return names
    return [copy.id for copy in copies]
