"""Connections to a shard: HTTP/1.1, kept and used again.

Not by httpx, which takes 1.5 ms of processor time for a request, as much as a whole submit: this takes 0.05 ms.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

from rainbow.errors import RequestError

PATIENCE = 5.0  # seconds for a connection to be made
IDLE = 5.0  # seconds that a connection is kept without a request: less than servers keep it
AHEAD = 1 << 20  # bytes of an answer that are read before they are wanted
CLOSED = "it was closed"  # by us
Pairs = list[tuple[bytes, bytes]]


class Broken(Exception):
    """A connection ended, or speaks no HTTP; `sent` says whether the request was on its way."""

    def __init__(self, why: str, *, sent: bool = True) -> None:
        super().__init__(why)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Head:
    """The status and headers of an answer."""

    status: int
    headers: Pairs


class Exchange(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    _transport: asyncio.Transport
    _parser: httptools.HttpResponseParser

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._parts: deque[bytes] = deque()
        self._headers: Pairs = []
        self._head: Head | None = None
        self._held = 0  # bytes of parts that nobody has taken yet
        self._fault = ""
        self._done = self._is_kept = False
        self.used_at = 0.0

    # ── of asyncio ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, AttributeError) as fault:  # nothing was asked
            self._end(f"what it answers is no HTTP: {fault}")

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._end(str(exc or "it closed the connection"))

    def _end(self, why: str) -> None:
        self._fault = self._fault or why
        self._transport.abort()
        self._news.set()

    # ── of the parser ──

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Take the head."""
        self._head = Head(self._parser.get_status_code(), self._headers)
        self._is_kept = self._parser.should_keep_alive()  # it cannot say so any more when the message is complete
        self._news.set()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._parts.append(body)
        self._held += len(body)
        if self._held > AHEAD:
            self._transport.pause_reading()
        self._news.set()

    def on_message_complete(self) -> None:
        """Take the end."""
        self._done = True
        self._news.set()

    # ── of who asks ──

    @property
    def is_free(self) -> bool:
        """Whether it can carry a request."""
        return self._done and self._is_kept and not self._fault

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent by it any more."""
        return bool(self._fault)

    async def send(self, request: bytes) -> Head:
        """Send a request, and wait for the head of the answer."""
        self._parser, self._headers, self._head, self._done = httptools.HttpResponseParser(self), [], None, False
        self._transport.write(request)
        while self._head is None:
            await self._wait()
        return self._head

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        while self._parts or not self._done:
            if self._parts:
                part = self._parts.popleft()
                self._held -= len(part)
                if not self._held:
                    self._transport.resume_reading()
                yield part
            else:
                await self._wait()

    async def _wait(self) -> None:
        if self._fault:
            raise Broken(self._fault)
        self._news.clear()
        await self._news.wait()

    def close(self) -> None:
        """End it."""
        self._end(CLOSED)


class Upstream:
    """The connections to one server by its URL, `http://HOST:PORT` or `https://HOST:PORT`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.username:
            raise RequestError(f"invalid URL of a shard {url!r:.200}: expected http://HOST:PORT or https://HOST:PORT")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._address = parts.hostname, parts.port or (443 if self._tls else 80)
        self._host = parts.netloc.encode()
        self._free: list[Exchange] = []
        self._busy: set[Exchange] = set()

    @asynccontextmanager
    async def request(
        self, method: str, target: str, headers: Pairs, body: bytes
    ) -> AsyncIterator[tuple[Head, AsyncIterator[bytes]]]:
        """Send a request; give the head of the answer and its body. Broken if there is none, or no end of it.

        What may be done twice is sent once more where the connection ends without an answer: servers close idle ones.
        """
        lines = [f"{method} {target} HTTP/1.1\r\nHost: ".encode() + self._host]
        lines += [name + b": " + value for name, value in headers]
        if body or method not in ("GET", "HEAD", "DELETE"):
            lines.append(b"Content-Length: %d" % len(body))
        is_safe = method in ("GET", "HEAD") or any(name.lower() == b"idempotency-key" for name, _ in headers)
        exchange, head = await self._answered(b"\r\n".join([*lines, b"", b""]) + body, is_safe)
        try:
            yield head, exchange.parts()
        finally:
            self._put_back(exchange)

    async def _answered(self, request: bytes, once_more: bool) -> tuple[Exchange, Head]:
        exchange = self._kept() or await self._made()
        try:
            return exchange, await self._send(exchange, request)
        except Broken as fault:
            if not once_more or str(fault) == CLOSED:
                raise
        try:
            exchange = await self._made()  # what else was kept may have ended, too
        except Broken as fault:
            raise Broken(str(fault)) from None  # the first was sent: it may be done
        return exchange, await self._send(exchange, request)

    async def _send(self, exchange: Exchange, request: bytes) -> Head:
        self._busy.add(exchange)
        try:
            return await exchange.send(request)
        except BaseException:
            self._put_back(exchange)
            raise

    def _put_back(self, exchange: Exchange) -> None:
        self._busy.discard(exchange)
        if exchange.is_free:
            exchange.used_at = asyncio.get_running_loop().time()
            self._free.append(exchange)
        else:
            exchange.close()

    def _kept(self) -> Exchange | None:
        loop = asyncio.get_running_loop()
        while self._free:
            exchange = self._free.pop()
            if not exchange.is_over and loop.time() - exchange.used_at < IDLE:
                return exchange
            exchange.close()
        return None

    async def _made(self) -> Exchange:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PATIENCE):
                _, made = await loop.create_connection(Exchange, *self._address, ssl=self._tls)
                return made
        except TimeoutError:
            raise Broken("it takes no connections", sent=False) from None
        except OSError as fault:
            raise Broken(fault.strerror or str(fault), sent=False) from None

    def close(self) -> None:
        """Close all there are, also those that wait for an answer."""
        for exchange in (*self._free, *self._busy):
            exchange.close()
        self._free.clear()
        self._busy.clear()
