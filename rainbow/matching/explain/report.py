"""Verdicts as JSON, with explanations, and what they hold as paths and as RFC 20's R.

All explanations of a query share a budget of time, first the trees and then the changes, with equal shares in each.
Where it ends an explanation has `complete` false, and says what it has.

R is there where workers have ranks. It lists the cores and GPUs a rank holds by id: the ids of the vertices if each
is one core (or GPU) and no two of a worker share one, else their places within the worker, in depth-first order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rainbow.jobspec.hostlist import expand_hosts, fold_hosts, fold_ids
from rainbow.matching.model.budget import STEPS, Budget, Meter, OutOfBudgetError
from rainbow.matching.model.layout import OUTSIDE, layout

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.model.layout import ClusterLayout
    from rainbow.matching.model.verdict import Backend, Take, Verdict


MOST_PROBES = 2_000  # matches that the changes of one query may cost, shared equally
LEAST_PROBES = 20
TREES = 0.4  # of a query's time; as much for the changes
CHANGES = 0.4
MOST_VERTICES = 200_000  # of a cluster whose tree is looked up; laying one out takes longer than the time there is

Explanations = dict[str, dict[str, Any]]


def explanations(
    request: Request,
    clusters: Iterable[Cluster],
    verdicts: Iterable[Verdict],
    backend: Backend,
    budget: Budget = STEPS,
) -> Explanations:
    """Explain verdicts by cluster: `tree`; with a take `paths` and `R`; of a refusal `change` (None: none found)."""
    by_name = {cluster.name: cluster for cluster in clusters}
    ordered = sorted(verdicts, key=lambda verdict: _vertices(by_name[verdict.cluster]))
    result: Explanations = {}
    for verdict, meter in _shared(ordered, budget, TREES):
        result[verdict.cluster] = _looked_up(request, by_name[verdict.cluster], verdict, meter)
    from rainbow.matching.explain.smallest_change import PROBES, smallest_change  # few ask for it

    refused = [verdict for verdict in ordered if not verdict.matched]
    probes = min(PROBES, max(LEAST_PROBES, MOST_PROBES // max(1, len(refused))))
    for verdict, meter in _shared(refused, budget, CHANGES):
        change = smallest_change(by_name[verdict.cluster], request, backend, probes, meter)
        explanation = result[verdict.cluster]
        explanation["change"] = change.document() if change else None
        with suppress(OutOfBudgetError):
            meter.check()
            continue
        explanation["complete"] = explanation["complete"] and change is not None
    return result


def _shared(verdicts: list[Verdict], budget: Budget, share: float) -> Iterator[tuple[Verdict, Meter]]:
    """Yield each verdict with its part of a query's time; those to come share what one did not use."""
    meter = Meter(budget.clock, share * budget.query)
    yield from zip(verdicts, meter.divided(len(verdicts)), strict=True)


def _vertices(cluster: Cluster) -> int:
    return sum(cluster.outline.numbers.values())


def _looked_up(request: Request, cluster: Cluster, verdict: Verdict, meter: Meter) -> dict[str, Any]:
    if _vertices(cluster) > MOST_VERTICES:
        return {"tree": [], "complete": False}
    from rainbow.matching.explain.request_tree import sought_in_time

    tree, is_whole = sought_in_time(request, cluster, verdict, meter)
    result: dict[str, Any] = {"tree": [part.document() for part in tree], "complete": is_whole}
    if verdict.take:
        result |= {"paths": paths(verdict.take, cluster), "R": resource_set(verdict.take, cluster)}
    return result


KINDS = ("core", "gpu")  # what RFC 20 knows below a rank
Held = dict[int, dict[str, list[int]]]  # {worker: {type: ids}}


def paths(take: Take, cluster: Cluster) -> list[str]:
    """List the containment paths of what is held, lowest first; a vertex without a path is called by its id."""
    held = sorted(take.vertices, key=cluster.order)
    return [cluster.graph.nodes[vertex]["path"] or vertex for vertex in held]


def resource_set(take: Take, cluster: Cluster) -> dict[str, Any] | None:
    """Write a take as R version 1; None unless every worker it touches has a rank of its own."""
    laid_out = layout(cluster)
    held = _held(take, laid_out)
    ranks = {worker: cluster.graph.nodes[laid_out.vertices[worker]]["rank"] for worker in held}
    if not held or None in ranks.values() or len(set(ranks.values())) < len(ranks):
        return None
    by_rank = sorted(held, key=lambda worker: ranks[worker])
    names = [laid_out.worker_names[worker] for worker in by_rank]
    return {
        "version": 1,
        "execution": {
            "R_lite": _lite({ranks[worker]: held[worker] for worker in by_rank}),
            **_nodelist(names),
            "starttime": 0,
            "expiration": 0,
        },
    }


