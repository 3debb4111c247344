"""Which kinds of workers could take a part of a request: what a policy keeps workers by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.matching.bound import Bound
from rainbow.matching.constraints import barred
from rainbow.matching.layout import layout
from rainbow.matching.question import Question
from rainbow.matching.slots import parts
from rainbow.matching.taken import Taken
from rainbow.matching.workers import workers_of

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource
    from rainbow.matching.layout import Layout


def hosting_kinds(request: Request, cluster: Cluster) -> frozenset[str]:
    """Return the kinds (see worker_kinds) that could take a slot, or a whole node, of the preferred variant."""
    question, workers = Question(request), workers_of(cluster)
    if not (workers.are_apart and question.by_kinds) or question.names_workers or question.asks_names:
        return _walked(request, cluster)
    open_ones = [stand for stand in workers.alike() if question.passes is None or question.passes(stand.kind)]
    wanted = [part for resource in request.resources for part in resource.walk()]
    hosts = {
        stand.kind.number
        for stand in open_ones
        for bound in [Bound(stand.layout, Taken(stand.layout))]
        if any(_could_host(part, 0, stand.layout, bound) for part in wanted)
    }
    return frozenset(map(str, hosts or {stand.kind.number for stand in open_ones}))


def _walked(request: Request, cluster: Cluster) -> frozenset[str]:
    """Look at one worker of each kind in the whole cluster."""
    laid_out, kinds = layout(cluster), worker_kinds(cluster)
    out = set(barred(request.constraint, laid_out))
    bound = Bound(laid_out, Taken(laid_out, out))
    one_of_each = {kinds[laid_out.worker_names[i]]: i for i in reversed(laid_out.workers) if i not in out}
    wanted = [part for resource in request.resources for part in resource.walk()]
    hosts = {kind for kind, i in one_of_each.items() if any(_could_host(part, i, laid_out, bound) for part in wanted)}
    return frozenset(hosts or one_of_each)


def worker_kinds(cluster: Cluster) -> dict[str, str]:
    """{worker: its kind}; workers of one kind are equal in everything that matching looks at."""
    return {name: str(kind.number) for name, kind in workers_of(cluster).by_name.items()}


def worker_capacity(cluster: Cluster) -> dict[str, dict[str, int]]:
    """{worker: {type: size of all its vertices of that type}}, in natural order of workers."""
    workers = workers_of(cluster)
    kinds = workers.by_name
    totals = {kind: workers.rooted.below(kind).totals for kind in set(kinds.values())}
    return {name: dict(totals[kind]) for name, kind in kinds.items()}


def consumables(cluster: Cluster) -> dict[str, int]:
    """{type: size of all its vertices that lie outside every worker}: racks, storage, licences."""
    sums: dict[str, int] = {}
    for kind, many in workers_of(cluster).rooted.outer.items():
        sums[kind.type] = sums.get(kind.type, 0) + kind.size * many
    return sums


def _could_host(part: Resource, i: int, laid_out: Layout, bound: Bound) -> bool:
    if part.is_slot:
        placed = parts(part, laid_out, 0, False).placed
        return bool(placed) and bound.capacity(placed, i, False, 1) > 0
    if part.type != laid_out.worker_type:
        return False
    return bound.can_host(part, i, False) if part.children else bound.meets(part.needs, i)
