"""The scheduler's thread: steps clusters when something happens to them, and every tick while they have work."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from rainbow.errors import RainbowError
from rainbow.service.draining import finish
from rainbow.service.history import forget_old
from rainbow.service.measuring import count, observe
from rainbow.service.news import ALL
from rainbow.service.service import log
from rainbow.service.stepping import step
from rainbow.store import clusters, jobs

if TYPE_CHECKING:
    from rainbow.service.service import Service

LONGEST_PAUSE = 1.0  # seconds
SHORTEST_PAUSE = 0.02  # a burst of submits is one step, not one each
LEASE_PARTS = 10  # all clusters are looked at so often in a lease


class Loop:
    """Steps a cluster when something happens to it, and every tick while it has work; none stops another."""

    def __init__(self, service: Service) -> None:
        self.service = service
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
                due = self._due() if self.service.turns.scheduling() else []
            except RainbowError as fault:  # the store is away: it may come back
                log.warning("scheduler-waits", fault=str(fault))
                due = []
            for name in due:
                step_safely(self.service, name)
                self._end(name)
            # a long queue makes long steps: whoever submits to it gets as much of the processor as they do
            self._stop.wait(min(max(time.monotonic() - began, SHORTEST_PAUSE), LONGEST_PAUSE))

    def _end(self, name: str) -> None:
        """Let a draining cluster go once it has nothing to do."""
        entry = self.service.catalogue.get(name)
        if entry and entry.draining:
            with self.service.store.read() as connection:
                record = clusters.by_id(connection, entry.id)
            if record:
                finish(self.service, record)

    def _due(self) -> list[str]:
        """Return the clusters with work or news; now and then all, so that silent agents are noticed."""
        stirred = self.service.news.stirred()
        if time.monotonic() - self._swept >= self.service.settings.lease / LEASE_PARTS:
            self._swept = time.monotonic()
            self.service.refresh()
            forget_old(self.service)
            return list(self.service.catalogue)
        with self.service.store.read() as connection:
            wanted = stirred | jobs.clusters_with_live_jobs(connection)
        known = {entry.id: name for name, entry in list(self.service.catalogue.items())}
        if wanted - set(known):
            self.service.refresh()
            known = {entry.id: name for name, entry in list(self.service.catalogue.items())}
        return [known[cluster_id] for cluster_id in sorted(wanted) if cluster_id in known]


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
            log.error(
                "step-failed", cluster=name, fault=told, expected=isinstance(fault, RainbowError), exc_info=True
            )
        return False
    if entry:
        service.faults.pop(entry.id, None)
    observe("rainbow_step_seconds", "ordered" if ordered else "idle", time.monotonic() - began)
    return ordered
