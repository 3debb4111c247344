"""Request × clusters → verdicts, each refusal with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from rainbow.matching.hosting import hosting_kinds
from rainbow.matching.index import Index
from rainbow.matching.layout import OUTSIDE, layout
from rainbow.matching.needs import Matcher, matchers
from rainbow.matching.showing import shown, shown_explained
from rainbow.matching.smaller import smallest_change
from rainbow.matching.verdict import Backend, Reason, Take, Verdict, Why
from rainbow.matching.walk import Walk
from rainbow.plugins import Registry

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request

backends: Registry[Backend] = Registry("rainbow.backends")
backends.add("index")(Index())
backends.add("networkx")(Walk())

DEFAULT_BACKEND = "index"


def match(request: Request, clusters: Iterable[Cluster], backend: str = DEFAULT_BACKEND) -> Sequence[Verdict]:
    """Say of every cluster whether it, empty, can run the request; in order of name."""
    chosen, given = backends.get(backend), clusters if isinstance(clusters, list) else list(clusters)
    if isinstance(chosen, Index):
        return chosen.match_all(request, given)
    return [chosen.match(request, cluster) for cluster in sorted(given, key=attrgetter("sort_key"))]


def worker_capacity(cluster: Cluster) -> dict[str, dict[str, int]]:
    """{worker: {type: size of all its vertices of that type}}, in natural order of workers."""
    laid_out = layout(cluster)
    capacity: dict[str, dict[str, int]] = {}
    for start in laid_out.workers:
        sums = capacity.setdefault(laid_out.worker_names[start], {})
        for i in range(start, laid_out.last[start]):
            sums[laid_out.types[i]] = sums.get(laid_out.types[i], 0) + laid_out.sizes[i]
    return capacity


def consumables(cluster: Cluster) -> dict[str, int]:
    """{type: size of all its vertices that lie outside every worker}: racks, storage, licences."""
    laid_out = layout(cluster)
    sums: dict[str, int] = {}
    for i, kind in enumerate(laid_out.types):
        if laid_out.worker[i] == OUTSIDE:
            sums[kind] = sums.get(kind, 0) + laid_out.sizes[i]
    return sums


def worker_kinds(cluster: Cluster) -> dict[str, str]:
    """{worker: its kind}; workers of one kind are equal in everything that matching looks at."""
    laid_out = layout(cluster)
    return {laid_out.worker_names[i]: str(laid_out.kinds[i]) for i in laid_out.workers}


__all__ = [
    "Backend",
    "Matcher",
    "Reason",
    "Take",
    "Verdict",
    "Why",
    "backends",
    "consumables",
    "hosting_kinds",
    "match",
    "matchers",
    "shown",
    "shown_explained",
    "smallest_change",
    "worker_capacity",
    "worker_kinds",
]
