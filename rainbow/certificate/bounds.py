"""How many units of a request a cluster has at most, its siblings aside, counted plainly: no search has a part in it.

    node    an entry of the cluster's outline, `many` alike in each copy of its parent; where others hold some of
            it, or a constraint names hosts, one vertex each
    offer   what is below a node for a request without children: what leaves give, and what vertices give that are
            taken whole

Every sum is one pass over the nodes, from the last to the first: a node follows what contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.certificate.checker import vertices_of
from rainbow.certificate.facts import passes
from rainbow.jobspec.quantities import quantity

if TYPE_CHECKING:
    from rainbow.certificate.checker import Held, Meets
    from rainbow.graph import Cluster
    from rainbow.graph.outline import Fields
    from rainbow.jobspec import Constraint, Need, Request, Resource

NAMING = ("hostlist", "ranks")
PLENTY = 2**62  # slots that take nothing


class Nodes:
    """A cluster's vertices, what others hold of them, and which of them a request may use."""

    def __init__(
        self,
        request: Request,
        cluster: Cluster,
        held: Held,
        closed: Collection[str],
        meets: Meets,
        listed: bool = False,
    ) -> None:
        self.cluster, self.vertices, self._meets = cluster, vertices_of(cluster), meets
        outline = cluster.outline
        self.is_listed = listed or bool(held or closed or _names_hosts(request.constraint))
        if self.is_listed:
            copies = [(entry, copy) for entry in range(len(outline.ids)) for copy in outline.copies(entry)]
            places = {copy.id: place for place, (_, copy) in enumerate(copies)}
            self.ids: Sequence[str] = [copy.id for _, copy in copies]
            self.entries: Sequence[int] = [entry for entry, _ in copies]
            self.parents: Sequence[int] = [places[copy.parent] if copy.parent else -1 for _, copy in copies]
            self.many: Sequence[int] = [1] * len(copies)
        else:
            self.ids, self.entries, self.parents = outline.ids, range(len(outline.ids)), outline.parents
            self.many = [count or 1 for count in outline.counts]
        self.fields: list[Fields] = [outline.fields[entry] for entry in self.entries]
        inner = set(self.parents)
        self.is_leaf = [place not in inner for place in range(len(self.ids))]
        kind = cluster.worker_type if cluster.worker_type in self.vertices.types else None
        self._mark(request.constraint, frozenset(closed), kind)
        self._hold(held)
        self._met: dict[tuple[tuple[int, ...], int], bool] = {}

    def _mark(self, constraint: Constraint | None, closed: frozenset[str], kind: str | None) -> None:
        """Mark what lies in a worker, the outermost workers, and what lies in one that fails or is closed."""
        self.in_worker, self.is_barred = [False] * len(self.ids), [False] * len(self.ids)
        self.is_place = [False] * len(self.ids)
        for n, up in enumerate(self.parents):
            is_worker = self.fields[n].type == kind if kind else n == 0
            inside = up >= 0 and self.in_worker[up]
            self.in_worker[n], self.is_place[n] = inside or is_worker, is_worker and not inside
            self.is_barred[n] = (up >= 0 and self.is_barred[up]) or (is_worker and self._fails(n, constraint, closed))

    def _fails(self, n: int, constraint: Constraint | None, closed: frozenset[str]) -> bool:
        if closed and self.cluster.worker_names.get(self.ids[n]) in closed:
            return True
        if constraint is None:
            return False
        facts = self.cluster.graph.nodes[self.ids[n]] if self.is_listed else self.fields[n]._asdict()
        return not passes(constraint, facts, self.vertices, self.entries[n])

    def _hold(self, held: Held) -> None:
        """Note what is free of each node, and below which something is held."""
        self.free = [fields.size * quantity(fields.unit)[1] for fields in self.fields]
        self.touched, self.is_shut = [False] * len(self.ids), [*self.is_barred]
        for n, vertex in enumerate(self.ids) if held else ():
            amount = held.get(vertex, 0)
            if amount is None or amount > 0:
                self.touched[n] = True
                self.free[n] = 0 if amount is None else max(0, self.free[n] - amount)
                self.is_shut[n] = self.is_shut[n] or amount is None or (self.is_leaf[n] and not self.free[n])
        for n, up in enumerate(self.parents):
            self.is_shut[n] = self.is_shut[n] or (up >= 0 and self.is_shut[up])
        for n in range(len(self.ids) - 1, 0, -1):
            self.touched[self.parents[n]] |= self.touched[n]

    def meets(self, needs: tuple[Need, ...], n: int) -> bool:
        """Return whether a node meets needs; remembered."""
        if not needs:
            return True
        key = (tuple(need.number for need in needs), self.entries[n])
        if key not in self._met:
            self._met[key] = self.vertices.meets(needs, self.entries[n], self._meets)
        return self._met[key]


def _names_hosts(constraint: Constraint | None) -> bool:
    """Return whether a constraint tells equal workers apart."""
    stack = [constraint] if constraint else []
    while stack:
        part = stack.pop()
        if part.operator in NAMING:
            return True
        stack.extend(part.operands)
    return False


