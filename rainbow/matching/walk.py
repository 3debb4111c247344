"""The backend `networkx`: the plain depth-first search over a cluster's graph, as the contract reads.

quick check ─► counted bound ─► depth-first search ─► the vertices taken, lowest first
     │               │                 │
     └───────────────┴─────────────────┴─► a Reason, see explain.py
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from rainbow.matching.answer import Piece, settle, take_of, totals_of
from rainbow.matching.bound import Bound
from rainbow.matching.constraints import barred
from rainbow.matching.explain import collision, out_of_budget, shortfall
from rainbow.matching.layout import Layout, layout
from rainbow.matching.search import BUDGET, OutOfBudgetError, Search
from rainbow.matching.taken import Taken
from rainbow.matching.totals import quick_check
from rainbow.matching.verdict import Reason, Take, Verdict

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource

MOST_COPIES = 1_000  # `fits` stops counting there and says "at least"


class Walk:
    """Answers by walking the graph; needs no preparation, costs what the graph is large."""

    def match(self, request: Request, cluster: Cluster) -> Verdict:
        """Say whether `cluster`, empty, can run `request`: the first variant that it can run decides."""
        laid_out = layout(cluster)
        refusal: Reason | None = None
        for resources in request.variants:
            verdict = self._match_one(request, resources, laid_out)
            if verdict.matched:
                return verdict
            refusal = refusal or verdict.reason
        return Verdict(cluster.name, False, reason=refusal)

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy holds when only `workers` (names) are free; None if it cannot run there."""
        laid_out = layout(cluster)
        busy = [i for i in laid_out.workers if laid_out.worker_names[i] not in workers]
        for resources in request.variants:
            taken = Taken(laid_out, barred(request.constraint, laid_out), busy)
            found = _search(resources, laid_out, taken)
            if isinstance(found, tuple):
                return found[0]
        return None

    def _match_one(self, request: Request, resources: tuple[Resource, ...], laid_out: Layout) -> Verdict:
        name = laid_out.cluster.name
        reason = quick_check(resources, laid_out.cluster, laid_out)
        if reason:
            return Verdict(name, False, reason=reason)
        taken = Taken(laid_out, barred(request.constraint, laid_out))
        reason = shortfall(request, resources, laid_out, taken)
        if reason:
            return Verdict(name, False, reason=reason)
        found = _search(resources, laid_out, taken)
        if isinstance(found, Reason):
            return Verdict(name, False, reason=found)
        take, pieces = found
        verdict = Verdict(name, True, totals=totals_of(take, laid_out.cluster.worker_type), take=take)
        copies, exact = _copies(resources, laid_out, taken, pieces)
        return replace(verdict, fits=copies, exact=exact)


def _search(resources: tuple[Resource, ...], laid_out: Layout, taken: Taken) -> tuple[Take, list[Piece]] | Reason:
    """Find one copy on what is not taken; `taken` is as before afterwards."""
    search = Search(laid_out, taken, BUDGET)
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
        return out_of_budget(BUDGET)
    finally:
        taken.undo(0)


def _copies(resources: tuple[Resource, ...], laid_out: Layout, taken: Taken, pieces: list[Piece]) -> tuple[int, bool]:
    """Count successive takes, each repeated as often as its vertices allow; holds end with their copy."""
    copies = 0
    while pieces and copies < MOST_COPIES:
        copies += _repeat(taken, laid_out, pieces)
        if not all(Bound(laid_out, taken).available(r, 0, 0, enough=r.count.min) >= r.count.min for r in resources):
            return copies, True
        found = _search(resources, laid_out, taken)
        if isinstance(found, Reason):
            return copies, not found.why.startswith("budget")
        pieces = found[1]
    return max(copies, 1), False


def _repeat(taken: Taken, laid_out: Layout, pieces: list[Piece]) -> int:
    """Take the same pieces as often as they are there, for good; return how often."""
    amounts: dict[int, int] = {}
    for piece in pieces:
        amounts[piece.position] = amounts.get(piece.position, 0) + piece.amount
    whole = {piece.position for piece in pieces if piece.whole}
    inside = {i for i in amounts for top in whole if top < i < laid_out.last[top]}
    parts = {i: n for i, n in amounts.items() if i not in whole and i not in inside}
    times = 1 if whole else min(taken.room(i, laid_out.pool(i)) // n for i, n in parts.items())
    for i, n in parts.items():
        taken.promise(i, laid_out.pool(i), n * times)
    for i in sorted(whole):
        taken.take_whole(i)
    taken.keep()
    return max(times, 1)
