"""The backend `networkx`: the plain depth-first search over a cluster's graph, as the contract reads.

quick check ─► counted bound ─► depth-first search ─► the vertices taken, lowest first
     │               │                 │
     └───────────────┴─────────────────┴─► a Reason, see explain.py
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from rainbow.matching import strict
from rainbow.matching.answer import Piece, settle, take_of, totals_of
from rainbow.matching.apart import cannot_collide
from rainbow.matching.budget import FREE, STEPS, Budget, Meter, OutOfBudgetError
from rainbow.matching.constraints import barred
from rainbow.matching.copies import counted, repeat
from rainbow.matching.explain import collision, shortfall, undecided
from rainbow.matching.layout import Layout, layout
from rainbow.matching.search import Search
from rainbow.matching.taken import Taken
from rainbow.matching.totals import quick_check
from rainbow.matching.verdict import Reason, Take, Verdict, Why
from rainbow.matching.walked import Walked

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource

MOST_LOOKED_AT = 20_000  # vertices that counting `fits` by taking may look at; then it says "at least"


class Walk:
    """Answers by walking the graph; needs no preparation, costs what the graph is large."""

    def match_all(
        self, request: Request, clusters: Sequence[Cluster], budget: Budget | None = None
    ) -> Sequence[Verdict]:
        """Say of every cluster, empty, whether it can run `request`; in order of name."""
        ordered = sorted(clusters, key=attrgetter("sort_key"))
        by_size = sorted(range(len(ordered)), key=lambda place: sum(ordered[place].outline.numbers.values()))
        budget = budget or STEPS
        later = partial(budget.later, len(ordered))
        found = budget.decide(by_size, lambda place, meter: self.match(request, ordered[place], meter, later))
        return [found[place] for place in range(len(ordered))]

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
            return strict.match(request, cluster, meter, later)
        refusals: list[Reason] = []
        for resources, part in zip(request.variants, meter.divided(len(request.variants)), strict=True):
            found = self._match_one(request, resources, layout(cluster), part, later)
            if isinstance(found, Verdict):
                return found
            refusals.append(found)
        return refused(cluster.name, refusals)

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy holds when only `workers` (names) are free; None if it cannot run there."""
        if cluster.levels == "strict":
            return strict.take(request, cluster, workers)
        laid_out = layout(cluster)
        busy = [i for i in laid_out.workers if laid_out.worker_names[i] not in workers]
        for resources in request.variants:
            taken = Taken(laid_out, barred(request.constraint, laid_out), busy)
            found = search(resources, laid_out, taken, FREE if cannot_collide(resources, laid_out) else None)
            if isinstance(found, tuple):
                return found[0]
        return None

    def _match_one(
        self,
        request: Request,
        resources: tuple[Resource, ...],
        laid_out: Layout,
        meter: Meter,
        later: Callable[[], Meter],
    ) -> Verdict | Reason:
        try:
            reason = quick_check(resources, laid_out.by_type, laid_out)
            if reason:
                return reason
            apart = cannot_collide(resources, laid_out, meter)
            meter = meter.timed if apart else meter
            taken = Taken(laid_out, barred(request.constraint, laid_out, meter))
            found = shortfall(resources, Walked(laid_out, taken, meter)) or search(resources, laid_out, taken, meter)
        except OutOfBudgetError:
            return undecided()
        if isinstance(found, Reason):
            return found
        take, pieces = found
        totals = totals_of(take, laid_out.worker_type)
        fits, exact = copies_of(resources, laid_out, taken, pieces, later())
        return Verdict(laid_out.name, True, fits, exact, totals, take)


def refused(cluster: str, reasons: Sequence[Reason]) -> Verdict:
    """Return the verdict on a cluster that no variant is known to fit: undecided if one of them is, else no."""
    open_ones = [reason for reason in reasons if reason.why is Why.UNDECIDED]
    return Verdict(cluster, None if open_ones else False, reason=[*open_ones, *reasons][0])


def copies_of(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Taken, pieces: list[Piece], meter: Meter
) -> tuple[int, bool]:
    """Count how many copies fit: in closed form where there is one, else by taking them."""
    copies = counted(resources, laid_out, taken)
    return taken_copies(resources, laid_out, taken, pieces, meter) if copies is None else (copies, True)


def search(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Taken, meter: Meter | None = None
) -> tuple[Take, list[Piece]] | Reason:
    """Find one copy on what is not taken; `taken` is as before afterwards."""
    search = Search(laid_out, taken, meter or STEPS.share())
    answer: list[list[Piece]] = []

    def settled() -> bool:
        pieces = settle(search)
        answer.extend([pieces] if pieces is not None else [])
        return pieces is not None

    try:
        if not search.meet(resources, settled):
            return collision(resources)
        return take_of(search, answer[0]), answer[0]
    except OutOfBudgetError:
        return undecided()
    finally:
        taken.undo(0)


def taken_copies(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Taken, pieces: list[Piece], meter: Meter = FREE
) -> tuple[int, bool]:
    """Count successive takes, each repeated as often as its vertices allow; holds end with their copy."""
    copies = looked_at = 0
    while pieces and looked_at < MOST_LOOKED_AT:
        copies += repeat(taken, laid_out, pieces)
        looked_at += laid_out.size + len(pieces)
        found = search(resources, laid_out, taken, meter)
        if isinstance(found, Reason):
            return copies, found.why is not Why.UNDECIDED
        pieces = found[1]
    return max(copies, 1), False
