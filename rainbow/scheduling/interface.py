"""The interface of a policy: a view in; a plan of orders and waits out.

A policy is a pure function. It has no clock (`view.now`), no chance and no I/O of its own; the host freezes
the view, checks the plan against the hard invariants (invariants.py) and carries the orders out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from rainbow.scheduling.cluster_index import ClusterIndex
from rainbow.scheduling.snapshot import (
    Broken,
    GangView,
    JobView,
    Placement,
    Promise,
    ReservationView,
    RunView,
    WorkerView,
)

if TYPE_CHECKING:
    from datetime import datetime

    from rainbow.accounts.fair_tree import Standing
    from rainbow.matching import Take


def cluster_index_of(view: View) -> ClusterIndex:
    """Return the census a view brings, or count it."""
    if view.census is not None:
        return view.census
    census = ClusterIndex()
    for worker in view.workers:
        census.put_worker(worker)
    for run in view.runs:
        census.put_run(run)
    for job in view.jobs:
        census.put_job(job)
    known: dict[str, GangView] = {}

    def gang_of(task: str) -> GangView | None:
        if not known:
            known.update({task: gang for job in view.jobs for gang in job.gangs for task in gang.tasks})
        return known.get(task)

    census.gang_of = gang_of
    return census


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that gave its space back at `end`: it has ended, or waits to run again."""

    run: RunView
    end: float


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken for a gang: in the matcher's words, by task, and where it lies, by task; `number` names it."""

    take: Take
    placements: tuple[Placement, ...]
    located: tuple[Any, ...]
    number: int


class Free(Protocol):
    """What is free, vertex by vertex. A plan tries on it; all it does is undone by the host when the plan is made."""

    def take(
        self, demand: str, *, among: Collection[str] | None = None, kinds: frozenset[str] | None = None
    ) -> Taken | None:
        """Take what a gang asks for, lowest first, of these workers or kinds alone; None if it does not fit."""

    def fill(self, placement: Placement) -> tuple[Any, ...] | None:
        """Take amounts of workers, the lowest leaves first; where they lie, None if too little is free."""

    def keep(self, worker: str, amounts: Mapping[str, int]) -> int:
        """Keep amounts of a worker, of no vertices in particular; the number to give them back by."""

    def keep_place(
        self, located: Iterable[Any], unit: str, most: int
    ) -> tuple[int, Mapping[str, Mapping[str, int]], Mapping[str, Sequence[str]]]:
        """Keep what is free of a place, of a type no more than `most`: a number, amounts and vertices by worker."""

    def give_back(self, number: int) -> None:
        """Give back what was taken or kept."""

    def release(self, tasks: Iterable[str]) -> None:
        """Continue as if these tasks had ended."""

    def mark(self) -> int:
        """Return a point to come back to."""

    def undo(self, mark: int) -> None:
        """Take everything back since a mark."""

    def amounts(self, worker: str) -> Mapping[str, int]:
        """Return what is free of a worker by type."""

    def unproved(self, demand: str, located: Iterable[Any]) -> Wait | None:
        """Say why what a gang took does not meet its request, row by row; None if it does, or no rows are known."""

    def why(self, demand: str) -> Wait | None:
        """Say why a gang does not fit although amounts are large enough; None if they are not."""

    def empty(self) -> Free:
        """Return the same of the empty cluster, with all workers ready."""

    def book(self, located: Iterable[Any]) -> bool:
        """Hold what was taken before, by task; return whether all of it is free."""

    def words(self, located: Any) -> dict[str, list[str]]:
        """Say where something lies, as a store keeps it."""

    def begin(self) -> None:
        """Undo everything."""


@dataclass(frozen=True, slots=True)
class View:
    """Everything a policy may know of one cluster at one instant.

    `place(demand, workers)` is the matcher's answer: what the gang would hold if only these workers were
    free, or None; `divide(demand, take)` says what of it each task of the gang holds. `hosts(demand)` are
    the kinds of workers that could take a part of it. `consumables` is what is free, by type, of what lies
    outside every worker; placements name it under the worker "". `reservations` are advance ones, `promises`
    those that the last plan made or kept. `ended` is the record of what has ended since the last plan that was
    carried out, for a policy with `counted_until`.

    Amounts are in base units; settings count as the cluster's graph does. `units` says how many base units one unit
    of a type is where that is not 1: {"memory": 1_000_000_000} where the graph counts memory in GB.

    With `quiet` nobody reads why jobs wait: the plan has the same orders and memory, and may leave out waits, figures
    and the rest. Forecasts and simulations ask so, hundreds of times for one answer.
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
    reservations: Sequence[ReservationView] = ()
    promises: Sequence[Promise] = ()
    ended: Sequence[Ended] = ()
    units: Mapping[str, int] = field(default_factory=dict)
    census: ClusterIndex | None = field(default=None, compare=False)  # the same counted; None: see cluster_index_of
    free: Free | None = field(default=None, compare=False)  # where something is; None: nobody knows more than amounts
    quiet: bool = False  # orders and memory alone are wanted
    standings: Mapping[tuple[str, str], Standing] = field(
        default_factory=dict
    )  # by account and user; none: no accounts

    def factor(self, job: JobView) -> float:
        """Return the fair share factor of a job's account and user, from 1 (first) down; 0 without one."""
        result = self.standings.get((job.account, job.requestor))
        return result.factor if result else 0.0

    def outside(self) -> dict[str, int]:
        """Return what lies outside every worker: what is free of it, and what runs hold."""
        result = dict(self.consumables)
        for run in self.runs:
            for kind, amount in run.placement.get("", {}).items():
                result[kind] = result.get(kind, 0) + amount
        return result


