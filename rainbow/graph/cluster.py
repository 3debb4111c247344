"""A cluster: one containment graph, and subsystem graphs attached to its vertices.

Both kinds of graph are NetworkX DiGraphs whose vertices carry

    type      text                        size      positive integer, units of the type
    unit      text, "" if none            name      text, shown to people
    path      containment path, "/cluster0/rack0/node3"; "" if it would be longer than 1024 characters
    rank      integer, or None            properties  frozenset of texts (RFC 31)
    metadata  the mapping the document gave, unchanged (copies of a template: without count, name and paths)

and whose edges all mean "contains".

Subsystems are graphs of another kind (io, spack, power, ...).
An edge whose source is a vertex of the cluster and whose target is one of the subsystem attaches the second to the
first, and with it everything below it inside the subsystem: a package installed in a file system serves the node
the file system is attached to. A source that is a template's id hangs it on every copy. An id that is in both graphs
means the subsystem's vertex, unless the document gives it no field at all: NetworkX writes down every end of an
edge, and such a one only mentions the cluster's vertex. Edges with another relation than "contains", or of a third
subsystem, are ignored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from rainbow.cache import cached_property
from rainbow.errors import GraphError
from rainbow.graph.delta import apply_delta
from rainbow.graph.document import CONTAINMENT, CONTAINS, IN, LIMITS, Document, Edge, Limits, Vertex, short
from rainbow.graph.formats import read_document
from rainbow.graph.outline import Outline, as_document, derive_path, listed
from rainbow.graph.revision import Revision, revised
from rainbow.graph.site import IN_DEFAULT
from rainbow.graph.validation import attributes, build, check_ends, check_vertices, top_down
from rainbow.text import data_frame, html_table, natural

if TYPE_CHECKING:
    import networkx as nx
    import pandas

    from rainbow.graph.outline import Copy, Fields
    from rainbow.graph.site import Site


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

    @property
    def document(self) -> Any:
        """The subsystem and the vertices it is attached to, in JSON Graph Format 2."""
        nodes = {
            vertex: {"label": one["name"], "metadata": one["metadata"]} for vertex, one in self.graph.nodes.items()
        }
        ties = ((vertex, one) for vertex, hung in self.attached.items() for one in hung)
        edges = [{"source": above, "target": below} for above, below in (*self.graph.edges, *ties)]
        return {"graph": {"nodes": nodes, "edges": edges}}


class DeferredSubsystems(Mapping[str, Subsystem]):
    """Subsystems of which only the names are known; `read` gives them all at the first look at one."""

    def __init__(self, read: Callable[[], Mapping[str, Subsystem]], names: Sequence[str]) -> None:
        self._read = read
        self._names = dict.fromkeys(names)

    @cached_property
    def _whole(self) -> Mapping[str, Subsystem]:
        return self._read()

    def __getitem__(self, name: str) -> Subsystem:
        return self._whole[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, eq=False, repr=False)
class Cluster:
    """A registered cluster; a change is a new value. `outline` is what its graph is written out from."""

    name: str
    outline: Outline
    levels: str = "any"  # any, or strict: Fluxion's own reading of levels
    worker_type: str = WORKER_TYPE
    worker_level_types: frozenset[str] = WORKER_LEVEL_TYPES
    subsystems: Mapping[str, Subsystem] = field(default_factory=dict)
    site: Site | None = None  # what the site says of it

    def __repr__(self) -> str:
        """Show the name and what there is."""
        hung = f"; subsystems {', '.join(sorted(self.subsystems))}" if self.subsystems else ""
        return f"<Cluster {self.name}: {', '.join(f'{size} {kind}' for kind, size in self._shown)}{hung}>"

    def _repr_html_(self) -> str:
        hung = [("subsystems", ", ".join(sorted(self.subsystems)))] if self.subsystems else []
        return html_table(f"cluster {self.name}", [*self._shown, *hung])

    def to_frame(self) -> pandas.DataFrame:
        """Return a row for each vertex, by id: what contains it, type, name, size, unit, rank, properties, path."""
        graph = self.graph
        rows = (
            {"vertex": vertex, "parent": next(graph.predecessors(vertex), None), **fields}
            for vertex, fields in graph.nodes(data=True)
        )
        return data_frame(rows, "vertex")

    @property
    def _shown(self) -> list[tuple[str, int]]:
        """The sizes of all types but the root's."""
        root = self.outline.fields[0].type
        return [(kind, size) for kind, size in self.totals.items() if kind != root]

    def with_subsystem(self, name: str, document: Any) -> Cluster:
        """Return this cluster with the subsystem graph `document` attached to it; GraphError says what is wrong."""
        return hang_subsystem(self, name, document)

    def without_subsystem(self, name: str) -> Cluster:
        """Return this cluster without that subsystem and its edges."""
        rest = {key: value for key, value in self.subsystems.items() if key != name}
        return replace(self, subsystems=rest)

    @cached_property
    def memo(self) -> dict[object, Any]:
        """What others have worked out from the cluster and refers to it: freed with it, as in no weak dictionary."""
        return {}

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
        return self._called[1]

    @cached_property
    def _called(self) -> tuple[bool, Mapping[str, str]]:
        """Whether each worker is called by its vertex's name, and the workers."""
        entries = self._entries_of_workers(0)
        results = sorted((copy for entry in entries or [0] for copy in self.outline.copies(entry)), key=_place)
        names = unique_names(results)
        named = bool(entries) and names == [copy.name for copy in results]
        return named, dict(zip(names, (copy.id for copy in results), strict=True))

    def _entries_of_workers(self, first: int) -> list[int]:
        kinds = (fields.type for fields in self.outline.fields[first:])
        return [entry for entry, kind in enumerate(kinds, first) if kind == self.worker_type]

    def changed(self, changes: Any) -> Cluster:
        """Return the cluster after changes of its graph (graph/delta.py), all of them; GraphError says what is wrong.

        This cluster stays as it is. The answer is what reading the changed document gives, but for the order of new
        vertices among those that are no siblings of theirs. It costs what changes, and copies of lists; a cluster
        with templates, subsystems or queues is read whole.

        >>> from rainbow import read_cluster
        >>> nodes = {"0": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node"}}}
        >>> oak = read_cluster({"graph": {"nodes": nodes, "edges": [{"source": "0", "target": "n"}]}}, "oak")
        >>> oak.changed([{"op": "set", "vertex": "n", "properties": ["ib"]}]).to_frame().properties["n"]
        frozenset({'ib'})
        """
        count = len(self.outline.ids)
        if revision := self.revision(changes, count, count - 1):
            return self.revised(revision)
        return self.read_again(apply_delta({"graph": as_document(self.outline)}, changes))

    def read_again(self, document: Any) -> Cluster:
        """Return the cluster with another dominant graph below what else it has."""
        plain = read_document(document, LIMITS)
        with plain.naming():
            outline = build(plain, LIMITS)
        mark_default(outline, self.site, self.worker_type)
        made = replace(self, outline=outline, subsystems={})
        for name, subsystem in self.subsystems.items():
            made = made.with_subsystem(name, subsystem.document)
        return made

    def revision(self, changes: Any, vertices: int, edges: int) -> Revision | None:
        """Return the outline after changes of a document with as many vertices and edges; None: it is read whole."""
        return None if self.subsystems or self.site else revised(self.outline, changes, vertices, edges)

    def revised(self, revision: Revision) -> Cluster:
        """Return the cluster with a revision of its outline; what the others know of its rest is taken over."""
        made = replace(self, outline=revision.outline)
        base, difference = (self.origin[0], self.origin[1].then(revision)) if self.origin else (self, revision)
        vars(made)["origin"] = base, difference
        if "_called" in vars(self):
            made._take_names_over(self, revision)
        return made

    def _take_names_over(self, before: Cluster, revision: Revision) -> None:
        old, new = before.outline, self.outline
        gone = {old.ids[entry] for entry in revision.removed if old.fields[entry].type == self.worker_type}
        kinds = (fields.type for fields in new.fields[revision.taken :])
        entries = [entry for entry, kind in enumerate(kinds, revision.taken) if kind == self.worker_type]
        more = [copy for entry in entries for copy in new.copies(entry)]
        by_name, known = before._called
        remaining = {name: vertex for name, vertex in known.items() if vertex not in gone} if gone else known
        unlike = gone or more  # names may be told apart by other means, and without workers the root is one
        if unlike and not (by_name and remaining and _are_new([copy.name for copy in more], remaining)):
            return
        vars(self)["_called"] = by_name, _with_more(remaining, more, new) if more else remaining
        if not gone:
            vars(self)["more_workers"] = [copy.name for copy in more]

    @cached_property
    def origin(self) -> tuple[Cluster, Revision] | None:
        """The cluster that this one was made of by changes, and how it differs, until it has been classified."""
        return None

    def forget_origin(self) -> None:
        """Release the cluster of which this one was made."""
        vars(self)["origin"] = None

    @cached_property
    def more_workers(self) -> Sequence[str] | None:
        """The new workers of a cluster that was `changed`; None of others, or if some have gone or other names."""
        return None

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
    def switches(self) -> Mapping[str, tuple[int, str]]:
        """{worker: what tells its leaf switch from others} of the workers below a vertex of type `switch`."""
        fields, result = self.outline.fields, dict[str, tuple[int, str]]()
        if "switch" not in self.totals:
            return result
        for entry in (entry for entry, one in enumerate(fields) if one.type == self.worker_type):
            above = self.outline.chain(entry)[:-1]
            if switch := next((one for one in reversed(above) if fields[one].type == "switch"), 0):
                depth = sum(1 for one in self.outline.chain(switch) if self.outline.counts[one])
                for copy in self.outline.copies(entry):
                    numbers = copy.numbers.split(".")[: depth + 1]
                    result[self.worker_names[copy.id]] = (switch, ".".join(numbers))
        return result

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


