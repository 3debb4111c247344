"""Clusters with strict levels: Fluxion's own answer (strict_traversal.py), given in our words.

request ─► traversal, copy after copy ─► Verdict: fits, totals, what the first copy holds
                └─ nothing found ─► the default rule's reason if it refuses too, else the strict rule that does
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.matching.answer import CLUSTER, totals_of
from rainbow.matching.budget import Meter, OutOfBudgetError
from rainbow.matching.explain import undecided, unexplained
from rainbow.matching.layout import OUTSIDE, Layout, layout
from rainbow.matching.strict_refusal import refusal
from rainbow.matching.strict_traversal import Found, Held, Traversal, exclusive
from rainbow.matching.verdict import Take, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource

MOST_COPIES = 1_000  # `fits` stops counting there and says "at least"
MOST_VISITS = 100_000  # and so it does once it has looked at so many vertices


def match(request: Request, cluster: Cluster, meter: Meter, later: Callable[[], Meter]) -> Verdict:
    """Return whether Fluxion, on the empty cluster, would run `request`: the first variant that it would decides."""
    laid_out = layout(cluster)
    try:
        for resources in request.variants:
            traversal = Traversal(laid_out, request.constraint, Held(), meter.timed)
            found = find(traversal, resources)
            if found:
                take = take_of(found, laid_out)
                traversal.meter = later()
                fits, exact = _copies(traversal, resources, found)
                return Verdict(cluster.name, True, fits, exact, totals_of(take, cluster.worker_type), take)
    except OutOfBudgetError:
        return Verdict(cluster.name, None, reason=undecided())
    try:
        return Verdict(cluster.name, False, reason=refusal(request, request.resources, laid_out, meter.timed))
    except OutOfBudgetError:
        return Verdict(cluster.name, False, reason=unexplained())


def take(request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
    """Choose what one copy holds when only `workers` (names) are free; None if it cannot run there."""
    laid_out = layout(cluster)
    held = Held()
    for i in laid_out.workers:
        if laid_out.worker_names[i] not in workers:
            held.fill(i, laid_out)
    for resources in request.variants:
        found = find(Traversal(laid_out, request.constraint, held), resources)
        if found:
            return take_of(found, laid_out)
    return None


def find(traversal: Traversal, resources: tuple[Resource, ...]) -> tuple[Found, ...]:
    """Choose one copy; nothing also where it would take nothing: Fluxion lets such a job wait for ever (3)."""
    found = traversal.find(resources) or ()
    return found if any(True for _ in exclusive(found)) else ()


def _copies(traversal: Traversal, resources: tuple[Resource, ...], found: tuple[Found, ...]) -> tuple[int, bool]:
    """Count successive takes, the one found first; tell whether counting came to its end."""
    copies = 0
    while found:
        if copies == MOST_COPIES or (copies and traversal.visits > MOST_VISITS):
            return copies, False
        traversal.held.take(found, traversal.layout)
        copies += 1
        try:
            found = find(traversal, resources)
        except OutOfBudgetError:
            return copies, False
    return copies, True


def take_of(found: tuple[Found, ...], laid_out: Layout) -> Take:
    """Say what one copy holds: exclusive vertices with all inside, each vertex by the innermost slot it is in."""
    owners: dict[int, tuple[int, str]] = {}
    for i, slot in exclusive(found):
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
