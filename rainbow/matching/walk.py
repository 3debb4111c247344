"""The backend `networkx`: the plain depth-first search over a cluster's graph, as the contract reads.

quick check ─► counted bound ─► depth-first search ─► the vertices taken, lowest first
     │               │                 │
     └───────────────┴─────────────────┴─► a Reason, see explain.py
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from rainbow.matching import strict
from rainbow.matching.answer import Piece, settle, take_of, totals_of
from rainbow.matching.apart import cannot_collide
from rainbow.matching.constraints import barred
from rainbow.matching.copies import counted, repeat
from rainbow.matching.explain import collision, out_of_budget, shortfall
from rainbow.matching.layout import Layout, layout
from rainbow.matching.search import BUDGET, Allowance, OutOfBudgetError, Search
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

    def match_all(self, request: Request, clusters: Sequence[Cluster]) -> Sequence[Verdict]:
        """Say of every cluster, empty, whether it can run `request`; in order of name."""
        allowance = Allowance()
        return [self.match(request, c, allowance) for c in sorted(clusters, key=attrgetter("sort_key"))]

    def match(self, request: Request, cluster: Cluster, allowance: Allowance | None = None) -> Verdict:
        """Say whether `cluster`, empty, can run `request`: the first variant that it can run decides."""
        if cluster.levels == "strict":
            return strict.match(request, cluster)
        laid_out = layout(cluster)
        refusal: Reason | None = None
        for resources in request.variants:
            verdict = self._match_one(request, resources, laid_out, allowance)
            if verdict.matched:
                return verdict
            refusal = refusal or verdict.reason
        return Verdict(cluster.name, False, reason=refusal)

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy holds when only `workers` (names) are free; None if it cannot run there."""
        if cluster.levels == "strict":
            return strict.take(request, cluster, workers)
        laid_out = layout(cluster)
        busy = [i for i in laid_out.workers if laid_out.worker_names[i] not in workers]
        for resources in request.variants:
            taken = Taken(laid_out, barred(request.constraint, laid_out), busy)
            found = search(resources, laid_out, taken, None if cannot_collide(resources, laid_out) else BUDGET)
            if isinstance(found, tuple):
                return found[0]
        return None

    def _match_one(
        self, request: Request, resources: tuple[Resource, ...], laid_out: Layout, allowance: Allowance | None
    ) -> Verdict:
        name = laid_out.name
        reason = quick_check(resources, laid_out.by_type, laid_out)
        if reason:
            return Verdict(name, False, reason=reason)
        taken = Taken(laid_out, barred(request.constraint, laid_out))
        reason = shortfall(resources, Walked(laid_out, taken))
        if reason:
            return Verdict(name, False, reason=reason)
        budget = None if cannot_collide(resources, laid_out) else BUDGET
        found = search(resources, laid_out, taken, budget, allowance)
        if isinstance(found, Reason):
            return Verdict(name, False, reason=found)
        take, pieces = found
        totals = totals_of(take, laid_out.worker_type)
        fits, exact = copies_of(resources, laid_out, taken, pieces)
        return Verdict(name, True, fits, exact, totals, take)


def copies_of(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Taken, pieces: list[Piece]
) -> tuple[int, bool]:
    """Count how many copies fit: in closed form where there is one, else by taking them."""
    copies = counted(resources, laid_out, taken)
    return taken_copies(resources, laid_out, taken, pieces) if copies is None else (copies, True)


def search(
    resources: tuple[Resource, ...],
    laid_out: Layout,
    taken: Taken,
    budget: int | None = BUDGET,
    allowance: Allowance | None = None,
) -> tuple[Take, list[Piece]] | Reason:
    """Find one copy on what is not taken; `taken` is as before afterwards. `budget` None: as long as it takes."""
    most = budget if budget is None or allowance is None else min(budget, allowance.left)
    search = Search(laid_out, taken, most)
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
        return out_of_budget(most or 0)
    finally:
        taken.undo(0)
        if most is not None and allowance is not None:
            allowance.left -= most - max(0, int(search.budget))


def taken_copies(
    resources: tuple[Resource, ...], laid_out: Layout, taken: Taken, pieces: list[Piece]
) -> tuple[int, bool]:
    """Count successive takes, each repeated as often as its vertices allow; holds end with their copy."""
    copies = looked_at = 0
    allowance = Allowance()
    while pieces and looked_at < MOST_LOOKED_AT:
        copies += repeat(taken, laid_out, pieces)
        looked_at += laid_out.size + len(pieces)
        found = search(resources, laid_out, taken, BUDGET, allowance)
        if isinstance(found, Reason):
            return copies, found.why is not Why.BUDGET
        pieces = found[1]
    return max(copies, 1), False
