"""The configuration file read again while the server runs: checked first, taken over whole or not at all.

What is decided anew with every request or step is taken over: selector and options, the policy of new clusters, tick
and lease. The rest is wired at the start (WIRED): a change there is told, and waits for the next start.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rainbow.errors import RainbowError
from rainbow.service.config import read_config
from rainbow.service.service import log

if TYPE_CHECKING:
    from rainbow.service.service import Service
    from rainbow.service.settings import Settings

TAKEN_OVER = ("selector", "selector_options", "policy", "tick", "lease", "warnings")
WIRED = ("name", "secret", "admin", "backend")
PAUSE = 1.0  # seconds between two looks at the file


def take_over(service: Service, before: Settings, after: Settings) -> list[str]:
    """Let the service use new settings, in one assignment; return what has to wait for the next start.

    `before` is what the file said until now: the service's own settings have the credentials made at its start.
    """
    changes: dict[str, Any] = {name: getattr(after, name) for name in TAKEN_OVER}
    service.settings = replace(service.settings, **changes)
    service.tell()
    return [name for name in WIRED if getattr(before, name) != getattr(after, name)]


class Watch:
    """Looks at the configuration file and takes over what changes; a file that cannot be used changes nothing.

    `read` is what the file said at the start. The first look reads it again: it may have changed since.
    """

    def __init__(self, service: Service, path: str | Path, read: Settings) -> None:
        self.service = service
        self.path = Path(path)
        self.fault = ""  # why the file, as it is now, is not used
        self._read = read
        self._seen: tuple[int, int, int] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="configuration", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join(timeout=10)

    def look(self) -> bool:
        """Look once; tell whether new settings were taken over."""
        signature = self._signature()
        if signature == self._seen:
            return False
        self._seen = signature
        try:
            settings = read_config(self.path)
        except RainbowError as fault:
            self.fault = str(fault)
            log.error("config-not-reloaded", file=str(self.path), fault=self.fault)
            return False
        self.fault = ""
        if settings == self._read:
            return False
        for warning in settings.warnings:
            log.warning("config", warning=warning)
        waiting = take_over(self.service, self._read, settings)
        self._read = settings
        log.info("config-reloaded", file=str(self.path), selector=settings.selector, needs_restart=waiting)
        return True

    def _signature(self) -> tuple[int, int, int] | None:
        """Return what changes with every writing of the file; None while there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _run(self) -> None:
        while not self._stop.wait(PAUSE):
            try:
                self.look()
            except Exception as fault:  # a plug-in's check is anybody's code: it must not end the looking
                log.error("config-not-reloaded", file=str(self.path), fault=repr(fault), exc_info=True)
