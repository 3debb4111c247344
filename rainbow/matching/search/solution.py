"""The result of a search that succeeded: what it holds, and how many copies of the request fit.

`fits` is counted in closed form where that is possible. Copies are taken one after another, lowest vertices first; a
vertex that one copy stands on may serve the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rainbow.jobspec.quantities import base_unit
from rainbow.matching.model.budget import FREE, STEPS, Meter, OutOfBudgetError
from rainbow.matching.model.layout import OUTSIDE, Layout, parts_above, pools_of
from rainbow.matching.model.verdict import Reason, Take, Why
from rainbow.matching.search.bins import DoesNotPackError, is_packing, pack
from rainbow.matching.search.depth_first import Search
from rainbow.matching.search.reasons import collision, undecided
from rainbow.matching.search.trail import Trail
from rainbow.matching.search.upper_bound import Forms, UpperBound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rainbow.jobspec import Resource
    from rainbow.matching.model.layout import Pool
    from rainbow.matching.search.bins import Plan
    from rainbow.matching.search.depth_first import Goal, Owner, Promised


Slot = tuple[str, int, int]  # label, host, number
_NAMED = {"core": "cores", "gpu": "gpus"}
CLUSTER = ""  # the "worker" of what lies outside every worker


@dataclass(frozen=True, slots=True)
class TakenPart:
    """An amount of one vertex (in base units), or all of it, held by one slot."""

    slot: Slot
    position: int
    amount: int
    whole: bool


def settle(search: Search) -> list[TakenPart] | None:
    """Tie every promise to leaves, smallest subtree first; None where two kinds of place contend for one leaf."""
    pieces = list(_wholes(search))
    left: dict[int, int] = {}
    spare: dict[tuple[int, Pool], int] = {}  # of workers that owe some of a pool to others
    for promised in sorted(search.promised, key=lambda p: _narrowness(p, search.layout)):
        found = list(_leaves(promised, search, left, spare))
        if sum(amount for _, amount in found) < promised.amount:
            return None
        pieces.extend(_shared_out(promised.demand, promised.amount, found))
    return pieces


def _narrowness(promised: Promised, layout: Layout) -> tuple[int, bool, int]:
    scope = promised.demand.scope
    return (layout.last[scope] - scope, not promised.demand.outside, scope)


def _leaves(
    promised: Promised, search: Search, left: dict[int, int], spare: dict[tuple[int, Pool], int]
) -> Iterator[tuple[int, int]]:
    layout, demand, wanted = search.layout, promised.demand, promised.amount
    for i in layout.by_type.get(promised.pool[0], []):
        search.meter.step()
        if not wanted or i >= layout.last[demand.scope]:
            return
        if i < demand.scope or not layout.is_leaf(i) or layout.pool(i) != promised.pool:
            continue
        if (demand.outside and layout.worker[i] != OUTSIDE) or not search.taken.open(i, demand.scope):
            continue
        if i in search.taken.whole and i != demand.scope:
            continue
        amount = min(wanted, left.setdefault(i, _free(search, i)))
        if (key := (layout.worker[i], promised.pool)) in search.taken.owed:
            if key not in spare:
                spare[key] = _unheld(search, left, *key) - search.taken.owed[key]
            amount = min(amount, spare[key])
            spare[key] -= amount
        if amount > 0:
            left[i] -= amount
            wanted -= amount
            yield i, amount


def _free(search: Search, i: int) -> int:
    return search.free[i] if i in search.free else search.layout.amount(i)


def _unheld(search: Search, left: dict[int, int], worker: int, pool: Pool) -> int:
    """Count what is left of a pool in the leaves of a worker."""
    layout, taken = search.layout, search.taken
    leaves = (i for i in layout.by_type[pool[0]] if worker <= i < layout.last[worker] and layout.is_leaf(i))
    open_ones = (i for i in leaves if layout.pool(i) == pool and taken.open(i, worker) and i not in taken.whole)
    return sum(left.get(i, _free(search, i)) for i in open_ones)


def _shared_out(demand: Goal, total: int, found: list[tuple[int, int]]) -> Iterator[TakenPart]:
    """Divide leaves among the slots that own them, in order, equally much for each."""
    each = max(1, total // demand.owner.copies)
    done = 0
    for position, amount in found:
        while amount:
            part = min(amount, each - done % each)
            yield TakenPart(_slot(demand.owner, done // each), position, part, False)
            done += part
            amount -= part


def _wholes(search: Search) -> Iterator[TakenPart]:
    for chosen in search.chosen:
        if chosen.whole:
            demand = chosen.demand
            slot = _slot(demand.owner, demand.done // demand.each)
            yield TakenPart(slot, chosen.position, search.layout.amount(chosen.position), True)


def _slot(owner: Owner, number: int) -> Slot:
    return (owner.label, owner.host, owner.first + min(number, owner.copies - 1))


def summed(pieces: Iterable[TakenPart]) -> dict[tuple[int, bool], int]:
    """Sum pieces to {(position, whole): base units}."""
    amounts: dict[tuple[int, bool], int] = {}
    for piece in pieces:
        key = (piece.position, piece.whole)
        amounts[key] = amounts.get(key, 0) + piece.amount
    return amounts


def by_slot(pieces: Iterable[TakenPart]) -> dict[Slot, dict[tuple[int, bool], int]]:
    """Sum pieces by the slots that hold them."""
    found: dict[Slot, list[TakenPart]] = {}
    for piece in pieces:
        found.setdefault(piece.slot, []).append(piece)
    return {slot: summed(own) for slot, own in found.items()}


def take_of(search: Search, pieces: list[TakenPart]) -> Take:
    """Say what one copy holds: by slot and worker, and by vertex. What two slots hold is the inner one's."""
    layout = search.layout
    owners = _owners(layout, pieces)
    slots: dict[Slot, dict[str, dict[str, int]]] = {slot: {} for slot in _empty_slots(search)}
    vertices: dict[int, int] = {}
    for i, slot in owners.items():
        _add(slots, slot, layout, i, layout.amount(i))
        if layout.parents[i] not in owners:
            vertices[i] = layout.amount(i)
    left = {i: layout.amount(i) for i in owners}
    for piece in sorted((p for p in pieces if not p.whole), key=lambda p: (p.position, p.slot)):
        i, units = piece.position, piece.amount
        if i in owners:
            units = min(units, left[i])
            left[i] -= units
            _add(slots, owners[i], layout, i, -units)
        else:
            vertices[i] = vertices.get(i, 0) + units
        _add(slots, piece.slot, layout, i, units)
    placed = tuple((slot[0], _positive(held)) for slot, held in sorted(slots.items()))
    return Take(placed, {layout.vertex(i): amount for i, amount in sorted(vertices.items())})


