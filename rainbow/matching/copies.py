"""How many copies of a job a cluster holds at once: `fits`, counted in closed form where that is possible.

Copies are taken one after another, lowest vertices first; a vertex that one copy stands on may serve the next.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rainbow.matching.answer import named_totals
from rainbow.matching.bound import Bound
from rainbow.matching.demand import pools_of
from rainbow.matching.layout import OUTSIDE
from rainbow.matching.slots import parts_above

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rainbow.jobspec import Resource
    from rainbow.matching.answer import Piece
    from rainbow.matching.layout import Layout, Pool, Pools
    from rainbow.matching.rooted import Rooted
    from rainbow.matching.taken import Taken


class Forms(Protocol):
    """What is asked of a cluster's vertices as a whole."""

    worker_type: str
    worker_level_types: frozenset[str]

    @property
    def compound(self) -> Collection[str]:
        """The types of which some vertex contains others."""

    @property
    def pools(self) -> Pools:
        """Every pool there is, with the largest unit its leaves are counted in."""

    def single(self, type_: str) -> bool:
        """Tell whether every vertex of a type is of size 1."""


class Standing(NamedTuple):
    """Copies of `units` vertices for `host`, each giving `amounts` of pools, without any other choice."""

    host: Resource  # as the slot above it divides its children: with the slot's needs
    number: int  # of the host in the request
    units: int
    amounts: Mapping[Pool, int]


def closed_form(resources: tuple[Resource, ...], forms: Forms) -> Resource | Standing | None:
    """Tell how the copies of a request are counted: in units of a resource, by vertices to stand on, or by taking."""
    if len(resources) != 1:
        return None
    top = resources[0]
    if not top.is_slot:
        return top if _is_counted(top, forms) else _standing(top, top.number, 1, forms)
    if _is_divisible(top.children, forms) and _differ(top.children):
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


def _standing(host: Resource, number: int, copies: int, forms: Forms) -> Standing | None:
    if not host.children or host.is_slot:
        return None
    amounts = _amounts(host, forms)
    return None if amounts is None else Standing(host, number, copies * host.count.min, amounts)


def totals_standing(form: Standing, rooted: Rooted) -> dict[str, int] | None:
    """Sum what one copy takes of workers it stands on; None where what is taken depends on where that is."""
    plain = form.host.type == rooted.worker_type and not form.host.exclusive
    if not plain or any(rooted.pools[pool] != 1 for pool in form.amounts):  # a part of a larger unit takes all of it
        return None
    sums: dict[str, int] = {}
    for (type_, _), amount in form.amounts.items():
        sums[type_] = sums.get(type_, 0) + form.units * amount
    return named_totals(sums, form.units)


def counted(resources: tuple[Resource, ...], layout: Layout, taken: Taken) -> int | None:
    """Return `fits` of a single tree of which at most one level chooses vertices to stand on, else None."""
    top, bound = resources[0], Bound(layout, taken)
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


def _amounts(host: Resource, forms: Forms) -> dict[Pool, int] | None:
    """Sum what one vertex gives by pool; None if it gives anything but divisible amounts."""
    sums: dict[Pool, int] = {}
    for child in host.children:
        inner = child.children if child.is_slot else (child,)
        if not inner or not _is_divisible(inner, forms):
            return None
        times = child.count.min if child.is_slot else 1
        for part in inner:
            ((pool, factor),) = pools_of(part, forms.pools)
            sums[pool] = sums.get(pool, 0) + times * part.count.min * factor
    return sums


def _differ(requests: tuple[Resource, ...]) -> bool:
    """Tell whether no two requests want the same type: each can then be counted by itself."""
    return len({r.type for r in requests}) == len(requests)


def _is_counted(r: Resource, forms: Forms) -> bool:
    """Tell whether a request takes nothing but single units: divisible amounts, or whole vertices of size 1."""
    if r.children or r.is_slot:
        return False
    return _is_divisible((r,), forms) or forms.single(r.type)


def _is_divisible(requests: tuple[Resource, ...], forms: Forms) -> bool:
    return all(
        not (r.children or r.is_slot or r.exclusive or r.needs or r.type in forms.compound)
        and len(list(pools_of(r, forms.pools))) == 1
        for r in requests
    )


def repeat(taken: Taken, layout: Layout, pieces: list[Piece]) -> int:
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
