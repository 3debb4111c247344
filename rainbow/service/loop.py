"""The scheduler's thread: steps every cluster when something happens, and every tick."""

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


class Loop:
    """Steps every cluster when something happens, and every tick; one failing cluster never stops another."""

    def __init__(self, service: Service) -> None:
        self.service = service
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
            for name in list(self.service.catalogue):
                step_safely(self.service, name)
            # a long queue makes long steps: whoever submits to it gets as much of the processor as they do
            self._stop.wait(min(time.monotonic() - began, LONGEST_PAUSE))


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
