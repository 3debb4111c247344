"""The application, its log, and the processes of `rainbow serve`.

A parent process listens and restarts the worker processes, each of which has a front, threads and a scheduler. They
die with their parent, so that after `kill -9` no process holds the port or the store.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import logging
import multiprocessing
import os
import re
import resource
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import structlog
import uvicorn
from flask import Flask
from werkzeug.routing import BaseConverter, PathConverter

from rainbow import page, process_secrets
from rainbow.api import problems
from rainbow.api.connections import Connection, Gone, until_gone
from rainbow.api.front import LIVE, Front, answer_to, answer_with
from rainbow.api.openapi import openapi
from rainbow.api.places import Places
from rainbow.api.rate_limit import pace
from rainbow.api.supervisor import Supervisor
from rainbow.api.views.administration import accounts, config, credentials, health, metrics, tokens
from rainbow.api.views.clusters import agents, clusters, nodes, reservations
from rainbow.api.views.events import events
from rainbow.api.views.jobs import batch, jobs
from rainbow.api.views.slurm import slurm
from rainbow.api.wire import refuse_unknown_queries
from rainbow.errors import ConfigError, RainbowError, Unavailable
from rainbow.service import Service, Settings, check_service, open_service, read_config
from rainbow.service.agents.liveness import store_signs
from rainbow.service.core.counters import gauge, leave, share
from rainbow.service.core.pg_notify import PgNotify
from rainbow.service.core.reload import Configuration, ConfigWatch
from rainbow.service.core.settings import Server
from rainbow.service.queries.fleet import follow
from rainbow.service.scheduler.loop import Loop
from rainbow.standard_streams import keep_working_without_log
from rainbow.store import file_of
from rainbow.store.migrations.upgrade import leave_newer


class _Id(BaseConverter):
    """An id, or a name of a job: what follows a colon is a verb, unless it is a number, as in oak:530."""

    regex = r"[^/:]+(?::\d+)?"


class _Worker(PathConverter):
    """A worker: a path that does not end with a verb."""

    regex = "[^/].*?(?<!:offline)(?<!:drain)(?<!:reinstate)"


OPERATIONS = (
    *(clusters, nodes, jobs, batch, agents, tokens, credentials, accounts, reservations, config, events),
    *(metrics, openapi, health, slurm),
)


def create_app(service: Service) -> Flask:
    """Make the application that serves one service."""
    app = with_operations()
    app.extensions["rainbow"] = service
    problems.install(app)
    pace(app)
    refuse_unknown_queries(app)
    page.install(app, problems.STATUS)
    return app


def with_operations() -> Flask:
    """Make an application that knows the paths of all operations."""
    app = Flask("rainbow", static_folder=None)
    app.json.sort_keys = False  # type: ignore[attr-defined]  # typed as any provider, ours is the default one
    app.url_map.converters["id"] = _Id
    app.url_map.converters["worker"] = _Worker
    for blueprint in OPERATIONS:
        app.register_blueprint(blueprint)
    return app


# a credential of ours by its prefix, and the password in a URL
SECRET = re.compile(r"\brb[rstma]_[A-Za-z0-9_-]{6,}")
PASSWORD = re.compile(r"://([^:/@\s]*):[^@/\s]*@")


def log_to_stderr(level: str = "info") -> None:
    """Write one line an event, to stderr, with the time in UTC and the id of the request."""
    keep_working_without_log()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            hide,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )


def hide(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leave every secret out of what is logged, wherever it appears.

    >>> hide(None, "", {"fault": "bad rbt_abcdefgh at postgresql://u:pw@host/db"})
    {'fault': 'bad ... at postgresql://u:...@host/db'}
    """
    return {key: _hidden(value) if isinstance(value, str) else value for key, value in event.items()}


def _hidden(text: str) -> str:
    return PASSWORD.sub(r"://\1:...@", SECRET.sub("...", text))


def without_password(database: str) -> str:
    """Leave a password out of a URL."""
    return PASSWORD.sub(r"://\1:...@", database)


PR_SET_PDEATHSIG = 1
EACH = 10.0  # seconds between two lines of the log about a database that is away
AGAIN = 1.0  # seconds between two tries to reach it
FREED = 10.0  # seconds to wait for an address that is in use
GRACE = 20  # seconds that running requests get when the server stops
TURN = 0.0005  # seconds that a thread computes before another has its turn, where Python would take ten times that
QUEUE = 4_096  # connections that the kernel holds until they are accepted
BACKLOG = 128  # of them, accepted before something else has its turn
OWN_FILES = 512  # descriptors kept for the store, threads and programs
log = structlog.get_logger("rainbow.server")
Opened = TypeVar("Opened")


