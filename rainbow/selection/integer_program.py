"""The best assignment of many jobs to clusters, by scipy's HiGHS (extra `optimal`).

    x[g,c]: how many jobs of group g go to cluster c;  Σ_c x[g,c] ≤ jobs of g;  Σ_g nodes[g,c] · x[g,c] ≤ free[c]
    1  most jobs:   max Σ x                       jobs that take the same are one group
    2  least sum:   min Σ cost[g,c] · x[g,c]      jobs that take and cost the same are one group; Σ x as found before

One aim after the other is solved, so that the number need not outweigh the sum: with both in one sum the solver is
lost among 200 jobs. Each aim has a bound from its relaxation, then the whole problem for a part of the time that is
left, then a search in neighbourhoods: the jobs of a few clusters and those without a place are solved again, as long
as that helps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from math import ceil, floor, fsum, inf, isfinite
from random import Random
from typing import Any

import numpy as np

from rainbow.selection.assignment import Bound, Offer, Solution, placed_of, total
from rainbow.text import natural

MAX_VARIABLES = 200_000
ALLOWED = 1e-6  # how far from whole a variable may be
SCALE = 1e4  # weights are scaled to 0..SCALE: the solver takes what differs by 1e-6 as equal
NEIGHBOURS = 4  # clusters that are solved again together
VAIN = 2  # for every cluster, so often may that gain nothing before it is given up
Clusters = tuple[str | None, ...]
Pair = tuple[int, str]  # group, cluster


def solve(
    offers: Sequence[Offer], free: Mapping[str, int], seconds: float, *, clock: Callable[[], float]
) -> Solution:
    """Return a cluster per job and what is proved of it; None if nothing was found, with the reason."""
    try:
        import scipy.optimize  # type: ignore[import-untyped]  # noqa: F401 - it has no types
    except ImportError:
        return Solution(None, "scipy is not installed")
    pairs = sum(len(offer.costs) for offer in offers)
    if not pairs:
        return Solution(None, "no job has this variable anywhere")
    if pairs > MAX_VARIABLES:
        return Solution(None, f"{pairs} variables, at most {MAX_VARIABLES} are tried")
    return _Search(offers, free, seconds, clock).solution()


@dataclass(frozen=True, slots=True)
class _Found:
    """What the solver says of one aim: counts by pair, if it found some, and what it has proved."""

    counts: list[int] | None
    least: float | None
    proved: bool


class _Model:
    """Jobs in groups, and the constraints that hold whatever the aim is."""

    def __init__(self, offers: Sequence[Offer], free: Mapping[str, int], key: Callable[[Offer], Any]) -> None:
        groups: dict[Any, list[int]] = {}
        for at, offer in enumerate(offers):
            groups.setdefault(key(offer), []).append(at)
        self.members = list(groups.values())
        self.firsts = [offers[at[0]] for at in self.members]
        self.pairs: list[Pair] = [
            (g, name) for g, offer in enumerate(self.firsts) for name in sorted(offer.costs, key=natural)
        ]
        self.rows, self.most = self._constraints(free)

    def _constraints(self, free: Mapping[str, int]) -> tuple[Any, Any]:
        from scipy.sparse import csr_array  # type: ignore[import-untyped]  # it has no types

        bounded = {name: len(self.members) + at for at, name in enumerate(sorted(free))}
        of_group = [(g, column, 1) for column, (g, _) in enumerate(self.pairs)]
        of_cluster = [
            (bounded[name], column, self.firsts[g].takes[name])
            for column, (g, name) in enumerate(self.pairs)
            if name in bounded
        ]
        row, column, value = zip(*of_group, *of_cluster, strict=True)
        shape = (len(self.members) + len(bounded), len(self.pairs))
        most = np.array([*map(len, self.members), *(free[name] for name in sorted(free))], dtype=float)
        return csr_array((np.array(value, dtype=float), (row, column)), shape=shape), most

    def weigh(self, of: Callable[[Offer, str], float]) -> Any:
        """Return the weight of every pair."""
        return np.array([of(self.firsts[g], name) for g, name in self.pairs])

    def minimise(self, weights: Any, placed: int | None, seconds: float, *, whole: bool = True) -> _Found:
        """Minimise a sum, with so many jobs placed; `whole` False: its relaxation, for the bound alone."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        upper = np.array([len(self.members[g]) for g, _ in self.pairs])
        every = np.ones((1, len(self.pairs)))
        sums = [] if placed is None else [LinearConstraint(every, placed, placed)]
        result = milp(
            weights,
            integrality=np.full(len(self.pairs), int(whole)),
            bounds=Bounds(0, upper),
            constraints=[LinearConstraint(self.rows, ub=self.most), *sums],
            options={"time_limit": max(0.0, seconds), "mip_rel_gap": 0.0},
        )
        least = result.fun if result.status == 0 else getattr(result, "mip_dual_bound", None)
        least = None if least is None or not np.isfinite(least) else float(least)
        return _Found(self._whole(result.x, placed) if whole else None, least, result.status == 0)

    def _whole(self, result: Any, placed: int | None) -> list[int] | None:
        if result is None:
            return None
        counts = np.rint(result)
        stored = (self.rows @ counts <= self.most).all() and placed in (None, counts.sum())
        return counts.astype(int).tolist() if stored and np.abs(counts - result).max() <= ALLOWED else None

    def dealt_out(self, counts: Sequence[int], jobs: int) -> Clusters:
        """Give the clusters found for each group to its jobs, in order."""
        chosen: list[str | None] = [None] * jobs
        places: dict[int, list[str]] = {}
        for (g, name), count in zip(self.pairs, counts, strict=True):
            places.setdefault(g, []).extend(repeat(name, count))
        for g, names in places.items():
            for at, place in zip(self.members[g], names, strict=False):  # the last ones may have none
                chosen[at] = place
        return tuple(chosen)


