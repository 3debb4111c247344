"""The index of what is free by amounts, and counts of each requestor's tasks, updated change by change.

    view     everything a policy may know, at one instant
    census   the same as counts, which each plan would otherwise compute again
    index    ready workers by kind, by what they have free, and those without a task: `free` of each is read from the
             vertices that are held (matching/workers/occupancy.py), where these are known; else its tasks are summed

With RAINBOW_CHECK=1 the host compares the index with the vertices at every step.

The host keeps one census of a cluster from step to step, so that a plan costs what has changed and what can start,
not what exists. `cluster_index_of(view)` counts a view that brings none. While a plan is made nobody changes it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any, Generic, TypeVar

from rainbow.errors import PlanError
from rainbow.scheduling.snapshot import GangView, JobView, RunView, WorkerView, asked_priority
from rainbow.state_machine import WorkerState

NAMED = 5  # workers that are called by name


def away_in_words(census: ClusterIndex) -> str:
    """Say how many workers are in which state that takes no tasks; "" if all of them are ready."""
    of = len(census.workers)
    counts = {state: len(census.away[state]) for state in WorkerState if state in census.away}
    if not counts:
        return "" if of else "the cluster has no workers"
    remaining, parts = NAMED, []
    for state, count in counts.items():
        parts.append(f"{_word(state)}{_names(census, state, remaining)}")
        remaining -= min(remaining, count)
    if len(counts) == 1 and of in counts.values():
        return f"all {of} workers are {parts[0]}" if of > 1 else f"the only worker is {parts[0]}"
    first, *others = counts.values()
    verb = "is" if first == 1 else "are"
    others_told = [f"{count} {part}" for count, part in zip(others, parts[1:], strict=True)]
    return ", ".join([f"{first} of {of} workers {verb} {parts[0]}", *others_told])


def facts(census: ClusterIndex) -> dict[str, Any]:
    """Return the same as facts."""
    states = {str(state): len(ranked) for state, ranked in sorted(census.away.items())}
    return {"workers": len(census.workers), "states": states}


def _word(state: WorkerState) -> str:
    return "without an agent" if state is WorkerState.NEW else state.lower()


def _names(census: ClusterIndex, state: WorkerState, most: int) -> str:
    ranked = census.away[state]
    names = [name for _, name in islice(ranked.items(), most)]
    more = ["…"] if len(names) < len(ranked) else []
    return f" ({', '.join(names + more)})" if names else ""


Key = TypeVar("Key", bound=Hashable)
Place = tuple[int, str]  # of a worker: its place in the natural order, its id
Turn = tuple[int, int, float, float, str]  # of a job: tasks that run, came (see turn), -priority, submitted, id
Free = tuple[tuple[str, int], ...]  # what a worker has free, by type


@dataclass(slots=True)
class Holdings:
    """What the tasks of one requestor hold."""

    tasks: int = 0
    workers: Counter[str] = field(default_factory=Counter)  # tasks on each
    amounts: Counter[str] = field(default_factory=Counter)


class ClusterIndex:
    """The counts of one cluster. `gang_of` names the waiting gang a task belongs to."""

    def __init__(self) -> None:
        self.workers: dict[str, WorkerView] = {}
        self.runs: dict[str, RunView] = {}
        self.jobs: dict[str, JobView] = {}  # with gangs that may start
        self.gang_of: Callable[[str], GangView | None] = _nobody
        self.kinds: dict[str, Ranked[Place]] = {}  # the ready workers
        self.idle: dict[str, Ranked[Place]] = {}  # the ready workers without a task, by kind
        self.rooms: dict[str, dict[Free, Ranked[Place]]] = {}  # the ready workers by kind and what they have free
        self.away: dict[WorkerState, Ranked[Place]] = {}  # the other workers
        self.capacity: Counter[str] = Counter()  # of all ready workers
        self.free: Counter[str] = Counter()
        self.ready = 0
        self.worker_changes = 0  # times that a worker has come or become another one, whatever is free of it
        self.ends: Ranked[tuple[float, float, str]] = Ranked()  # of what runs: when, since when, the task
        self.stopping = 0  # tasks that are told to stop
        self.held: dict[str, Holdings] = {}  # by requestor
        self.mixed: set[str] = set()  # workers that serve several requestors
        self.queues: dict[str, Ranked[Turn]] = {}  # the waiting jobs of each requestor, whose turn is first at first
        self.most_asked = 0.0  # of the priority that a jobspec asks for: it may only lower itself
        self.limits: dict[str, Ranked[tuple[float, str]]] = {}  # the time limits of each requestor's waiting jobs
        self.gangs: Counter[str] = Counter()  # that wait, by requestor
        self.waiting: Counter[str] = Counter()  # tasks that wait, by requestor
        self.oldest = inf  # no job was submitted before this time, or has waited in vain since before it
        self.changed: dict[str, None] | None = None  # jobs put or dropped since a policy has looked; None: none looks
        self.notes: dict[Any, Any] = {}  # what a policy has worked out of this cluster and may use again
        self._limit: dict[str, float] = {}  # by job, as it was when the job was put
        self._places: dict[str, int] = {}
        self._holders: dict[str, Counter[str]] = {}  # worker → tasks by requestor
        self._on: dict[str, set[str]] = {}  # worker → tasks
        self._everyone: list[str] | None = None

    # ── workers ──

    def put_worker(self, worker: WorkerView) -> None:
        """Take note of a worker as it is now."""
        before = self.workers.get(worker.id)
        place = self._places.setdefault(worker.id, len(self._places)), worker.id
        stays = before is not None and _is_alike(before, worker)
        for one, sign in ((before, -1), (worker, 1)):
            if one is not None and not stays:
                self._count_worker(one, place, sign)
            if one is not None and one.state is WorkerState.READY:
                self._count_free(one, place, sign)
        self.workers[worker.id] = worker
        if not stays:
            self._everyone = None
            self.worker_changes += 1

    def _count_worker(self, worker: WorkerView, place: Place, sign: int) -> None:
        if worker.state is not WorkerState.READY:
            _put(self.away, worker.state, place, sign)
            return
        self.ready += sign
        _put(self.kinds, worker.kind, place, sign)
        for kind, amount in worker.capacity.items():
            self.capacity[kind] += sign * amount

    def _count_free(self, worker: WorkerView, place: Place, sign: int) -> None:
        if not worker.tasks:
            _put(self.idle, worker.kind, place, sign)
        rooms = self.rooms.setdefault(worker.kind, {})
        _put(rooms, tuple(sorted(worker.free.items())), place, sign)
        if not rooms:
            del self.rooms[worker.kind]
        for kind, amount in worker.free.items():
            self.free[kind] += sign * max(0, amount)

    def place_of(self, worker: str) -> Place:
        """Return a worker's place in the natural order."""
        return self._places[worker], worker

    def everyone(self) -> list[str]:
        """Return all ready workers in their natural order; the same list while they are the same."""
        if self._everyone is None:
            self._everyone = [name for _, name in sorted(p for ranked in self.kinds.values() for p in ranked.items())]
        return self._everyone

    def is_ready(self, worker: str) -> bool:
        """Return whether a worker takes tasks."""
        known = self.workers.get(worker)
        return known is not None and known.state is WorkerState.READY

    def check(self) -> None:
        """Raise PlanError unless the index of workers says what each of them does."""
        again = ClusterIndex()
        for worker in self.workers.values():
            again.put_worker(worker)
        for name in ("kinds", "idle", "rooms", "away", "capacity", "free", "ready"):
            reserved, counted = _plain(getattr(self, name)), _plain(getattr(again, name))
            if reserved != counted:
                raise PlanError(f"{name} of the workers: {reserved} is kept, {counted} counted")

    # ── what runs ──

    def put_run(self, run: RunView) -> None:
        """Take note of a task that holds space, as it is now."""
        self.drop_run(run.task)
        self.runs[run.task] = run
        self._count_run(run, 1)

    def drop_run(self, task: str) -> RunView | None:
        """Forget a task that holds nothing any more; return it as it was."""
        run = self.runs.pop(task, None)
        if run is not None:
            self._count_run(run, -1)
        return run

    def _count_run(self, run: RunView, sign: int) -> None:
        self.stopping += sign * run.stopping
        end = 0.0 if run.stopping else run.until or inf  # what is told to stop may end at any moment
        (self.ends.add if sign > 0 else self.ends.discard)((end, run.started, run.task))
        held = self.held.setdefault(run.requestor, Holdings())
        held.tasks += sign
        for worker, amounts in run.placement.items():
            for kind, amount in amounts.items():
                _add(held.amounts, kind, sign * amount)
            if worker:
                _add(held.workers, worker, sign)
                self._count_holder(worker, run, sign)
        if not held.tasks:
            del self.held[run.requestor]

    def _count_holder(self, worker: str, run: RunView, sign: int) -> None:
        holders, on = self._holders.setdefault(worker, Counter()), self._on.setdefault(worker, set())
        _add(holders, run.requestor, sign)
        (on.add if sign > 0 else on.discard)(run.task)
        if len(holders) > 1:
            self.mixed.add(worker)
        else:
            self.mixed.discard(worker)
        if not holders:
            del self._holders[worker], self._on[worker]

    def holders(self, worker: str) -> Mapping[str, int]:
        """Return {requestor: how many of its tasks} of a worker."""
        return self._holders.get(worker, {})

    def tasks_on(self, worker: str) -> int:
        """Count the tasks that hold something of a worker."""
        return len(self._on.get(worker, ()))

    def less_held(self, worker: str, capacity: Mapping[str, int]) -> dict[str, int]:
        """Return a worker's capacity less what its tasks hold by amounts."""
        remaining = dict(capacity)
        for task in self._on.get(worker, ()):
            for kind, amount in self.runs[task].placement[worker].items():
                remaining[kind] = remaining.get(kind, 0) - amount
        return remaining

    # ── what waits ──

    def put_job(self, job: JobView) -> None:
        """Take note of a job with gangs that may start, as it is now."""
        self.drop_job(job.id)
        if job.gangs:
            self.jobs[job.id] = job
            self.oldest = min(self.oldest, job.submitted)
            self._count_job(job, 1)
            if (limit := job.gangs[0].expected) > 0:
                self._limit[job.id] = limit
                _put(self.limits, job.requestor, (limit, job.id), 1)

    def let_ask(self, most: float) -> None:
        """Let jobspecs ask for this priority at most: the jobs that asked for more come to their turn again."""
        if most == self.most_asked:
            return
        asking = [job for job in self.jobs.values() if asked_priority(job.attributes) > min(most, self.most_asked)]
        for job in asking:
            self._count_job(job, -1)
        self.most_asked = most
        for job in asking:
            self._count_job(job, 1)

    def turn(self, job: JobView, more: int = 0, came: int = 0) -> Turn:
        """Return when it is a job's turn after `more` of its tasks started: who runs least comes first.

        `came`: the place among those that run equally many, where it counts when each came to that number.
        """
        priority = job.priority + min(self.most_asked, asked_priority(job.attributes))
        return job.running + more, came, -priority, job.submitted, job.id

    def drop_job(self, job_id: str) -> None:
        """Forget a job that has nothing to start."""
        if self.changed is not None:
            self.changed[job_id] = None
        job = self.jobs.pop(job_id, None)
        if job is not None:
            self._count_job(job, -1)
            if (limit := self._limit.pop(job_id, 0.0)) > 0:
                _put(self.limits, job.requestor, (limit, job_id), -1)

    @contextmanager
    def showing(self, jobs: Collection[JobView]) -> Iterator[None]:
        """Show some jobs as they are given here while a plan is made; one without gangs is hidden."""
        before, known = {job.id: self.jobs.get(job.id) for job in jobs}, self.gang_of
        own = {task: gang for job in jobs for gang in job.gangs for task in gang.tasks}
        for job in jobs:
            self.put_job(job)
        self.gang_of = lambda task: own.get(task) or known(task)
        try:
            yield
        finally:
            self.gang_of = known
            for name, one in before.items():
                if one is None:
                    self.drop_job(name)
                else:
                    self.put_job(one)

    def _count_job(self, job: JobView, sign: int) -> None:
        _put(self.queues, job.requestor, self.turn(job), sign)
        _add(self.gangs, job.requestor, sign * len(job.gangs))
        _add(self.waiting, job.requestor, sign * job.tasks)


