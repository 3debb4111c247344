"""The interface of a scheduling policy: a frozen View in, a Plan out.

A policy is a pure function. It has no clock (`view.now`), no chance and no I/O of its own; the host freezes
the view, checks the plan against the hard invariants (check.py) and carries the orders out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rainbow.jobs import WorkerState
    from rainbow.matching import Take
    from rainbow.scheduling.census import Census

Placement = Mapping[str, Mapping[str, int]]  # {worker: {type: amount}}


# ── what a policy sees ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Elastic:
    """A job whose gangs may come and go: it works with `least` to `most` of them; `threads`: items each works on."""

    least: int = 0
    most: int | None = None  # None: as many as it has gangs
    threads: int = 1


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What is known of a job's work; `items_left` None: nothing is said."""

    items_left: int | None = None
    items_done: int = 0
    seconds_per_item: float = 0.0  # 0: unknown
    initialised: bool = False  # one of its tasks has been ready for work


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What is known of a running task: is it ready for work, how long that took or takes, and what would be lost."""

    initialised: bool = True
    seconds_initialising: float = 0.0
    seconds_invested: float = 0.0


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
    pool: str = ""  # the nodepool it says it belongs to
    labels: Mapping[str, Any] = field(default_factory=dict)
    load: Mapping[str, float] = field(default_factory=dict)  # measured, by name; trusted only for ordering


@dataclass(frozen=True, slots=True)
class SlotsView:
    """Equal slots of a gang, each of which may lie on any worker that hosts it and has `amounts` free.

    `least` up to `most` of them are wanted, of `counts` if that is not empty. `apart`: each on a worker of its
    own. `outside` is what each takes of the cluster's consumables.
    """

    label: str
    amounts: Mapping[str, int]
    least: int = 1
    most: int = 1
    counts: tuple[int, ...] = ()
    apart: bool = False
    outside: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GangView:
    """Tasks that start together or not at all, waiting. `demand` names what they ask for, see View.place.

    `slots` says the same by amounts, where the slots lie free of each other; empty: only the matcher can place it.
    """

    job: str
    number: int
    tasks: tuple[str, ...]  # ids, in the order of the jobspec
    demand: str
    expected: float = 0.0  # seconds it may run, 0: unknown
    slots: tuple[SlotsView, ...] = ()
    alike: int = 0  # gangs of the same number ask for the same; 0: unknown

    @property
    def question(self) -> int | str:
        """What the matcher's answers for this gang are remembered by."""
        return self.alike or self.demand


@dataclass(frozen=True, slots=True)
class JobView:
    """One job that has not ended; no gangs: all its tasks run. Jobs stand in order of submission, then id."""

    id: str
    requestor: str
    submitted: float
    gangs: Sequence[GangView]  # waiting, in the order they should start
    running: int = 0  # tasks that hold workers
    priority: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)  # attributes.system of the jobspec, as given
    waiting: int = 0  # tasks of its gangs; 0: to be counted
    job_class: str = ""  # the class it was submitted to; empty: the policy's default
    elastic: Elastic | None = None  # None: all its gangs are wanted, and stay
    progress: JobProgress | None = None
    service: str = ""  # the service it is an instance of: instances stand apart where they can

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
    until: float = 0.0  # when it must have ended, 0: unknown
    suspended: bool = False
    priority: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)  # attributes.system of the jobspec, as given

    progress: RunProgress | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that gave its space back at `end`: it has ended, or waits to run again."""

    run: RunView
    end: float


@dataclass(frozen=True, slots=True)
class ReservationView:
    """Space kept in advance over [start, end) for the jobs that name it; `requestors` None: of anybody."""

    id: str
    placement: Placement
    start: float
    end: float
    requestors: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Everything a policy may know of one cluster at one instant.

    `place(demand, workers)` is the matcher's answer: what the gang would hold if only these workers were
    free, or None; `divide(demand, take)` says what of it each task of the gang holds. `hosts(demand)` are
    the kinds of workers that could take a part of it. `consumables` is what is free, by type, of what lies
    outside every worker; placements name it under the worker "". `reservations` are advance ones. `ended` is the
    record of what has ended since the last plan that was carried out, for a policy with `counted_until`.
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
    ended: Sequence[Ended] = ()
    census: Census | None = field(default=None, compare=False)  # the same counted; None: see census_of


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


class Rest(Protocol):
    """Why jobs wait that a plan does not name, told when asked; `common`, if given, a text for all.

    `reason` is the usual one. A rest that has others beside it names all in `reasons`, and says which of one job by
    `reason_of(job)`, at no cost.
    """

    reason: str

    def of(self, job: str) -> Wait:
        """Say it of one job."""


Order = Start | Stop | Suspend | Resume | Reserve


@dataclass(frozen=True, slots=True)
class Plan:
    """Orders in sequence, a Wait for every job left waiting, figures for people, the policy's next memory.

    `rest`: says it of every job `waits` does not name, so that a plan need not say it of thousands each time.
    """

    orders: tuple[Order, ...] = ()
    waits: tuple[Wait, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    rest: Rest | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Kept:
    """Space found for an advance reservation; none: `text` says why."""

    placement: Placement | None = None
    start: float = 0.0
    end: float = 0.0
    text: str = ""


@runtime_checkable
class Keeps(Protocol):
    """What a policy has beside, if it honours `view.reservations`."""

    def keep(self, view: View, job: JobView, start: float | None, seconds: float) -> Kept:
        """Find space for a job's one gang for so long, from `start` on, or (None) from the earliest time there is."""


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
class Names(Protocol):
    """What a policy has beside, if jobs may ask for queues, classes or the like by name."""

    def names(self, settings: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        """Return {key of attributes.system: the names that exist}; a job that asks for another is rejected."""


class Policy(Protocol):
    """Plans one cluster's next step. Same view, same plan.

    A policy may say `by_events = True`: where its memory is empty, a later `now` alone changes nothing, and the host
    need not ask it again before something happens; `rests = True`: the same after a plan that orders nothing and
    leaves its memory as it was. With `sees_all = True` its views have every job that has not ended, with class,
    service and progress, also if nothing of it waits; else only those with something waiting.
    With `needs_workers = True` it starts nothing where no worker is ready: such a cluster's step can wait a moment.
    With `by_census = True` it asks the census first, and its views need not have measured loads and reservations.
    One that keeps space for advance reservations has `keep`, see `Keeps`; one with queues or classes `names`.
    """

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault by pointer."""

    def plan(self, view: View) -> Plan:
        """Decide what starts, stops and waits."""