class _Aim:
    """What is minimised: a weight for every job and cluster, so many jobs placed (None: any), equal jobs by key."""

    def __init__(self, weigh: Callable[[Offer, str], float], placed: int | None, key: Callable[[Offer], Any]) -> None:
        self.weigh = weigh
        self.placed = placed
        self.key = key

    def of(self, offers: Sequence[Offer], clusters: Clusters) -> float:
        """Return what an assignment is worth, less is better."""
        return fsum(self.weigh(offer, name) for offer, name in zip(offers, clusters, strict=True) if name)


class _Search:
    """One aim after the other, within the time there is."""

    def __init__(
        self, offers: Sequence[Offer], free: Mapping[str, int], seconds: float, clock: Callable[[], float]
    ) -> None:
        self._offers = offers
        self._free = free
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds
        self._rng = Random(0)  # noqa: S311 - where to look next, no secret

    def _left(self) -> float:
        return max(0.0, self._end - self._clock())

    def solution(self) -> Solution:
        """Place the most jobs, then those at the least sum."""
        clusters, least, most = self._solved(
            _Aim(_minus_one, None, _takes), _smallest_first(self._offers, self._free)
        )
        placed = placed_of(clusters)
        weigh, unit, offset = _weigher(self._offers)
        clusters, least_sum, cheapest = self._solved(_Aim(weigh, placed, _alike), clusters)
        at_most = placed if most else floor(ALLOWED - least)
        sum_ = total(clusters, self._offers)
        ranked = sum(offer.ranks.get(name, 0) for offer, name in zip(self._offers, clusters, strict=True) if name)
        bound = (least_sum - ranked * SCALE * (len(self._offers) + 1)) / SCALE * unit + offset * placed
        status = "optimal" if most and cheapest else f"the best of {self._seconds:g} s"
        return Solution(clusters, status, Bound(at_most, placed, sum_ if cheapest else min(sum_, bound)))

    def _solved(self, aim: _Aim, known: Clusters) -> tuple[Clusters, float, bool]:
        """Return the best assignment that is found, a bound on what it is worth, and whether that is proved."""
        model = _Model(self._offers, self._free, aim.key)
        weights = model.weigh(aim.weigh)
        relaxed = model.minimise(weights, aim.placed, max(self._left(), 1.0), whole=False).least
        least = float("-inf") if relaxed is None else relaxed
        if aim.placed is None:
            least = float(ceil(least - ALLOWED)) if relaxed is not None else -float(len(self._offers))
            known = self._improved(aim, known, least, self._left() / 4)
        if aim.of(self._offers, known) <= least:
            return known, least, True
        result = model.minimise(weights, aim.placed, self._left() / (2 if aim.placed is None else 3))
        if result.counts is not None:
            known = min(known, model.dealt_out(result.counts, len(self._offers)), key=partial(aim.of, self._offers))
        least = max(least, least if result.least is None else result.least)
        if result.proved and result.counts is not None:
            return known, least, True
        return self._improved(aim, known, least, self._left() / (4 if aim.placed is None else 1)), least, False

    def _improved(self, aim: _Aim, known: Clusters, least: float, seconds: float) -> Clusters:
        """Solve a few clusters at a time again, until nothing is gained by it for long."""
        names = sorted({name for offer in self._offers for name in offer.costs}, key=natural)
        end, vain = self._clock() + seconds, 0
        while vain < VAIN * len(names) and self._clock() < end and aim.of(self._offers, known) > least:
            among = set(self._rng.sample(names, min(NEIGHBOURS, len(names))))
            better = self._solved_again(aim, known, among, end - self._clock())
            vain = 0 if aim.of(self._offers, better) < aim.of(self._offers, known) else vain + 1
            known = better if not vain else known
        return known

    def _solved_again(self, aim: _Aim, known: Clusters, among: Collection[str], seconds: float) -> Clusters:
        """Solve again what is at some clusters, and what is nowhere."""
        ats = [at for at, name in enumerate(known) if name is None or name in among]
        offers = [self._offers[at].only(among) for at in ats]
        if not any(offer.costs for offer in offers):
            return known
        model = _Model(offers, {name: free for name, free in self._free.items() if name in among}, aim.key)
        placed = None if aim.placed is None else placed_of([known[at] for at in ats])
        result = model.minimise(model.weigh(aim.weigh), placed, seconds)
        if result.counts is None:
            return known
        instead = dict(zip(ats, model.dealt_out(result.counts, len(ats)), strict=True))
        return tuple(instead.get(at, name) for at, name in enumerate(known))


