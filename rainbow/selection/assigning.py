"""Many jobs placed together: in order, or so that a computed variable sums to the least.

    offer       one job's clusters with what they cost it (the variable) and take from them (nodes)
    greedy      each job in order, as the selector decides, on what the jobs before it have left
    optimal     optimal.py: the most jobs placed, then the least sum, within nodes_free; or greedy, if no worse

What a job costs at a cluster is read from the decision it would get alone: the calc of the priority that decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection import Choice, Scalar, select
from rainbow.selection.arithmetic import SAFE, is_number, summable

States = Mapping[str, Mapping[str, Scalar]]


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One job of a batch, with the selector that decides it."""

    request: Request
    verdicts: Sequence[Verdict]
    selector: str
    options: Mapping[str, Any]
    seed: int | str


@dataclass(frozen=True, slots=True)
class Offer:
    """Where one job may go: {cluster: cost} and {cluster: nodes it takes}; equal offers are interchangeable."""

    costs: Mapping[str, float] = field(default_factory=dict)
    takes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A cluster per job, None for those without; `total` is the sum of the costs of those placed."""

    clusters: tuple[str | None, ...]
    total: float
    by: str  # greedy, optimal
    status: str = ""

    @property
    def placed(self) -> int:
        """How many jobs have a cluster."""
        return sum(cluster is not None for cluster in self.clusters)


Solve = Callable[[Sequence[Offer], Mapping[str, int], float], tuple[tuple[str | None, ...] | None, str]]


def offer_of(choice: Choice, variable: str, verdicts: Sequence[Verdict]) -> Offer:
    """Return the clusters a decision could have taken, with what its deciding priority computed for each."""
    if not choice.steps or choice.cluster is None:
        return Offer()
    deciding = [step for step in choice.steps if step.priority == choice.steps[-1].priority]
    left = deciding[-2].survivors if len(deciding) > 1 else ()
    computed = next((s.values for s in reversed(deciding) if s.variable == variable), {})
    found = {name: summable(computed.get(name)) for name in left}
    costs = {name: cost for name, cost in found.items() if cost is not None}
    takes = {verdict.cluster: _nodes(verdict) for verdict in verdicts if verdict.matched and verdict.cluster in costs}
    return Offer(costs, takes)


def _nodes(verdict: Verdict) -> int:
    return verdict.totals.get("nodes", 0)


def offers_of(jobs: Sequence[BatchJob], states: States, variable: str) -> list[Offer]:
    """Return every job's offer, as if it came alone."""
    return [offer_of(_decide(job, states), variable, job.verdicts) for job in jobs]


def greedy(jobs: Sequence[BatchJob], states: States, offers: Sequence[Offer]) -> Assignment:
    """Let the selector place each job in order; every one finds what those before it have left."""
    left: dict[str, dict[str, Scalar]] = {name: dict(values) for name, values in states.items()}
    chosen: list[str | None] = []
    for job in jobs:
        cluster = _decide(job, left).cluster
        chosen.append(cluster)
        for verdict in job.verdicts:
            if verdict.cluster == cluster:
                _book(left[cluster], _nodes(verdict))
    return Assignment(tuple(chosen), total(chosen, offers), "greedy")


def _decide(job: BatchJob, states: States) -> Choice:
    return select(job.request, job.verdicts, states, job.selector, job.options, seed=job.seed)


def _book(state: dict[str, Scalar], nodes: int) -> None:
    free = state.get("nodes_free")
    if is_number(free):
        state["nodes_free"] = free - nodes


def total(clusters: Sequence[str | None], offers: Sequence[Offer]) -> float:
    """Return what the jobs placed cost together."""
    return sum(offer.costs.get(cluster, 0.0) for cluster, offer in zip(clusters, offers, strict=True) if cluster)


def assign(
    jobs: Sequence[BatchJob], states: States, variable: str, seconds: float, solve: Solve
) -> tuple[Assignment, Assignment]:
    """Return the better of what `solve` finds in these seconds and greedy, and greedy for comparison."""
    offers = offers_of(jobs, states, variable)
    in_order = greedy(jobs, states, offers)
    found, status = solve(offers, _free(states), seconds)
    if found is None:
        return _because(in_order, status), in_order
    solved = Assignment(found, total(found, offers), "optimal", status)
    if (-in_order.placed, in_order.total) <= (-solved.placed, solved.total):
        return _because(in_order, f"greedy is as good ({status})"), in_order
    return solved, in_order


def _because(assignment: Assignment, status: str) -> Assignment:
    return Assignment(assignment.clusters, assignment.total, assignment.by, status)


def _free(states: States) -> dict[str, int]:
    """Return the whole nodes free at the clusters that say so; the others have no bound."""
    found = {name: values.get("nodes_free") for name, values in states.items()}
    return {name: max(0, int(free)) for name, free in found.items() if is_number(free) and -SAFE < free < SAFE}
