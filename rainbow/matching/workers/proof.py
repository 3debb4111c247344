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
    from collections.abc import Collection, Iterable, Iterator, Mapping

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


def others_on(
    occupancy: Occupancy, pieces: Iterable[Located]
) -> tuple[dict[str, int | None], dict[str, dict[str, int]]]:
    """Return what is held, by vertex and floating by worker and type, of the workers that pieces lie in."""
    workers, laid_out = occupancy.workers, layout(occupancy.cluster) if not occupancy.is_located else None
    held: dict[str, int | None] = {}
    floats: dict[str, dict[str, int]] = {}
    concerned = {worker for _, worker, _ in pieces}
    for worker in concerned - {OUTSIDE}:
        state = occupancy.states[worker]
        for i, amount in state.used.items():
            if i >= 0:
                held[workers.vertex(worker, i)] = amount
            else:
                type_ = state.stand.place(i)[1][0]
                own = floats.setdefault(workers.names[worker], {})
                own[type_] = own.get(type_, 0) + amount
        held.update((workers.vertex(worker, i), None) for i in state.whole)
    for own_pieces in occupancy.held.values() if OUTSIDE in concerned else ():
        laid_out = laid_out or layout(occupancy.cluster)
        for _, worker, part in own_pieces:
            for i, amount, whole in part.amounts if worker == OUTSIDE else ():
                before = held.get(laid_out.vertex(i), 0)
                held[laid_out.vertex(i)] = None if whole or before is None else before + amount
    return held, floats


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
