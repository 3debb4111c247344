"""The front: HTTP requests as they come → the application, by ASGI.

    1 who?      a credential that is known is asked for before a body is read; a stranger's body is short, or refused
    2 body      read within a deadline, here, so that one who sends slowly keeps no thread; see bodies.py
    3 answer    by the Flask application, in a thread of the request's lane
    4 pauses    what waits for something (an agent, an event stream) waits here, without a thread, and is asked again

/livez is answered by the event loop itself.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import structlog

from rainbow.api.bodies import Bodies, Sender
from rainbow.api.connections import CONNECTION, Gone, until_gone
from rainbow.api.lanes import Lanes
from rainbow.api.pauses import AGENT, PAUSE, WAITED, Polls
from rainbow.api.problems import body_of, headers_of
from rainbow.api.wire import address_of, request_id, tokens_of
from rainbow.cache import LruCache
from rainbow.errors import InternalError, RainbowError, TooMany, Unauthenticated
from rainbow.service.core.access import MISSING, UNKNOWN, Caller, caller
from rainbow.service.core.counters import count
from rainbow.service.core.heartbeats import AWAY
from rainbow.service.core.pubsub import Pause

if TYPE_CHECKING:
    from flask import Flask

    from rainbow.service import Service


REMEMBERED = 30.0  # seconds that a credential is taken for known, as far as places and bodies go
GATHER = 0.05  # seconds in which what happens goes to a stream together
MOMENT = 0.001  # seconds a request has waited at least when its view is asked again: the loop's clock is coarse
LAG = 0.5  # seconds that the loop's clock may be behind on a busy machine
PART = 262_144  # bytes of a stream that are sent at once
ENVELOPES = re.compile(r"/v1/(jobs|jobs:batch|jobs:bid|match|eta)|/(login|logout|match|try)|/ui/.*")
log = structlog.get_logger("rainbow.api")
Scope = dict[str, Any]
Message = dict[str, Any]
Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A status line, headers, and a body or the parts of a stream."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    parts: Iterable[bytes | Pause] | None = None


ID = b"x-request-id"  # of each answer; empty in what is ready before it is asked for
JSON = [(b"content-type", b"application/json"), (b"content-length", b"18"), (ID, b"")]
LIVE = HttpAnswer(200, JSON, b'{"status":"live"}\n')


class Front:
    """An ASGI application."""

    def __init__(self, app: Flask, service: Service) -> None:
        self._app, self._service = app.wsgi_app, service
        self._lanes = Lanes(service.settings.server.threads)
        self._bodies = Bodies(service.settings.limits)
        self._known: LruCache[str, tuple[Caller, float]] = LruCache(10_000)
        self._waiting = 0
        self._polls: Polls[HttpAnswer] = Polls(service)

    async def __call__(self, scope: Scope, receive: Callable[[], Any], send: Callable[[Message], Any]) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            with suppress(Gone):
                await self._answer(scope, receive, until_gone(scope, send))

    async def _answer(self, scope: Scope, receive: Callable[[], Any], send: Callable[[Message], Any]) -> None:
        try:
            await HttpRequest(self, scope, receive, send).answer()
        except Gone:
            raise
        except RainbowError as fault:
            await answer_with(send, answer_to(fault), scope["headers"])
        except Exception as fault:  # of the front's own; where an answer has begun, the connection ends
            log.error("request-failed", method=scope["method"], path=scope["path"], fault=repr(fault), exc_info=fault)
            await answer_with(send, answer_to(InternalError()), scope["headers"])

    async def who(self, header: str) -> Caller | None:
        """Say who brings these credentials, if any of them is known."""
        now = asyncio.get_running_loop().time()
        result = self._known.get(header)
        if result is None or result[1] < now:
            who = await self._lanes.door.run("", self._look, header)
            if who is None:
                return None
            result = self._known.put(header, (who, now + REMEMBERED))
        return result[0]

    def hear_left(self, cluster_id: str) -> None:
        """Let those look again who follow a cluster, if an agent of it has not come back."""
        if cluster_id in self._service.heartbeats.departed_for(self._service.settings.lease):
            self._service.news.hear([cluster_id])

    def _look(self, header: str) -> Caller | None:
        try:
            with self._service.store.look() as connection:
                return caller(self._service, connection, tokens_of(header))
        except Unauthenticated:
            return None


class HttpRequest:
    """One request on its way through the front."""

    def __init__(
        self, front: Front, scope: Scope, receive: Callable[[], Any], send: Callable[[Message], Any]
    ) -> None:
        self._front, self._service = front, front._service
        self._scope, self._receive, self._send = scope, receive, send
        self._headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self._left: asyncio.Task[Any] | None = None  # ends when the client goes
        self._address = self._caller = address_of(scope, front._service.settings.server.proxies)

    async def answer(self) -> None:
        """Take all the steps."""
        scope = self._scope
        if scope["path"] == "/livez" and scope["method"] in ("GET", "HEAD") and not scope["query_string"]:
            return await answer_with(self._send, LIVE, scope["headers"])
        who = await self._who()
        self._lane = self._front._lanes.of(scope["path"], who is not None and who.admin)
        brings_graphs = who is not None and (who.registers or bool(who.secrets))
        sender = Sender(self._caller, who is not None, brings_graphs)
        async with self._front._bodies.read(scope, self._receive, sender) as body:
            try:
                await self._run(body)
            finally:
                if self._left is not None:
                    self._left.cancel()

    # ── 1 who? ──

    async def _who(self) -> Caller | None:
        header = self._headers.get(b"authorization")
        who = await self._front.who(header.decode("latin-1")) if header else None
        if who is not None:
            self._caller = who.known[0]
            connection = self._scope.get(CONNECTION)
            if connection is not None and not connection.is_known and not connection.prove(self._caller):
                raise TooMany("too many connections show this credential", retry_after=5, limit="connections")
        else:
            check_stranger(self._scope["path"], self._headers)
        return who

    # ── 3 answer ──

    async def _run(self, body: bytes) -> None:
        loop, polls = asyncio.get_running_loop(), self._front._polls
        began, requests = loop.time(), (self._scope["path"], self._headers.get(b"authorization"), body)
        poll = polls.again(requests, began)
        if poll is not None and not await self._wait(poll.pause, poll.agent):
            return await answer_with(self._send, poll.answer, self._scope["headers"])
        environ, waited = environment(self._scope, body, self._address), loop.time() - began if poll else 0.0
        while True:
            again = {**environ, "wsgi.input": BytesIO(body), WAITED: waited}
            answer = await self._lane.run(self._caller, self._called, again)
            if answer.parts is not None:
                return await self._stream(answer)
            pause = again.get(PAUSE)
            polls.keep(requests, again, answer, loop.time())
            if pause is None or not await self._wait(pause, again.get(AGENT)):
                return await _send(self._send, answer)
            waited = max(loop.time() - began, MOMENT)

    def _called(self, environ: dict[str, Any]) -> HttpAnswer:
        answers: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], _fault: Any = None) -> Callable[[bytes], object]:
            answers[:] = status, headers
            return bytes  # nobody writes that way

        parts = self._front._app(environ, start)
        status, headers = int(answers[0][:3]), [(k.lower().encode(), v.encode("latin-1")) for k, v in answers[1]]
        if (b"content-type", b"text/event-stream; charset=utf-8") in headers:
            return HttpAnswer(status, headers, parts=parts)
        try:
            return HttpAnswer(status, headers, b"".join(parts))
        finally:
            _close(parts)

    # ── 4 pauses ──

    async def _stream(self, answer: HttpAnswer) -> None:
        parts = iter(answer.parts or ())
        try:
            await self._send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            pause: Pause | bool = True
            while pause:
                some, pause = await self._lane.run(self._caller, _pull, parts)
                await self._send({"type": "http.response.body", "body": some, "more_body": bool(pause)})
                if isinstance(pause, Pause) and await self._wait(pause):
                    await asyncio.sleep(GATHER)
                elif self._left is not None and self._left.done():
                    raise Gone
        finally:
            _close(answer.parts)

    async def _wait(self, pause: Pause, agent: tuple[str, str] | None = None) -> bool:
        """Wait through a pause (of this agent); return whether there is news. Gone if the client is."""
        front, loop, heartbeats = self._front, asyncio.get_running_loop(), self._service.heartbeats
        if front._waiting >= self._service.settings.limits.waiting:
            raise TooMany(
                "too many open event streams and waiting requests; try again later", retry_after=2, limit="waiting"
            )
        self._left = self._left or loop.create_task(self._receive())
        news = loop.create_future()
        number = heartbeats.begin_wait(*agent) if agent else 0
        front._waiting += 1
        try:
            with self._service.news.listening(pause.versions, partial(_wake, loop, news)):
                if not self._service.news.is_over(pause):
                    both = {news, self._left}
                    await asyncio.wait(both, timeout=pause.seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            front._waiting -= 1
        if self._left.done():
            if agent is not None and not self._service.ending:
                heartbeats.end_wait(*agent, number)
                loop.call_later(AWAY + LAG, front.hear_left, agent[0])
            raise Gone
        return self._service.news.is_over(pause)


def check_stranger(path: str, headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body whose head shows no known credential, unless there may be one in it."""
    has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
    if has_body and not ENVELOPES.fullmatch(path):
        raise Unauthenticated(UNKNOWN if b"authorization" in headers else MISSING)


