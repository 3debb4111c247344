"""Workers, gangs, jobs and runs as a policy sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from rainbow.cache import cached_property
from rainbow.jobspec.request import HIGHEST, LOWEST

if TYPE_CHECKING:
    from rainbow.state_machine import WorkerState


BEHIND_ALL = -1_000_000  # priority of a job that no budget pays: it starts when nobody else wants the space


def asked_priority(attributes: Mapping[str, Any]) -> int:
    """Return what is asked for, no further than the range goes; what is no whole number counts as nothing.

    >>> [asked_priority({"priority": asked}) for asked in (7, 9_999, "high", True)]
    [7, 1024, 0, 0]
    """
    request = attributes.get("priority", 0)
    return max(LOWEST, min(HIGHEST, request)) if isinstance(request, int) and not isinstance(request, bool) else 0


Placement = Mapping[str, Mapping[str, int]]  # {worker: {type: amount}}
Item = TypeVar("Item")


class Rows(Sequence[Item], Generic[Item]):
    """A row of a view, written out when all of it is read: a census does not pay for that."""

    def __init__(self, write: Callable[[], Iterable[Item]], length: int) -> None:
        self._write = write
        self._length = length

    @cached_property
    def _items(self) -> tuple[Item, ...]:
        return tuple(self._write())

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    @overload
    def __getitem__(self, k: int) -> Item: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[Item]: ...
    def __getitem__(self, k: int | slice) -> Item | Sequence[Item]:
        return self._items[k]


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
    length: float = 0.0  # seconds it is predicted to run, 0: unknown

    @property
    def question(self) -> int | str:
        """What the matcher's answers for this gang are remembered by."""
        return self.alike or self.demand


@dataclass(frozen=True, slots=True)
class JobView:
    """One job that has not ended; no gangs: all its tasks run. Jobs are in order of submission, then id."""

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
    account: str = ""  # who pays for it; empty: none
    qos: str = ""  # its quality of service; empty: none

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
    account: str = ""
    qos: str = ""


@dataclass(frozen=True, slots=True)
class ReservationView:
    """Space kept in advance over [start, end) for the jobs that name it; `requestors` None: of any requestor.

    `maintenance`: whole workers, for no job. `at_begin`: what still runs there then is ended, and waits again with
    requeue; with cancel its job ends; "": it runs on.
    """

    id: str
    placement: Placement
    start: float
    end: float
    requestors: tuple[str, ...] | None = None
    maintenance: bool = False
    name: str = ""
    at_begin: str = ""

    @property
    def called(self) -> str:
        """Say what it is, in words."""
        return f"{'maintenance' if self.maintenance else 'reservation'} {self.name or self.id}"


@dataclass(frozen=True, slots=True)
class Promise:
    """A start that a gang was promised at the latest, and the space that the last plan keeps for it.

    `basis` names the settings under which it was made. `broken`: what became of the promise before this one.
    """

    job: str
    gang: int
    start: float
    made: float
    at: float  # the space kept: from
    until: float
    booking: Placement  # by line of the policy's diagram
    basis: str = ""
    broken: Broken | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Name the gang."""
        return self.job, self.gang


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that was not kept: the start it named, the new one (None: none is known), and why.

    `why`: worker-lost, reservation, settings, limit, priority, overrun, moved or space-lost; `text` is for people.
    """

    job: str
    gang: int
    old: float
    new: float | None
    at: float
    why: str
    text: str


def amounts_by_worker(placements: Iterable[Placement]) -> dict[str, Counter[str]]:
    """Return {worker: {type: amount}} of what several placements hold together."""
    result: dict[str, Counter[str]] = {}
    for placement in placements:
        for worker, amounts in placement.items():
            result.setdefault(worker, Counter()).update(amounts)
    return result
