"""What matching answers: a Verdict for every cluster, with a Reason where it is no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request


class Why(StrEnum):
    """The fixed list of reasons a cluster is refused for."""

    TYPE_MISSING = "type-missing"  # the cluster has none of a type
    TOTAL_TOO_SMALL = "total-too-small"  # it has too little of a type in all
    VERTEX_TOO_SMALL = "vertex-too-small"  # no vertex (or not enough of them) is large enough
    NEED_UNMET = "need-unmet"  # no located vertex has what a subsystem must offer
    CONSTRAINT_UNMET = "constraint-unmet"  # too few workers pass the constraint
    SIBLINGS_COLLIDE = "siblings-collide"  # each part would fit alone, not all together
    BUDGET = "budget"  # the search was given up; not a no


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a cluster does not match: `wanted` and `found` at the nearest miss, in units of `subject`."""

    why: Why
    text: str  # for people, one line
    subject: str = ""  # the type, subsystem or constraint it is about
    wanted: int | None = None
    found: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Take:
    """What one copy of the job would hold.

    placed    for every slot, in order: (label, {worker: {type: amount}})
    vertices  {vertex: amount}, every vertex of which something is held, whole subtrees by their top
    """

    placed: tuple[tuple[str, Mapping[str, Mapping[str, int]]], ...]
    vertices: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One cluster's answer. `fits`: how many copies it holds at once (`exact`, or at least that many)."""

    cluster: str
    matched: bool
    fits: int = 0
    exact: bool = True
    totals: Mapping[str, int] = field(default_factory=dict)  # of one copy: nodes, cores, gpus, memory, ...
    take: Take | None = None
    reason: Reason | None = None


class Backend(Protocol):
    """Answers which clusters can run a request; two backends give the same answers."""

    def match(self, request: Request, cluster: Cluster) -> Verdict:
        """Say whether `cluster`, empty, can run `request`."""

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy of `request` holds when only these workers are free; None if it cannot run."""
