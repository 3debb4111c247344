"""Many jobs assigned to clusters together: in order, or by integer programming.

    offer       one job's clusters with what they cost it (the variable) and take from them (nodes)
    greedy      each job in order, as the selector decides, on what the jobs before it have left
    optimal     integer_program.py: the most jobs placed, then the least sum, within nodes_free; else greedy

A plan is carried out in two rounds: first the jobs that have a place in it, each at its place, then the jobs it
leaves out, so that none of these takes what the plan gives to others. What a plan is worth is what comes of that,
decided by the selector on what is left; so a plan is never worse than greedy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, isclose
from typing import Any, TypeVar

from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection.choice import Choice, Scalar, is_number
from rainbow.selection.expression.scalar import SAFE, summable
from rainbow.selection.select import select

N = TypeVar("N", int, float)
States = Mapping[str, Mapping[str, Scalar]]


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One job of a batch, with the selector that decides it."""

    request: Request
    verdicts: Sequence[Verdict]
    selector: str
    options: Mapping[str, Any]
    seed: int | str
    own: States = field(default_factory=dict)  # what only it is told of a cluster: when it would end there


@dataclass(frozen=True, slots=True)
class Offer:
    """Where one job may go: {cluster: cost}, {cluster: nodes it takes}; equal offers are interchangeable.

    `ranks` are {cluster: n} where n priorities that would take the job elsewhere come before the one that takes it
    there; 0 where a cluster is not named.
    """

    costs: Mapping[str, float] = field(default_factory=dict)
    takes: Mapping[str, int] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)

    def only(self, names: Collection[str]) -> Offer:
        """Return what of it is of these clusters."""
        return Offer(_of(names, self.costs), _of(names, self.takes), _of(names, self.ranks))


def _of(names: Collection[str], values: Mapping[str, N]) -> dict[str, N]:
    return {name: value for name, value in values.items() if name in names}


@dataclass(frozen=True, slots=True)
class Bound:
    """What no assignment can better: more jobs placed, or, with `at` jobs placed, a smaller sum."""

    placed: int
    at: int
    total: float


@dataclass(frozen=True, slots=True)
class Solution:
    """What a solver found: a cluster per job, or None and the reason; `bound` is what it has proved."""

    clusters: tuple[str | None, ...] | None
    status: str
    bound: Bound | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """A cluster per job, None for those without; `total` is the sum of the costs of those placed."""

    clusters: tuple[str | None, ...]
    total: float
    by: str  # greedy, optimal
    status: str = ""
    bound: Bound = Bound(0, 0, 0.0)

    @property
    def placed(self) -> int:
        """How many jobs have a cluster."""
        return placed_of(self.clusters)


Solve = Callable[[Sequence[Offer], Mapping[str, int], float], Solution]


def placed_of(clusters: Sequence[str | None]) -> int:
    """Count the jobs that have a cluster."""
    return sum(cluster is not None for cluster in clusters)


# ── offers ──────────────────────────────────────────────────────────────────────────────────────────────────


def offers_of(jobs: Sequence[BatchJob], states: States, variable: str) -> list[Offer]:
    """Return every job's offer, as if it came alone."""
    return [_offer(job, states, variable) for job in jobs]


def _offer(job: BatchJob, states: States, variable: str) -> Offer:
    """Decide a job, then again without the clusters it could have taken, as long as some priority takes it."""
    costs: dict[str, float] = {}
    ranks: dict[str, int] = {}
    verdicts, rank = job.verdicts, 0
    while open_to := _open_to(choice := _decide(replace(job, verdicts=verdicts), states)):
        results = {name: cost for name in open_to if (cost := _cost(choice, name, variable)) is not None}
        costs |= results
        ranks |= dict.fromkeys(results, rank)
        gone = set(open_to)
        verdicts, rank = [v for v in verdicts if v.matched and v.cluster not in gone], rank + 1
    takes = {verdict.cluster: _nodes(verdict) for verdict in job.verdicts if verdict.cluster in costs}
    return Offer(costs, takes, {name: rank for name, rank in ranks.items() if rank})


def _open_to(choice: Choice) -> Sequence[str]:
    """Return the clusters that the priority that decided could have taken."""
    if not choice.steps or choice.cluster is None:
        return ()
    deciding = [step for step in choice.steps if step.priority == choice.steps[-1].priority]
    return deciding[-2].survivors if len(deciding) > 1 else ()


def _cost(choice: Choice, cluster: str, variable: str) -> float | None:
    """Return what the priority that decided computed for a cluster; None if that is no number."""
    for step in reversed(choice.steps):
        if step.priority != choice.steps[-1].priority:
            break
        if step.variable == variable:
            return summable(step.values.get(cluster))
    return None


def _nodes(verdict: Verdict) -> int:
    return verdict.totals.get("nodes", 0)


