"""Which kinds of workers could take a part of a request: what a policy keeps workers by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.matching.bound import Bound
from rainbow.matching.constraints import barred
from rainbow.matching.layout import layout
from rainbow.matching.slots import parts
from rainbow.matching.taken import Taken

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource
    from rainbow.matching.layout import Layout


def hosting_kinds(request: Request, cluster: Cluster) -> frozenset[str]:
    """Return the kinds (see worker_kinds) that could take a slot, or a whole node, of the preferred variant."""
    laid_out = layout(cluster)
    out = set(barred(request.constraint, laid_out))
    bound = Bound(laid_out, Taken(laid_out, out))
    one_of_each = {laid_out.kinds[i]: i for i in reversed(laid_out.workers) if i not in out}
    wanted = [part for resource in request.resources for part in resource.walk()]
    hosts = {kind for kind, i in one_of_each.items() if any(_could_host(part, i, laid_out, bound) for part in wanted)}
    return frozenset(str(kind) for kind in hosts or one_of_each)


def _could_host(part: Resource, i: int, laid_out: Layout, bound: Bound) -> bool:
    if part.is_slot:
        placed = parts(part, laid_out, 0, False).placed
        return bool(placed) and bound.capacity(placed, i, False, 1) > 0
    if part.type != laid_out.worker_type:
        return False
    return bound.can_host(part, i, False) if part.children else bound.meets(part.needs, i)