def _owners(layout: Layout, pieces: list[TakenPart]) -> dict[int, Slot]:
    """Say for every vertex that is held whole by which slot, the innermost."""
    owners: dict[int, Slot] = {}
    for piece in sorted((p for p in pieces if p.whole), key=lambda p: p.position):
        owners.update(dict.fromkeys(range(piece.position, layout.last[piece.position]), piece.slot))
    return owners


def _add(slots: dict[Slot, dict[str, dict[str, int]]], slot: Slot, layout: Layout, i: int, units: int) -> None:
    worker = layout.worker[i]
    name = layout.worker_names[worker] if worker != OUTSIDE else CLUSTER
    held = slots.setdefault(slot, {}).setdefault(name, {})
    held[layout.types[i]] = held.get(layout.types[i], 0) + units


def _positive(held: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {worker: {kind: n for kind, n in amounts.items() if n} for worker, amounts in held.items()}


def _empty_slots(search: Search) -> Iterator[Slot]:
    """Slots that take nothing are slots all the same."""
    for chosen in search.chosen:
        if chosen.demand.request.is_slot and not chosen.demand.request.children:
            owner = chosen.demand.owner
            yield from (_slot(owner, number) for number in range(owner.copies))


def totals_of(take: Take, worker_type: str) -> dict[str, int]:
    """Sum one copy: `nodes` (distinct workers), cores, gpus, memory, and every other type by its name."""
    sums: dict[str, int] = {}
    workers = {worker for _, held in take.placed for worker in held if worker != CLUSTER}
    for _, held in take.placed:
        for amounts in held.values():
            for kind, amount in amounts.items():
                sums[kind] = sums.get(kind, 0) + amount
    sums.pop(worker_type, None)
    return named_totals(sums, len(workers))


def units_of(totals: Mapping[str, int], pools: Iterable[Pool]) -> dict[str, str]:
    """Name the base units of totals; what only counts vertices has none.

    >>> units_of({"cores": 2, "memory": 5, "gpus": 0}, [("core", ""), ("memory", "byte")])
    {'memory': 'B'}
    """
    units = {_NAMED.get(type_, type_): base_unit(measured) for type_, measured in pools if measured}
    return {name: units[name] for name, amount in totals.items() if amount and name in units}


def named_totals(sums: Mapping[str, int], nodes: int) -> dict[str, int]:
    """Name sums by type as totals are named.

    >>> named_totals({"core": 4, "rack": 1}, 2)
    {'nodes': 2, 'cores': 4, 'gpus': 0, 'memory': 0, 'rack': 1}
    """
    named = {"nodes": 0, "cores": 0, "gpus": 0, "memory": 0}
    for kind, amount in sums.items():
        key = _NAMED.get(kind, kind)
        named[key] = named.get(key, 0) + amount
    return {**named, "nodes": nodes}


class HostForms(Forms, Protocol):
    """What is asked of a cluster's vertices as a whole."""

    worker_type: str
    worker_level_types: frozenset[str]

    def single(self, type_: str) -> bool:
        """Return whether every vertex of a type is of size 1."""


class Standing(NamedTuple):
    """Copies of `units` vertices for `host`, each giving `amounts` of pools, without any other choice."""

    host: Resource  # as the slot above it divides its children: with the slot's needs
    number: int  # of the host in the request
    units: int
    amounts: Mapping[Pool, int]


def closed_form(resources: tuple[Resource, ...], forms: HostForms) -> Resource | Standing | None:
    """Tell how the copies of a request are counted: in units of a resource, by vertices to stand on, or by taking."""
    if len(resources) != 1:
        return None
    top = resources[0]
    if not top.is_slot:
        return top if _is_counted(top, forms) else _standing(top, top.number, 1, forms)
    if is_divisible(top.children, forms) and differ(top.children):
        return top
    above = parts_above(top, forms.worker_type, forms.worker_level_types, hosted=False)
    if len(top.children) != 1:
        return None
    if _is_counted(top.children[0], forms):
        return top
    if above.has_place:
        return None
    host = above.spread[0]
    return _standing(host, above.originals[host.number], top.count.min, forms)


def _standing(host: Resource, number: int, copies: int, forms: HostForms) -> Standing | None:
    if not host.children or host.is_slot:
        return None
    amounts = _amounts(host, forms)
    return None if amounts is None else Standing(host, number, copies * host.count.min, amounts)


def counted(resources: tuple[Resource, ...], layout: Layout, taken: Trail) -> int | None:
    """Return `fits` of a single tree of which at most one level chooses vertices to stand on, else None."""
    top, bound = resources[0], UpperBound(layout, taken)
    form = closed_form(resources, layout)
    if form is None or not isinstance(form, Standing):
        return None if form is None else bound.available(top, 0, 0) // top.count.min
    capacities: list[tuple[int, int]] = []
    for i in bound.hosts(form.host, 0, 0, False):
        if layout.worker[i] == OUTSIDE:
            return None
        room = min(taken.room(i, pool) // n for pool, n in form.amounts.items())
        capacities.append((min(room, 1) if form.host.exclusive else room, 1))  # children were met one by one
    return successive(capacities, form.units)


def successive(capacities: Iterable[tuple[int, int]], units: int) -> int:
    """Take the first `units` that have some capacity left, again and again; capacities are (capacity, how many).

    >>> successive([(2, 1), (1, 1), (3, 1)], 2), successive([(2, 1000)], 10)
    (2, 200)
    """
    left = deque((capacity, many) for capacity, many in capacities if capacity > 0 and many)
    copies, total = 0, sum(many for _, many in left)
    while total >= units:
        first = _first(left, units)
        times = min(capacity for capacity, _ in first)
        whole = first[0][1] // units if len(first) == 1 else 1  # equal ones serve group after group
        copies += times * whole
        kept = [(capacity - times, many) for capacity, many in first if capacity > times]
        if len(first) == 1 and first[0][1] > whole * units:
            kept.append((first[0][0], first[0][1] - whole * units))
        left.extendleft(reversed(kept))
        total = sum(many for _, many in left)
    return copies


def _first(left: deque[tuple[int, int]], units: int) -> list[tuple[int, int]]:
    """Take the runs that hold the first `units` from the left; one that holds them all is taken whole."""
    if left[0][1] >= units:
        return [left.popleft()]
    first: list[tuple[int, int]] = []
    while units:
        capacity, many = left.popleft()
        first.append((capacity, min(many, units)))
        if many > units:
            left.appendleft((capacity, many - units))
        units -= min(many, units)
    return first


def _amounts(host: Resource, forms: HostForms) -> dict[Pool, int] | None:
    """Sum what one vertex gives by pool; None if it gives anything but divisible amounts."""
    sums: dict[Pool, int] = {}
    for child in host.children:
        inner = child.children if child.is_slot else (child,)
        if not inner or not is_divisible(inner, forms):
            return None
        times = child.count.min if child.is_slot else 1
        for part in inner:
            ((pool, factor),) = pools_of(part, forms.pools)
            sums[pool] = sums.get(pool, 0) + times * part.count.min * factor
    return sums


def differ(requests: Sequence[Resource]) -> bool:
    """Return whether no two requests want the same type: each can then be counted by itself."""
    return len({r.type for r in requests}) == len(requests)


def _is_counted(r: Resource, forms: HostForms) -> bool:
    """Return whether a request takes nothing but single units: divisible amounts, or whole vertices of size 1."""
    if r.children or r.is_slot:
        return False
    return is_divisible((r,), forms) or forms.single(r.type)


def is_divisible(requests: Sequence[Resource], forms: HostForms) -> bool:
    """Return whether requests take nothing but amounts of one pool each."""
    return all(
        not (r.children or r.is_slot or r.exclusive or r.needs or r.type in forms.compound)
        and len(list(pools_of(r, forms.pools))) == 1
        for r in requests
    )


def repeat(taken: Trail, layout: Layout, pieces: list[TakenPart]) -> int:
    """Take the same pieces as often as they are there, for good; return how often."""
    amounts: dict[int, int] = {}
    for piece in pieces:
        amounts[piece.position] = amounts.get(piece.position, 0) + piece.amount
    whole = {piece.position for piece in pieces if piece.whole}
    inside = {i for i in amounts for top in whole if top < i < layout.last[top]}
    divided = {i: n for i, n in amounts.items() if i not in whole and i not in inside}
    times = 1 if whole else min(taken.room(i, layout.pool(i)) // n for i, n in divided.items())
    for i, n in divided.items():
        taken.promise(i, layout.pool(i), n * times)
    for i in sorted(whole):
        taken.take_whole(i)
    taken.keep()
    return max(times, 1)


MOST_LOOKED_AT = 20_000  # vertices that counting `fits` by taking may look at; then it says "at least"


def copies_of(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, pieces: list[TakenPart], meter: Meter
) -> tuple[int, bool]:
    """Count how many copies fit: in closed form where there is one, else by taking them."""
    copies = counted(resources, laid_out, taken)
    return taken_copies(resources, laid_out, taken, pieces, meter) if copies is None else (copies, True)


def search(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, meter: Meter | None = None
) -> tuple[Take, list[TakenPart]] | Reason:
    """Find one copy on what is not taken; `taken` is as before afterwards."""
    try:
        return _searched(resources, laid_out, taken, meter or STEPS.share())
    except OutOfBudgetError:
        return undecided()


EASY = 2_000  # steps of a search before slots are packed


def search_or_pack(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, meter: Meter | None = None
) -> tuple[Take, list[TakenPart]] | Reason:
    """Find one copy as `search` does, by packing slots where that would take long."""
    meter = meter or STEPS.share()
    if not is_packing(resources) or meter.left == inf:
        return search(resources, laid_out, taken, meter)
    try:
        return _packed(resources, laid_out, taken, meter)
    except DoesNotPackError:
        return collision(resources)
    except OutOfBudgetError:
        return undecided()


def _packed(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, meter: Meter
) -> tuple[Take, list[TakenPart]] | Reason:
    """Search for a little; then pack the slots, follow that, and search on where it led nowhere."""
    with suppress(OutOfBudgetError), meter.part(min(EASY, meter.left // 2)) as part:
        return _searched(resources, laid_out, taken, part)
    if plan := pack(resources, laid_out, taken, meter):
        with suppress(OutOfBudgetError), meter.part(meter.left // 2) as part:
            found = _searched(resources, laid_out, taken, part, plan)
            if not isinstance(found, Reason):
                return found
    return _searched(resources, laid_out, taken, meter)


def _searched(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, meter: Meter, plan: Plan | None = None
) -> tuple[Take, list[TakenPart]] | Reason:
    search = Search(laid_out, taken, meter, plan)
    answer: list[list[TakenPart]] = []

    def settled() -> bool:
        pieces = settle(search)
        answer.extend([pieces] if pieces is not None else [])
        return pieces is not None

    try:
        if not search.meet(resources, settled):
            return collision(resources)
        return take_of(search, answer[0]), answer[0]
    finally:
        taken.undo(0)


def taken_copies(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, pieces: list[TakenPart], meter: Meter = FREE
) -> tuple[int, bool]:
    """Count successive takes, each repeated as often as its vertices allow; holds end with their copy."""
    copies = looked_at = 0
    while pieces and looked_at < MOST_LOOKED_AT:
        copies += repeat(taken, laid_out, pieces)
        looked_at += laid_out.size + len(pieces)
        found = search(resources, laid_out, taken, meter)
        if isinstance(found, Reason):
            return copies, found.why is not Why.UNDECIDED
        pieces = found[1]
    return max(copies, 1), False
