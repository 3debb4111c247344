"""Takes that need a search over the whole cluster: what is not taken is laid out anew for each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rainbow.matching import strict
from rainbow.matching.apart import cannot_collide
from rainbow.matching.budget import FREE
from rainbow.matching.constraints import barred
from rainbow.matching.holding import Holding
from rainbow.matching.layout import layout
from rainbow.matching.strict_traversal import Held, Traversal
from rainbow.matching.taken import Taken
from rainbow.matching.verdict import Reason
from rainbow.matching.walk import search

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.answer import Piece
    from rainbow.matching.layout import ClusterLayout
    from rainbow.matching.stand import Amounts, Part
    from rainbow.matching.verdict import Take
    from rainbow.matching.workers import Workers


def take_strict(request: Request, cluster: Cluster, holdings: Iterable[Holding]) -> Holding | None:
    """Take one copy as Fluxion would."""
    laid_out, held = layout(cluster), Held()
    for holding in holdings:
        held.take(holding.found, laid_out)
    for resources in request.variants:
        found = strict.find(Traversal(laid_out, request.constraint, held), resources)
        if found:
            return Holding((), partial(strict.take_of, found, laid_out), found=found)
    return None


def take_any(request: Request, cluster: Cluster, workers: Workers, holdings: Collection[Holding]) -> Holding | None:
    """Take one copy of any request by the plain search."""
    laid_out = layout(cluster)
    taken = Taken(laid_out, barred(request.constraint, laid_out))
    starts = sorted(laid_out.workers) if workers.are_apart else []
    for holding in holdings:
        _retake(taken, holding, starts)
    taken.keep()
    for resources in request.variants:
        found = search(resources, laid_out, taken, FREE if cannot_collide(resources, laid_out) else None)
        if not isinstance(found, Reason):
            return _held(found[0], found[1], laid_out, workers, starts)
    return None


def _retake(taken: Taken, holding: Holding, starts: list[int]) -> None:
    for i, amount, whole in (*holding.elsewhere, *_positions(holding.parts, starts)):
        if taken.layout.worker[i] in taken.barred:
            taken.touch(i)  # it offers nothing as it is
        elif whole:
            taken.take_whole(i)
        else:
            taken.promise(i, taken.layout.pool(i), amount)


def _positions(parts: Iterable[tuple[int, Part]], starts: list[int]) -> Iterable[tuple[int, int, bool]]:
    for worker, part in parts:
        for i, amount, whole in sorted(part.amounts, key=lambda held: not held[2]):
            yield starts[worker] + i, amount, whole


def _held(take: Take, pieces: list[Piece], laid_out: ClusterLayout, workers: Workers, starts: list[int]) -> Holding:
    """Divide what was found among workers and what lies elsewhere."""
    number = {start: worker for worker, start in enumerate(starts)}
    amounts: dict[tuple[int, bool], int] = {}
    for piece in pieces:
        key = (piece.position, piece.whole)
        amounts[key] = amounts.get(key, 0) + piece.amount
    wholes = [i for i, whole in amounts if whole and laid_out.worker[i] not in number]
    elsewhere: list[tuple[int, int, bool]] = []
    inside: dict[int, list[tuple[int, int, bool]]] = {}
    for (i, whole), amount in sorted(amounts.items(), key=lambda held: (not held[0][1], held[0][0])):
        start = laid_out.worker[i]
        if start not in number:
            elsewhere.append((i, amount, whole))
        elif not any(top <= start < laid_out.last[top] for top in wholes):
            inside.setdefault(number[start], []).append((i - start, amount, whole))
    parts = [(worker, _part(workers, worker, tuple(sorted(held)))) for worker, held in sorted(inside.items())]
    blocked = sorted({w for top in wholes for w in range(len(starts)) if top <= starts[w] < laid_out.last[top]})
    return Holding(
        parts,
        lambda: take,
        [(worker, _part(workers, worker, ((0, laid_out.amount(starts[worker]), True),))) for worker in blocked],
        elsewhere,
    )


def _part(workers: Workers, worker: int, amounts: Amounts) -> Part:
    return workers.stands[worker].part(amounts)
