"""A cluster's vertices as its document has them: templates are not written out.

    entry     a vertex of the document, called by its place in the outline; what contains it stands before it
    copy      one of the vertices an entry stands for: itself, or one for each number of the templates above it
    numbers   what a copy took over from templates: ".7.3" for copy 3 of something in copy 7, or ""
    run       (entry, first, many): copies first..first+many-1 of an entry, neighbours below one parent

A cluster of a million equal vertices is an outline of a few entries. Everything that matching wants to know of
structure is read from here; the NetworkX graph is written out only for those who ask for it.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, compress, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.cache import cached_property
from rainbow.text import natural

if TYPE_CHECKING:
    import networkx as nx

PARTS = ("ids", "fields", "parents", "counts", "templates")


class Outline:
    """Entries in order, each after its parent; entry 0 is the root. A `count` of 0 is no template."""

    def __init__(
        self, ids: Sequence[str], fields: Sequence[Fields], parents: Sequence[int], counts: Sequence[int]
    ) -> None:
        self.ids = ids
        self.fields = fields
        self.parents = parents
        self.counts = counts
        self.templates: dict[str, tuple[str, ...]] = {}  # of an outline written out: the copies each stood for

    @cached_property
    def places(self) -> dict[str, int]:
        """{id: entry}."""
        return {vertex: entry for entry, vertex in enumerate(self.ids)}

    @cached_property
    def many(self) -> list[int]:
        """How many copies there are of every entry."""
        many: list[int] = []
        for count, parent in zip(self.counts, self.parents, strict=True):
            many.append((count or 1) * (many[parent] if parent >= 0 else 1))
        return many

    @cached_property
    def sizes(self) -> dict[str, int]:
        """{type: size of all its vertices}."""
        sums: dict[str, int] = {}
        for fields, many in zip(self.fields, self.many, strict=True):
            sums[fields.type] = sums.get(fields.type, 0) + fields.size * many
        return dict(sorted(sums.items()))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """{type: how many vertices}."""
        sums: dict[str, int] = {}
        for fields, many in zip(self.fields, self.many, strict=True):
            sums[fields.type] = sums.get(fields.type, 0) + many
        return sums

    @cached_property
    def is_listed(self) -> bool:
        """Return whether no entry is a template."""
        return not any(self.counts)

    @cached_property
    def below(self) -> list[Sequence[Run]]:
        """What every entry contains, in natural order."""
        results: list[list[int]] = [[] for _ in self.ids]
        for entry in range(1, len(self.ids)):
            results[self.parents[entry]].append(entry)
        firsts: dict[int, Copy] = {-1: Copy("", "", "", "", "")}
        for entry, children in enumerate(results):
            if children:
                firsts[entry] = next(self.copies_in(entry, firsts[self.parents[entry]]))
        return [self._in_order(children, firsts.get(entry)) for entry, children in enumerate(results)]

    def _in_order(self, children: list[int], parent: Copy | None) -> Sequence[Run]:
        runs = [(child, 0, self.counts[child] or 1) for child in children]
        if parent is None or len(children) == 1:
            return runs
        names = self._names_in_order(children)
        if names is not None:
            return [(child, 0, 1) for _, child in names]
        keyed = sorted((self._key(run, 0, parent), run) for run in runs)
        lasts = [self._key(run, run[2] - 1, parent) for _, run in keyed]
        if all(last < first for last, (first, _) in zip(lasts, keyed[1:], strict=False)):
            return [run for _, run in keyed]
        return _merged([[(self._key(run, n, parent), (run[0], n, 1)) for n in range(run[2])] for _, run in keyed])

    def _names_in_order(self, children: list[int]) -> list[tuple[Any, int]] | None:
        """Sort siblings by name where that is the order of their paths, as in most graphs; else None."""
        if any(self.counts[child] for child in children):
            return None
        folders: set[str | None] = set()
        for child in children:
            folder, _, name = self.fields[child].path.rpartition("/")
            folders.add(folder if name and name == self.fields[child].name else None)
        named = {natural(self.fields[child].name): child for child in children}
        alike = len(named) == len(children) and len(folders) == 1 and None not in folders
        return sorted(named.items()) if alike else None

    def _key(self, run: Run, number: int, parent: Copy) -> tuple[Any, ...]:
        """The sort key (see Cluster.order) of a copy below the first copy of its parent."""
        copy = self.copy(run[0], parent, number if self.counts[run[0]] else None)
        return (natural(copy.path), natural(copy.id))

    def with_more(
        self, ids: Sequence[str], fields: Sequence[Fields], parents: Sequence[int], counts: Sequence[int]
    ) -> Outline:
        """Return this outline with more entries behind its own, each below one that comes before it.

        What was worked out of the others is taken over: it costs what is new, and copies of lists.
        """
        start = len(self.ids)
        lists = ((self.ids, ids), (self.fields, fields), (self.parents, parents), (self.counts, counts))
        grown = Outline(*([*old, *new] for old, new in lists))
        grown.places = self.places | {vertex: start + k for k, vertex in enumerate(ids)}
        grown.many = many = [*self.many]
        sizes, grown.numbers = self.sizes.copy(), self.numbers.copy()
        children: dict[int, list[int]] = {}
        for entry, (one, parent, count) in enumerate(zip(fields, parents, counts, strict=True), start):
            many.append((count or 1) * many[parent])
            sizes[one.type] = sizes.get(one.type, 0) + one.size * many[entry]
            grown.numbers[one.type] = grown.numbers.get(one.type, 0) + many[entry]
            children.setdefault(parent, []).append(entry)
        grown.sizes = dict(sorted(sizes.items()))
        grown.is_listed = self.is_listed and not any(counts)
        grown.below = [*self.below, *([] for _ in ids)]
        for parent, more in children.items():
            grown.below[parent] = grown._with_more_below(parent, more)
        return grown

    def with_fields(self, other: Mapping[int, Fields]) -> Outline:
        """Return this outline with other sizes and properties of some entries; what they are called stays."""
        all_fields, sizes = [*self.fields], self.sizes.copy()
        for entry, fields in other.items():
            sizes[fields.type] += (fields.size - all_fields[entry].size) * self.many[entry]
            all_fields[entry] = fields
        made = Outline(self.ids, all_fields, self.parents, self.counts)
        made.places, made.many, made.below, made.numbers = self.places, self.many, self.below, self.numbers
        made.is_listed, made.sizes = self.is_listed, sizes
        return made

    def without(self, removed: Sequence[int]) -> Outline:
        """Return a listed outline without entries, in order, that hold all they contain; the others move up."""
        stays, sizes, numbers = marks(len(self.ids), removed), self.sizes.copy(), self.numbers.copy()
        for entry in removed:
            fields = self.fields[entry]
            sizes[fields.type] -= fields.size
            numbers[fields.type] -= 1
        moved = [place - 1 for place in accumulate(stays)]
        moved.append(-1)  # the parent of the root
        ids = list(compress(self.ids, stays))
        parents = [moved[parent] for parent in compress(self.parents, stays)]
        made = Outline(ids, list(compress(self.fields, stays)), parents, self.counts[: len(ids)])
        made.places, made.many, made.is_listed = dict(zip(ids, range(len(ids)), strict=True)), [1] * len(ids), True
        made.numbers = {kind: number for kind, number in numbers.items() if number}
        made.sizes = {kind: size for kind, size in sizes.items() if kind in made.numbers}
        made.below = [
            [(moved[child], 0, 1) for child, _, _ in runs if stays[child]] if runs else runs
            for runs in compress(self.below, stays)
        ]
        return made

    def _with_more_below(self, parent: int, more: list[int]) -> Sequence[Run]:
        """Return what an entry contains with more children put in where they belong in natural order."""
        above, old = next(self.copies(parent)), self.below[parent]
        if not old or (not self.is_listed and any(self.counts[one] for one in (*more, *(run[0] for run in old)))):
            return self._in_order([*sorted({one[0] for one in old}), *more], above)
        runs = list(old)
        for child in more:
            insort(runs, (child, 0, 1), key=lambda run: self._key(run, 0, above))
        return runs

    def chain(self, entry: int) -> list[int]:
        """The entries from the root down to one."""
        results = [entry]
        while self.parents[results[-1]] >= 0:
            results.append(self.parents[results[-1]])
        return results[::-1]

    def levels(self, vertex: str) -> list[int]:
        """The counts of the templates above an entry and its own, outermost first; `vertex` is its id."""
        return [self.counts[entry] for entry in self.chain(self.places[vertex]) if self.counts[entry]]

    def __contains__(self, vertex: object) -> bool:
        """Return whether a text is the id of an entry, of a template, or of a copy."""
        if vertex in self.places or vertex in self.templates:
            return True
        return any(stem in self.places and self._has_copy(stem, numbers) for stem, numbers in numbered(str(vertex)))

    def _has_copy(self, stem: str, numbers: list[int]) -> bool:
        counts = self.levels(stem)
        return len(counts) == len(numbers) and all(map(int.__lt__, numbers, counts))

    def copies(self, entry: int) -> Iterator[Copy]:
        """Yield the copies of an entry, in the order of their numbers."""
        chain = self.chain(entry)
        stack = [self.copies_in(chain[0], Copy("", "", "", "", ""))]
        while stack:
            copy = next(stack[-1], None)
            if copy is None:
                stack.pop()
            elif len(stack) == len(chain):
                yield copy
            else:
                stack.append(self.copies_in(chain[len(stack)], copy))

    def find(self, vertex: str) -> Copy:
        """Return the vertex of this id; KeyError if there is none."""
        read = ((stem, numbers) for stem, numbers in numbered(vertex) if stem in self.places)
        stem, numbers = (vertex, list[int]()) if vertex in self.places else next(read, ("", []))
        remaining, copy = iter(numbers), Copy("", "", "", "", "")
        for entry in self.chain(self.places[stem]):
            copy = self.copy(entry, copy, next(remaining) if self.counts[entry] else None)
        return copy

    def copies_in(self, entry: int, parent: Copy) -> Iterator[Copy]:
        """Yield the copies of an entry in one copy of its parent."""
        count = self.counts[entry]
        for number in range(count or 1):
            yield self.copy(entry, parent, number if count else None)

    def copy(self, entry: int, parent: Copy, number: int | None) -> Copy:
        """Return one copy of an entry; `number` None where the entry is no template."""
        vertex, fields = self.ids[entry], self.fields[entry]
        numbers = parent.numbers if number is None else f"{parent.numbers}.{number}"
        name = fields.name if number is None else f"{fields.name}{number}"
        if fields.path and not numbers:
            path = fields.path
        else:
            path = "" if parent.id and not parent.path else derive_path(parent.path, name)
        return Copy(vertex + numbers, parent.id, numbers, name, path)

    def at(self, entry: int, parent: Copy, place: int) -> tuple[int, Copy]:
        """Return the child that stands at a place among all that a copy of an entry contains, in natural order."""
        if self.is_listed:
            child, number = self.below[entry][place][0], 0
        else:
            for child, first, many in self.below[entry]:  # noqa: B007 - the run that holds the place is used below
                if place < many:
                    number = first + place
                    break
                place -= many
        return child, self.copy(child, parent, number if self.counts[child] else None)

    def rank_of(self, entry: int, place: int) -> int | None:
        """The rank of a copy; `place` counts the copies of the entry."""
        rank = self.fields[entry].rank
        return None if rank is None else rank + place

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """The NetworkX graph, all templates written out; frozen, because nothing would follow a change of it."""
        import networkx as nx  # takes a third of a second

        graph = write_out(self)
        nx.freeze(graph)
        return graph


class Deferred(Outline):
    """An outline of which only the totals are known; `read` gives the rest at the first look at any of it."""

    def __init__(self, read: Callable[[], Outline], sizes: Mapping[str, int], numbers: Mapping[str, int]) -> None:
        self._read = read
        self.sizes = dict(sizes)
        self.numbers = dict(numbers)

    def __getattr__(self, name: str) -> Any:
        """Read the outline: one of its parts is asked for and not yet there."""
        if name not in PARTS:
            raise AttributeError(name)
        whole = self._read()
        for part in PARTS:
            setattr(self, part, getattr(whole, part))
        return getattr(whole, name)


def marks(count: int, removed: Iterable[int]) -> bytearray:
    """Return 1 for each of `count` places, and 0 for those that are removed."""
    stays = bytearray(b"\x01") * count
    for place in removed:
        stays[place] = 0
    return stays


Run = tuple[int, int, int]

_LONGEST_PATH = 1024
_NUMBERED = ("count", "name", "paths")


class Fields(NamedTuple):
    """The attributes of a vertex, see cluster.py."""

    type: str
    size: int
    unit: str
    name: str
    path: str
    rank: int | None
    properties: frozenset[str]
    metadata: Any


class Copy(NamedTuple):
    """One vertex an entry stands for."""

    id: str
    parent: str
    numbers: str
    name: str
    path: str


def numbered(vertex: str) -> Iterator[tuple[str, list[int]]]:
    """Read an id as that of a copy, in every way there is: what it would be a copy of, and its numbers.

    >>> list(numbered("core.7.3"))
    [('core.7', [3]), ('core', [7, 3])]
    """
    numbers: list[int] = []
    stem, dot, digits = vertex.rpartition(".")
    while dot and digits.isascii() and digits.isdigit() and len(digits) <= 16 and str(int(digits)) == digits:
        numbers.insert(0, int(digits))
        yield stem, list(numbers)
        stem, dot, digits = stem.rpartition(".")


def derive_path(above: str, name: str) -> str:
    """Continue the path of a parent; "" where it would be longer than 1024 characters.

    Without that bound, the paths of a deep graph would take memory quadratic in its depth.
    """
    path = f"{above}/{name}"
    return "" if len(path) > _LONGEST_PATH else path


def _merged(lists: list[list[tuple[tuple[Any, ...], Run]]]) -> Sequence[Run]:
    """Merge the copies of several siblings by key, neighbours of one entry into one run.

    The copies of one template are in order already: their names differ in one number only.
    """
    merged = heapq.merge(*lists, key=lambda keyed: keyed[0])
    runs: list[Run] = []
    for child, group in groupby((run for _, run in merged), key=lambda run: run[0]):
        copies = list(group)
        runs.append((child, copies[0][1], len(copies)))
    return runs


def written_out(outline: Outline) -> Iterator[tuple[int, Copy, Fields]]:
    """Yield every copy of every entry with its attributes; what contains it comes before."""
    copies: dict[int, list[Copy]] = {-1: [Copy("", "", "", "", "")]}
    for entry, parent in enumerate(outline.parents):
        copies[entry] = [copy for above in copies[parent] for copy in outline.copies_in(entry, above)]
        for place, copy in enumerate(copies[entry]):
            yield entry, copy, copied(outline, entry, copy, place)


def write_out(outline: Outline) -> nx.DiGraph[str]:
    """Write every copy of every entry into a NetworkX graph; `graph.graph["templates"]` names those of templates."""
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph(templates=dict(outline.templates))
    copies: dict[str, list[str]] = {}
    for entry, copy, fields in written_out(outline):
        graph.add_node(copy.id, **fields._asdict())
        if copy.parent:
            graph.add_edge(copy.parent, copy.id)
        if copy.numbers:
            copies.setdefault(outline.ids[entry], []).append(copy.id)
    graph.graph["templates"] |= {vertex: tuple(ids) for vertex, ids in copies.items()}
    return graph


def as_document(outline: Outline) -> dict[str, Any]:
    """Return every vertex in JSON Graph Format 2, templates written out."""
    nodes, edges = dict[str, Any](), list[Any]()
    for _, copy, fields in written_out(outline):
        nodes[copy.id] = {"label": fields.name, "metadata": dict(fields.metadata)}
        if copy.parent:
            edges.append({"source": copy.parent, "target": copy.id, "relation": "contains"})
    return {"directed": True, "nodes": nodes, "edges": edges}


def copied(outline: Outline, entry: int, copy: Copy, place: int) -> Fields:
    """Return the attributes of a copy; metadata of a template's copies is without what is each one's own."""
    fields = outline.fields[entry]
    if not copy.numbers:
        return fields._replace(path=copy.path)
    metadata = {key: value for key, value in fields.metadata.items() if key not in _NUMBERED}
    rank = outline.rank_of(entry, place)
    if rank is not None:
        metadata["rank"] = rank
    return fields._replace(name=copy.name, path=copy.path, rank=rank, metadata=metadata)


def listed(outline: Outline) -> Outline:
    """Return the outline with every template written out, so that copies can be told apart."""
    if outline.is_listed:
        return outline
    ids: list[str] = []
    fields: list[Fields] = []
    parents: list[int] = []
    entry_of: dict[str, int] = {}
    graph = outline.graph
    for vertex, data in graph.nodes(data=True):
        entry_of[vertex] = len(ids)
        ids.append(vertex)
        fields.append(Fields(**data))
        parents.append(next((entry_of[above] for above in graph.predecessors(vertex)), -1))
    written = Outline(ids, fields, parents, [0] * len(ids))
    written.templates = dict(graph.graph["templates"])
    return written
