"""The checker: whether a certificate's rows meet a request on a graph, beside what others hold.

It shares no code with the search and never searches. The rules are those of docs/certificates.md, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rainbow.certificate.facts import Facts, passes
from rainbow.jobspec.quantities import quantity
from rainbow.jobspec.request import CONTAINMENT, PROPERTIES

if TYPE_CHECKING:
    import networkx as nx

    from rainbow.certificate.document import Certificate, Row
    from rainbow.graph import Cluster
    from rainbow.jobspec import Condition, Need, Request, Resource

Meets = Callable[["Condition", Mapping[str, Any], "nx.DiGraph[str] | None"], bool]
Held = Mapping[str, int | None]  # {vertex: base units, or None for all of it}
MOST_NAMES = 1_000_000  # of a hostlist


class Vertices(Facts):
    """A cluster's vertices by id, read from its outline as they are asked for."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._above: dict[str, tuple[str, ...]] = {}
        self._entries: dict[str, int] = {}
        self.types = {fields.type for fields in self.outline.fields}
        self.largest: dict[tuple[str, str], int] = {}  # units of leaves, by type and quantity
        self._inner = set(self.outline.parents)
        for entry, fields in enumerate(self.outline.fields):
            if entry not in self._inner:
                measured, factor = quantity(fields.unit)
                self.largest[fields.type, measured] = max(self.largest.get((fields.type, measured), 1), factor)

    def has(self, vertex: str) -> bool:
        """Return whether this is the id of a vertex; a template's own is not."""
        is_template = vertex in self.outline.places and self.outline.levels(vertex)
        return vertex in self.outline and vertex not in self.outline.templates and not is_template

    def entry(self, vertex: str) -> int:
        """Return the entry of the outline that a vertex is a copy of."""
        if vertex not in self._entries:
            numbers = self.outline.find(vertex).numbers
            self._entries[vertex] = self.outline.places[vertex.removesuffix(numbers) if numbers else vertex]
        return self._entries[vertex]

    def above(self, vertex: str) -> tuple[str, ...]:
        """Return a vertex and what contains it, innermost first."""
        if vertex not in self._above:
            chain, at = [vertex], self.outline.find(vertex).parent
            while at:
                chain.append(at)
                at = self.outline.find(at).parent
            self._above[vertex] = tuple(chain)
        return self._above[vertex]

    def fields(self, vertex: str) -> Any:
        """Return type, size and unit of a vertex, and its properties."""
        return self.outline.fields[self.entry(vertex)]

    def is_leaf(self, vertex: str) -> bool:
        """Return whether a vertex contains nothing."""
        return self.entry(vertex) not in self._inner

    def size(self, vertex: str) -> int:
        """Return the size of a vertex in base units."""
        fields = self.fields(vertex)
        return int(fields.size) * quantity(fields.unit)[1]

    def workers(self, vertex: str) -> list[str]:
        """Return the workers that a vertex lies in, innermost first, itself included."""
        kind = self.cluster.worker_type
        results = [at for at in self.above(vertex) if self.fields(at).type == kind]
        return results or ([] if kind in self.types else [self.cluster.root])

    def units(self, r: Resource, row: Row) -> Fraction | None:
        """Return how many units of a request a row gives; None where they cannot be compared."""
        measured, factor = quantity(self.fields(str(row.vertex)).unit)
        requirement, each = quantity(r.unit)
        if r.unit:
            return Fraction(row.amount, each) if requirement == measured else None
        units = Fraction(row.amount, self.largest.get((r.type, measured), factor))
        mixed = row.how == "all" and sum(kind == r.type for kind, _ in self.largest) > 1
        return Fraction(int(units)) if mixed else units

    def meets(self, needs: Collection[Need], entry: int, meets: Meets) -> bool:
        """Return whether something attached to an entry's vertex, above it or inside it meets each need."""
        near = set(self.outline.chain(entry))
        for need in needs:
            if need.subsystem in (CONTAINMENT, PROPERTIES):
                rows = self.own(entry) if need.subsystem == CONTAINMENT else self.properties(entry)
                if not any(all(meets(condition, row, None) for condition in need.conditions) for row in rows):
                    return False
                continue
            subsystem = self.cluster.subsystems.get(need.subsystem)
            ties = subsystem.ties.items() if subsystem else ()
            rows = (
                subsystem.graph.nodes[v]
                for at, hung in ties
                if subsystem and (at in near or entry in self.outline.chain(at))
                for v in hung
            )
            graph = subsystem.graph if subsystem else None
            if not any(all(meets(condition, row, graph) for condition in need.conditions) for row in rows):
                return False
        return True


