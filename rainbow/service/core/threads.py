"""The threads of a server beside those of its requests: the scheduler, the forecaster, what tells other servers.

A thread that ends by an exception is a fault of Rainbow. It is logged and counted, and starts again after a pause:
what it does is done again and again from what is stored, so that nothing is lost by that. Until a thread that
requests need has run for a while, the server is not ready.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from rainbow.service.core.counters import count
from rainbow.service.core.memory import place

PAUSE: Final = 1.0  # seconds before a thread starts again
STEADY = 1.0  # seconds that it then runs until it counts as up

log = structlog.get_logger("rainbow.threads")


@place("threads", most="the threads of a server", of="threads that run, and that are down")
class Threads:
    """The threads of one service."""

    def __init__(self) -> None:
        self._down: dict[str, float] = {}  # threads that requests need → until when they count as down

    def make(self, name: str, work: Callable[[], None], *, needed: bool = False) -> threading.Thread:
        """Return a thread that does its work until that returns; `needed`: by requests."""
        return threading.Thread(target=self._keep_running, args=(name, work, needed), name=name, daemon=True)

    def _keep_running(self, name: str, work: Callable[[], None], needed: bool) -> None:
        while True:
            try:
                return work()
            except Exception as fault:
                if needed:
                    self._down[name] = time.monotonic() + PAUSE + STEADY
                count("rainbow_thread_failures", name)
                log.error("thread-failed", thread=name, fault=repr(fault), starts_again_in=PAUSE, exc_info=fault)
            time.sleep(PAUSE)

    def down(self) -> list[str]:
        """Return the names of the threads that requests need and that are down."""
        now = time.monotonic()
        return sorted(name for name, until in self._down.copy().items() if until > now)
