"""From a search that succeeded to what the job would hold: promises become leaves, lowest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rainbow.jobspec.units import quantity
from rainbow.matching.layout import OUTSIDE
from rainbow.matching.verdict import Take

if TYPE_CHECKING:
    from rainbow.matching.agenda import Promised
    from rainbow.matching.demand import Demand, Owner
    from rainbow.matching.layout import Layout
    from rainbow.matching.search import Search

Slot = tuple[str, int, int]  # label, host, number
CLUSTER = ""  # the "worker" of what lies outside every worker


@dataclass(frozen=True, slots=True)
class Piece:
    """An amount of one vertex (in base units), or all of it, held by one slot."""

    slot: Slot
    position: int
    amount: int
    whole: bool


def settle(search: Search) -> list[Piece] | None:
    """Tie every promise to leaves, smallest subtree first; None where two kinds of place contend for one leaf."""
    pieces = list(_wholes(search))
    left: dict[int, int] = {}
    for promised in sorted(search.promised, key=lambda p: _narrowness(p, search.layout)):
        found = list(_leaves(promised, search, left))
        if sum(amount for _, amount in found) < promised.amount:
            return None
        pieces.extend(_shared_out(promised.demand, promised.amount, found))
    return pieces


def _narrowness(promised: Promised, layout: Layout) -> tuple[int, bool, int]:
    scope = promised.demand.scope
    return (layout.last[scope] - scope, not promised.demand.outside, scope)


def _leaves(promised: Promised, search: Search, left: dict[int, int]) -> Iterator[tuple[int, int]]:
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
        amount = min(wanted, left.setdefault(i, search.free[i] if i in search.free else layout.amount(i)))
        if amount:
            left[i] -= amount
            wanted -= amount
            yield i, amount


def _shared_out(demand: Demand, total: int, found: list[tuple[int, int]]) -> Iterator[Piece]:
    """Divide leaves among the slots that own them, in order, equally much for each."""
    each = max(1, total // demand.owner.copies)
    done = 0
    for position, amount in found:
        while amount:
            part = min(amount, each - done % each)
            yield Piece(_slot(demand.owner, done // each), position, part, False)
            done += part
            amount -= part


def _wholes(search: Search) -> Iterator[Piece]:
    for chosen in search.chosen:
        if chosen.whole:
            demand = chosen.demand
            slot = _slot(demand.owner, demand.done // demand.each)
            yield Piece(slot, chosen.position, search.layout.amount(chosen.position), True)


def _slot(owner: Owner, number: int) -> Slot:
    return (owner.label, owner.host, owner.first + min(number, owner.copies - 1))


def take_of(search: Search, pieces: list[Piece]) -> Take:
    """Say what one copy holds: by slot and worker, and by vertex. What two slots hold is the inner one's."""
    layout = search.layout
    owners = _owners(layout, pieces)
    slots: dict[Slot, dict[str, dict[str, int]]] = {slot: {} for slot in _empty_slots(search)}
    vertices: dict[int, int] = {}
    for i, slot in owners.items():
        _add(slots, slot, layout, i, layout.sizes[i])
        if layout.parents[i] not in owners:
            vertices[i] = layout.sizes[i]
    left = {i: layout.sizes[i] for i in owners}
    for piece in sorted((p for p in pieces if not p.whole), key=lambda p: (p.position, p.slot)):
        i, units = piece.position, _in_units(layout, piece.position, piece.amount)
        if i in owners:
            units = min(units, left[i])
            left[i] -= units
            _add(slots, owners[i], layout, i, -units)
        else:
            vertices[i] = vertices.get(i, 0) + units
        _add(slots, piece.slot, layout, i, units)
    placed = tuple((slot[0], _positive(held)) for slot, held in sorted(slots.items()))
    return Take(placed, {layout.vertex(i): amount for i, amount in sorted(vertices.items())})


def _owners(layout: Layout, pieces: list[Piece]) -> dict[int, Slot]:
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


def _in_units(layout: Layout, i: int, amount: int) -> int:
    return -(-amount // quantity(layout.units[i])[1])


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


def named_totals(sums: Mapping[str, int], nodes: int) -> dict[str, int]:
    """Name sums by type as totals are named.

    >>> named_totals({"core": 4, "rack": 1}, 2)
    {'nodes': 2, 'cores': 4, 'gpus': 0, 'memory': 0, 'rack': 1}
    """
    named = {"nodes": 0, "cores": 0, "gpus": 0, "memory": 0}
    for kind, amount in sums.items():
        key = {"core": "cores", "gpu": "gpus"}.get(kind, kind)
        named[key] = named.get(key, 0) + amount
    return {**named, "nodes": nodes}
