"""The interface of a scheduling policy: a frozen View in, a Plan out.

A policy is a pure function. It has no clock (`view.now`), no chance and no I/O of its own; the host freezes
the view, checks the plan against the hard invariants (check.py) and carries the orders out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rainbow.jobs import WorkerState
    from rainbow.jobspec import Elastic
    from rainbow.matching import Take

Placement = Mapping[str, Mapping[str, int]]  # {worker: {type: amount}}


# ── what a policy sees ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker. `free` is `capacity` less everything booked on it; workers of one `kind` are alike."""

    id: str
    kind: str
    capacity: Mapping[str, int]
    free: Mapping[str, int]
    state: WorkerState
    since: float = 0.0  # when it entered its state
    tasks: int = 0  # how many tasks hold it


@dataclass(frozen=True, slots=True)
class GangView:
    """Tasks that start together or not at all, waiting. `demand` names what they ask for, see View.place."""

    job: str
    number: int
    tasks: tuple[str, ...]  # ids, in the order of the jobspec
    demand: str
    expected: float = 0.0  # seconds it may run, 0: unknown


@dataclass(frozen=True, slots=True)
class JobView:
    """One job with something waiting. Jobs stand in order of submission, then id."""

    id: str
    requestor: str
    submitted: float
    gangs: tuple[GangView, ...]  # waiting, in the order they should start
    running: int = 0  # tasks that hold workers
    priority: int = 0
    waiting: int = 0  # tasks of its gangs; 0: to be counted
    elastic: Elastic | None = None  # its tasks are shares that may be stopped and started

    @property
    def tasks(self) -> int:
        """How many tasks wait, without counting them where that is known."""
        return self.waiting or sum(len(gang.tasks) for gang in self.gangs)


@dataclass(frozen=True, slots=True)
class RunView:
    """One task that holds space: from its order until its end is confirmed."""

    task: str
    job: str
    requestor: str
    gang: int
    placement: Placement
    started: float
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """Everything a policy may know of one cluster at one instant.

    `place(demand, workers)` is the matcher's answer: what the gang would hold if only these workers were
    free, or None; `divide(demand, take)` says what of it each task of the gang holds. `hosts(demand)` are
    the kinds of workers that could take a part of it. `consumables` is what is free, by type, of what lies
    outside every worker; placements name it under the worker "".
    """

    now: float
    settings: Mapping[str, Any]
    workers: Sequence[WorkerView]
    jobs: Sequence[JobView]
    runs: Sequence[RunView]
    place: Callable[[str, Sequence[str]], Take | None]
    hosts: Callable[[str], frozenset[str]]
    divide: Callable[[str, Take], Sequence[Placement]]
    memory: Mapping[str, Any] = field(default_factory=dict)
    consumables: Mapping[str, int] = field(default_factory=dict)


# ── what a policy says ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Start:
    """Start this task there; the Starts of a gang stand together."""

    task: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this task; its space stays booked until its end is confirmed."""

    task: str
    why: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Hold this task where it is."""

    task: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Let a suspended task go on."""

    task: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep this space for a job from `at` until `until`."""

    job: str
    placement: Placement
    at: float
    until: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job has tasks that do not start now. `reason` is a short code, `text` is for people."""

    job: str
    reason: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


Order = Start | Stop | Suspend | Resume | Reserve


@dataclass(frozen=True, slots=True)
class Plan:
    """Orders in sequence, a Wait for every job left waiting, figures for people, the policy's next memory."""

    orders: tuple[Order, ...] = ()
    waits: tuple[Wait, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)


class Policy(Protocol):
    """Plans one cluster's next step. Same view, same plan.

    A policy may say `by_events = True`: where its memory is empty, a later `now` alone changes nothing, and the host
    need not ask it again before something happens.
    """

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault by pointer."""

    def plan(self, view: View) -> Plan:
        """Decide what starts, stops and waits."""
