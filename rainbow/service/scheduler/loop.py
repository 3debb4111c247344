"""The scheduler's thread: steps a cluster when something happens there, and at every tick if time matters to it.

Other clusters are looked at one after another in a share of the time, so that a thousand clusters without agents
leave the processor to submits:

asleep   something has changed, but no agent serves any of its workers: nothing can start there
quiet    nothing has changed; leases end all the same, and another process may have written

A policy may be third-party code. One that does not return within `scheduler.step_seconds` is named, and another
thread takes over the other clusters; its own cluster is stepped again when it has returned.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rainbow.errors import RainbowError
from rainbow.plugins import PluginFault
from rainbow.scheduling import traits_of
from rainbow.service.agents.liveness import store_signs
from rainbow.service.clusters.drain import finish
from rainbow.service.core.counters import count, gauge, observe
from rainbow.service.core.pubsub import ALL
from rainbow.service.core.service import log
from rainbow.service.core.threads import Threads
from rainbow.service.jobs.lifecycle import forget_old
from rainbow.service.placement.staged_tasks import sweep
from rainbow.service.placement.unplaced_jobs import Round
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.service.scheduler.step import step
from rainbow.store import clusters, workers
from rainbow.store.engine import cause_of

if TYPE_CHECKING:
    from rainbow.service.core.service import RegisteredCluster, Service


class PollQueue:
    """The clusters of a catalogue by id: who sleeps first, then the quiet ones from the time they are due."""

    def __init__(self) -> None:
        self._catalogue: Mapping[str, RegisteredCluster] = {}
        self._names: dict[str, str] = {}
        self._asleep: dict[str, None] = {}
        self._due: dict[str, float] = {}  # when it is looked at if nothing is heard of it; the first one first

    def follow(self, catalogue: Mapping[str, RegisteredCluster]) -> None:
        """Bring the line up to date; what is new in it is due at once."""
        if catalogue is not self._catalogue:
            self._catalogue = catalogue
            self._names = {entry.id: name for name, entry in catalogue.items()}
            new = dict.fromkeys(self._names.keys() - self._due.keys(), 0.0)
            self._due = {**new, **{one: due for one, due in self._due.items() if one in self._names}}
            self._asleep = {one: None for one in self._asleep if one in self._names}

    def known(self, ids: Collection[str]) -> set[str]:
        """Return those of some clusters that are in it; ALL among them is every one."""
        return set(self._names if ALL in ids else self._names.keys() & ids)

    def name(self, cluster_id: str) -> str:
        """Name a cluster."""
        return self._names[cluster_id]

    @property
    def sleepers(self) -> bool:
        """Whether something is still to be looked at of which something was heard."""
        return bool(self._asleep)

    def put_off(self, ids: Iterable[str]) -> None:
        """Let clusters be looked at before the quiet ones, when there is time."""
        self._asleep |= dict.fromkeys(ids)

    def first(self, now: float) -> str | None:
        """Return the cluster to look at next, None while none is due."""
        if self._asleep:
            return next(iter(self._asleep))
        one = next(iter(self._due), None)
        return one if one is not None and self._due[one] <= now else None

    def looked_at(self, cluster_id: str, due: float) -> None:
        """Send a cluster to the end of the line, until it is due again."""
        self._asleep.pop(cluster_id, None)
        self._due.pop(cluster_id, None)
        self._due[cluster_id] = due


LONGEST_PAUSE = 1.0  # seconds
QUIET = 5.0  # seconds between two looks at a cluster where nothing happens, a quarter of the lease at most
SHORTEST_PAUSE = 0.02  # a burst of submits is one step, not one each
SHARE = 0.05  # of the time, at most, goes to clusters that wait to be looked at
LEASE_PARTS = 10  # what other processes changed is looked for so often in a lease
MOST_OVERDUE = 8  # threads that are left to policies that do not come back


@dataclass(frozen=True, slots=True)
class _Step:
    """The step that is being taken."""

    cluster_id: str
    name: str
    began: float


class Loop:
    """Steps clusters when something happens, and every tick; one failing cluster never stops another."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self.service = service
        self._clock = clock
        self._line = PollQueue()
        self._free = 0.0  # clusters that wait for it are looked at from then on: their share is used up until then
        self._stop = threading.Event()
        self._swept = 0.0
        self._unplaced = Round(service, clock)
        self._thread = self._stepper()
        self._watcher = service.state(Threads).make("watchdog", self._watch)
        self._at: _Step | None = None
        self._forecaster = Forecaster(service)
        self._changing = threading.Lock()  # of `_at`, `_thread` and service.overdue
        gauge("rainbow_steps_overdue", self._overdue)

    def start(self) -> None:
        """Begin to step."""
        self._thread.start()
        self._watcher.start()
        self._forecaster.start()

    def stop(self) -> None:
        """End after the step at hand."""
        self._stop.set()
        self._forecaster.stop()
        self.service.news.hear([])
        for thread in (self._thread, self._watcher):
            if thread.ident is not None:
                thread.join(timeout=10)

    def _stepper(self) -> threading.Thread:
        return self.service.state(Threads).make("scheduler", self._run, needed=True)

    def _run(self) -> None:
        version = -1
        while not self._stop.is_set():
            pause = 0.0 if self._line.sleepers else self.service.settings.tick
            version = self.service.news.wait(ALL, version, pause)
            began = self._clock()
            try:
                store_signs(self.service)
                scheduling = self.service.turns.scheduling()
                for name in self.turn(began) if scheduling else ():
                    if not self._step(name):
                        return
                if scheduling:
                    self._unplaced.look()
            except RainbowError as fault:  # the store is away: it may come back
                log.warning("database-unavailable", fault=str(fault), cause=cause_of(fault))
            # a long queue makes long steps: whoever submits to it gets as much of the processor as they do
            self._stop.wait(min(max(self._clock() - began, SHORTEST_PAUSE), LONGEST_PAUSE))

    def _step(self, name: str) -> bool:
        """Step a cluster; False if it took so long that another thread is in this one's place."""
        entry = self.service.catalogue.get(name)
        if entry is None or entry.id in self.service.overdue:
            return True
        with self._changing:
            self._at = _Step(entry.id, name, self._clock())
        step_safely(self.service, name)
        with self._changing:
            if self.service.overdue.pop(entry.id, None) is None or threading.current_thread() is self._thread:
                self._at = None
            else:
                log.info("step-came-back", cluster=name)
                return False
        self._end(name)
        return True

    # ── steps that do not come back ──

    def _watch(self) -> None:
        most = self.service.settings.step_seconds
        while not self._stop.wait(min(1.0, most / 10)):
            with self._changing:
                at = self._at
                if at is not None and self._clock() - at.began >= most and at.cluster_id not in self.service.overdue:
                    self._give_up(at, most)

    def _give_up(self, at: _Step, most: float) -> None:
        """Name a step that has not come back, and let another thread step the other clusters."""
        where = _where(self._thread)
        text = f"the policy has not come back for {most:g} s, in {where}; its cluster is not stepped until it does"
        self.service.faults[at.cluster_id] = text
        count("rainbow_step_faults", at.name)
        log.error("step-overdue", cluster=at.name, seconds=most, where=where, others=len(self.service.overdue))
        self.service.overdue[at.cluster_id] = at.began
        if len(self.service.overdue) <= MOST_OVERDUE:
            self._at, self._thread = None, self._stepper()
            self._thread.start()

    def _overdue(self) -> dict[str, float]:
        names = {entry.id: name for name, entry in self.service.catalogue.items()}
        now = self._clock()
        return {names[one]: now - began for one, began in self.service.overdue.copy().items() if one in names}

    def _end(self, name: str) -> None:
        """Let a draining cluster go once it has nothing to do; not while the store is away."""
        entry = self.service.catalogue.get(name)
        if entry and entry.draining:
            try:
                with self.service.store.read() as connection:
                    record = clusters.get(connection, entry.id)
                if record:
                    finish(self.service, record)
            except RainbowError as fault:
                log.warning("cluster-delete-delayed", cluster=name, fault=str(fault))

    def turn(self, now: float) -> Iterator[str]:
        """Name the clusters whose turn it is, one after the other: those that wait only while there is time."""
        heard, later = self._heard(now), now + min(QUIET, self.service.settings.lease / 4)
        for one in heard:
            self._line.looked_at(one, later)
        yield from map(self._line.name, heard)
        self._free = max(self._free, now - LONGEST_PAUSE)
        while self._free <= now and (cluster := self._line.first(now)) is not None:
            began = self._clock()
            self._line.looked_at(cluster, later)
            yield self._line.name(cluster)
            self._free += (self._clock() - began) / SHARE

    def _heard(self, now: float) -> list[str]:
        """Return the clusters something was heard of, or to which time matters, where anything can start."""
        touched, service = self.service.news.changed_clusters(), self.service
        self._line.follow(service.catalogue)
        self._look_around(touched, now)
        self._line.follow(service.catalogue)
        known = self._line.known(touched | service.poll_every_tick | service.has_backlog | service.faults.keys())
        asleep = self._asleep(known) - service.has_backlog if known else set()
        self._line.put_off(sorted(asleep))
        return sorted(known - asleep)

    def _asleep(self, ids: set[str]) -> set[str]:
        """Return those of some clusters where no worker is there and none is to be had without."""
        with self.service.store.read() as connection:
            result = workers.unattended(connection, ids)
        return {one for one, policy in result.items() if traits_of(policy).needs_workers}

    def _look_around(self, touched: set[str], now: float) -> None:
        """Take over what other processes have changed, now and then, and when a cluster unknown here is published."""
        unknown = touched - {ALL} - self._line.known(touched)
        over = now - self._swept >= self.service.settings.lease / LEASE_PARTS
        if over or unknown:
            self.service.refresh()
        if over:
            self._swept = now
            forget_old(self.service)
            sweep(self.service)


def _where(thread: threading.Thread) -> str:
    """Return the line of code that a thread is at."""
    frame = sys._current_frames().get(thread.ident or 0)
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})" if frame else "an unknown place"


def step_safely(service: Service, name: str) -> bool:
    """Take a step; a fault is logged once and kept, and the cluster stays in its last good state."""
    entry = service.catalogue.get(name)
    began = time.monotonic()
    try:
        ordered = step(service, name)
    except Exception as fault:  # a policy is anybody's code: nothing it raises may end the loop
        text = f"{type(fault).__name__}: {fault}"
        count("rainbow_step_faults", name)
        observe("rainbow_step_seconds", "failed", time.monotonic() - began)
        if entry and service.faults.get(entry.id) != text:
            service.faults[entry.id] = text
            # one of ours says all there is to say: where it was raised adds nothing
            expected = isinstance(fault, RainbowError) and not isinstance(fault, PluginFault)
            log.error("step-failed", cluster=name, fault=text, expected=expected, exc_info=not expected)
        return False
    if entry:
        service.faults.pop(entry.id, None)
    observe("rainbow_step_seconds", "ordered" if ordered else "idle", time.monotonic() - began)
    return ordered
