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

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rainbow.graph.order import natural

if TYPE_CHECKING:
    import networkx as nx

WORKER_TYPE = "node"
WORKER_LEVEL_TYPES = frozenset({"core", "gpu", "memory", "socket", "numanode", "ssd"})


@dataclass(frozen=True, eq=False)
class Subsystem:
    """A graph of another kind (io, spack, power, ...) and where it hangs: {dominant vertex: its vertices}."""

    name: str
    graph: nx.DiGraph[str]
    attached: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Cluster:
    """A registered cluster; a change is a new value. `root` contains everything, every vertex is below it."""

    name: str
    graph: nx.DiGraph[str]
    root: str
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

    @cached_property
    def totals(self) -> Mapping[str, int]:
        """The size of all vertices by type: what the quick check compares."""
        sums: dict[str, int] = {}
        for _, vertex in self.graph.nodes(data=True):
            sums[vertex["type"]] = sums.get(vertex["type"], 0) + vertex["size"]
        return dict(sorted(sums.items()))

    @cached_property
    def workers(self) -> Mapping[str, str]:
        """{name: vertex} of what tasks are placed on, in natural order; without any, the root is the one worker.

        A worker is called by its vertex's name where no other worker has it, else by its path, else by its id.
        """
        found = [v for v, data in self.graph.nodes(data=True) if data["type"] == self.worker_type] or [self.root]
        found.sort(key=self.order)
        names = unique_names([self.graph.nodes[v] for v in found], found)
        return dict(zip(names, found, strict=True))

    def order(self, vertex: str) -> tuple[Any, ...]:
        """Sort key of a vertex: its path, then its id, numbers by value (node2 before node10)."""
        return (natural(self.graph.nodes[vertex]["path"]), natural(vertex))

    def children(self, vertex: str) -> list[str]:
        """What a vertex contains, in natural order; not to be changed by the caller."""
        return self._children[vertex]

    @cached_property
    def _children(self) -> Mapping[str, list[str]]:
        return {vertex: sorted(self.graph.successors(vertex), key=self.order) for vertex in self.graph}


def unique_names(vertices: list[dict[str, Any]], ids: list[str]) -> list[str]:
    """Call every vertex by its name, or by its path if the name is not unique, or by its id if neither is."""
    for key in ("name", "path"):
        names = [vertex[key] for vertex in vertices]
        if all(names) and len(set(names)) == len(names):
            return names
    return ids