def _wake(loop: asyncio.AbstractEventLoop, news: asyncio.Future[None]) -> None:
    """Note in the event loop's thread, from any other, that there is news."""
    loop.call_soon_threadsafe(lambda: None if news.done() else news.set_result(None))


def _pull(parts: Iterator[bytes | Pause]) -> tuple[bytes, Pause | bool]:
    """Take of a stream what there is; and a pause, or whether more may come."""
    result = bytearray()
    for part in parts:
        if isinstance(part, Pause):
            return bytes(result), part
        result += part
        if len(result) >= PART:
            return bytes(result), True
    return bytes(result), False


def _close(parts: Any) -> None:
    close = getattr(parts, "close", None)
    if close is not None:
        close()


def answer_to(fault: RainbowError) -> HttpAnswer:
    """Write a problem of what never reached the application; the rest of its body is not read."""
    answer = body_of(fault)
    body = json.dumps(answer).encode()
    headers = {**headers_of(fault), "content-length": str(len(body)), "connection": "close", ID.decode(): ""}
    return HttpAnswer(answer["status"], [(k.lower().encode(), v.encode()) for k, v in headers.items()], body)


def _named(answer: HttpAnswer, headers: Headers) -> HttpAnswer:
    """Return an answer that was ready as the answer to this request, with its id."""
    count("rainbow_requests", str(answer.status))
    name = request_id(dict(headers).get(ID, b"").decode("latin-1")).encode()
    return replace(answer, headers=[(key, name if key == ID else value) for key, value in answer.headers])


async def answer_with(send: Callable[[Message], Any], answer: HttpAnswer, headers: Headers) -> None:
    """Send an answer that was ready, with the id of this request."""
    await _send(send, _named(answer, headers))


async def _send(send: Callable[[Message], Any], answer: HttpAnswer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})


def environment(scope: dict[str, Any], body: bytes, address: str) -> dict[str, Any]:
    """Return a request's environment; its `wsgi.input` is the plain body, to be made a file for each call."""
    host, port = (scope["server"] or ("", 0))[:2]
    result: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or 0),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": address,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": body,
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        if name == b"content-encoding":
            continue  # the body is unpacked
        key, text = name.decode("latin-1").upper().replace("-", "_"), value.decode("latin-1")
        key = key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"
        result[key] = f"{result[key]},{text}" if key in result else text
    if "CONTENT_LENGTH" in result:
        result["CONTENT_LENGTH"] = str(len(body))
    return result