def _held(take: Take, laid_out: ClusterLayout) -> Held:
    """Collect what is held of each worker; whole subtrees are named by their top."""
    held: Held = {}
    for vertex, amount in take.vertices.items():
        top = laid_out.position[vertex]
        for i in range(top, laid_out.last[top]):
            if laid_out.worker[i] == OUTSIDE:
                continue
            ids = held.setdefault(laid_out.worker[i], {})
            if laid_out.types[i] in KINDS:
                units = amount if i == top else laid_out.sizes[i]
                ids.setdefault(laid_out.types[i], []).extend(_ids(i, laid_out)[:units])
    return held


def _ids(i: int, laid_out: ClusterLayout) -> range:
    """Return the ids of the units of the vertex at position `i`."""
    worker, kind = laid_out.worker[i], laid_out.types[i]
    below = [k for k in laid_out.by_type[kind] if worker <= k < laid_out.last[worker]]
    own = [laid_out.cluster.graph.nodes[laid_out.vertices[k]]["metadata"].get("id") for k in below]
    numbers = [int(str(number)) for number in own if _is_number(number)]
    if len(set(numbers)) == len(below) and all(laid_out.sizes[k] == 1 for k in below):
        first = numbers[below.index(i)]
    else:
        first = sum(laid_out.sizes[k] for k in below if k < i)
    return range(first, first + laid_out.sizes[i])


def _is_number(value: Any) -> bool:
    text = str(value)
    return isinstance(value, int | str) and text.isascii() and text.isdecimal() and len(text) <= 9


def _lite(held: Mapping[int, Mapping[str, list[int]]]) -> list[dict[str, Any]]:
    """Write ranks with equal children as one entry, in order of their lowest rank."""
    alike: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for rank, kinds in held.items():
        children = tuple((kind, fold_ids(kinds[kind])) for kind in KINDS if kind in kinds)
        alike.setdefault(children, []).append(rank)
    return [{"rank": fold_ids(ranks), "children": dict(children)} for children, ranks in alike.items()]


def _nodelist(names: list[str]) -> dict[str, list[str]]:
    """Name the hosts in order of rank; nothing where their names cannot be written as a hostlist."""
    folded = fold_hosts(names)
    return {"nodelist": [folded]} if expand_hosts(folded, len(names)) == names else {}


def verdict_to_json(request: Request, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Write verdicts: candidates, refusals and undecided clusters with their reasons, warnings about the jobspec."""
    candidates = [
        {
            "cluster": v.cluster,
            "fits": v.fits,
            "fits_exact": v.exact,
            "totals": dict(v.totals),
            **_units(v),
            **_queue(v),
        }
        for v in verdicts
        if v.matched
    ]
    refusals = [{"cluster": v.cluster, **_reason(v)} for v in verdicts if v.matched is False]
    undecided = [{"cluster": v.cluster, **_reason(v)} for v in verdicts if v.matched is None]
    warnings = list(request.warnings)
    return {"candidates": candidates, "refusals": refusals, "undecided": undecided, "warnings": warnings}


def _queue(verdict: Verdict) -> dict[str, Any]:
    return {"queue": verdict.queue} if verdict.queue else {}


def _units(verdict: Verdict) -> dict[str, Any]:
    return {"units": dict(verdict.units)} if verdict.units else {}


def _reason(verdict: Verdict) -> dict[str, Any]:
    reason = verdict.reason
    if reason is None:
        return {"reason": "unknown"}
    facts = {"wanted": reason.wanted, "found": reason.found, "subject": reason.subject, **reason.facts}
    options = {key: value for key, value in facts.items() if value not in (None, "")}
    return {"reason": str(reason.why), "text": reason.text, **options}


def shown_explained(
    request: Request,
    clusters: Iterable[Cluster],
    verdicts: Sequence[Verdict],
    backend: Backend,
    budget: Budget = STEPS,
) -> dict[str, Any]:
    """Write verdicts with an `explanation` each (report.py)."""
    result = explanations(request, clusters, verdicts, backend, budget)
    answer = verdict_to_json(request, verdicts)
    for one in [*answer["candidates"], *answer["refusals"], *answer["undecided"]]:
        one["explanation"] = result[one["cluster"]]
    return answer
