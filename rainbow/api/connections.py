"""A connection: uvicorn's, with a place of its own and a time by which its next head, or its next write, is over."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rainbow.api.problems import plain_problem

if TYPE_CHECKING:
    from rainbow.api.places import Places
    from rainbow.service.core.settings import Limits


MOST_HEAD = 65_536  # bytes of a request's line and headers
HANDSHAKE = 10.0  # seconds for TLS
ASIDE = 30.0  # seconds that a stranger without a place stays open
CONNECTION = "rainbow.connection"  # of a scope


class Gone(Exception):
    """The client has closed its connection."""


def until_gone(scope: dict[str, Any], send: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Return what sends messages of an answer, and raises Gone once its connection is closed."""
    connection: Connection | None = scope.get(CONNECTION)

    async def sent(message: dict[str, Any]) -> None:
        if connection is not None and connection.transport.is_closing():
            raise Gone
        await send(message)

    return sent


class Connection(HttpToolsProtocol):
    """Speaks HTTP/1.1."""

    def __init__(self, places: Places, limits: Limits, tls: ssl.SSLContext | None = None, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._places, self._limits, self._tls = places, limits, tls
        self._timer: asyncio.TimerHandle | None = None
        self._end: asyncio.TimerHandle | None = None  # while it is set aside
        self._head = 0  # bytes of the head that is coming
        self._open = False
        self._early = b""  # what came with the end of the handshake, before its end was seen here

    # ── coming and going ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place; the connection that loses its own for it is set aside."""
        plain = cast("asyncio.Transport", transport)
        self.transport = plain
        peer = transport.get_extra_info("peername")
        aside, closed = self._places.enter(self, str(peer[0]) if peer else "")
        if closed is not None:
            cast("Connection", closed).cut()
        if closed is self:
            return
        if aside is not None:
            cast("Connection", aside).set_aside()
        self._open = True
        if self._tls is None:
            self._begin(plain)
        else:
            plain.pause_reading()
            self._handshake = self.loop.create_task(self._secure(plain, self._tls))

    async def _secure(self, plain: asyncio.Transport, context: ssl.SSLContext) -> None:
        try:
            secured = await self.loop.start_tls(
                plain, self, context, server_side=True, ssl_handshake_timeout=HANDSHAKE
            )
        except (OSError, asyncio.CancelledError):  # what is no TLS, or too slow: nobody to tell
            secured = None
        if secured is None or not self._open:
            plain.abort()
            self._leave()
        else:
            self._begin(secured)

    def _begin(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._expect_head()
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place."""
        self._leave()
        if self.flow is not None:
            super().connection_lost(exc)

    def cut(self) -> None:
        """Close at once."""
        self._leave()
        self.transport.abort()

    def set_aside(self) -> None:
        """Stay open for a while, unheard: an answer on its way is sent."""
        self._open = False
        self._stop_timer()
        self._end = self.loop.call_later(ASIDE, self._too_slow)
        if self._head or not self._rests:
            self.transport.pause_reading()

    def _return(self) -> None:
        self._open = True
        if self._end is not None:
            self._end.cancel()
            self._end = None
            self.transport.resume_reading()

    def _leave(self) -> None:
        self._open = False
        self._places.leave(self)
        self._stop_timer()
        if self._end is not None:
            self._end.cancel()
            self._end = None

    # ── heads ──

    def _expect_head(self) -> None:
        self._set_timer(self._limits.header_seconds, self._too_slow)

    def data_received(self, data: bytes) -> None:
        """Read on; a head must be whole in time, and no longer than is allowed."""
        if not self._open:
            self.cut()  # at rest as it was set aside: a client that is closed at once tries again at once
            return
        if self.flow is None:
            self._early += data
            return
        self._head += len(data)
        if self._timer is None and self._rests:
            self._expect_head()
        super().data_received(data)
        if self._head > MOST_HEAD and self._rests and self._open:
            self.send_problem(431, "limit-exceeded", f"the head of a request is longer than {MOST_HEAD} bytes")

    @property
    def _rests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def on_headers_complete(self) -> None:
        """Begin with a request."""
        self._head = 0
        self._stop_timer()
        self._places.rests(self, False)
        cast("dict[str, Any]", self.scope)[CONNECTION] = self
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._head = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the next request; a stranger not for long."""
        self._head = 0
        idle = self._limits.idle_seconds if self.is_known else self._limits.header_seconds
        self.timeout_keep_alive = int(idle) or 1
        super().on_response_complete()
        self._places.rests(self, True)

    def _too_slow(self) -> None:
        self.transport.abort()

    # ── who it is ──

    is_known = False

    def prove(self, credential: str) -> bool:
        """Note that a known credential was shown; False if too many connections show that one."""
        self.is_known = self._places.prove(self, credential)
        if self.is_known and not self._open:
            self._return()
        return self.is_known

    # ── writing ──

    def pause_writing(self) -> None:
        """Give who reads our answer slowly some time, and no more."""
        super().pause_writing()
        self._set_timer(self._limits.idle_seconds, self._too_slow)

    def resume_writing(self) -> None:
        """Continue writing."""
        self._stop_timer()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Say that this is no HTTP."""
        self.send_problem(400, "request-invalid", msg)

    def send_problem(self, status: int, code: str, detail: str) -> None:
        """Answer what never became a request, and close."""
        body = json.dumps(plain_problem(status, code, detail)).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/problem+json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    # ── time ──

    def _set_timer(self, seconds: float, act: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, act)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
