"""The best assignment of many jobs to clusters, by scipy's milp (extra `optimal`).

    minimise    Σ (w[g,c] − (n + 1)) · x[g,c]      x[g,c]: how many jobs of group g go to cluster c
    subject to  Σ_c x[g,c] ≤ jobs of g             Σ_g nodes[g,c] · x[g,c] ≤ nodes_free[c]

Jobs with equal offers are one group. w are the costs scaled to 0..1, so that n jobs placed at the worst place still
weigh less than one job not placed: the most jobs first, then the least sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from rainbow.graph.order import natural
from rainbow.selection.assigning import Offer

MAX_VARIABLES = 200_000
ALLOWED = 1e-6  # how far from whole a variable may be

Key = tuple[tuple[tuple[str, float], ...], tuple[tuple[str, int], ...]]
Pair = tuple[int, str]  # group, cluster


def solve(
    offers: Sequence[Offer], free: Mapping[str, int], seconds: float
) -> tuple[tuple[str | None, ...] | None, str]:
    """Return a cluster per job and what is known of it; None if nothing was found, with the reason."""
    groups = _groups(offers)
    members = list(groups.values())
    pairs = [(g, name) for g, at in enumerate(members) for name in sorted(offers[at[0]].costs, key=natural)]
    if not pairs:
        return None, "no job has this variable anywhere"
    if len(pairs) > MAX_VARIABLES:
        return None, f"{len(pairs)} variables, at most {MAX_VARIABLES} are tried"
    counts, status = _solved(offers, members, pairs, free, seconds)
    if counts is None:
        return None, status
    return _dealt_out(len(offers), members, pairs, counts), status


def _groups(offers: Sequence[Offer]) -> dict[Key, list[int]]:
    groups: dict[Key, list[int]] = {}
    for at, offer in enumerate(offers):
        key = tuple(sorted(offer.costs.items())), tuple(sorted(offer.takes.items()))
        groups.setdefault(key, []).append(at)
    return groups


def _solved(
    offers: Sequence[Offer], members: list[list[int]], pairs: list[Pair], free: Mapping[str, int], seconds: float
) -> tuple[list[int] | None, str]:
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        return None, "scipy is not installed"
    rows, most = _constraints(offers, members, pairs, free)
    found = milp(
        _weights(offers, members, pairs),
        integrality=np.ones(len(pairs)),
        bounds=Bounds(0, np.array([len(members[g]) for g, _ in pairs])),
        constraints=LinearConstraint(rows, ub=most),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if found.x is None:
        return None, str(found.message)
    counts = np.rint(found.x)
    if np.abs(counts - found.x).max() > ALLOWED or (rows @ counts > most).any():
        return None, "what was found is not whole"
    return counts.astype(int).tolist(), "optimal" if found.status == 0 else f"the best of {seconds:g} s"


def _weights(offers: Sequence[Offer], members: list[list[int]], pairs: list[Pair]) -> Any:
    costs = np.array([offers[members[g][0]].costs[name] for g, name in pairs])
    span = costs.max() - costs.min()
    scaled = (costs - costs.min()) / span if np.isfinite(span) and span > 0 else np.zeros_like(costs)
    return scaled - (len(offers) + 1)


def _constraints(
    offers: Sequence[Offer], members: list[list[int]], pairs: list[Pair], free: Mapping[str, int]
) -> tuple[Any, Any]:
    from scipy.sparse import csr_array  # type: ignore[import-untyped]  # it has no types

    bounded = {name: len(members) + at for at, name in enumerate(sorted(free))}
    columns = range(len(pairs))
    of_group = [(g, column, 1) for column, (g, _) in zip(columns, pairs, strict=True)]
    of_cluster = [
        (bounded[name], column, offers[members[g][0]].takes[name])
        for column, (g, name) in zip(columns, pairs, strict=True)
        if name in bounded
    ]
    row, column, value = zip(*of_group, *of_cluster, strict=True)
    shape = (len(members) + len(bounded), len(pairs))
    most = np.array([*map(len, members), *(free[name] for name in sorted(free))], dtype=float)
    return csr_array((np.array(value, dtype=float), (row, column)), shape=shape), most


def _dealt_out(
    jobs: int, members: list[list[int]], pairs: list[Pair], counts: Sequence[int]
) -> tuple[str | None, ...]:
    """Give the clusters found for each group to its jobs, in order."""
    chosen: list[str | None] = [None] * jobs
    places: dict[int, list[str]] = {}
    for (g, name), count in zip(pairs, counts, strict=True):
        places.setdefault(g, []).extend(repeat(name, count))
    for g, names in places.items():
        for at, place in zip(members[g], names, strict=False):  # the last ones may have none
            chosen[at] = place
    return tuple(chosen)