def _decide(job: BatchJob, states: States) -> Choice:
    if job.own:
        states = {name: {**values, **job.own.get(name, {})} for name, values in states.items()}
    return select(job.request, job.verdicts, states, job.selector, job.options, seed=job.seed)


def total(clusters: Sequence[str | None], offers: Sequence[Offer]) -> float:
    """Return what the jobs placed cost together."""
    return fsum(offer.costs.get(cluster, 0.0) for cluster, offer in zip(clusters, offers, strict=True) if cluster)


# ── what comes of a plan ────────────────────────────────────────────────────────────────────────────────────


def greedy(jobs: Sequence[BatchJob], states: States, variable: str) -> Assignment:
    """Let the selector place each job in order; every one finds what those before it have left."""
    return _carried_out(jobs, states, variable, [None] * len(jobs), "greedy")


def _carried_out(
    jobs: Sequence[BatchJob], states: States, variable: str, places: Sequence[str | None], by: str
) -> Assignment:
    """Place the jobs of a plan at their places, then the others, each as the selector decides."""
    remaining: dict[str, dict[str, Scalar]] = {name: dict(values) for name, values in states.items()}
    chosen: list[str | None] = [None] * len(jobs)
    costs = [0.0] * len(jobs)
    at_their_places = [(at, place) for at, place in enumerate(places) if place is not None]
    for at, place in (*at_their_places, *((at, None) for at in range(len(jobs)))):
        if chosen[at] is not None:
            continue
        choice = _decide(_only_at(jobs[at], place), remaining)
        if choice.cluster is not None:
            chosen[at] = choice.cluster
            costs[at] = _cost(choice, choice.cluster, variable) or 0.0
            _book(remaining[choice.cluster], _taken(jobs[at], choice.cluster))
    return Assignment(tuple(chosen), fsum(costs), by)


def _only_at(job: BatchJob, place: str | None) -> BatchJob:
    return job if place is None else replace(job, verdicts=[v for v in job.verdicts if v.cluster == place])


def _taken(job: BatchJob, cluster: str) -> int:
    return next(_nodes(verdict) for verdict in job.verdicts if verdict.cluster == cluster)


def _book(state: dict[str, Scalar], nodes: int) -> None:
    free = state.get("nodes_free")
    if is_number(free):
        state["nodes_free"] = free - nodes


# ── the better of two ───────────────────────────────────────────────────────────────────────────────────────


def assign(
    jobs: Sequence[BatchJob], states: States, variable: str, seconds: float, solve: Solve
) -> tuple[Assignment, Assignment]:
    """Return the better of what `solve` finds in these seconds and greedy, and greedy for comparison."""
    offers, free = offers_of(jobs, states, variable), _free(states)
    in_order = greedy(jobs, states, variable)
    solution = solve(offers, free, seconds)
    if solution.clusters is None:
        return _bounded(replace(in_order, status=solution.status), solution, offers, free), in_order
    solved = _carried_out(jobs, states, variable, solution.clusters, "optimal")
    same = solved.clusters == solution.clusters and isclose(
        solved.total, total(solution.clusters, offers), abs_tol=1e-9
    )
    status = (
        solution.status
        if same
        else f"{solution.status}, but what is booked changes where jobs may go or what they cost"
    )
    best = replace(solved, status=status)
    if (-in_order.placed, in_order.total) <= (-solved.placed, solved.total):
        best = replace(in_order, status=f"greedy is as good ({status})")
    return _bounded(best, solution, offers, free), in_order


def _bounded(best: Assignment, solution: Solution, offers: Sequence[Offer], free: Mapping[str, int]) -> Assignment:
    """Add the closest bound that is known: the solver's, or one that needs no solver."""
    at = best.placed
    known = [bound for bound in (solution.bound, loose_bound(offers, free, at)) if bound is not None]
    least = max(bound.total for bound in known if bound.at == at)
    return replace(best, bound=Bound(max(at, min(bound.placed for bound in known)), at, min(least, best.total)))


def loose_bound(offers: Sequence[Offer], free: Mapping[str, int], at: int) -> Bound:
    """Return a bound that holds for certain: as if all nodes were one cluster's, and none were short of them."""
    room = sum(free.values())
    placed = 0
    for least in sorted(min(_counted(offer, free)) for offer in offers if offer.takes):
        room -= least
        placed += room >= 0
    costs = sorted(min(offer.costs.values()) for offer in offers if offer.costs)
    return Bound(placed, at, fsum(costs[:at]))


def _counted(offer: Offer, free: Mapping[str, int]) -> list[int]:
    """Return the nodes a job takes from each of its clusters; 0 where they are not counted."""
    return [nodes if name in free else 0 for name, nodes in offer.takes.items()]


def _free(states: States) -> dict[str, int]:
    """Return the whole nodes free at the clusters that say so; the others have no bound."""
    results = {name: values.get("nodes_free") for name, values in states.items()}
    return {name: max(0, int(free)) for name, free in results.items() if is_number(free) and -SAFE < free < SAFE}