def asks_workers(slot: Resource, worker_type: str) -> bool:
    """Return whether a slot asks for whole workers: its needs are theirs."""
    return any(child.type == worker_type for child in slot.children)


def needs_of(r: Resource, worker_type: str) -> tuple[Need, ...]:
    """Return the needs of a vertex that a request uses: its own, and those of slots on it."""
    needs, slots = list(r.needs), [child for child in r.children if child.is_slot]
    while slots:
        slot = slots.pop()
        needs += () if asks_workers(slot, worker_type) else slot.needs
        slots += [child for child in slot.children if child.is_slot]
    return tuple(needs)


Part = tuple["Resource", tuple["Need", ...]]  # a request in a slot, and the slot's needs that are its own


def divided(
    slot: Resource, hosted: bool, cluster: Cluster, more: tuple[Need, ...] = ()
) -> tuple[list[Part], list[Part], tuple[Need, ...]]:
    """Divide what a slot takes: from anywhere, and from its place; and the needs of that place.

    `more`: needs of the slot that it is in, where that holds nothing of its own.
    """
    every = (*slot.needs, *more)
    kinds, needs = {child.type for child in slot.children}, () if hosted else every
    own: dict[str, tuple[Need, ...]] = {}
    if asks_workers(slot, cluster.worker_type):
        own, needs = {cluster.worker_type: every}, ()
    elif needs and kinds and cluster.worker_level_types.isdisjoint(kinds):
        own, needs = dict.fromkeys(kinds, needs), ()
    parts = [(child, own.get(child.type, ())) for child in slot.children]
    placed = [part for part in parts if part[0].type in cluster.worker_level_types]
    return [part for part in parts if part[0].type not in cluster.worker_level_types], placed, needs


class Offer(NamedTuple):
    """Base units that leaves give by quantity, and whole vertices: what they give, how many, the largest one."""

    drawn: Mapping[str, int]
    whole: int = 0
    wholes: int = 0
    largest: int = 0

    def plus(self, other: Offer, times: int) -> Offer:
        """Add another offer a number of times."""
        drawn = dict(self.drawn)
        for measured, amount in other.drawn.items():
            drawn[measured] = drawn.get(measured, 0) + amount * times
        largest = max(self.largest, other.largest)
        return Offer(drawn, self.whole + other.whole * times, self.wholes + other.wholes * times, largest)


NOTHING = Offer({})


