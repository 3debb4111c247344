"""Backend `fluxion`: the verdict is Fluxion's, the take is what it allocated, and the certificate's check proves it.

request ─► canonical jobspec ─┐                 ┌─► satisfiable: the verdict
                              ├─► the library ──┤
cluster ─► JGF ───────────────┘                 └─► R ─► our search, all but R held ─► take ─► certificate's check

What cannot be put to Fluxion is refused in words. Where it gives no answer, the cluster is undecided.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rainbow.fluxion.documents import NotAllocated, graph_of, held_by_others, jobspec_of
from rainbow.fluxion.helper import Helper, NoAnswer
from rainbow.matching import faults_of, take_beside
from rainbow.matching.model.base_units import variants_on
from rainbow.matching.model.layout import ClusterLayout, layout
from rainbow.matching.model.verdict import Reason, Take, Verdict, Why
from rainbow.matching.solution import totals_of, units_of

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request

MOST_COPIES = 100  # `fits` stops counting there and says "at least"


class FluxionBackend:
    """Asks the library in a process beside this one."""

    def __init__(self) -> None:
        self._helper = Helper()

    def require(self) -> None:
        """Return if the library can be used; NoLibrary says why not."""
        self._helper.ask({})

    def match(self, request: Request, cluster: Cluster) -> Verdict:
        """Return whether a cluster, empty, can run a request: the first variant that Fluxion can satisfy decides."""
        laid_out = layout(cluster)
        try:
            for answer, held in self._answers(request, laid_out, graph_of(laid_out), MOST_COPIES):
                take = proven(request, cluster, held)
                totals = totals_of(take, laid_out.worker_type)
                fits, units = len(answer["allocated"]), units_of(totals, laid_out.pools)
                return Verdict(cluster.name, True, fits, bool(answer["exact"]), totals, take, units=units)
        except (NoAnswer, NotAllocated) as fault:
            return Verdict(cluster.name, None, reason=Reason(Why.UNDECIDED, f"backend fluxion: {fault}"))
        return Verdict(cluster.name, False, reason=Reason(Why.VERTEX_TOO_SMALL, "Fluxion: not satisfiable"))

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy holds when only these workers are free; None if it cannot run there."""
        laid_out = layout(cluster)
        try:
            for _, held in self._answers(request, laid_out, graph_of(laid_out, workers), 1):
                return proven(request, cluster, held)
        except (NoAnswer, NotAllocated):
            return None
        return None

    def _answers(self, request: Request, laid_out: ClusterLayout, graph: str, most: int) -> Any:
        """Yield the answer for each variant that can be satisfied, with what of the cluster it leaves to others."""
        for resources in variants_on(request, laid_out.pools):
            answer = self._helper.ask({"graph": graph, "jobspec": jobspec_of(request, resources), "most": most})
            if not isinstance(answer.get("satisfiable"), bool) or not isinstance(answer.get("allocated"), list):
                raise NoAnswer(f"an answer that is none: {json.dumps(answer)[:100]}")
            if answer["satisfiable"]:
                if not answer["allocated"]:
                    raise NotAllocated("it is satisfiable, and nothing was allocated")
                yield answer, held_by_others(str(answer["allocated"][0]), laid_out)


def proven(request: Request, cluster: Cluster, held: dict[str, int | None]) -> Take:
    """Return what one copy takes of what Fluxion allocated; NotAllocated where that does not meet the request."""
    take = take_beside(request, cluster, held)
    if take is None:
        raise NotAllocated("what it allocated does not meet the request")
    faults = faults_of(request, cluster, take.certificate(), held)
    if faults:
        raise NotAllocated(f"what it allocated does not meet the request: {faults[0]}")
    return replace(take)
