"""The answers of Fluxion's traversal (traversal.py) as verdicts.

request ─► traversal, copy after copy ─► Verdict: fits, totals, what the first copy holds
                └─ nothing found ─► the default rule's reason if it refuses too, else the strict rule that does
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from rainbow.matching.fluxion.traversal import Traversal, TraversalResult, TraversalState, exclusive
from rainbow.matching.model.budget import Meter, OutOfBudgetError
from rainbow.matching.model.conditions import barred
from rainbow.matching.model.layout import OUTSIDE, Layout, layout
from rainbow.matching.model.verdict import MOST_ALTERNATIVES, Answer, Reason, Take, Verdict, Why
from rainbow.matching.quick_check import quick_check
from rainbow.matching.reasons import of_variants, shortfall, undecided, unexplained
from rainbow.matching.rows import CLUSTER
from rainbow.matching.solution import totals_of
from rainbow.matching.trail import Trail
from rainbow.matching.upper_bound import VertexCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource


MOST_COPIES = 1_000  # `fits` stops counting there and says "at least"
MOST_VISITS = 100_000  # and so it does once it has looked at so many vertices


def match(request: Request, cluster: Cluster, meter: Meter, later: Callable[[], Meter]) -> Verdict:
    """Return whether Fluxion, on the empty cluster, would run `request`: the first variant that it would decides."""
    laid_out = layout(cluster)
    try:
        for resources in request.variants:
            traversal = Traversal(laid_out, request.constraint, TraversalState(), meter.timed)
            if results := find(traversal, resources):
                counted = partial(_answer, request, resources, results, traversal, later)
                return Verdict(cluster.name, True, later=counted, take_later=partial(take_of, results, laid_out))
    except OutOfBudgetError:
        return Verdict(cluster.name, None, reason=undecided())
    try:
        answer = request.variants[:MOST_ALTERNATIVES]
        reasons = [refusal(request, resources, laid_out, later().timed) for resources in answer]
        return Verdict(cluster.name, False, reason=of_variants(reasons))
    except OutOfBudgetError:
        return Verdict(cluster.name, False, reason=unexplained())


def _answer(
    request: Request,
    resources: tuple[Resource, ...],
    results: tuple[TraversalResult, ...],
    first: Traversal,
    later: Callable[[], Meter],
) -> Answer:
    """Say what one copy takes, and count how many there are, beginning with the one that was found."""
    traversal = Traversal(first.layout, request.constraint, TraversalState(), later())
    traversal.visits = first.visits
    fits, exact = _copies(traversal, resources, results)
    take = take_of(results, first.layout)
    return Answer(fits, exact, totals_of(take, first.worker_type), take)


def take(request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
    """Choose what one copy holds when only `workers` (names) are free; None if it cannot run there."""
    laid_out = layout(cluster)
    held = TraversalState()
    for i in laid_out.workers:
        if laid_out.worker_names[i] not in workers:
            held.fill(i, laid_out)
    for resources in request.variants:
        results = find(Traversal(laid_out, request.constraint, held), resources)
        if results:
            return take_of(results, laid_out)
    return None


def find(traversal: Traversal, resources: tuple[Resource, ...]) -> tuple[TraversalResult, ...]:
    """Choose one copy; nothing also where it would take nothing: Fluxion lets such a job wait forever (3)."""
    results = traversal.find(resources) or ()
    return results if any(True for _ in exclusive(results)) else ()


def _copies(
    traversal: Traversal, resources: tuple[Resource, ...], results: tuple[TraversalResult, ...]
) -> tuple[int, bool]:
    """Count successive takes, the one found first; return whether counting came to its end."""
    copies = 0
    while results:
        if copies == MOST_COPIES or (copies and traversal.visits > MOST_VISITS):
            return copies, False
        traversal.held.take(results, traversal.layout)
        copies += 1
        try:
            results = find(traversal, resources)
        except OutOfBudgetError:
            return copies, False
    return copies, True


def take_of(results: tuple[TraversalResult, ...], laid_out: Layout) -> Take:
    """Say what one copy holds: exclusive vertices with all inside, each vertex by the innermost slot it is in."""
    owners: dict[int, tuple[int, str]] = {}
    for i, slot in exclusive(results):
        if owners.get(i) != slot:
            owners.update(dict.fromkeys(range(i, laid_out.last[i]), slot))
    placed: dict[tuple[int, str], dict[str, dict[str, int]]] = {}
    vertices: dict[str, int] = {}
    for i in sorted(owners):
        worker = laid_out.worker[i]
        name = CLUSTER if worker == OUTSIDE else laid_out.worker_names[worker]
        held = placed.setdefault(owners[i], {}).setdefault(name, {})
        held[laid_out.types[i]] = held.get(laid_out.types[i], 0) + laid_out.sizes[i]
        if laid_out.parents[i] not in owners:
            vertices[laid_out.vertex(i)] = laid_out.sizes[i]
    return Take(tuple((label, held) for (_, label), held in sorted(placed.items())), vertices)


MOST_LEVELS = 64  # a longer way is not shown
Siblings = tuple["Resource", ...]


def refusal(request: Request, resources: Siblings, layout: Layout, meter: Meter) -> Reason:
    """Say why the traversal finds nothing for `resources`."""
    plain = tuple(map(_without_units, resources))
    reason = quick_check(plain, layout.by_type, layout)
    reason = reason or shortfall(
        plain,
        VertexCounts(layout, Trail(layout, barred(request.constraint, layout, meter)), meter, request.constraint),
    )
    reason = reason or next(_crowded("", plain), None) or next(_levels("", plain, layout), None)
    return (
        reason
        or _constrained(request, plain, layout, meter)
        or _needing(request, plain, layout, meter)
        or _nearest(request, plain, layout, meter)
    )


def _without_units(r: Resource) -> Resource:
    return replace(r, unit="", children=tuple(map(_without_units, r.children)))


def _crowded(host: str, siblings: Siblings) -> Iterator[Reason]:
    """Find siblings that Fluxion cannot tell apart, or that a slot swallows."""
    names = ", ".join(r.label or r.type for r in siblings)
    where = f"below {host}" if host else "at the top"
    if any(r.is_slot for r in siblings) and len(siblings) > 1 and (not host or not all(r.is_slot for r in siblings)):
        text = f"under strict levels a slot swallows its siblings: {names} {where}"
        yield Reason(Why.SIBLINGS_COLLIDE, text, names)
    types = [r.type for r in siblings if not r.is_slot]
    if len(set(types)) < len(types):
        text = f"under strict levels siblings of one type cannot be told apart: {names} {where}"
        yield Reason(Why.SIBLINGS_COLLIDE, text, names)
    for r in siblings:
        yield from _crowded(r.label or r.type, r.children)


def _levels(host: str, siblings: Siblings, layout: Layout) -> Iterator[Reason]:
    """Find what is nowhere directly below the vertex it is asked for; `host` "" is any vertex."""
    for r in siblings:
        requirements = tuple(dict.fromkeys(child.type for child in r.children)) if r.is_slot else (r.type,)
        if (host or r.is_slot) and not _directly_below(host, requirements, layout):
            yield _unnamed(host, requirements, layout)
        yield from _levels(host if r.is_slot else r.type, r.children, layout)


def _directly_below(host: str, requirements: tuple[str, ...], layout: Layout) -> bool:
    types: dict[int, set[str]] = {}
    for kind in requirements:
        for i in layout.by_type.get(kind, []):
            types.setdefault(layout.parents[i], set()).add(kind)
    hosts = [i for i in types if i >= 0 and host in ("", layout.types[i])]
    return any(len(types[i]) == len(requirements) for i in hosts)


def _unnamed(host: str, requirements: tuple[str, ...], layout: Layout) -> Reason:
    between = next((path for kind in requirements for path in _between(host, kind, layout)), None)
    if between:
        text = (
            f"under strict levels a level between {host} and {requirements[-1]} must be named: {' > '.join(between)}"
        )
    else:
        query = " and ".join(requirements) or "what a slot holds, which is nothing,"
        text = f"under strict levels some {host or 'vertex'} must have {query} directly below it"
    return Reason(Why.VERTEX_TOO_SMALL, text, requirements[-1] if requirements else "slot", 1, 0)


def _between(host: str, kind: str, layout: Layout) -> Iterator[list[str]]:
    """Yield the way from a vertex of type `host` down to one of type `kind` where other levels lie between."""
    for i in layout.by_type.get(kind, []):
        way = [kind]
        for above in islice(layout.up(i), 1, MOST_LEVELS):
            way.append(layout.types[above])
            if layout.types[above] == host:
                if len(way) > 2:
                    yield way[::-1]
                break


def _constrained(request: Request, resources: Siblings, layout: Layout, meter: Meter) -> Reason | None:
    if request.constraint is None or not Traversal(layout, None, TraversalState(), meter).find(resources):
        return None
    text = "fits on the cluster, but not on the nodes that satisfy the constraint"
    return Reason(Why.CONSTRAINT_UNMET, text, "constraint")


def _needing(request: Request, resources: Siblings, layout: Layout, meter: Meter) -> Reason | None:
    names = ", ".join(dict.fromkeys(need.subsystem for r in resources for part in r.walk() for need in part.needs))
    without = tuple(map(_without_needs, resources))
    if not names or not Traversal(layout, request.constraint, TraversalState(), meter).find(without):
        return None
    text = f"fits on the cluster, but not on the vertices that meet the {names} requirements"
    return Reason(Why.NEED_UNMET, text, names)


def _without_needs(r: Resource) -> Resource:
    return replace(r, needs=(), children=tuple(map(_without_needs, r.children)))


def _nearest(request: Request, resources: Siblings, layout: Layout, meter: Meter) -> Reason:
    """Name the request that came closest; with none that is short, the job would hold nothing."""
    traversal = Traversal(layout, request.constraint, TraversalState(), meter)
    results, short = traversal.find(resources), traversal.shortest
    if results or short is None:
        text = "under strict levels only slots and exclusive resources take anything; there are none"
        return Reason(Why.VERTEX_TOO_SMALL, text, resources[0].type)
    name, place, requirement = (
        short.request.label or short.request.type,
        layout.types[short.position],
        short.request.count.min,
    )
    text = (
        f"under strict levels whole vertices are taken, the lowest first and the largest count of a range: "
        f"so the most {name} in one {place} is {short.units}, {requirement} wanted"
    )
    return Reason(Why.VERTEX_TOO_SMALL, text, name, requirement, short.units, {"in": place})