@dataclass(frozen=True)
class Served:
    """The settings of a worker process."""

    database: str
    config: str | None
    scheduler: bool
    parent: int
    secrets: str  # where process_secrets finds them
    figures: str  # the folder where workers leave their metrics for each other, "" for one
    is_sound: bool  # the whole of the store was looked at before anything was served


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
    tls_of(settings.server)
    workers = settings.server.workers
    check_workers(workers, database)
    with listener_at(host, port) as listener, _figures(workers) as figures:
        # what cannot be opened is said before anything is served
        check = partial(check_service, database, settings, config)
        is_sound = wait_for_database(database, check, listener, partial(uvicorn_config, settings))
        scheme = "https" if settings.server.certificate else "http"
        url, named = f"{scheme}://{host}:{port}", without_password(database)
        log.info("serving", url=url, database=named, scheduler=scheduler, workers=workers)
        served = Served(database, config, scheduler, os.getpid(), process_secrets.hand_over(), figures, is_sound)
        Supervisor(partial(_start_worker, served, listener), GRACE + 5, workers).run()


# ── a PostgreSQL that is away, or has no leader yet ──


class NotYet:
    """An ASGI application that answers 503 with the cause to everything but /livez."""

    def __init__(self, trouble: Unavailable) -> None:
        self.trouble = trouble

    async def __call__(self, scope: dict[str, Any], receive: object, send: Callable[[Any], Any]) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            is_live = scope["path"] == "/livez" and scope["method"] in ("GET", "HEAD")
            with suppress(Gone):
                answer = LIVE if is_live else answer_to(self.trouble)
                await answer_with(until_gone(scope, send), answer, scope["headers"])


def wait_for_database(
    database: str,
    attempt: Callable[[], Opened],
    listener: socket.socket | None = None,
    served: Callable[[NotYet], uvicorn.Config] | None = None,
) -> Opened:
    """Return what `attempt` returns once the database is there.

    A SQLite file is not waited for: no other process mends it. Meanwhile requests on `listener` are answered as
    `served` says.
    """
    try:
        return attempt()
    except Unavailable as trouble:
        if file_of(database) is not None:
            raise
        application = NotYet(trouble)
    with _answering(application, listener, served):
        reported = float("-inf")
        while True:
            if time.monotonic() >= reported + EACH:
                reported = time.monotonic()
                log.warning("waiting-for-database", cause=str(application.trouble))
            time.sleep(AGAIN)
            try:
                return attempt()
            except Unavailable as trouble:
                application.trouble = trouble


@contextmanager
def _answering(
    application: NotYet, listener: socket.socket | None, served: Callable[[NotYet], uvicorn.Config] | None
) -> Iterator[None]:
    """Answer on the listener until the block is left, and leave the listener open for those who serve next."""
    if listener is None or served is None:
        yield
        return
    server = uvicorn.Server(served(application))
    thread = threading.Thread(target=server.run, args=([listener.dup()],), name="not-yet", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()  # before a worker is made: a fork copies no thread, but the locks that one holds


# ── what the parent needs ──


def check_workers(workers: int, database: str) -> None:
    """Raise ConfigError if a database cannot be served by this number of processes."""
    if workers > 1 and file_of(database) is not None:
        text = f"server.workers must be 1 on SQLite, got {workers}: its file has one writer, and one process steps it"
        raise ConfigError(f"{text}; use PostgreSQL (--database postgresql://...)", pointer="/server/workers")


@contextmanager
def _figures(workers: int) -> Iterator[str]:
    """Give the folder for the metrics of several workers while they run."""
    if workers == 1:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="rainbow-metrics-") as folder:
        yield folder


def listener_at(host: str, port: int) -> socket.socket:
    """Listen; wait for the address while a worker whose parent was killed has not seen it."""
    end, waits = time.monotonic() + FREED, False
    while True:
        try:
            return _bound(host, port)
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE or time.monotonic() >= end:
                text = f"cannot listen on {host}:{port}: {fault.strerror}; use --port to choose another port"
                raise RainbowError(text) from fault
        if not waits:
            log.warning("address-in-use", host=host, port=port, most=FREED)
        waits = True
        time.sleep(0.1)


def _bound(host: str, port: int) -> socket.socket:
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(QUEUE)
    except OSError:
        made.close()
        raise
    return made


