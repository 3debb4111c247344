"""Request × clusters → verdicts, each refusal with its reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rainbow.matching.equivalence.cluster_class import Measure, measures, stated_units
from rainbow.matching.explain import report
from rainbow.matching.explain.report import verdict_to_json
from rainbow.matching.index_backend import (
    IndexBackend,
    amounts_on,
    candidates_of,
    candidates_without,
    is_in_order,
    names_of,
    refusals_of,
    undecided_of,
)
from rainbow.matching.model.budget import STEPS, Budget
from rainbow.matching.model.verdict import Backend, Prepares, Reason, Requires, Take, Verdict, Why
from rainbow.matching.needs import Matcher, matchers
from rainbow.matching.networkx_backend import NetworkxBackend
from rainbow.matching.site.resolve import asks_site, is_plain, resolve
from rainbow.matching.site.verdicts import SiteBackend, plain_verdicts
from rainbow.matching.workers import proof
from rainbow.matching.workers.fragmentation import fragmented, free_part
from rainbow.matching.workers.held_paths import at_numbers, meet, numbered
from rainbow.matching.workers.occupancy import Occupancy
from rainbow.matching.workers.proof import (
    occupied,
    others_on,
    refuted,
    rows_of_amounts,
)
from rainbow.matching.workers.worker_use import (
    cluster_totals,
    consumables,
    eligible_worker_classes,
    is_located,
    largest_worker,
    types_in_workers,
    worker_capacity,
    worker_kinds,
)
from rainbow.plugins import Registry

if TYPE_CHECKING:
    from rainbow.certificate.document import Certificate
    from rainbow.certificate.refutation import Refutation
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.explain.smallest_change import smallest_change

backends: Registry[Backend] = Registry("rainbow.backends")
backends.add("index")(IndexBackend())
backends.add("networkx")(NetworkxBackend())
backends.add_later("fluxion", "rainbow.fluxion.backend:FluxionBackend")

DEFAULT_BACKEND = "index"


def match(
    request: Request,
    clusters: Iterable[Cluster],
    backend: str = DEFAULT_BACKEND,
    budget: Budget | None = None,
    own_queues: Collection[str] = (),
) -> Sequence[Verdict]:
    """Return the verdict on every cluster, as if it were empty, in order of name.

    Without a budget the default number of steps ends a search, whatever time they take. `own_queues` names the
    clusters whose policies have queues of their own: these judge a queue that the graph does not name.
    """
    inputs = clusters if isinstance(clusters, Sequence) else list(clusters)
    return SiteBackend(backends.get(backend)).match_all(request, inputs, budget, own_queues)


def settled(request: Request, cluster: Cluster, backend: str = DEFAULT_BACKEND) -> Request:
    """Return a request as one cluster answers it: in plain words for its nodes, in the first queue that takes it."""
    if is_plain(request, cluster):
        return request
    known: dict[bytes, Request] = cluster.memo.setdefault(settled, {})
    if request.site_key not in known:
        if len(known) >= MOST_SETTLED:
            known.clear()
        plain, chosen = [way.request for way in resolve(request, cluster) if way.request], backends.get(backend)
        first = next((one for one in plain if plain_verdicts(chosen, one, [cluster], None)[0].matched), None)
        known[request.site_key] = first or (plain[0] if plain else request)
    result = known[request.site_key]
    return replace(request, variants=result.variants, constraint=result.constraint)


MOST_SETTLED = 4_096


def of_vertices(request: Request, cluster: Cluster) -> Request | None:
    """Return what a request asks of a cluster's vertices alone; None where that is not one request, or the site's."""
    if is_plain(request, cluster):
        return request
    ways = resolve(request, cluster)
    return ways[0].request if len(ways) == 1 and ways[0].reason is None else None


def certified(
    request: Request,
    clusters: Iterable[Cluster],
    answer: Mapping[str, Any],
    takes: Mapping[str, Take | None],
    *,
    held: Mapping[str, int | None] | None = None,
    revisions: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Add the certificate of each yes to an answer, of `takes`, and the refutation of each no of the vertices."""
    return proof.certified(request, clusters, answer, takes, held=held, revisions=revisions, plain=of_vertices)


def take_beside(request: Request, cluster: Cluster, held: Mapping[str, int | None]) -> Take | None:
    """Return what one copy takes beside what others hold; None where it does not fit."""
    return proof.take_beside(settled(request, cluster), cluster, held)


def faults_of(
    request: Request,
    cluster: Cluster,
    certificate: Certificate,
    held: Mapping[str, int | None] | None = None,
    floats: Mapping[str, Mapping[str, int]] | None = None,
    closed: Collection[str] = (),
) -> list[str]:
    """Return every fault of a certificate, as `verify` does; none proves it."""
    return proof.faults_of(settled(request, cluster), cluster, certificate, held, floats, closed)


def faults_of_refutations(
    request: Request, cluster: Cluster, claims: Sequence[Refutation], held: Mapping[str, int | None] | None = None
) -> tuple[list[str], list[str]]:
    """Return what is wrong with refutations, and what could not be checked."""
    return proof.faults_of_refutations(settled(request, cluster), cluster, claims, held)


def __getattr__(name: str) -> Any:
    """Import what few ask for when it is asked for."""
    if name != "smallest_change":
        raise AttributeError(f"module 'rainbow.matching' has no attribute {name!r}")
    from rainbow.matching.explain import smallest_change

    def of_sites(cluster: Cluster, request: Request, backend: Backend, *rest: Any, **named: Any) -> Any:
        return smallest_change.smallest_change(cluster, request, SiteBackend(backend), *rest, **named)

    return of_sites


def shown_explained(
    request: Request,
    clusters: Sequence[Cluster],
    verdicts: Sequence[Verdict],
    backend: Backend,
    budget: Budget = STEPS,
) -> dict[str, Any]:
    """Write verdicts as JSON, each explained."""
    return report.shown_explained(request, clusters, verdicts, SiteBackend(backend), budget)


def prepare(cluster: Cluster, backend: str = DEFAULT_BACKEND) -> Cluster:
    """Work out now what matching would work out at the first request; returns the cluster."""
    chosen = backends.get(backend)
    if isinstance(chosen, Prepares):
        chosen.prepare(cluster)
    return cluster


__all__ = [
    "Backend",
    "Budget",
    "Matcher",
    "Measure",
    "Occupancy",
    "Reason",
    "Requires",
    "Take",
    "Verdict",
    "Why",
    "amounts_on",
    "asks_site",
    "at_numbers",
    "backends",
    "candidates_of",
    "candidates_without",
    "certified",
    "cluster_totals",
    "consumables",
    "eligible_worker_classes",
    "faults_of",
    "faults_of_refutations",
    "fragmented",
    "free_part",
    "is_in_order",
    "is_located",
    "is_plain",
    "largest_worker",
    "match",
    "matchers",
    "measures",
    "meet",
    "names_of",
    "numbered",
    "occupied",
    "others_on",
    "prepare",
    "refusals_of",
    "refuted",
    "rows_of_amounts",
    "settled",
    "shown_explained",
    "smallest_change",
    "stated_units",
    "take_beside",
    "types_in_workers",
    "undecided_of",
    "verdict_to_json",
    "worker_capacity",
    "worker_kinds",
]
