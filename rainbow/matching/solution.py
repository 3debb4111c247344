"""The result of a search that succeeded: what it holds, and how many copies of the request fit.

`fits` is counted in closed form where that is possible. Copies are taken one after another, lowest vertices first; a
vertex that one copy stands on may serve the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rainbow.jobspec.quantities import base_unit
from rainbow.matching.depth_first import Search
from rainbow.matching.model.budget import FREE, STEPS, Meter, OutOfBudgetError
from rainbow.matching.model.layout import OUTSIDE, Layout, parts_above, pools_of
from rainbow.matching.model.verdict import Reason, Take, Why
from rainbow.matching.reasons import collision, undecided
from rainbow.matching.rows import CLUSTER, Row, held_by, rows_of, take_of
from rainbow.matching.slots import DoesNotPackError, is_packing, pack
from rainbow.matching.trail import Trail
from rainbow.matching.upper_bound import Forms, UpperBound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rainbow.jobspec import Resource
    from rainbow.matching.model.layout import Pool
    from rainbow.matching.slots import Plan


_NAMED = {"core": "cores", "gpu": "gpus"}


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


MOST_FITS = 10**15  # of a request that takes nothing


def at_most(copies: int) -> tuple[int, bool]:
    """Return how many copies fit, and whether they are no more: nobody counts beyond a limit."""
    return min(copies, MOST_FITS), copies < MOST_FITS


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
    remaining = deque((capacity, many) for capacity, many in capacities if capacity > 0 and many)
    copies, total = 0, sum(many for _, many in remaining)
    while total >= units:
        first = _first(remaining, units)
        times = min(capacity for capacity, _ in first)
        whole = first[0][1] // units if len(first) == 1 else 1  # equal ones serve group after group
        copies += times * whole
        stored = [(capacity - times, many) for capacity, many in first if capacity > times]
        if len(first) == 1 and first[0][1] > whole * units:
            stored.append((first[0][0], first[0][1] - whole * units))
        remaining.extendleft(reversed(stored))
        total = sum(many for _, many in remaining)
    return copies


def _first(remaining: deque[tuple[int, int]], units: int) -> list[tuple[int, int]]:
    """Take the runs that hold the first `units` from the left; one that holds them all is taken whole."""
    if remaining[0][1] >= units:
        return [remaining.popleft()]
    first: list[tuple[int, int]] = []
    while units:
        capacity, many = remaining.popleft()
        first.append((capacity, min(many, units)))
        if many > units:
            remaining.appendleft((capacity, many - units))
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


def repeat(taken: Trail, layout: Layout, rows: Sequence[Row]) -> int:
    """Take the same rows as often as they are there, for good; return how often."""
    held = held_by(rows)
    amounts = {i: n for (i, _), n in held.items()}
    whole = {i for i, is_whole in held if is_whole}
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
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, rows: Sequence[Row], meter: Meter
) -> tuple[int, bool]:
    """Count how many copies fit: in closed form where there is one, else by taking them."""
    copies = counted(resources, laid_out, taken)
    return taken_copies(resources, laid_out, taken, rows, meter) if copies is None else at_most(copies)


def search(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, meter: Meter | None = None
) -> tuple[Take, tuple[Row, ...]] | Reason:
    """Find one copy on what is not taken; `taken` is as before afterwards."""
    try:
        return _searched(resources, laid_out, taken, meter or STEPS.share())
    except OutOfBudgetError:
        return undecided()


EASY = 2_000  # steps of a search before slots are packed


def search_or_pack(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, meter: Meter | None = None
) -> tuple[Take, tuple[Row, ...]] | Reason:
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
) -> tuple[Take, tuple[Row, ...]] | Reason:
    """Search for a little; then pack the slots, follow that, and search on where it led nowhere."""
    with suppress(OutOfBudgetError), meter.part(min(EASY, meter.left // 2)) as part:
        return _searched(resources, laid_out, taken, part)
    if plan := pack(resources, laid_out, taken, meter):
        with suppress(OutOfBudgetError), meter.part(meter.left // 2) as part:
            result = _searched(resources, laid_out, taken, part, plan)
            if not isinstance(result, Reason):
                return result
    return _searched(resources, laid_out, taken, meter)


def _searched(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, meter: Meter, plan: Plan | None = None
) -> tuple[Take, tuple[Row, ...]] | Reason:
    search = Search(laid_out, taken, meter, plan)
    answer: list[tuple[Row, ...]] = []

    def settled() -> bool:
        rows = rows_of(search)
        answer.extend([rows] if rows is not None else [])
        return rows is not None

    try:
        if not search.meet(resources, settled):
            return collision(resources)
        return take_of(answer[0], laid_out), answer[0]
    finally:
        taken.undo(0)


def taken_copies(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Trail, rows: Sequence[Row], meter: Meter = FREE
) -> tuple[int, bool]:
    """Count successive takes, each repeated as often as its vertices allow; holds end with their copy."""
    copies = looked_at = 0
    while held_by(rows) and looked_at < MOST_LOOKED_AT:
        copies += repeat(taken, laid_out, rows)
        looked_at += laid_out.size + len(rows)
        results = search(resources, laid_out, taken, meter)
        if isinstance(results, Reason):
            return copies, results.why is not Why.UNDECIDED
        rows = results[1]
    return max(copies, 1), False
