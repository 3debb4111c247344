"""Rate limits: a bucket of requests for each credential, filled at a steady rate.

A request takes one from the bucket of every credential it brings, so that adding a second or an unknown one does not
make a new caller. Without credentials the address counts. Health checks and agents' heartbeats are never limited: a
busy server must not lose its agents.
"""

from __future__ import annotations

import threading
import time
from math import ceil

import structlog
from flask import Flask, Response, current_app, g, request

from rainbow.api.pauses import WAITED
from rainbow.api.wire import login, request_id, service, tokens
from rainbow.errors import TooMany
from rainbow.outcome import ENTRY, AuditEntry
from rainbow.service.core.counters import count
from rainbow.store.credentials import digest
from rainbow.write_queue import WRITER

MOST_CALLERS = 10_000  # callers remembered
MOST_PATH = 300  # characters of a path in the audit
FREE = frozenset({"health.live", "health.ready", "agents.heartbeat", "agents.events"})
log = structlog.get_logger("rainbow.requests")


class Buckets:
    """{caller: (tokens left, when that was)}."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, caller: str, rate: float, burst: int, now: float) -> float:
        """Take one; return the seconds to wait for the next if there is none, else 0.

        >>> buckets = Buckets()
        >>> [buckets.take("a", 2.0, 1, now) for now in (0.0, 0.0, 0.5)]
        [0.0, 0.5, 0.0]
        """
        with self._lock:
            remaining, then = self._left.get(caller, (float(burst), now))
            remaining = min(float(burst), remaining + (now - then) * rate)
            if len(self._left) >= MOST_CALLERS and caller not in self._left:
                self._left.clear()
            self._left[caller] = (remaining - 1 if remaining >= 1 else remaining, now)
        return 0.0 if remaining >= 1 else (1 - remaining) / rate


def pace(app: Flask) -> None:
    """Count requests, log them, and hold back callers that send too many."""
    app.extensions["rainbow-buckets"] = Buckets()

    @app.before_request
    def _hold_back() -> None:
        g.began = time.perf_counter()
        g.id = request_id(request.headers.get("X-Request-ID", ""))
        structlog.contextvars.bind_contextvars(request=g.id)
        if request.method not in ("GET", "HEAD") and request.blueprint != "agents":
            ENTRY.set(_entry())
        limits = service().settings.limits
        if limits.rate and request.endpoint not in FREE and not request.environ.get(WAITED):
            buckets, now = current_app.extensions["rainbow-buckets"], time.monotonic()
            wait = max(buckets.take(each, limits.rate, limits.burst, now) for each in _callers())
            if wait:
                raise TooMany("too many requests", retry_after=ceil(wait), limit="rate")

    @app.after_request
    def _note(answer: Response) -> Response:
        count("rainbow_requests", str(answer.status_code))
        answer.headers["X-Request-ID"] = g.get("id", "")
        if service().settings.server.log == "debug":
            _log(answer)
        structlog.contextvars.unbind_contextvars("request")
        return answer

    @app.teardown_request
    def _end(_fault: BaseException | None) -> None:
        WRITER.set(None)
        ENTRY.set(None)


def _entry() -> AuditEntry:
    """Return what is known of a request that may change something, before the caller is known."""
    named, verb, address = request.view_args or {}, request.endpoint or request.method, request.remote_addr or ""
    if "verb" in named:  # one view for several verbs of workers, or of clusters
        verb = f"{'workers' if 'worker' in named else request.blueprint}.{named['verb']}"
    return AuditEntry(service().clock(), g.id, verb, request.path[:MOST_PATH], address, login() or "")


def _log(answer: Response) -> None:
    """Write a line with the route and its parameters (names of clusters and jobs); bodies and headers never."""
    rule = request.url_rule.rule if request.url_rule else None
    named = {key: str(value)[:200] for key, value in (request.view_args or {}).items()}
    spent = round((time.perf_counter() - g.get("began", time.perf_counter())) * 1000, 1)
    log.debug("request", method=request.method, route=rule, status=answer.status_code, ms=spent, **named)


def _callers() -> set[str]:
    return {digest(each) for each in tokens()} or {f"address {request.remote_addr}"}
