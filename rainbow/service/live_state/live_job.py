"""Active jobs as their cluster's policy sees them: the gangs of one that may start, in order; who waits for whom.

A job is kept up to date task by task: of a bag of very many tasks a step builds only what it looks at.

A job that another one waits for is one of

here      it is live at this cluster, and its changes are seen
foreign   it is not; it is looked up at every step
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

from rainbow.jobspec.request import Dependency
from rainbow.scheduling import Elastic, Gang, GangTask, GangView, JobView, Wait, only, waits_for
from rainbow.scheduling.dependencies import BEGIN, Target, awaited
from rainbow.service.jobs.dependencies import targets_of, wait_of
from rainbow.state_machine import task_id
from rainbow.store.jobs import WITHDRAWING, code_of
from rainbow.text import some

if TYPE_CHECKING:
    from rainbow.scheduling.dependencies import DependencyState
    from rainbow.service.jobs.jobspecs import Reading
    from rainbow.service.live_state.matcher_cache import MatcherCache
    from rainbow.store.jobs import JobRecord
    from rainbow.store.tasks import WaitingTasks


SLACK = 1_000  # places of tasks that have started, kept in front


class Order:
    """The longest expected first, else as the jobspec has them. A change costs a search, however many wait.

    >>> order = Order([0, 1, 2], {1: 9.0})
    >>> order.discard(0)
    >>> order.add(0)
    >>> list(order)
    [1, 0, 2]
    """

    def __init__(self, indexes: Iterable[int], expected: Mapping[int, float]) -> None:
        self._expected = dict(expected)
        self._items = array("i", sorted(indexes, key=self._rank) if expected else sorted(indexes))
        self._begin = 0  # tasks start from the front: what is before it has gone

    def __len__(self) -> int:
        return len(self._items) - self._begin

    def __getitem__(self, k: int) -> int:
        return self._items[self._begin + k]

    def __iter__(self) -> Iterator[int]:
        return (self._items[k] for k in range(self._begin, len(self._items)))

    def has(self, index: int) -> bool:
        """Return whether a task waits."""
        return self._find(index)[1]

    def expected(self, index: int) -> float:
        """Return how many seconds a task is expected to take, 0: unknown."""
        return self._expected.get(index, 0.0)

    def add(self, index: int) -> None:
        """Let a task wait (again)."""
        at, there = self._find(index)
        if there:
            return
        if at == self._begin > 0:
            self._begin -= 1
            self._items[self._begin] = index
        else:
            self._items.insert(at, index)

    def discard(self, index: int) -> None:
        """Let a task wait no more."""
        at, there = self._find(index)
        if not there:
            return
        if at > self._begin:
            del self._items[at]
            return
        self._begin += 1
        if self._begin > SLACK and self._begin > len(self):
            del self._items[: self._begin]
            self._begin = 0

    def _rank(self, index: int) -> tuple[float, int]:
        return -self._expected.get(index, 0.0), index

    def _find(self, index: int) -> tuple[int, bool]:
        if self._expected:
            at = bisect_left(self._items, self._rank(index), lo=self._begin, key=self._rank)
        else:
            at = bisect_left(self._items, index, lo=self._begin)
        return at, at < len(self._items) and self._items[at] == index


HELD = "held by its owner; run `rainbow job release` to let it start"
SUSPENDED = "suspended; run `rainbow job resume` to continue"


class LiveJob:
    """A job that has not ended. `order` are the tasks that wait, `booked` those that hold space, by index."""

    def __init__(self, record: JobRecord, read: Reading, waiting: WaitingTasks, placing: MatcherCache) -> None:
        self.record = record
        self.read = placing.settled(read)
        self.order = Order(*waiting)
        self.booked: set[int] = set()
        self.resting: dict[int, Sequence[Mapping[str, Any]]] = {}  # tasks that were lost and wait for their time
        self.unmet: DependencyState | None = None  # what it waits for outside itself
        self.placing = placing
        self._views: dict[int, GangView] = {}  # of independent tasks, by index

    @property
    def dependencies(self) -> tuple[Dependency, ...]:
        """What it waits for: as its jobspec says, and what that named when it was submitted."""
        named = (Dependency("afterany", job) for job in self.record.awaits or ())
        return (*self.read.request.dependencies, *named)

    def task_waits(self, index: int) -> None:
        """Note that a task waits (again)."""
        self.booked.discard(index)
        self.resting.pop(index, None)
        self.order.add(index)

    def task_rests(self, index: int, losses: Sequence[Mapping[str, Any]]) -> None:
        """Note that a task was lost, and waits before it may start again."""
        self.task_ends(index)
        self.resting[index] = losses

    def task_begins(self, index: int) -> None:
        """Note that a task holds space."""
        self.order.discard(index)
        self.resting.pop(index, None)
        self.booked.add(index)
        self._forget(index)

    def task_ends(self, index: int) -> None:
        """Note that a task has ended."""
        self.order.discard(index)
        self.booked.discard(index)
        self.resting.pop(index, None)
        self._forget(index)

    def _forget(self, index: int) -> None:
        view = self._views.pop(index, None)
        if view is not None:
            self.placing.forget(view.demand)

    def forget_all(self) -> None:
        """Release everything that was said of its demands."""
        for index in list(self._views):
            self._forget(index)

    def view(self) -> JobView:
        """Return the job as it stands; without gangs if nothing of it may start."""
        return self.with_gangs(self._gangs() if self.order else ())

    def with_gangs(self, gangs: Sequence[GangView]) -> JobView:
        """Return the job as if these of its gangs might start."""
        return JobView(
            self.record.id,
            self.record.requestor,
            self.record.submitted_at,
            gangs,
            len(self.booked),
            self.record.priority,
            system_of(self.read),
            len(gangs) if self.independent else 0,
            elastic=elastic_of(self.read),
            account=self.record.account,
            qos=self.record.qos,
        )

    @property
    def independent(self) -> bool:
        """Whether every task may start whenever there is room for it."""
        return self.read.single and not self.read.depends

    @property
    def is_kept(self) -> bool:
        """Whether nothing of it may start now, whatever is free."""
        own = self.record
        request = self.is_withdrawn or own.is_halted or own.canceled_at is not None
        return request or self.unmet is not None

    @property
    def is_withdrawn(self) -> bool:
        """Whether its site gives it back, so that it can move."""
        return code_of(self.record) == WITHDRAWING

    @property
    def startable(self) -> int:
        """How many of its tasks that wait may start: all, or as many as its array lets run at once."""
        array = self.read.request.array
        if array is None or not array.at_once:
            return len(self.order)
        return max(0, min(len(self.order), array.at_once - len(self.booked)))

    def _gangs(self) -> Sequence[GangView]:
        if self.is_kept or not self.startable:
            return ()
        if self.independent:
            return Gangs(self)
        self.forget_all()
        return tuple(self._grouped())

    def one(self, index: int) -> GangView:
        """Return the gang of an independent task."""
        view = self._views.get(index)
        if view is None:
            view = self._views[index] = self._view(self.read.gangs[index], [index])
        return view

    def _grouped(self) -> list[GangView]:
        waiting, unended = set(self.order), self._unended()
        longest: dict[int, float] = {}
        for gang in self.read.gangs:
            if any(task.index in self.resting for task in gang.tasks):  # they start together
                continue
            indexes = [task.index for task in gang.tasks if task.index in waiting]
            if indexes and not waits_for(gang, unended):
                remaining = gang if len(indexes) == len(gang.tasks) else only(gang, indexes)
                self._views[gang.number] = self._view(remaining, indexes)
                longest[gang.number] = max(map(self.order.expected, indexes))
        return sorted(self._views.values(), key=lambda view: -longest[view.number])  # else as the jobspec has them

    def again(self, number: int, placing: MatcherCache) -> GangView | None:
        """Return a gang that holds space as it would wait again, all of it; None: some of it does not hold any."""
        gang = next((gang for gang in self.read.gangs if gang.number == number), None)
        if gang is None or not self.booked.issuperset(task.index for task in gang.tasks):
            return None
        return self._view(gang, [task.index for task in gang.tasks], placing)

    def _view(self, gang: Gang, indexes: list[int], placing: MatcherCache | None = None) -> GangView:
        placing = placing or self.placing
        ids = [task_id(self.record.id, index) for index in indexes]
        demand = placing.demand(self.record.id, gang, ids)
        slots = placing.slots(gang.request)
        seconds, alike = gang.request.duration, gang.request.number
        return GangView(self.record.id, gang.number, tuple(ids), demand, seconds, slots, alike)

    def gang_of(self, index: int) -> GangView | None:
        """Return the gang that waits with a task in it."""
        if self.is_kept or index not in self.read.tasks:
            return None
        if self.independent:
            return self.one(index) if self.order.has(index) else None
        name = task_id(self.record.id, index)
        return next((view for view in self._views.values() if name in view.tasks), None)

    def _unended(self) -> list[GangTask]:
        live = self.booked | set(self.order) | self.resting.keys()
        return [task for index, task in self.read.tasks.items() if index in live]

    def waits_held(self) -> Wait:
        """Say that its owner lets nothing of it start."""
        if self.record.suspended_at is None:
            return Wait(self.record.id, "held", HELD)
        return Wait(self.record.id, "suspended", SUSPENDED)

    def waits_for_its_own(self) -> Wait:
        """Say that as many elements of its array run as may at once."""
        array = self.read.request.array
        most = array.at_once if array else 0
        text = (
            f"{len(self.booked)} of at most {some(most, 'element')} of its array running; {len(self.order)} waiting"
        )
        facts = {"running": len(self.booked), "limit": most, "waiting": len(self.order)}
        return Wait(self.record.id, "array-limit", text, facts)

    def rests(self) -> Wait:
        """Say which of its tasks was lost, and that it starts again after a pause."""
        index, losses = max(self.resting.items(), key=lambda item: (len(item[1]), -item[0]))
        last = losses[-1]
        text = f"{some(len(losses), 'attempt')} of {self.record.id}-{index} lost, the last one because {last['why']}"
        facts = {"lost": len(losses), "why": last["why"]}
        return Wait(self.record.id, "lost", f"{text}; it starts again after a pause", facts)

    def awaits_itself(self) -> Wait:
        """Say which of its own tasks must complete before anything may start."""
        unended = self._unended()
        names = sorted({name for gang in self.read.gangs for name in waits_for(gang, unended)})
        text = f"waits for {'task' if len(names) == 1 else 'tasks'} {', '.join(names)} to complete"
        return Wait(self.record.id, "dependency", text, {"tasks": names})


class Gangs(Sequence[GangView]):
    """The gangs of a bag of independent tasks, each made when it is looked at, while the view lasts."""

    def __init__(self, job: LiveJob) -> None:
        self._job = job
        self._length = job.startable  # as it was counted, whatever has become of the job since

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, k: int) -> GangView: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[GangView]: ...
    def __getitem__(self, k: int | slice) -> GangView | Sequence[GangView]:
        if isinstance(k, slice):
            return tuple(self._job.one(self._job.order[i]) for i in range(*k.indices(len(self))))
        if not -len(self) <= k < len(self):
            raise IndexError(k)
        return self._job.one(self._job.order[k % len(self)])

    def __iter__(self) -> Iterator[GangView]:
        return (self._job.one(index) for index in islice(self._job.order, self._length))


def elastic_of(read: Reading) -> Elastic | None:
    """Return how many shares a job works with, if they may come and go."""
    request = read.request.elastic
    return Elastic(request.min, request.max, request.threads) if request else None


def system_of(read: Reading) -> Mapping[str, Any]:
    """Return a jobspec's attributes.system, which policies read their own entries from."""
    system = read.request.attributes.get("system")
    return system if isinstance(system, Mapping) else {}


