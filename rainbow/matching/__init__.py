"""Request × clusters → verdicts, each refusal with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rainbow.matching.equivalence.cluster_class import Measure, measures, stated_units
from rainbow.matching.explain.report import shown_explained, verdict_to_json
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
from rainbow.matching.model.budget import Budget, MatchesAll
from rainbow.matching.model.conditions import Matcher, matchers
from rainbow.matching.model.verdict import Backend, Prepares, Reason, Requires, Take, Verdict, Why
from rainbow.matching.plain_backend import PlainBackend
from rainbow.matching.workers.fragmentation import fragmented, free_part
from rainbow.matching.workers.held_paths import at_numbers, meet, numbered
from rainbow.matching.workers.occupancy import Occupancy
from rainbow.matching.workers.proof import (
    certified,
    faults_of,
    faults_of_refutations,
    occupied,
    others_on,
    refuted,
    rows_of_amounts,
    take_beside,
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
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.explain.smallest_change import smallest_change

backends: Registry[Backend] = Registry("rainbow.backends")
backends.add("index")(IndexBackend())
backends.add("networkx")(PlainBackend())
backends.add_later("fluxion", "rainbow.fluxion.backend:FluxionBackend")

DEFAULT_BACKEND = "index"


def match(
    request: Request, clusters: Iterable[Cluster], backend: str = DEFAULT_BACKEND, budget: Budget | None = None
) -> Sequence[Verdict]:
    """Return the verdict on every cluster, as if it were empty, in order of name.

    Without a budget the default number of steps ends a search, whatever time they take.
    """
    chosen, given = backends.get(backend), clusters if isinstance(clusters, Sequence) else list(clusters)
    if not isinstance(chosen, MatchesAll):
        return [_of(chosen.match(request, cluster), cluster) for cluster in _ordered(given)]
    found = chosen.match_all(request, given, budget)
    if isinstance(found, list) and len(found) == len(given):
        return [_of(verdict, cluster) for verdict, cluster in zip(found, _ordered(given), strict=True)]
    return found


def _ordered(clusters: Iterable[Cluster]) -> list[Cluster]:
    return sorted(clusters, key=attrgetter("sort_key"))


def _of(verdict: Verdict, cluster: Cluster) -> Verdict:
    """Let a verdict know its cluster; what a plug-in returns instead of one is not ours to mend."""
    return verdict.of(cluster) if isinstance(verdict, Verdict) else verdict


def __getattr__(name: str) -> Any:
    """Import what few ask for when it is asked for."""
    if name != "smallest_change":
        raise AttributeError(f"module 'rainbow.matching' has no attribute {name!r}")
    from rainbow.matching.explain import smallest_change

    return smallest_change.smallest_change


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