def vertices_of(cluster: Cluster) -> Vertices:
    """Return a cluster's vertices; they are read once."""
    return cluster.memo.get(Vertices) or cluster.memo.setdefault(Vertices, Vertices(cluster))  # type: ignore[no-any-return]


def numbered(resources: Collection[Resource]) -> list[tuple[Resource, int]]:
    """Number the requests of a variant depth first; return each with the number of the one above, -1: none."""
    result, stack = list[tuple["Resource", int]](), [(resource, -1) for resource in reversed(tuple(resources))]
    while stack:
        resource, up = stack.pop()
        stack.extend((child, len(result)) for child in reversed(resource.children))
        result.append((resource, up))
    return result


def verify(
    request: Request,
    cluster: Cluster,
    held: Held,
    certificate: Certificate,
    *,
    floats: Mapping[str, Mapping[str, int]] | None = None,
    closed: Collection[str] = (),
    meets: Meets,
) -> list[str]:
    """Return every fault of a certificate; none is a proof that its rows meet the request.

    `closed` and `floats` name workers: those that take no new work, and those that owe amounts of no vertex.
    """
    if not 0 <= certificate.variant < len(request.variants):
        return [f"the request has no variant {certificate.variant}"]
    check = _Check(request, vertices_of(cluster), held, certificate, meets)
    faults = list(check.shapes())
    if not faults:
        faults = [*check.counts(), *check.places(), *check.sums(floats or {}), *check.alone(), *check.needs()]
        faults += check.workers(frozenset(closed))
    return faults


