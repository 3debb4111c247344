"""How many copies of a job a cluster holds at once: `fits`, counted in closed form where that is possible.

Copies are taken one after another, lowest vertices first; a vertex that one copy stands on may serve the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.matching.bound import Bound
from rainbow.matching.demand import pools_of
from rainbow.matching.layout import OUTSIDE
from rainbow.matching.slots import parts

if TYPE_CHECKING:
    from rainbow.jobspec import Resource
    from rainbow.matching.answer import Piece
    from rainbow.matching.layout import Layout, Pool
    from rainbow.matching.taken import Taken


def counted(resources: tuple[Resource, ...], layout: Layout, taken: Taken) -> int | None:
    """Return `fits` of a single tree of which at most one level chooses vertices to stand on, else None."""
    if len(resources) != 1:
        return None
    top, bound = resources[0], Bound(layout, taken)
    host, copies = (top.children[0], top.count.min) if top.is_slot and len(top.children) == 1 else (top, 1)
    if (top.is_slot and _is_divisible(top.children, layout) and _differ(top.children)) or _is_counted(host, layout):
        return bound.available(top, 0, 0) // top.count.min
    if top.is_slot and (host is top or parts(top, layout, 0, False).has_place):
        return None
    return _standing(host, copies * host.count.min, layout, taken, bound)


def _standing(host: Resource, units: int, layout: Layout, taken: Taken, bound: Bound) -> int | None:
    """Count copies of `units` vertices that each give divisible amounts: the first so many that still can."""
    capacities: list[int] = []
    for i in bound.hosts(host, 0, 0, False):
        amounts = _amounts(host, layout) if layout.worker[i] != OUTSIDE else None
        if not amounts:
            return None
        times = min(taken.room(i, p) // n for p, n in amounts.items())  # children were met one by one, not together
        capacities.append(min(times, 1) if host.exclusive else times)
    return _successive(capacities, units)


def _successive(capacities: list[int], units: int) -> int:
    """Take the first `units` that have some capacity left, again and again.

    >>> _successive([2, 1, 3], 2)
    2
    """
    copies = 0
    left = [capacity for capacity in capacities if capacity > 0]
    while len(left) >= units:
        times = min(left[:units])
        copies += times
        left = [capacity - times for capacity in left[:units] if capacity > times] + left[units:]
    return copies


def _amounts(host: Resource, layout: Layout) -> dict[Pool, int] | None:
    """Sum what one vertex gives by pool; None if it gives anything but divisible amounts."""
    sums: dict[Pool, int] = {}
    for child in host.children:
        inner = child.children if child.is_slot else (child,)
        if not inner or not _is_divisible(inner, layout):
            return None
        times = child.count.min if child.is_slot else 1
        for part in inner:
            ((pool, factor),) = pools_of(part, layout)
            sums[pool] = sums.get(pool, 0) + times * part.count.min * factor
    return sums


def _differ(requests: tuple[Resource, ...]) -> bool:
    """Tell whether no two requests want the same type: each can then be counted by itself."""
    return len({r.type for r in requests}) == len(requests)


def _is_counted(r: Resource, layout: Layout) -> bool:
    """Tell whether a request takes nothing but single units: divisible amounts, or whole vertices of size 1."""
    if r.children or r.is_slot:
        return False
    return _is_divisible((r,), layout) or all(layout.sizes[i] == 1 for i in layout.by_type.get(r.type, []))


def _is_divisible(requests: tuple[Resource, ...], layout: Layout) -> bool:
    return all(
        not (r.children or r.is_slot or r.exclusive or r.needs or r.type in layout.compound)
        and len(list(pools_of(r, layout))) == 1
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