def _start_worker(served: Served, listener: socket.socket, place: int) -> Any:
    # the parent has read all modules, runs one thread and keeps no store open: a copy of it serves at once
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    made = context.Process(target=work, args=(served, listener, place), name="rainbow-worker")
    made.start()
    return made


def tls_of(server: Server) -> ssl.SSLContext | None:
    """Return what is needed to speak TLS, if a certificate is set; ConfigError if it cannot be used."""
    if server.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(server.certificate, server.key)
        if server.client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(server.client_ca)
    except (OSError, ssl.SSLError) as fault:
        raise ConfigError(f"cannot use the TLS files: {fault}", pointer="/server/certificate") from None
    return context


# ── the worker ──


class _Server(uvicorn.Server):
    """Lets all who waits go as soon as the signal comes."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        # a lock that news needs may be held by the very thread that the handler has interrupted
        threading.Thread(target=self._service.let_go, name="let-go", daemon=True).start()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        begin_to_accept(sockets)


def work(served: Served, listener: socket.socket, place: int) -> None:
    """Serve in this process, which the parent has started for it."""
    for each, usual in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        signal.signal(each, usual)  # not what they mean to the parent
    _die_with(served.parent)
    # a submit gives its turn away at every statement: beside four hard searches it took 330 ms, now 52
    sys.setswitchinterval(TURN)
    process_secrets.take_over(served.secrets)
    settings = read_config(served.config) if served.config else Settings()
    log_to_stderr(settings.server.log)
    opened = partial(open_service, served.database, settings, served.config, is_sound=served.is_sound)
    service = wait_for_database(served.database, opened, listener, partial(uvicorn_config, settings))
    app = create_app(service)
    share(served.figures, place)
    start(service, served.config, settings, scheduler=served.scheduler)
    follow(service)
    # what was made of the store stays: collecting garbage need not go through all of it again and again
    gc.collect()
    gc.freeze()
    _Server(uvicorn_config(settings, Front(app, service)), service).run([listener])


def uvicorn_config(settings: Settings, front: Any) -> uvicorn.Config:
    """Return how an ASGI application is served: with places for its connections, and limits on them."""
    limits, server = settings.limits, settings.server
    descriptors = _descriptors()
    most = min(limits.connections, descriptors * 3 // 4)
    places = Places(most, limits.connections_per_address, min(limits.connections, (descriptors - most) // 2))
    gauge("rainbow_connections", places.counts)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return uvicorn.Config(
        front,
        http=partial(Connection, places, limits, tls_of(server)),  # type: ignore[arg-type]  # a class is meant
        # uvloop reads from a new connection although it was paused: what begins TLS would be taken for HTTP
        loop="asyncio" if server.certificate else "auto",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )


def _descriptors() -> int:
    """Let this process open as many files as it may, and return how many of them connections can have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1 << 20 if most == resource.RLIM_INFINITY else most
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return max(64, most - OWN_FILES)


def start(service: Service, config: str | None, settings: Settings, *, scheduler: bool) -> None:
    """Start what works beside the requests; `settings` is what the configuration file says."""
    if config:
        watch = service.state(Configuration).watch = ConfigWatch(service, config, settings)
        watch.start()
    if service.store.many_processes:
        PgNotify(service, partial(_each_second, service)).start()
    if scheduler:
        Loop(service).start()


def _each_second(service: Service) -> None:
    leave()
    leave_newer(service.store.engine)
    store_signs(service)


def schedule(database: str, config: str | None) -> None:
    """Step clusters until told to stop (SIGINT, SIGTERM); the step at hand is finished."""
    process_secrets.forget()
    settings = read_config(config) if config else Settings()
    log_to_stderr(settings.server.log)
    opened = partial(open_service, database, settings, config, existing=True)  # `serve` makes one
    service = wait_for_database(database, opened)
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    start(service, config, settings, scheduler=False)
    loop = Loop(service)
    loop.start()
    notify_ready()
    log.info("scheduling", database=without_password(database))
    ended.wait()
    loop.stop()
    service.close()


def begin_to_accept(sockets: list[socket.socket] | None) -> None:
    """Let connections queue in the kernel, where the event loop has set that to what it accepts at once."""
    for each in sockets or []:
        each.listen(QUEUE)
    notify_ready()


def notify_ready() -> None:
    """Say to systemd, where it started this process, that it is ready (sd_notify)."""
    name = os.environ.get("NOTIFY_SOCKET")
    if name:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, suppress(OSError):
            systemd.sendto(b"READY=1", f"\0{name[1:]}" if name.startswith("@") else name)


def _die_with(parent: int) -> None:
    """Ask the kernel to end this process when its parent ends (Linux); the parent may have ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
