"""The scheduler's thread: steps a cluster when something happens there, and at every tick if time matters to it.

A quiet cluster is looked at now and then all the same: leases end, and another process may have written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from rainbow.errors import RainbowError
from rainbow.service.draining import finish
from rainbow.service.history import forget_old
from rainbow.service.measuring import count, observe
from rainbow.service.news import ALL
from rainbow.service.service import log
from rainbow.service.stepping import step
from rainbow.store import clusters

if TYPE_CHECKING:
    from rainbow.service.service import Entry, Service

LONGEST_PAUSE = 1.0  # seconds
QUIET = 5.0  # seconds between two looks at a cluster where nothing happens, a quarter of the lease at most
SHORTEST_PAUSE = 0.02  # a burst of submits is one step, not one each
LOOKS = 100  # at quiet clusters in a second: of many, each is looked at less often
LEASE_PARTS = 10  # what other processes changed is looked for so often in a lease


class Loop:
    """Steps clusters when something happens, and every tick; one failing cluster never stops another."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._catalogue: Mapping[str, Entry] = {}
        self._known: dict[str, str] = {}  # cluster id → name
        self._due: dict[str, float] = {}  # cluster id → when it is looked at if nothing happens; the first one first
        self._named = 0.0  # when clusters were named last
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._swept = 0.0

    def start(self) -> None:
        """Begin to step."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step at hand."""
        self._stop.set()
        self.service.news.hear([])
        self._thread.join(timeout=10)

    def _run(self) -> None:
        version = -1
        while not self._stop.is_set():
            version = self.service.news.wait(ALL, version, self.service.settings.tick)
            began = time.monotonic()
            try:
                due = self._names(began) if self.service.turns.scheduling() else []
            except RainbowError as fault:  # the store is away: it may come back
                log.warning("scheduler-waits", fault=str(fault))
                due = []
            for name in due:
                step_safely(self.service, name)
                self._end(name)
            # a long queue makes long steps: whoever submits to it gets as much of the processor as they do
            self._stop.wait(min(max(time.monotonic() - began, SHORTEST_PAUSE), LONGEST_PAUSE))

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
                log.warning("cluster-stays", cluster=name, fault=str(fault))

    def _names(self, now: float) -> list[str]:
        """Name the clusters whose turn it is."""
        touched, service = self.service.news.stirred(), self.service
        self._look_around(touched, now)
        self._follow(service.catalogue)
        restless = touched | service.restless | service.faults.keys()
        heard_of = self._known.keys() if ALL in touched else self._known.keys() & restless
        chosen = dict.fromkeys([*heard_of, *self._quiet(now)])
        later = now + min(QUIET, service.settings.lease / 4)
        for one in chosen:  # to the end of the line
            self._due.pop(one, None)
            self._due[one] = later
        return [self._known[one] for one in chosen]

    def _follow(self, catalogue: Mapping[str, Entry]) -> None:
        """Bring the line of clusters up to date; what is new in it has its turn at once."""
        if catalogue is not self._catalogue:
            self._catalogue = catalogue
            self._known = {entry.id: name for name, entry in catalogue.items()}
            self._due = {one: due for one, due in self._due.items() if one in self._known}
            new = dict.fromkeys(self._known.keys() - self._due.keys(), 0.0)
            self._due = {**new, **self._due}

    def _quiet(self, now: float) -> list[str]:
        """Return the clusters that nothing was heard of for longest, as many as may be looked at by now."""
        most = 1 + int(min(now - self._named, LONGEST_PAUSE) * LOOKS)
        self._named = now
        return [one for one, due in islice(self._due.items(), most) if due <= now]

    def _look_around(self, touched: set[str], now: float) -> None:
        """Take over what other processes have changed, now and then, and when a cluster nobody here knows is told."""
        unknown = touched - {ALL} - {entry.id for entry in list(self.service.catalogue.values())}
        over = now - self._swept >= self.service.settings.lease / LEASE_PARTS
        if over or unknown:
            self.service.refresh()
        if over:
            self._swept = now
            forget_old(self.service)


def step_safely(service: Service, name: str) -> bool:
    """Take a step; a fault is logged once and kept, and the cluster stays in its last good state."""
    entry = service.catalogue.get(name)
    began = time.monotonic()
    try:
        ordered = step(service, name)
    except Exception as fault:  # a policy is anybody's code: nothing it raises may end the loop
        told = f"{type(fault).__name__}: {fault}"
        count("rainbow_step_faults", name)
        observe("rainbow_step_seconds", "failed", time.monotonic() - began)
        if entry and service.faults.get(entry.id) != told:
            service.faults[entry.id] = told
            expected = isinstance(fault, RainbowError)  # says all there is to say: where it was raised adds nothing
            log.error("step-failed", cluster=name, fault=told, expected=expected, exc_info=not expected)
        return False
    if entry:
        service.faults.pop(entry.id, None)
    observe("rainbow_step_seconds", "ordered" if ordered else "idle", time.monotonic() - began)
    return ordered