def mark_default(outline: Outline, site: Site | None, worker_type: str) -> None:
    """Give the nodes that a job without a queue may have the property that says so."""
    if site is None or site.default not in (site.queues or {}):
        return
    requires = frozenset((site.queues or {})[site.default].requires)
    outline.fields = [
        fields._replace(properties=fields.properties | {IN_DEFAULT})
        if fields.type == worker_type and requires <= fields.properties
        else fields
        for fields in outline.fields
    ]


def _place(copy: Copy) -> tuple[Any, ...]:
    return (natural(copy.path), natural(copy.id))


def _are_new(names: Sequence[str], known: Mapping[str, str]) -> bool:
    """Return whether each name is one of a single vertex."""
    return all(names) and len(set(names)) == len(names) and not known.keys() & names


def _with_more(known: Mapping[str, str], more: Sequence[Copy], outline: Outline) -> Mapping[str, str]:
    """Return {name: vertex} with more put in where they belong."""
    made, vertices = dict(known), [*known.values()]
    for copy in more:
        at = bisect_right(vertices, _place(copy), key=lambda vertex: _place(outline.find(vertex)))
        behind = [*islice(made, at, None)]
        made[copy.name] = copy.id
        made |= {name: made.pop(name) for name in behind}
        vertices.insert(at, copy.id)
    return made