class Bounds:
    """Upper bounds of the requests of one variant."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.levels, self.worker_type = nodes.cluster.worker_level_types, nodes.cluster.worker_type
        self._sums: dict[Any, tuple[list[Any], list[Any]]] = {}
        self._outside = self._passed("outside", lambda n: Offer({"": int(self._is_loose(n))}), None)

    def _is_loose(self, n: int) -> bool:
        return self.nodes.is_leaf[n] and not self.nodes.in_worker[n]

    # ── sums over nodes ──

    def _passed(self, key: Any, own: Callable[[int], Offer], topmost: Callable[[int], bool] | None) -> Any:
        """Sum offers over what lies strictly below each node, and with the node itself; remembered.

        Of a vertex that is `topmost` of its type only the leaves count that lie in it, and itself.
        """
        if key not in self._sums:
            nodes = self.nodes
            below, inclusive = [NOTHING] * len(nodes.ids), [NOTHING] * len(nodes.ids)
            for n in range(len(nodes.ids) - 1, -1, -1):
                inside = Offer(below[n].drawn) if topmost and topmost(n) else below[n]
                mine = own(n)
                inclusive[n] = inside.plus(mine, 1) if mine is not NOTHING else inside
                if n and inclusive[n] is not NOTHING:
                    below[nodes.parents[n]] = below[nodes.parents[n]].plus(inclusive[n], nodes.many[n])
            self._sums[key] = (below, inclusive)
        return self._sums[key]

    def _of(self, r: Resource, needs: tuple[Need, ...], outside: bool) -> tuple[list[Offer], list[Offer]]:
        """Sum what vertices of a request's type give to it."""
        nodes = self.nodes

        def own(n: int) -> Offer:
            fields = nodes.fields[n]
            if fields.type != r.type or nodes.is_shut[n] or (outside and nodes.in_worker[n]):
                return NOTHING
            if not nodes.meets(needs, n):
                return NOTHING
            if r.children:
                stands = not (r.exclusive and nodes.touched[n]) and self._holds(r, n, outside)
                return Offer({}, 1, 1, 1) if stands else NOTHING
            measured, factor = quantity(fields.unit)
            each = self.each(r, measured, factor)
            if each is None:
                return NOTHING
            if nodes.is_leaf[n] and not r.exclusive:
                return Offer({measured: nodes.free[n]})
            size = 0 if nodes.touched[n] else self.size(r, n)
            return Offer({}, min(size, self.wanted(r)), 1, size) if size else NOTHING

        def topmost(n: int) -> bool:
            return nodes.fields[n].type == r.type

        key = (r.number, tuple(need.number for need in needs), outside)
        return self._passed(key, own, topmost)  # type: ignore[no-any-return]

    def _holds(self, r: Resource, n: int, outside: bool) -> bool:
        """Return whether each child alone is met strictly below a node."""
        return all(self.at(child, n, outside, True, True) >= self.wanted(child) for child in r.children)

    # ── units ──

    def _quantities(self, r: Resource) -> list[str]:
        return [measured for kind, measured in self.nodes.vertices.largest if kind == r.type]

    def each(self, r: Resource, measured: str, factor: int) -> int | None:
        """Return the base units that a unit of a request is in a quantity; None where they cannot be compared."""
        if r.unit:
            requirement, each = quantity(r.unit)
            return each if requirement == measured else None
        return self.nodes.vertices.largest.get((r.type, measured), factor)

    def scale(self, r: Resource) -> int:
        """Return the base units that a unit of a request is counted as; 1 where leaves measure several quantities."""
        if r.is_slot or r.children:
            return 1
        if r.unit:
            return quantity(r.unit)[1]
        measured = self._quantities(r)
        return self.nodes.vertices.largest[r.type, measured[0]] if len(measured) == 1 else 1

    def size(self, r: Resource, n: int) -> int:
        """Return what a whole vertex gives to a request, as its units are counted; 0 where it cannot be compared."""
        measured, factor = quantity(self.nodes.fields[n].unit)
        each = self.each(r, measured, factor)
        return self.nodes.fields[n].size * factor * self.scale(r) // each if each else 0

    def wanted(self, r: Resource) -> int:
        """Return what a request asks for, as its units are counted."""
        return r.count.min * self.scale(r)

    def _units(self, r: Resource, offer: Offer) -> int:
        if self.scale(r) != 1 or r.unit or len(self._quantities(r)) <= 1:
            return sum(offer.drawn.values()) + offer.whole
        each = self.nodes.vertices.largest
        return sum(amount // each[r.type, m] for m, amount in offer.drawn.items()) + offer.whole

    def _copies(self, r: Resource, offer: Offer) -> int:
        """Return how many times an offer meets a request; a vertex that is taken whole serves one of them."""
        copies = self._units(r, offer) // self.wanted(r)
        if offer.wholes and not any(offer.drawn.values()):
            largest = min(offer.largest, self.wanted(r))
            copies = min(copies, offer.wholes // -(-self.wanted(r) // largest)) if largest else 0
        return copies

    # ── slots ──

    def at(self, r: Resource, n: int, outside: bool, hosted: bool, strict: bool) -> int:
        """Return the units of a request below a node, `strict`: without the node; `hosted`: below a vertex used."""
        if r.is_slot:
            return self._slots(r, n, outside, hosted, strict)
        return self._units(r, self._of(r, needs_of(r, self.worker_type), outside)[0 if strict else 1][n])

    def _times(self, r: Resource, needs: tuple[Need, ...], n: int, outside: bool, hosted: bool, strict: bool) -> int:
        """Return how many slots a node serves with one of their requests."""
        if r.is_slot:
            return self._slots(r, n, outside, hosted, strict, needs) // r.count.min
        needs = (*needs_of(r, self.worker_type), *needs)
        return self._copies(r, self._of(r, needs, outside)[0 if strict else 1][n])

    def _slots(
        self, slot: Resource, n: int, outside: bool, hosted: bool, strict: bool, more: tuple[Need, ...] = ()
    ) -> int:
        spread, placed, needs = divided(slot, hosted, self.nodes.cluster, more)
        if hosted and self.nodes.in_worker[n]:
            spread, placed, needs = [*spread, *placed], [], ()
        times = (self._times(child, own, n, outside, hosted, strict) for child, own in spread)
        most = min(times, default=PLENTY)
        if not most or not (placed or needs):
            return most
        loose = self._outside[0 if strict else 1][n].drawn.get("", 0)
        room = 0
        if loose and self.nodes.meets(needs, 0):
            every = (self._times(child, own, n, True, hosted, strict) for child, own in placed)
            room = min(every, default=PLENTY)
        if not outside:
            room += self._placed(slot, placed, needs)[0 if strict else 1][n].whole
        return min(most, room)

    def _placed(self, slot: Resource, placed: list[Part], needs: tuple[Need, ...]) -> tuple[list[Offer], list[Offer]]:
        """Sum the slots that workers have place for."""
        nodes = self.nodes

        def own(n: int) -> Offer:
            shut = nodes.is_shut if placed else nodes.is_barred  # what takes nothing may be where all is taken
            if not nodes.is_place[n] or shut[n] or not nodes.meets(needs, n):
                return NOTHING
            times = (self._times(child, needs, n, False, False, False) for child, needs in placed)
            return Offer({}, min(times, default=PLENTY), 1, 1)

        return self._passed((slot.number, "places", tuple(need.number for need in needs)), own, None)  # type: ignore[no-any-return]


def bounds(nodes: Nodes, resources: Sequence[Resource]) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each top-level request, what it wants, and the most that is there for it alone."""
    counted, number = Bounds(nodes), 0
    for r in resources:
        yield number, counted.wanted(r), counted.at(r, 0, False, False, False)
        number += sum(1 for _ in r.walk())
