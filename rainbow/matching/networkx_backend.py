"""Backend `networkx`: the plain depth-first search over a cluster's graph.

quick check ─► counted bound ─► depth-first search ─► the vertices taken, lowest first
     │               │                 │
     └───────────────┴─────────────────┴─► a Reason, see reasons.py
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from rainbow.matching.fluxion import verdicts
from rainbow.matching.model.base_units import variants_on
from rainbow.matching.model.budget import FREE, STEPS, Budget, Meter, OutOfBudgetError
from rainbow.matching.model.conditions import barred
from rainbow.matching.model.layout import Layout, layout
from rainbow.matching.model.verdict import MOST_ALTERNATIVES, Reason, Take, Verdict, Why
from rainbow.matching.quick_check import quick_check
from rainbow.matching.reasons import of_variants, shortfall, undecided
from rainbow.matching.solution import copies_of, search, totals_of, units_of
from rainbow.matching.trail import Trail
from rainbow.matching.upper_bound import VertexCounts, bound_is_exact

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource


class NetworkxBackend:
    """Answers by walking the graph; needs no preparation, costs what the graph is large."""

    def match_all(
        self, request: Request, clusters: Sequence[Cluster], budget: Budget | None = None
    ) -> Sequence[Verdict]:
        """Say of every cluster, empty, whether it can run `request`; in order of name."""
        ordered = sorted(clusters, key=attrgetter("sort_key"))
        by_size = sorted(range(len(ordered)), key=lambda place: sum(ordered[place].outline.numbers.values()))
        budget = budget or STEPS
        later = partial(budget.later, len(ordered))
        result = budget.decide(by_size, lambda place, meter: self.match(request, ordered[place], meter, later))
        return [result[place] for place in range(len(ordered))]

    def prepare(self, cluster: Cluster) -> None:
        """Lay a cluster out now rather than at the first request."""
        layout(cluster)

    def match(
        self,
        request: Request,
        cluster: Cluster,
        meter: Meter | None = None,
        later: Callable[[], Meter] = STEPS.later,
    ) -> Verdict:
        """Return whether `cluster`, empty, can run `request`: the first variant that it can run decides.

        `later` gives a meter for counting how many copies fit.
        """
        meter = meter or STEPS.share()
        if cluster.levels == "strict":
            return verdicts.match(request, cluster, meter, later)
        refusals: list[Reason] = []
        with meter.standing():  # the first import of networkx, and laying a cluster out, are done once
            laid_out = layout(cluster)
        variants = variants_on(request, laid_out.pools)
        for number, (resources, part) in enumerate(zip(variants, meter.divided(len(variants)), strict=True)):
            result = self._match_one(request, number, resources, laid_out, part, later)
            if isinstance(result, Verdict):
                return result
            refusals.append(result)
        return refused(cluster.name, refusals)

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy holds when only `workers` (names) are free; None if it cannot run there."""
        if cluster.levels == "strict":
            return verdicts.take(request, cluster, workers)
        laid_out = layout(cluster)
        busy = [i for i in laid_out.workers if laid_out.worker_names[i] not in workers]
        for number, resources in enumerate(variants_on(request, laid_out.pools)):
            if quick_check(resources, laid_out.by_type, laid_out):
                continue
            taken = Trail(laid_out, barred(request.constraint, laid_out), busy)
            result = search(resources, laid_out, taken, FREE if bound_is_exact(resources, laid_out) else None)
            if isinstance(result, tuple):
                return replace(result[0], variant=number)
        return None

    def _match_one(
        self,
        request: Request,
        variant: int,
        resources: tuple[Resource, ...],
        laid_out: Layout,
        meter: Meter,
        later: Callable[[], Meter],
    ) -> Verdict | Reason:
        try:
            reason = quick_check(resources, laid_out.by_type, laid_out)
            if reason:  # told in the units that were asked for
                return quick_check(request.variants[variant], laid_out.by_type, laid_out) or reason
            apart = bound_is_exact(resources, laid_out, meter)
            meter = meter.timed if apart else meter
            taken = Trail(laid_out, barred(request.constraint, laid_out, meter))
            counts = VertexCounts(laid_out, taken, meter, request.constraint)
            result = shortfall(resources, counts) or search(resources, laid_out, taken, meter)
        except OutOfBudgetError:
            return undecided()
        if isinstance(result, Reason):
            return result
        take, rows = replace(result[0], variant=variant), result[1]
        totals = totals_of(take, laid_out.worker_type)
        fits, exact = copies_of(resources, laid_out, taken, rows, later())
        return Verdict(laid_out.name, True, fits, exact, totals, take, units=units_of(totals, laid_out.pools))


def refused(cluster: str, reasons: Sequence[Reason]) -> Verdict:
    """Return the verdict on a cluster that no variant is known to fit: undecided if one of them is, else no."""
    open_ones = [reason for reason in reasons if reason.why is Why.UNDECIDED]
    return Verdict(
        cluster, None if open_ones else False, reason=of_variants(open_ones[:1] or reasons[:MOST_ALTERNATIVES])
    )