def _is_alike(before: WorkerView, worker: WorkerView) -> bool:
    """Return whether nothing of a worker is different but what is free of it."""
    same = before.state is worker.state and before.kind == worker.kind
    return same and before.capacity is worker.capacity


def _plain(index: Any) -> Any:
    """Return an index as it can be compared: without zeros, rows as lists."""
    if isinstance(index, Mapping):
        return {key: value for key, one in index.items() if (value := _plain(one))}
    return index.items() if isinstance(index, Ranked) else index


def _nobody(_: str) -> GangView | None:
    return None


def _add(counter: Counter[str], key: str, amount: int) -> None:
    """Add to a counter that keeps no zeros: what it names is there."""
    counter[key] += amount
    if not counter[key]:
        del counter[key]


def _put(groups: dict[Key, Ranked[Item]], key: Key, item: Item, sign: int) -> None:
    """Add an item to its group, or take it out; there are no empty groups."""
    if sign > 0:
        groups.setdefault(key, Ranked()).add(item)
    else:
        groups[key].discard(item)
        if not len(groups[key]):
            del groups[key]


Item = TypeVar("Item", bound=tuple[Any, ...])
FEW_CHANGES = 64  # changes that are searched for one by one; more are sorted in at once


class Ranked(Generic[Item]):
    """A sorted list. A change costs a search; very many changes together cost one sort.

    Callers add only absent items and remove only present ones; neither is checked.

    >>> ranked = Ranked([(2, "b"), (1, "a")])
    >>> ranked.add((0, "c"))
    >>> ranked.discard((2, "b"))
    >>> ranked.items(), len(ranked)
    ([(0, 'c'), (1, 'a')], 2)
    """

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items = sorted(items)
        self._new: set[Item] = set()
        self._gone: set[Item] = set()

    def __len__(self) -> int:
        return len(self._items) + len(self._new) - len(self._gone)

    def add(self, item: Item) -> None:
        """Put one in."""
        if item in self._gone:
            self._gone.discard(item)
        else:
            self._new.add(item)

    def discard(self, item: Item) -> None:
        """Take one out."""
        if item in self._new:
            self._new.discard(item)
        else:
            self._gone.add(item)

    def items(self) -> list[Item]:
        """Return all in order. The list is this object's own: it is read, never changed."""
        if len(self._new) + len(self._gone) > FEW_CHANGES:
            self._items = sorted([one for one in self._items if one not in self._gone] + list(self._new))
        else:
            for one in self._gone:
                del self._items[bisect_left(self._items, one)]
            for one in self._new:
                insort(self._items, one)
        if self._new or self._gone:
            self._new, self._gone = set(), set()
        return self._items