class _Check:
    def __init__(
        self, request: Request, vertices: Vertices, held: Held, certificate: Certificate, meets: Meets
    ) -> None:
        self.request, self.vertices, self.held, self.meets = request, vertices, held, meets
        self.rows = certificate.rows
        self.levels = vertices.cluster.worker_level_types
        self.requests = numbered(request.variants[certificate.variant])
        self.below: dict[tuple[int, int], list[int]] = {}  # by row above and request
        self.children: dict[int, list[int]] = {}
        for number, (_, up) in enumerate(self.requests):
            self.children.setdefault(up, []).append(number)

    def of(self, n: int) -> Resource:
        return self.requests[self.rows[n].request][0]

    def shapes(self) -> Iterator[str]:
        """Each row is of a request, below a row of the one above that, on a vertex of the graph, and in its form."""
        for n, row in enumerate(self.rows):
            if not 0 <= row.request < len(self.requests):
                yield f"row {n}: the variant has no request {row.request}"
                continue
            above = self.rows[row.up].request if 0 <= row.up < n else -1
            if not -1 <= row.up < n or above != self.requests[row.request][1]:
                yield f"row {n}: request {row.request} does not belong below row {row.up}"
            elif (fault := self._misshapen(self.requests[row.request][0], row)) is not None:
                yield f"row {n}: {fault}"
            self.below.setdefault((row.up, row.request), []).append(n)

    def _misshapen(self, r: Resource, row: Row) -> str | None:
        forms = ("at",) if r.is_slot else ("on",) if r.children else ("all", "of")
        if row.how not in forms:
            return f"{r.label or r.type} is held as {' or '.join(forms)}, not {row.how}"
        if (row.amount != 0) if row.how in ("at", "on") else (row.amount <= 0):
            return f"{row.how} holds {row.amount}"
        if r.is_slot and not row.vertex:
            return None
        if row.vertex is None or not self.vertices.has(row.vertex):
            return f"the graph has no vertex {row.vertex}"
        if row.how == "at" and row.vertex not in self.vertices.workers(row.vertex):
            return f"{row.vertex} is no worker"
        if row.how == "all" and row.amount != self.vertices.size(row.vertex):
            return f"all of {row.vertex} is {self.vertices.size(row.vertex)}, not {row.amount}"
        if row.how == "of" and (r.exclusive or not self.vertices.is_leaf(row.vertex)):
            return f"{row.vertex} is held whole or not at all"
        return None

    def counts(self) -> Iterator[str]:
        """Below every row, and at the top, each request has what it asks for, and no vertex too many."""
        for up in range(-1, len(self.rows)):
            for number in self.children.get(self.rows[up].request if up >= 0 else -1, ()):
                r, own = self.requests[number][0], self.below.get((up, number), [])
                where, name = f"below row {up}" if up >= 0 else "at the top", r.label or r.type
                if r.is_slot or r.children:
                    if len(own) != r.count.min:
                        yield f"{where}: {len(own)} of {r.count.min} {name}"
                    continue
                parts = [self.vertices.units(r, self.rows[n]) for n in own]
                wholes = [part or 0 for n, part in zip(own, parts, strict=True) if self.rows[n].how == "all"]
                total = sum(part or 0 for part in parts)
                if total < r.count.min or (total > r.count.min and len(wholes) < len(parts)):
                    yield f"{where}: {float(total):.15g} of {r.count.min} {r.unit} {name}".replace("  ", " ")
                elif wholes and total - min(wholes) >= r.count.min:
                    yield f"{where}: a {name} is too many"
                if None in parts:
                    yield f"{where}: {name} is counted in another unit than {r.unit or 'others'}"
                if len({self.rows[n].vertex for n in own}) < len(own):
                    yield f"{where}: one vertex in two rows of {name}"

    def _up(self, n: int) -> Iterator[int]:
        n = self.rows[n].up
        while n >= 0:
            yield n
            n = self.rows[n].up

    def _host(self, n: int) -> str | None:
        return next((self.rows[up].vertex for up in self._up(n) if self.rows[up].how == "on"), None)

    def places(self) -> Iterator[str]:
        """Vertices are of the type asked for, inside what is stood on above, and in their slot's place."""
        above = self.vertices.above
        for n, row in enumerate(self.rows):
            r, host, vertex = self.of(n), self._host(n), row.vertex
            if vertex and host is not None and host not in above(vertex)[1:]:
                yield f"row {n}: {vertex} does not lie in {host}, which is stood on"
            if row.how == "at":
                takes = any(c.type in self.levels and not c.is_slot for c in r.children)
                if takes and vertex is None and not (host and self.vertices.workers(host)):
                    yield f"row {n}: the slot has no place"
            elif self.vertices.fields(vertex or "").type != r.type:
                yield f"row {n}: {vertex} is a {self.vertices.fields(vertex or '').type}, not a {r.type}"
            else:
                yield from self._in_place(n, r, vertex or "", host)

    def _in_place(self, n: int, r: Resource, vertex: str, host: str | None) -> Iterator[str]:
        up, scope, slot = self.vertices.above(vertex), host, self.rows[max(self.rows[n].up, 0)]
        if self.rows[n].up >= 0 and slot.how == "at" and slot.vertex is not None and r.type in self.levels:
            if not slot.vertex and self.vertices.workers(vertex):
                yield f"row {n}: {vertex} lies in a worker, and its slot outside every one"
            elif slot.vertex and slot.vertex not in up:
                yield f"row {n}: {vertex} does not lie in {slot.vertex}, its slot's place"
            scope = next(iter(self.vertices.above(slot.vertex)[1:]), None) if slot.vertex else host
        between = up[1 : up.index(scope)] if scope in up else up[1:]
        topmost = self.rows[n].how != "of" or r.needs
        if topmost and any(self.vertices.fields(at).type == r.type for at in between):
            yield f"row {n}: {vertex} lies in another {r.type}"

    def sums(self, floats: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
        """Nothing is stood on twice, and no leaf or worker gives more than it has."""
        stood, grants = dict[str, int](), dict[str, int]()
        for n, row in enumerate(self.rows):
            if row.how == "on" and stood.setdefault(str(row.vertex), n) != n:
                yield f"row {n}: row {stood[str(row.vertex)]} stands on {row.vertex} too"
            if row.how == "of":
                grants[str(row.vertex)] = grants.get(str(row.vertex), 0) + row.amount
        for vertex, amount in grants.items():
            of_others = self.held.get(vertex, 0)
            remaining = 0 if of_others is None else self.vertices.size(vertex) - of_others
            if amount > remaining:
                yield f"{vertex} gives {amount}, {max(remaining, 0)} of {self.vertices.size(vertex)} are free"
        for worker, amounts in floats.items():
            yield from self._floating(worker, amounts, grants)

    def _floating(self, worker: str, amounts: Mapping[str, int], grants: Mapping[str, int]) -> Iterator[str]:
        inside = [self.vertices.cluster.workers.get(worker, worker)]
        for vertex in inside:
            inside.extend(self.vertices.cluster.children(vertex))
        taken = {r.vertex for r in self.rows if self._has_alone(r)} | {v for v, n in self.held.items() if n is None}
        open_ones = [v for v in inside if self.vertices.is_leaf(v) and taken.isdisjoint(self.vertices.above(v))]
        remaining = {v: self.vertices.size(v) - (self.held.get(v) or 0) - grants.get(v, 0) for v in open_ones}
        for type_, floating in amounts.items():
            free = sum(n for v, n in remaining.items() if self.vertices.fields(v).type == type_)
            if free < floating:
                yield f"{worker}: {floating} {type_} are held of no vertex in particular, {free} are left"

    def _has_alone(self, row: Row) -> bool:
        return row.how == "all" or (row.how == "on" and self.requests[row.request][0].exclusive)

    def _is_used_up(self, vertex: str) -> bool:
        return self.vertices.is_leaf(vertex) and (self.held.get(vertex) or 0) >= self.vertices.size(vertex)

    def alone(self) -> Iterator[str]:
        """Nothing that is not below a row lies in what the row has alone, and nothing of others."""
        above = self.vertices.above
        owners = {str(row.vertex): n for n, row in reversed(list(enumerate(self.rows))) if self._has_alone(row)}
        for n, row in enumerate(self.rows):
            if row.how == "at":
                continue
            for at in above(str(row.vertex)):
                owner = owners.get(at, n)
                if owner != n and owner not in self._up(n):
                    yield f"row {n}: {row.vertex} lies in {at}, which row {owner} has alone"
                if self.held.get(at, 0) is None or (row.how == "on" and self._is_used_up(at)):
                    yield f"row {n}: {row.vertex} lies in {at}, which others hold"
        for vertex, amount in self.held.items() if owners else ():
            for at in above(vertex) if amount is None or amount > 0 else ():
                if at in owners:
                    yield f"row {owners[at]}: others hold {vertex} in {at}"

    def needs(self) -> Iterator[str]:
        """What needs something of a subsystem is on a vertex that meets it, by the rule of the request above."""
        kind, levels = self.vertices.cluster.worker_type, self.vertices.cluster.worker_level_types
        for n, row in enumerate(self.rows):
            r, host = self.of(n), self._host(n)
            requests = [(n, str(row.vertex))] if r.needs and not r.is_slot else []
            if r.needs and r.is_slot:
                own = [k for child in self.children.get(row.request, ()) for k in self.below.get((n, child), ())]
                own = [k for k in own if self.rows[k].how != "at"]
                if any(child.type == kind for child in r.children):
                    requests = [(k, str(self.rows[k].vertex)) for k in own if self.of(k).type == kind]
                elif host is not None:
                    requests = [(n, host)]
                elif r.children and levels.isdisjoint(child.type for child in r.children):
                    requests = [(k, str(self.rows[k].vertex)) for k in own]
                elif row.vertex is None:
                    yield f"row {n}: the slot needs a place"
                else:
                    requests = [(n, row.vertex or self.vertices.cluster.root)]
            for k, vertex in requests:
                if not self.vertices.meets(r.needs, self.vertices.entry(vertex), self.meets):
                    yield f"row {k}: {vertex} does not meet {', '.join(need.subsystem for need in r.needs)}"

    def workers(self, closed: frozenset[str]) -> Iterator[str]:
        """No row lies in a worker that fails the constraint or is closed."""
        constraint, cluster = self.request.constraint, self.vertices.cluster
        if constraint is None and not closed:
            return
        for n, row in enumerate(self.rows):
            for worker in self.vertices.workers(row.vertex) if row.vertex else ():
                if cluster.worker_names.get(worker, worker) in closed:
                    yield f"row {n}: {worker} is closed"
                elif constraint is not None and not passes(
                    constraint, cluster.graph.nodes[worker], self.vertices, self.vertices.entry(worker)
                ):
                    yield f"row {n}: {worker} fails the constraint"