def _nodepool(fields: Fields) -> str:
    answer = fields.metadata.get("nodepool")
    if isinstance(answer, str):
        return answer
    return next((name.partition("=")[2] for name in sorted(fields.properties) if name.startswith("nodepool=")), "")


def unique_names(copies: Sequence[Copy]) -> list[str]:
    """Call every vertex by its name, or by its path if the name is not unique, or by its id if neither is."""
    for names in ([copy.name for copy in copies], [copy.path for copy in copies]):
        if all(names) and len(set(names)) == len(names):
            return names
    return [copy.id for copy in copies]


def hang_subsystem(cluster: Cluster, name: str, document: Any, limits: Limits = LIMITS) -> Cluster:
    """Return the cluster with the subsystem `document` (any accepted form) attached to it, in place of an old `name`.

    Every vertex must be joined, by edges of the subsystem, to one attached to the cluster. One may stand alone:
    the subsystem's own root, the first vertex whose type or basename is the subsystem's name or whose declared path
    is a single step (`io0`, of type io, "/io0"). Raises GraphError for any other that is tied to nothing, for an
    edge to a vertex neither graph has, and for whatever `read_cluster` refuses; `count` is a field like others here.
    """
    plain = read_document(document, limits)
    with plain.naming():
        return _hung(cluster, name, plain, limits)


def _hung(cluster: Cluster, name: str, plain: Document, limits: Limits) -> Cluster:
    vertices = _own_vertices(cluster, plain)
    cluster = _told_apart(cluster, plain, vertices)
    inner, ties = _sort_edges(cluster.outline, name, plain, vertices)
    graph = _graph(plain, vertices, inner)
    attached = _attach(cluster.outline, graph, ties, plain, limits)
    _check_tied(name, graph, vertices, ties)
    subsystem = Subsystem(name, graph, attached, cluster.outline)
    return replace(cluster, subsystems={**cluster.subsystems, name: subsystem})


def _own_vertices(cluster: Cluster, document: Document) -> dict[str, Vertex]:
    """Return the vertices by id, without those that only mention one of the cluster."""
    known = check_vertices(document)
    own = {key: vertex for key, vertex in known.items() if vertex.metadata or key not in cluster.outline}
    if not own:
        raise GraphError("the subsystem has no vertices of its own", pointer=document.vertices_at)
    return own


