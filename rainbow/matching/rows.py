"""What a search that succeeded holds, as rows: which request got what of which vertex, below which other row.

    at    a slot and its place: a worker's vertex, OUTSIDE every worker, or None where nothing needs a place
    on    stands on a vertex; `whole` where the request is exclusive
    all   the whole vertex
    of    an amount of a leaf, in base units

Everything else that is said of a take is read off its rows: placements, totals, what is held, and the certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.certificate.document import Row as CertificateRow
from rainbow.matching.model.layout import OUTSIDE, Layout
from rainbow.matching.model.verdict import Take

if TYPE_CHECKING:
    from rainbow.jobspec import Resource
    from rainbow.matching.depth_first import Chosen, Promised, RequestCopies, Search
    from rainbow.matching.model.layout import Pool


CLUSTER = ""  # the "worker" of what lies outside every worker
MOST_ROWS = 1_000_000  # slots of one request that take nothing may be more; they are not numbered then


class Row(NamedTuple):
    """One row. `slot` is the row of the innermost slot that it is in or is, -1 outside of all; `label` is that one's.

    The amount of a vertex that is held whole is its size.
    """

    request: int
    up: int
    how: str
    position: int | None
    amount: int
    whole: bool
    slot: int
    label: str


class Entry(NamedTuple):
    """A row that has no number yet: `key` is what rows below it name, `rank` where it comes among its siblings."""

    request: int
    rank: int
    how: str
    position: int | None
    amount: int
    whole: bool
    key: Any
    label: str | None  # of a slot that starts processes


def rows_of(search: Search) -> tuple[Row, ...] | None:
    """Tie every promise to leaves and number the rows; None where two kinds of place contend for one leaf."""
    below: dict[Any, list[Entry]] = {}
    _add_slots(search, below)
    _add_chosen(search, below)
    return tuple(_numbered(below)) if _add_promised(search, below) else None


def _above(tier: RequestCopies | None, number: int) -> Any:
    return None if tier is None else (tier, number)


def _add_slots(search: Search, below: dict[Any, list[Entry]]) -> None:
    places: dict[Any, int] = {}
    for chosen in search.chosen:
        if chosen.demand.request.is_slot:
            first = chosen.demand.owner.first
            for number in range(first, first + chosen.demand.owner.copies):
                places[chosen.tier, number] = chosen.position
    for tier in search.slots:
        r, owner = tier.request, tier.above
        starts = not r.children or any(not child.is_slot for child in r.children)
        for number in range(tier.copies if tier.copies <= MOST_ROWS else 0):
            key = (tier, number)
            above = _above(owner.tier, owner.of(number, tier.copies))
            row = Entry(r.place, number, "at", places.get(key), 0, False, key, r.label if starts else None)
            below.setdefault(above, []).append(row)


def _add_chosen(search: Search, below: dict[Any, list[Entry]]) -> None:
    wholes: dict[Any, list[Chosen]] = {}
    for chosen in search.chosen:
        demand, i = chosen.demand, chosen.position
        if demand.request.is_slot:
            continue
        above = _above(demand.owner.tier, demand.owner.first)
        if chosen.tier is not None:
            size = search.layout.amount(i) if chosen.whole else 0
            row = Entry(demand.request.place, i, "on", i, size, chosen.whole, (chosen.tier, 0), None)
            below.setdefault(above, []).append(row)
        else:
            copy = min(demand.done // demand.each, demand.owner.copies - 1)
            above = _above(demand.owner.tier, demand.owner.first + copy)
            wholes.setdefault((above, demand.request.place), []).append(chosen)
    for (above, place), taken in wholes.items():
        for i in _needed(taken, search):
            row = Entry(place, i, "all", i, search.layout.amount(i), True, None, None)
            below.setdefault(above, []).append(row)


def _needed(taken: list[Chosen], search: Search) -> list[int]:
    """Leave out the smallest vertices as long as the others are enough: no vertex is too many."""
    positions = [chosen.position for chosen in taken]
    if len(positions) == 1:
        return positions
    r = taken[0].demand.request
    units = {i: search.bound.whole_units(r, i) for i in positions}
    spare = sum(units.values()) - r.count.min
    while positions:
        least = min(positions, key=lambda i: (units[i], -i))
        if units[least] > spare:
            break
        spare -= units[least]
        positions.remove(least)
    return positions


def _add_promised(search: Search, below: dict[Any, list[Entry]]) -> bool:
    """Tie promises to leaves, smallest subtree first, and share leaves out equally among the owners."""
    remaining: dict[int, int] = {}
    spare: dict[tuple[int, Pool], int] = {}  # of workers that owe some of a pool to others
    amounts: dict[Any, int] = {}  # one leaf under one row is one row
    for promised in sorted(search.promised, key=lambda p: _narrowness(p, search.layout)):
        demand, requirement = promised.demand, promised.amount
        owner, each = demand.owner, demand.each * promised.factor
        at = promised.done * promised.factor
        for i, amount in _leaves(promised, search, remaining, spare):
            requirement -= amount
            while amount:
                copy = min(at // each, owner.copies - 1)
                part = amount if copy == owner.copies - 1 else min(amount, each - at % each)
                key = (_above(owner.tier, owner.first + copy), demand.request.place, i)
                amounts[key] = amounts.get(key, 0) + part
                at += part
                amount -= part
        if requirement:
            return False
    for (above, place, i), amount in amounts.items():
        below.setdefault(above, []).append(Entry(place, i, "of", i, amount, False, None, None))
    return True


def _narrowness(promised: Promised, layout: Layout) -> tuple[int, bool, int]:
    scope = promised.demand.scope
    return (layout.last[scope] - scope, not promised.demand.outside, scope)


def _leaves(
    promised: Promised, search: Search, remaining: dict[int, int], spare: dict[tuple[int, Pool], int]
) -> Iterator[tuple[int, int]]:
    layout, demand, requirement = search.layout, promised.demand, promised.amount
    for i in layout.by_type.get(promised.pool[0], []):
        search.meter.step()
        if not requirement or i >= layout.last[demand.scope]:
            return
        if i < demand.scope or not layout.is_leaf(i) or layout.pool(i) != promised.pool:
            continue
        if (demand.outside and layout.worker[i] != OUTSIDE) or not search.taken.open(i, demand.scope):
            continue
        if i in search.taken.whole and i != demand.scope:
            continue
        amount = min(requirement, remaining.setdefault(i, _free(search, i)))
        if (key := (layout.worker[i], promised.pool)) in search.taken.owed:
            if key not in spare:
                spare[key] = _unheld(search, remaining, *key) - search.taken.owed[key]
            amount = min(amount, spare[key])
            spare[key] -= amount
        if amount > 0:
            remaining[i] -= amount
            requirement -= amount
            yield i, amount


def _free(search: Search, i: int) -> int:
    return search.free[i] if i in search.free else search.layout.amount(i)


def _unheld(search: Search, remaining: dict[int, int], worker: int, pool: Pool) -> int:
    """Count what is left of a pool in the leaves of a worker."""
    layout, taken = search.layout, search.taken
    leaves = (i for i in layout.by_type[pool[0]] if worker <= i < layout.last[worker] and layout.is_leaf(i))
    open_ones = (i for i in leaves if layout.pool(i) == pool and taken.open(i, worker) and i not in taken.whole)
    return sum(remaining.get(i, _free(search, i)) for i in open_ones)


def _numbered(below: dict[Any, list[Entry]]) -> Iterator[Row]:
    """Number rows depth first, those below one row by request and then lowest first."""
    for own in below.values():
        own.sort(key=lambda entry: (-entry.request, -entry.rank))  # the last one is popped first
    stack = [(entry, -1, -1, "") for entry in below.get(None, ())]
    number = 0
    while stack:
        entry, up, slot, label = stack.pop()
        if entry.label is not None:
            slot, label = number, entry.label
        yield Row(entry.request, up, entry.how, entry.position, entry.amount, entry.whole, slot, label)
        if entry.key is not None:
            stack.extend((child, number, slot, label) for child in below.get(entry.key, ()))
        number += 1


# ── what is read off rows ──


def held_by(rows: Iterable[Row]) -> dict[tuple[int, bool], int]:
    """Sum rows to {(position, whole): base units}."""
    amounts: dict[tuple[int, bool], int] = {}
    for row in rows:
        if row.whole or row.how == "of":
            key = (row.position or 0, row.whole)
            amounts[key] = amounts.get(key, 0) + row.amount
    return amounts


def by_slot(rows: Sequence[Row]) -> list[tuple[str, dict[tuple[int, bool], int]]]:
    """Sum rows by the slots that hold something, with their labels."""
    slots: dict[int, list[Row]] = {}
    for row in rows:
        if row.whole or row.how == "of":
            slots.setdefault(row.slot, []).append(row)
    return sorted(((own[0].label, held_by(own)) for _, own in sorted(slots.items())), key=lambda one: one[0])


def take_of(rows: Sequence[Row], layout: Layout) -> Take:
    """Say what one copy holds: by slot and worker, and by vertex. What two slots hold is the inner one's."""
    owners = _owners(layout, rows)
    slots: dict[int, dict[str, dict[str, int]]] = {n: {} for n, row in enumerate(rows) if row.slot == n}
    vertices: dict[int, int] = {}
    for i, slot in owners.items():
        _add(slots, slot, layout, i, layout.amount(i))
        if layout.parents[i] not in owners:
            vertices[i] = layout.amount(i)
    remaining = {i: layout.amount(i) for i in owners}
    for row in rows:
        if row.how != "of" or row.position is None:
            continue
        i, units = row.position, row.amount
        if i in owners:
            units = min(units, remaining[i])
            remaining[i] -= units
            _add(slots, owners[i], layout, i, -units)
        else:
            vertices[i] = vertices.get(i, 0) + units
        _add(slots, row.slot, layout, i, units)
    placed = sorted(
        ((rows[n].label if n >= 0 else "", _positive(held)) for n, held in sorted(slots.items())),
        key=lambda one: one[0],
    )
    said = {layout.vertex(i): amount for i, amount in sorted(vertices.items())}
    return Take(tuple(placed), said, certified(rows, layout))


