"""`rainbow serve`: the application under granian, one worker process with threads, the scheduler beside it.

The worker dies with its parent whatever ends that, so that after `kill -9` nobody holds the port or the store.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import structlog
from granian import Granian
from granian.constants import Interfaces

from rainbow.api.app import create_app
from rainbow.service import Settings, open_service, read_config
from rainbow.service.loop import Loop
from rainbow.service.reloading import Watch

THREADS = 96  # requests at once; agents wait in some of them
PR_SET_PDEATHSIG = 1
log = structlog.get_logger("rainbow.server")


def serve(
    host: str = "127.0.0.1",
    port: int = 8080,
    database: str = "rainbow.db",
    config: str | None = None,
    *,
    loop: bool = True,
) -> None:
    """Serve until told to stop (SIGINT, SIGTERM); running requests are finished. Without `loop` nobody steps."""
    settings = read_config(config) if config else Settings()
    for warning in settings.warnings:
        log.warning("config", warning=warning)
    open_service(database, settings).close()  # a store that cannot be opened is said before anything is served
    os.environ["RAINBOW_SERVE"] = "\n".join([database, config or "", str(os.getpid()), "loop" if loop else ""])
    log.info("serving", url=f"http://{host}:{port}", database=_safe(database))
    Granian(
        "rainbow.api.server:application",
        address=host,
        port=port,
        interface=Interfaces.WSGI,
        factory=True,
        workers=1,
        blocking_threads=THREADS,
        backlog=1024,
        log_enabled=True,
        respawn_failed_workers=True,
        workers_kill_timeout=20,
    ).serve()


def application() -> Any:
    """Make the application inside the worker process."""
    database, config, parent, loop = os.environ["RAINBOW_SERVE"].split("\n")
    _die_with(int(parent))
    log_to_stderr()
    settings = read_config(config) if config else Settings()
    service = open_service(database, settings)
    if config:
        Watch(service, config, settings).start()
    if loop:
        Loop(service).start()
    _at_signal(service.let_go)
    return create_app(service)


def _die_with(parent: int) -> None:
    """Ask the kernel to end this process when its parent ends (Linux); the parent may have ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _at_signal(act: Callable[[], None]) -> None:
    """Act as soon as a signal comes. Granian has the handlers: it waits for requests, and receivers wait long."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)

    def watch() -> None:
        os.read(reading, 1)
        act()

    threading.Thread(target=watch, name="signals", daemon=True).start()


def log_to_stderr() -> None:
    """Write one line an event, to stderr, with the time in UTC."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )


def _safe(database: str) -> str:
    """Leave a password out of what is logged."""
    scheme, at, rest = database.rpartition("@")
    return f"...@{rest}" if at and "://" in scheme else database