class Dependents:
    """The jobs that have dependencies, by what they wait for."""

    def __init__(self) -> None:
        self.jobs: dict[str, LiveJob] = {}
        self._waiters: dict[str, set[str]] = {}  # job that is waited for → who waits
        self._open: Counter[str] = Counter()  # the same, how many of whom it is not met
        self._unmet: set[str] = set()
        self._new: set[str] = set()
        self._timed: set[str] = set()

    def add(self, job: LiveJob) -> None:
        """Take note of a job that is new here."""
        if not job.dependencies:
            return
        job_id = job.record.id
        self.jobs[job_id] = job
        self._new.add(job_id)
        for target in targets_of(job.dependencies):
            self._waiters.setdefault(target, set()).add(job_id)
        if any(one.scheme == BEGIN for one in job.dependencies):
            self._timed.add(job_id)
        self._mark(job_id, unmet=True)

    def drop(self, job_id: str) -> None:
        """Forget a job that has ended."""
        if job_id not in self.jobs:
            return
        self._mark(job_id, unmet=False)
        for target in targets_of(self.jobs.pop(job_id).dependencies):
            self._waiters[target].discard(job_id)
            if not self._waiters[target]:
                del self._waiters[target]
        self._new.discard(job_id)
        self._timed.discard(job_id)

    def _mark(self, job_id: str, *, unmet: bool) -> None:
        if unmet == (job_id in self._unmet):
            return
        (self._unmet.add if unmet else self._unmet.discard)(job_id)
        for target in targets_of(self.jobs[job_id].dependencies):
            self._open[target] += 1 if unmet else -1
            if not self._open[target]:
                del self._open[target]

    def foreign(self, here: Mapping[str, LiveJob]) -> set[str]:
        """Name the jobs that others wait for and that are not live here."""
        return {job for job in self._open if job not in here}

    def affected(self, changed: Iterable[str]) -> set[str]:
        """Name the jobs to be looked at again after these have changed."""
        result = self._new | (self._timed & self._unmet)
        self._new = set()
        for target in changed:
            result |= self._waiters.get(target, set())
        return result

    def look(self, job_id: str, find: Callable[[str], Target | None], now: float) -> str:
        """Look at what a job waits for; say which of it can never come, if any."""
        job = self.jobs[job_id]
        dependency_state = awaited(job.dependencies, find, now)
        job.unmet = (
            dependency_state
            if dependency_state.waits or dependency_state.never or dependency_state.until is not None
            else None
        )
        self._mark(job_id, unmet=job.unmet is not None)
        return dependency_state.never

    def needs_polling(self, here: Mapping[str, LiveJob]) -> bool:
        """Return whether something is waited for that nobody will tell of: a time, or a job of another cluster."""
        return bool(self._timed & self._unmet) or bool(self.foreign(here))

    def wait_of(self, job: LiveJob) -> Wait | None:
        """Say why a job waits."""
        return wait_of(job.record.id, job.unmet) if job.unmet is not None and not job.unmet.never else None