def certified(rows: Iterable[Row], layout: Layout) -> tuple[CertificateRow, ...]:
    """Write rows with the ids of their vertices."""
    return tuple(
        CertificateRow(r.request, r.up, r.how, _called(r.position, layout), r.amount if r.how != "on" else 0)
        for r in rows
    )


def _called(position: int | None, layout: Layout) -> str | None:
    return None if position is None else CLUSTER if position == OUTSIDE else layout.vertex(position)


def _owners(layout: Layout, rows: Iterable[Row]) -> dict[int, int]:
    """Say for every vertex that is held whole by which slot's row, the innermost."""
    owners: dict[int, int] = {}
    for i, slot in sorted((row.position or 0, row.slot) for row in rows if row.whole):
        owners.update(dict.fromkeys(range(i, layout.last[i]), slot))
    return owners


def _add(slots: dict[int, dict[str, dict[str, int]]], slot: int, layout: Layout, i: int, units: int) -> None:
    worker = layout.worker[i]
    name = layout.worker_names[worker] if worker != OUTSIDE else CLUSTER
    held = slots.setdefault(slot, {}).setdefault(name, {})
    held[layout.types[i]] = held.get(layout.types[i], 0) + units


def _positive(held: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {worker: {kind: n for kind, n in amounts.items() if n} for worker, amounts in held.items()}


def whole_rows(request: Resource, vertex: str, amount: int, levels: frozenset[str]) -> tuple[CertificateRow, ...]:
    """Write the rows of a worker taken whole, by a slot or without one; of `levels` it is the place of its slot."""
    inner = request.children[0] if request.is_slot else request
    place = vertex if inner.type in levels else None
    slot = (CertificateRow(request.place, -1, "at", place, 0),) if request.is_slot else ()
    return (*slot, CertificateRow(inner.place, len(slot) - 1, "all", vertex, amount))


def add_rows(
    rows: list[CertificateRow], more: Sequence[CertificateRow], joins: bool, name: Callable[[int], str]
) -> None:
    """Add the rows of one worker, whose vertices are numbers; if it `joins` a slot, below the slot that is there."""
    first = len(rows) - joins
    slot = next((n for n in range(len(rows) - 1, -1, -1) if rows[n].up < 0), 0) if joins else 0
    for row in more[joins:]:
        up = row.up if row.up < 0 else slot if joins and not row.up else first + row.up
        rows.append(row._replace(up=up, vertex=name(int(row.vertex)) if row.vertex else row.vertex))