# ── what a policy says ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Start:
    """Start this task there; the Starts of a gang stand together. `located`: what of it lies where, see Taken."""

    task: str
    placement: Placement
    located: Any = field(default=None, compare=False)
    held: Mapping[str, Sequence[str]] | None = None  # in words, said by the host


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this task; its space stays booked until its end is confirmed.

    Preempted `by` a job it gets this signal first and is ended `grace` seconds later; `cancels`: its job ends then.
    """

    task: str
    why: str
    by: str = ""
    signal: str = ""
    grace: float = 0.0
    cancels: bool = False


@dataclass(frozen=True, slots=True)
class Suspend:
    """Hold this task where it is."""

    task: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Let a suspended task continue."""

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


class Rest(Protocol):
    """Why jobs wait that a plan does not name, worked out when a reader asks; `reason` is the usual code."""

    reason: str

    def of(self, job: str) -> Wait:
        """Return why one job waits."""

    def code(self, job: str) -> str:
        """Return the code of one job's wait without its text; a step asks for many of them."""
        return self.reason


@dataclass(frozen=True, slots=True)
class ReservedBlock:
    """What is free now and kept for one job: amounts by type on some workers, until it is needed (inf: unknown)."""

    job: str
    amounts: Mapping[str, int]
    workers: int
    until: float


Order = Start | Stop | Suspend | Resume | Reserve


@dataclass(frozen=True, slots=True)
class Plan:
    """Orders in sequence, a Wait for every job left waiting, figures for people, the policy's next memory.

    `rest`: says it of every job `waits` does not name, so that a plan need not say it of thousands each time.
    `kept`: what is free and kept for jobs that wait, which may be used until then.
    `promises`: all that hold from now on; `broken`: those of the view that do not, of gangs that still wait.
    """

    orders: tuple[Order, ...] = ()
    waits: tuple[Wait, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    rest: Rest | None = field(default=None, compare=False)
    promises: tuple[Promise, ...] = ()
    broken: tuple[Broken, ...] = ()
    kept: tuple[ReservedBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class ReservedSpace:
    """Space found for an advance reservation; none: `text` says why. `ends`: tasks to be ended before it starts."""

    placement: Placement | None = None
    start: float = 0.0
    end: float = 0.0
    text: str = ""
    ends: tuple[str, ...] = ()


@runtime_checkable
class Keeps(Protocol):
    """What a policy has beside, if it honours `view.reservations`."""

    def keep(self, view: View, job: JobView, start: float | None, seconds: float) -> ReservedSpace:
        """Find space for a job's one gang for so long, from `start` on, or (None) from the earliest time there is."""


@runtime_checkable
class LocalTime(Protocol):
    """What a policy has beside, if its settings may name the time zone of a cluster."""

    def moment(self, settings: Mapping[str, Any], local: datetime) -> float:
        """Return when the cluster's wall clock shows a time; ValueError if that is never, or twice."""


@runtime_checkable
class Accounts(Protocol):
    """What a policy has beside, if it accounts for what ran: `view.ended` is for it."""

    def counted_until(self, memory: Mapping[str, Any]) -> float | None:
        """Return the time until which its memory has counted what ran; None: it counts nothing."""


@runtime_checkable
class Promises(Protocol):
    """What a policy has beside, if it promises times."""

    def promising(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings as they are when every job may be promised a time."""


@runtime_checkable
class Begins(Protocol):
    """What a policy has beside, if some of its defaults depend on the workers of a cluster."""

    def begin(
        self, settings: Mapping[str, Any], before: Mapping[str, Any], workers: Collection[Mapping[str, int]]
    ) -> Mapping[str, Any]:
        """Return what is given for a cluster, with what it leaves open.

        `before`: the settings that it replaces, none for a new cluster. `workers`: what each of them has by type;
        none where vertices of workers are not located, so that nothing tells two tasks on one of them apart.
        """


@runtime_checkable
class Names(Protocol):
    """What a policy has beside, if jobs may ask for queues, classes or the like by name."""

    def names(self, settings: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        """Return {key of attributes.system: the names that exist}; a job that asks for another is rejected."""


@runtime_checkable
class TakesWholeWorkers(Protocol):
    """What a policy has beside, if a worker may serve one gang at a time."""

    def takes_whole_workers(self, settings: Mapping[str, Any]) -> bool:
        """Return whether it does with these settings."""


@runtime_checkable
class Warns(Protocol):
    """What a policy has beside, if settings can be right and yet not mean what was wanted."""

    def warnings(
        self, settings: Mapping[str, Any], requestors: Collection[str], workers: Collection[str]
    ) -> Sequence[Mapping[str, Any]]:
        """Return what is doubtful about settings, given who has jobs and which workers there are.

        Each has a `text`, and what it is about.
        """


class Traits(NamedTuple):
    """What a policy asks of its host; all that is false costs the host more, or is unusual."""

    by_events: bool = False  # while its memory is empty, time alone changes no plan: ask again after an event
    rests: bool = False  # the same after a plan that orders nothing and leaves the memory as it was
    sees_all: bool = False  # its views have every job that has not ended, with class, service and progress
    needs_workers: bool = False  # it starts nothing where no worker is ready: such a cluster's step can wait a moment
    by_census: bool = False  # it asks the census first; its views need no measured loads and no reservations
    admission: bool = False  # its clusters begin with the admission limits of the server's configuration
    hands_over: bool = False  # whole jobs go to a site that decides where they run


class Policy(Protocol):
    """Plans one cluster's next step. Same view, same plan.

    A policy may have `traits`, see `traits_of`; `keep` if it keeps space for advance reservations, see `Keeps`;
    `names` if it has queues or classes; and what else is marked so above.
    """

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault by pointer."""

    def plan(self, view: View) -> Plan:
        """Decide what starts, stops and waits."""