def _told_apart(cluster: Cluster, document: Document, vertices: Container[str]) -> Cluster:
    """Write the templates out if something is attached to one copy only: copies are not all equal any more."""
    old = cluster.outline
    sources = {edge.source for edge in document.edges if edge.source not in vertices}
    if not any(source not in old.places and source in old for source in sources) or old.is_listed:
        return cluster
    outline = listed(old)
    subsystems = {
        name: Subsystem(name, hung.graph, {outline.places[v]: on for v, on in hung.attached.items()}, outline)
        for name, hung in cluster.subsystems.items()
    }
    return replace(cluster, outline=outline, subsystems=subsystems)


def _sort_edges(
    outline: Outline, name: str, document: Document, vertices: Mapping[str, Vertex]
) -> tuple[list[Edge], list[Edge]]:
    """Tell the edges inside the subsystem from those that hang it on the cluster."""
    inner: list[Edge] = []
    ties: list[Edge] = []
    anywhere = _Either(vertices, outline)
    for edge in document.edges:
        if edge.relation not in (CONTAINS, IN) or edge.subsystem not in (CONTAINMENT, name):
            continue
        check_ends(document, edge, anywhere, anywhere)
        if edge.relation == CONTAINS:
            _check_direction(document, edge, vertices)
            (inner if edge.source in vertices else ties).append(edge)
    return inner, ties


class _Either:
    """What is in one of two."""

    def __init__(self, one: Container[str], other: Container[str]) -> None:
        self.one, self.other = one, other

    def __contains__(self, vertex: object) -> bool:
        return vertex in self.one or vertex in self.other


def _check_direction(document: Document, edge: Edge, vertices: Container[str]) -> None:
    if edge.target not in vertices:
        text = (
            f"subsystem edge points to cluster vertex {short(edge.target)}; edges must lead from the cluster into "
            "the subsystem"
        )
        raise GraphError(text, pointer=f"{document.edge_at(edge)}/target")


def _graph(document: Document, vertices: Mapping[str, Vertex], inner: list[Edge]) -> nx.DiGraph[str]:
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from((vertex.id, attributes(vertex)._asdict()) for vertex in vertices.values())
    graph.add_edges_from((edge.source, edge.target) for edge in inner)
    for vertex in top_down(document, vertices, inner):
        fields, parent = graph.nodes[vertex], next(graph.predecessors(vertex), "")
        above = graph.nodes[parent]["path"] if parent else ""
        if not fields["path"] and (above or not parent):
            fields["path"] = derive_path(above, fields["name"])
    return graph


def _attach(
    outline: Outline, graph: nx.DiGraph[str], ties: list[Edge], document: Document, limits: Limits
) -> dict[int, tuple[str, ...]]:
    """Return, for every entry of the outline, what is attached to it, in the document's order of edges."""
    import networkx as nx

    below: dict[str, tuple[str, ...]] = {}
    attached: dict[int, dict[str, None]] = {}
    total = 0
    for edge in ties:
        if edge.target not in below:
            below[edge.target] = (edge.target, *(v for _, v in nx.bfs_edges(graph, edge.target)))
        for vertex in outline.templates.get(edge.source, (edge.source,)):
            entry = outline.places[vertex]
            total += len(below[edge.target]) * outline.many[entry]
            limits.check("edges", total, document.edge_at(edge))
            attached.setdefault(entry, {}).update(dict.fromkeys(below[edge.target]))
    return {entry: tuple(hung) for entry, hung in attached.items()}


def _check_tied(name: str, graph: nx.DiGraph[str], vertices: Mapping[str, Vertex], ties: list[Edge]) -> None:
    import networkx as nx

    hung = {edge.target for edge in ties}
    parts = nx.weakly_connected_components(graph)
    tied = {vertex for part in parts if not part.isdisjoint(hung) for vertex in part}
    free = [vertex for vertex in vertices if vertex not in tied]
    alone = [vertex for vertex in free if not graph.degree(vertex) and _is_own_root(name, vertices[vertex])]
    untied = [vertex for vertex in free if not tied or vertex not in alone[:1]]
    if untied:
        text = (
            f"subsystem vertex {short(untied[0])} is not attached to the cluster: add an edge to it from a cluster "
            "vertex"
        )
        raise GraphError(text, pointer=vertices[untied[0]].pointer)


def _is_own_root(name: str, vertex: Vertex) -> bool:
    declared = attributes(vertex)
    return name in (declared.type, vertex.metadata.get("basename")) or declared.path.count("/") == 1
