"""`rainbow serve`: the application under granian (or gunicorn), one worker process with threads, and the scheduler.

The worker dies with its parent whatever ends that, so that after `kill -9` nobody holds the port or the store.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from granian import Granian
from granian.constants import Interfaces

from rainbow import process_secrets
from rainbow.api.app import create_app
from rainbow.api.logs import log_to_stderr, without_password
from rainbow.errors import ConfigError
from rainbow.service import Service, Settings, check_service, open_service, read_config
from rainbow.service.peers import Peers
from rainbow.service.reloading import Watch
from rainbow.service.steps.loop import Loop

PR_SET_PDEATHSIG = 1
GRACE = 20  # seconds that running requests get when the server stops
TARGET = "rainbow.api.server:application"
log = structlog.get_logger("rainbow.server")


def serve(
    host: str = "127.0.0.1",
    port: int = 8080,
    database: str = "rainbow.db",
    config: str | None = None,
    *,
    scheduler: bool = True,
) -> None:
    """Serve until told to stop (SIGINT, SIGTERM); running requests are finished. Without `scheduler` nobody steps."""
    process_secrets.forget()
    settings = read_config(config) if config else Settings()
    log_to_stderr(settings.server.log)
    for warning in settings.warnings:
        log.warning("config", warning=warning)
    check_service(database, settings, config)  # what cannot be opened is said before anything is served
    told = {"database": database, "config": config, "parent": os.getpid(), "scheduler": scheduler, "host": host}
    told["secrets"] = process_secrets.hand_over()
    os.environ["RAINBOW_SERVE"] = json.dumps(told)
    scheme = "https" if settings.server.certificate else "http"
    log.info("serving", url=f"{scheme}://{host}:{port}", database=without_password(database), scheduler=scheduler)
    ENGINES[settings.server.engine](host, port, settings)


def _granian(host: str, port: int, settings: Settings) -> None:
    server = settings.server
    Granian(
        TARGET,
        address=host,
        port=port,
        interface=Interfaces.WSGI,
        factory=True,
        workers=1,
        blocking_threads=server.threads,
        backlog=1024,
        log_enabled=True,
        respawn_failed_workers=True,
        workers_kill_timeout=GRACE,
        ssl_cert=_file(server.certificate),
        ssl_key=_file(server.key),
        ssl_ca=_file(server.client_ca),
        ssl_client_verify=server.client_ca is not None,
    ).serve()


def _gunicorn(host: str, port: int, settings: Settings) -> None:
    """Become gunicorn: it wants the process for itself."""
    server = settings.server
    arguments = ["--bind", f"{host}:{port}", "--workers", "1", "--threads", str(server.threads)]
    arguments += ["--graceful-timeout", str(GRACE), "--timeout", "120", f"{TARGET}()"]
    for option, value in (("certfile", server.certificate), ("keyfile", server.key), ("ca-certs", server.client_ca)):
        arguments = [*([f"--{option}", value] if value else []), *arguments]
    if server.client_ca:
        arguments = ["--cert-reqs", "2", *arguments]
    try:
        import gunicorn  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401 - by choice only
    except ImportError:
        hint = "pip install 'rainbow-scheduler[gunicorn]'"
        raise ConfigError(f"gunicorn is not installed ({hint})", pointer="/server/engine") from None
    os.execv(sys.executable, [sys.executable, "-m", "gunicorn", *arguments])  # noqa: S606 - no shell is meant


ENGINES: dict[str, Callable[[str, int, Settings], None]] = {"granian": _granian, "gunicorn": _gunicorn}


def _file(path: str | None) -> Path | None:
    return Path(path) if path else None


def application() -> Any:
    """Make the application inside the worker process."""
    told = json.loads(os.environ["RAINBOW_SERVE"])
    _die_with(told["parent"])
    process_secrets.take_over(told["secrets"])
    settings = read_config(told["config"]) if told["config"] else Settings()
    log_to_stderr(settings.server.log)
    service = open_service(told["database"], settings, told["config"])
    made = create_app(service)
    start(service, told["config"], settings, scheduler=told["scheduler"])
    # what was made of the store stays: collecting garbage need not go through all of it again and again
    gc.collect()
    gc.freeze()
    _at_signal(service.let_go)
    return made


def start(service: Service, config: str | None, settings: Settings, *, scheduler: bool) -> None:
    """Start what works beside the requests; `settings` is what the configuration file says."""
    if config:
        service.configuration = Watch(service, config, settings)
        service.configuration.start()
    if service.store.many_processes:
        Peers(service).start()
    if scheduler:
        Loop(service).start()


def schedule(database: str, config: str | None) -> None:
    """Step clusters until told to stop (SIGINT, SIGTERM); the step at hand is finished."""
    process_secrets.forget()
    settings = read_config(config) if config else Settings()
    log_to_stderr(settings.server.log)
    service = open_service(database, settings, config)
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    start(service, config, settings, scheduler=False)
    loop = Loop(service)
    loop.start()
    log.info("scheduling", database=without_password(database))
    ended.wait()
    loop.stop()
    service.close()


def _die_with(parent: int) -> None:
    """Ask the kernel to end this process when its parent ends (Linux); the parent may have ended already."""
    if os.getpid() == parent:  # gunicorn took its place
        return
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _at_signal(act: Callable[[], None]) -> None:
    """Act as soon as a signal comes. The server has the handlers: it waits for requests, and receivers wait long."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)

    def watch() -> None:
        os.read(reading, 1)
        act()

    threading.Thread(target=watch, name="signals", daemon=True).start()
