"""A take beside what others hold by vertex, and the check of certificates and refutations by the installed matchers.

The checker knows nothing of matching: what a vertex of a subsystem meets is asked here for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.certificate.checker import verify
from rainbow.certificate.document import Row, written
from rainbow.certificate.refutation import refutation_faults, refutations
from rainbow.matching.model.base_units import variants_on
from rainbow.matching.model.budget import STEPS
from rainbow.matching.model.layout import OUTSIDE, layout
from rainbow.matching.model.verdict import Reason, Why
from rainbow.matching.needs import meets_condition
from rainbow.matching.quick_check import quick_check
from rainbow.matching.solution import search_or_pack
from rainbow.matching.workers.occupancy import Located, Occupancy
from rainbow.matching.workers.worker_use import TakenAmounts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from rainbow.certificate.document import Certificate
    from rainbow.certificate.refutation import Refutation
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


def rows_of_amounts(request: Request, occupancy: Occupancy, pieces: Iterable[Located]) -> tuple[Row, ...] | None:
    """Write the rows of slots that were placed by amounts; None where it is open which slot has which leaf.

    The slots are of leaves, each anywhere, or on a worker of its own (see scheduling/gangs.py).
    """
    workers = occupancy.workers
    leaves: dict[int, dict[str, dict[str, int]]] = {}  # by worker and type: {vertex: amount}
    for _, worker, part in pieces:
        for i, amount, whole in part.amounts:
            if worker == OUTSIDE or whole or i < 0:
                return None
            kinds = leaves.setdefault(worker, {})
            type_ = occupancy.states[worker].stand.layout.types[i]
            own_kind, vertex = kinds.setdefault(type_, {}), workers.vertex(worker, i)
            own_kind[vertex] = own_kind.get(vertex, 0) + amount
    (trees, *others), rows = variants_on(request, workers.rooted.pools), list[Row]()
    for tree in trees:
        chain = [
            tree,
            *(child for child in tree.children if child.children),
        ]  # a slot, and the worker around or in it
        kinds_of = [(part.place, part.type, part.count.min) for part in chain[-1].children]
        many, own = tree.count.min, list[int]()
        if others or tree.count.max != many or len({type_ for _, type_, _ in kinds_of}) < len(kinds_of):
            return None
        for _ in range(many):
            enough = (
                worker
                for worker, kinds in leaves.items()
                if all(sum(kinds.get(type_, {}).values()) >= amount for _, type_, amount in kinds_of)
            )
            at = next((worker for worker in enough if len(chain) == 1 or worker not in own), None)
            if at is None:
                return None if len(trees) > 1 else tuple(rows)
            own.append(at)
            for level in chain:
                how = "at" if level.is_slot else "on"
                place = None if level.is_slot and len(chain) > 1 else workers.vertex(at, 0)
                rows.append(Row(level.place, len(rows) - 1 if level is not tree else -1, how, place, 0))
            up = len(rows) - 1
            for number, type_, amount in kinds_of:
                rows += [Row(number, up, "of", leaf, n) for leaf, n in _drawn(leaves[at][type_], amount)]
    return tuple(rows)


def _drawn(leaves: dict[str, int], amount: int) -> Iterator[tuple[str, int]]:
    """Take an amount of leaves, the first ones first."""
    for vertex in list(leaves):
        part = min(leaves[vertex], amount)
        leaves[vertex], amount = leaves[vertex] - part, amount - part
        if part:
            yield vertex, part


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


def refuted(
    request: Request, cluster: Cluster, held: Mapping[str, int | None] | None = None
) -> list[Refutation] | None:
    """Refute each variant of a request that does not fit beside what others hold; None where a search gave up."""
    result = refutations(request, cluster, held or {}, meets_condition)
    if all(one.kind != "exhaustion" for one in result) or cluster.levels == "strict":
        return result
    steps = _steps(request, occupied(cluster, held or {}))
    return None if steps is None else refutations(request, cluster, held or {}, meets_condition, steps=steps)


def _steps(request: Request, occupancy: Occupancy) -> list[int] | None:
    """Say how many steps the search of each variant takes until it ends without success; None if it does not."""
    laid_out, result = layout(occupancy.cluster), list[int]()
    for resources in variants_on(request, laid_out.pools):
        meter = STEPS.share()
        most = meter.left
        if not quick_check(resources, laid_out.by_type, laid_out):
            ended = search_or_pack(resources, laid_out, occupancy.trail(request, laid_out, []), meter)
            if not isinstance(ended, Reason) or ended.why is Why.UNDECIDED:
                return None
        result.append(int(most - meter.left))
    return result


def faults_of_refutations(
    request: Request,
    cluster: Cluster,
    claims: Sequence[Refutation],
    held: Mapping[str, int | None] | None = None,
) -> tuple[list[str], list[str]]:
    """Return what is wrong with refutations, and what could not be checked."""
    return refutation_faults(request, cluster, held or {}, claims, meets_condition)


BESIDE = "it fits on the empty cluster, not beside what others hold"


def certified(
    request: Request,
    clusters: Iterable[Cluster],
    answer: Mapping[str, Any],
    takes: Mapping[str, Take | None],
    *,
    held: Mapping[str, int | None] | None = None,
    revisions: Mapping[str, int] | None = None,
    plain: Callable[[Request, Cluster], Request | None] = lambda request, _: request,
) -> dict[str, Any]:
    """Add the certificate of each yes to an answer, of `takes`, and the refutation of each no.

    A candidate without a take does not fit beside what is `held`, or is not known to. `plain` gives what is asked of
    a cluster's vertices alone, None where its site has said no: there nothing is refuted.
    """
    by_name = {cluster.name: cluster for cluster in clusters}
    candidates, refusals, undecided = list[Any](), list[Any](answer["refusals"]), list[Any](answer["undecided"])
    for one in answer["candidates"]:
        name = one["cluster"]
        take = takes.get(name)
        if take is not None:
            rows = take.certificate((revisions or {}).get(name))
            candidates.append({**one, "certificate": written(rows)} if take.rows else one)
        else:
            refusals.append({"cluster": name, "reason": "not-free", "text": BESIDE})
    refused = []
    for one in refusals:
        cluster = by_name[one["cluster"]]
        query = plain(request, cluster)
        if query is None:
            refused.append(one)
            continue
        own = refuted(query, cluster, held)
        if own is None:
            text = "the search ended at its time limit; the job may still fit"
            undecided.append({"cluster": cluster.name, "reason": "undecided", "text": text})
        else:
            refused.append({**one, "refutation": [each.document() for each in own]})
    return {**answer, "candidates": candidates, "refusals": refused, "undecided": undecided}
