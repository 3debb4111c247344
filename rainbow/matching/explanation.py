"""All there is to say about a cluster's verdict, as JSON: what was looked for and found, and what would do."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from rainbow.matching.rset import paths, resource_set
from rainbow.matching.smaller import cost, smallest_change
from rainbow.matching.tree import sought

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.verdict import Backend, Take, Verdict

MOST_PROBES = 2_000  # matches that the changes of one query may cost; clusters later in the order go without


class _Metered:
    """A backend that counts what it is asked."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.asked = 0

    def match(self, request: Request, cluster: Cluster) -> Verdict:
        """Say whether `cluster` can run `request`."""
        verdict = self.backend.match(request, cluster)
        self.asked += cost(request, verdict)
        return verdict

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy holds."""
        return self.backend.take(request, cluster, workers)


def explanations(
    request: Request, clusters: Iterable[Cluster], verdicts: Iterable[Verdict], backend: Backend
) -> dict[str, dict[str, Any]]:
    """Explain verdicts by cluster: `tree`; with a take `paths` and `R`; of a refusal `change` (None: none found)."""
    by_name = {cluster.name: cluster for cluster in clusters}
    metered = _Metered(backend)
    return {v.cluster: _explained(request, by_name[v.cluster], v, metered) for v in verdicts}


def _explained(request: Request, cluster: Cluster, verdict: Verdict, backend: _Metered) -> dict[str, Any]:
    tree = {"tree": [part.document() for part in sought(request, cluster, verdict)]}
    if verdict.take:
        return {**tree, "paths": paths(verdict.take, cluster), "R": resource_set(verdict.take, cluster)}
    if verdict.matched or backend.asked >= MOST_PROBES:
        return tree
    found = smallest_change(cluster, request, backend)
    return {**tree, "change": found.document() if found else None}
