"""The scheduler's thread: steps a cluster when something happens there, and at every tick if time matters to it.

A quiet cluster is looked at now and then all the same: leases end, and another process may have written.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from rainbow.errors import RainbowError
from rainbow.service.service import log
from rainbow.service.stepping import step

if TYPE_CHECKING:
    from rainbow.service.service import Service

LONGEST_PAUSE = 1.0  # seconds
QUIET = 5.0  # seconds between two looks at a cluster where nothing happens, a quarter of the lease at most


class Loop:
    """Steps clusters when something happens, and every tick; one failing cluster never stops another."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._due: dict[str, float] = {}  # cluster id → when it is looked at if nothing happens
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Begin to step."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step at hand."""
        self._stop.set()
        self.service.tell()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        version = -1
        while not self._stop.is_set():
            version = self.service.wait(version, self.service.settings.tick)
            began = time.monotonic()
            for name in self._names(began):
                step_safely(self.service, name)
            # a long queue makes long steps: whoever submits to it gets as much of the processor as they do
            self._stop.wait(min(time.monotonic() - began, LONGEST_PAUSE))

    def _names(self, now: float) -> list[str]:
        """Name the clusters whose turn it is."""
        touched, service = self.service.take_touched(), self.service
        restless = touched | service.restless | service.faults.keys()
        every = {entry.id: name for name, entry in service.catalogue.items()}
        chosen = {
            one: name
            for one, name in every.items()
            if None in touched or one in restless or self._due.get(one, 0.0) <= now
        }
        later = now + min(QUIET, service.settings.lease / 4)
        self._due = {one: later if one in chosen else self._due[one] for one in every}
        return list(chosen.values())


def step_safely(service: Service, name: str) -> bool:
    """Take a step; a fault is logged once and kept, and the cluster stays in its last good state."""
    entry = service.catalogue.get(name)
    try:
        ordered = step(service, name)
    except Exception as fault:  # a policy is anybody's code: nothing it raises may end the loop
        told = f"{type(fault).__name__}: {fault}"
        if entry and service.faults.get(entry.id) != told:
            service.faults[entry.id] = told
            log.error(
                "step-failed", cluster=name, fault=told, expected=isinstance(fault, RainbowError), exc_info=True
            )
        return False
    if entry:
        service.faults.pop(entry.id, None)
    return ordered
