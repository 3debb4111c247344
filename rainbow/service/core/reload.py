"""The configuration file, read again while the server runs: checked first, applied whole or not at all.

The server looks at it every second, and reads it at once when the administrator asks; an event names the actor.
Settings that are read with every request or cycle apply at once: selector and options, policy and limits of new
clusters, unplaced jobs, tick, lease and share. The others (WIRED) are reported and apply at the next start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rainbow.errors import BY_FILE, Conflict, Forbidden, RainbowError, Unavailable
from rainbow.outcome import after_commit, note_object
from rainbow.service.core.memory import place
from rainbow.service.core.service import log
from rainbow.service.core.settings import read_config
from rainbow.service.core.threads import Threads
from rainbow.store import events

if TYPE_CHECKING:
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.service.core.settings import Settings


CHANGES = (
    *("selector", "selector_options", "policy", "unplaced", "undecided", "tick", "lease", "grace", "forecast_share"),
    "models",
    "unplaced_patience",
    "admission",
)
TAKEN_OVER = (*CHANGES, "warnings")
WIRED = ("name", "secret", "admin", "backend", "limits", "numbers", "step_seconds", "history", "server")
PAUSE = 1.0  # seconds between two looks at the file
OF_NO_CLUSTER = ""  # events of it are the administrator's alone


@place("configuration", most="one file", of="which file is watched")
class Configuration:
    """The file a service was started with: who looks at it, None without one."""

    watch: ConfigWatch | None = None


def reload(service: Service, who: Caller) -> dict[str, Any]:
    """Read the configuration file now; a fault in it is raised, and the old settings stay."""
    if not who.admin:
        raise Forbidden(f"admin token required to reload the configuration; {BY_FILE}")
    watch = service.state(Configuration).watch
    if watch is None:
        raise Conflict("nothing to reload: the server was started without a configuration file")
    answer = watch.reload("admin")
    note_object("configuration")
    with after_commit("audit"), service.store.write():
        return answer


def memory(service: Service, who: Caller) -> list[dict[str, Any]]:
    """List what this process remembers, for the administrator."""
    if not who.admin:
        raise Forbidden("admin token required to show what the server remembers")
    return [row._asdict() for row in service.memory()]


def take_over(service: Service, settings: Settings) -> None:
    """Let the service use new settings, in one assignment: every request has the old ones or the new."""
    changes: dict[str, Any] = {name: getattr(settings, name) for name in TAKEN_OVER}
    service.settings = replace(service.settings, **changes)
    service.tell()


class ConfigWatch:
    """Looks at the configuration file and takes over what changes; a file that cannot be used changes nothing.

    `read` is what the file said at the start. The first look reads it again: it may have changed since.
    """

    def __init__(self, service: Service, path: str | Path, read: Settings) -> None:
        self.service = service
        self.path = Path(path)
        self.fault = ""  # why the file, as it is now, is not used
        self._started = self._read = read  # what it said at the start, and when it was read last
        self._seen: tuple[int, int, int] | None = None
        self._one_at_a_time = threading.Lock()
        self._stop = threading.Event()
        self._thread = service.state(Threads).make("configuration", self._run)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join(timeout=10)

    def look(self) -> bool:
        """Look once; return whether new settings were taken over."""
        signature = self._signature()
        if signature == self._seen:
            return False
        before = self._read
        try:
            self.reload("a change of the file")
        except Unavailable:  # the store's fault, not the file's: the next look tries again
            return False
        except RainbowError as fault:
            self._seen, self.fault = signature, str(fault)
            log.error("config-not-reloaded", file=str(self.path), fault=self.fault)
            return False
        self._seen = signature
        return self._read is not before

    def reload(self, by: str) -> dict[str, Any]:
        """Check the file and take over what has changed since it was read last; RainbowError changes nothing."""
        with self._one_at_a_time:
            settings = read_config(self.path)
            self.fault = ""
            answer = {
                "changed": _different(CHANGES, self._read, settings),
                "needs_restart": _different(WIRED, self._started, settings),
            }
            if settings != self._read:
                self._take_over(settings, by, answer)
        return {**answer, "warnings": [*settings.warnings]}

    def _take_over(self, settings: Settings, by: str, answer: dict[str, list[str]]) -> None:
        """Note who did it, then do it: where nothing can be noted nothing is taken over."""
        with self.service.store.write() as connection:
            events.add(connection, self.service.clock(), OF_NO_CLUSTER, "config-reloaded", by=by, **answer)
        take_over(self.service, settings)
        self._read = settings
        for warning in settings.warnings:
            log.warning("config", warning=warning)
        log.info("config-reloaded", file=str(self.path), by=by, selector=settings.selector, **answer)

    def _signature(self) -> tuple[int, int, int] | None:
        """Return what changes with every writing of the file; None while there is none."""
        try:
            result = self.path.stat()
        except OSError:
            return None
        return result.st_mtime_ns, result.st_size, result.st_ino

    def _run(self) -> None:
        while not self._stop.wait(PAUSE):
            try:
                self.look()
            except Exception as fault:  # a plug-in's check is anybody's code: it must not end the looking
                log.error("config-not-reloaded", file=str(self.path), fault=repr(fault), exc_info=True)


def _different(names: Iterable[str], before: Settings, after: Settings) -> list[str]:
    return [name for name in names if getattr(before, name) != getattr(after, name)]
