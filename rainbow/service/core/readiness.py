"""Whether the store can be read and written: asked at most once a second, however many want to know.

The first failure and the recovery are one line of the log each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from rainbow.errors import ConfigError, Unavailable
from rainbow.service.core.memory import place
from rainbow.store import Store

EACH: Final = 1.0  # seconds that an answer is true

log = structlog.get_logger("rainbow.store")


@place("readiness", most="one", of="whether the store can be read and written")
class Readiness:
    """What is known of the store of one service; `damage`: what a look at the whole of it has shown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._trouble: Unavailable | None = None
        self.damage = ""

    def check(self, store: Store, monotonic: Callable[[], float]) -> None:
        """Raise Unavailable with the cause if nothing can be stored."""
        with self._lock:
            if monotonic() >= self._looked + EACH:
                self._look(store)
                self._looked = monotonic()
            if self._trouble is not None:
                raise Unavailable(str(self._trouble), retry_after=2)

    def _look(self, store: Store) -> None:
        before, self._trouble = self._trouble, None
        try:
            if self.damage:
                raise Unavailable(self.damage)
            store.probe()
        except Unavailable as trouble:
            self._trouble = trouble
        if self._trouble and not before:
            log.warning("not-ready", cause=str(self._trouble))
        if before and not self._trouble:
            log.warning("ready-again", after=str(before))

    def watch(self, store: Store) -> None:
        """Look at the whole store, however long that takes."""
        with suppress(OSError):
            try:
                store.check()
            except ConfigError as fault:
                self.damage = str(fault)
