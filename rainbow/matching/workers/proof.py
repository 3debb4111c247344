"""A take beside what others hold by vertex, and the check of its certificate by the installed matchers.

The checker knows nothing of matching: what a vertex of a subsystem meets is asked here for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.certificate.checker import verify
from rainbow.matching.model.conditions import meets_condition
from rainbow.matching.model.layout import OUTSIDE, layout
from rainbow.matching.workers.occupancy import Located, Occupancy
from rainbow.matching.workers.worker_use import TakenAmounts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from rainbow.certificate.document import Certificate
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.model.layout import ClusterLayout
    from rainbow.matching.model.verdict import Take


def occupied(cluster: Cluster, held: Mapping[str, int | None]) -> Occupancy:
    """Return the occupancy of a cluster where others hold {vertex: base units, or None for all of it}."""
    occupancy, laid_out = Occupancy(cluster), layout(cluster)
    pieces = [piece for vertex, amount in held.items() for piece in _located(occupancy, laid_out, vertex, amount)]
    occupancy.hold(occupancy.number(), tuple(pieces))
    return occupancy


def _located(occupancy: Occupancy, laid_out: ClusterLayout, vertex: str, amount: int | None) -> Iterator[Located]:
    i = laid_out.position[vertex]
    starts = sorted(laid_out.workers) if occupancy.is_located else []
    number = {start: worker for worker, start in enumerate(starts)}
    units = laid_out.amount(i) if amount is None else amount
    if laid_out.worker[i] in number:
        worker = number[laid_out.worker[i]]
        part = occupancy.workers.stands[worker].part({(i - laid_out.worker[i], amount is None): units})
        yield Located("", worker, part)
        return
    yield Located("", OUTSIDE, TakenAmounts(((i, units, amount is None),)))
    for start in starts if amount is None else ():
        if i <= start < laid_out.last[i]:
            part = occupancy.workers.stands[number[start]].part({(0, True): laid_out.amount(start)})
            yield Located("", number[start], part)


def take_beside(request: Request, cluster: Cluster, held: Mapping[str, int | None]) -> Take | None:
    """Return what one copy takes beside what others hold; None where it does not fit."""
    holding = occupied(cluster, held).take(request)
    return holding.take if holding else None


def faults_of(
    request: Request,
    cluster: Cluster,
    certificate: Certificate,
    held: Mapping[str, int | None] | None = None,
    floats: Mapping[str, Mapping[str, int]] | None = None,
    closed: Collection[str] = (),
) -> list[str]:
    """Return every fault of a certificate, as `verify` does; none proves it."""
    return verify(request, cluster, held or {}, certificate, floats=floats, closed=closed, meets=meets_condition)