def _minus_one(_: Offer, __: str) -> float:
    return -1.0


def _takes(offer: Offer) -> Any:
    return tuple(sorted(offer.takes.items()))


def _alike(offer: Offer) -> Any:
    return tuple(tuple(sorted(values.items())) for values in (offer.takes, offer.costs, offer.ranks))


def _weigher(offers: Sequence[Offer]) -> tuple[Callable[[Offer, str], float], float, float]:
    """Return the weight of a job at a cluster, and what 1 and 0 of its scaled cost stand for.

    Ranks come first: all jobs at their dearest clusters weigh less than one rank.
    """
    costs = [cost for offer in offers for cost in offer.costs.values()]
    span = max(costs) - min(costs)
    unit, offset = (span, min(costs)) if isfinite(span) and span > 0 else (1.0, min(costs))
    rank = SCALE * (len(offers) + 1)
    if not isfinite(span) or not span:
        return lambda offer, name: rank * offer.ranks.get(name, 0), unit, offset
    return (
        lambda offer, name: (offer.costs[name] - offset) / unit * SCALE + rank * offer.ranks.get(name, 0),
        unit,
        offset,
    )


def _smallest_first(offers: Sequence[Offer], free: Mapping[str, int]) -> Clusters:
    """Place the jobs that take least first, each where it leaves the least room that it fits in."""
    remaining: dict[str, float] = dict(free)
    chosen: list[str | None] = [None] * len(offers)
    for at in sorted(range(len(offers)), key=lambda at: min(offers[at].takes.values(), default=0)):
        takes = offers[at].takes
        fitting = [name for name in offers[at].costs if remaining.get(name, inf) >= takes[name]]
        chosen[at] = name = min(
            fitting, key=lambda name: (remaining.get(name, inf) - takes[name], name), default=None
        )
        if name in remaining:
            remaining[name] -= takes[name]
    return tuple(chosen)
