"""A line that drops, delays, truncates and repeats what is sent over it: an HTTP proxy before one server.

A repeated request is one that a proxy may repeat: it has an Idempotency-Key, its method changes nothing or is a
DELETE, or it is a message of an agent, which must bear that.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

MOODS = ("drop", "lose", "truncate", "delay", "repeat")
LONGEST_DELAY = 3.0  # seconds
STREAMS = 0.3  # how often a piece of an open stream is cut in two and the rest is lost, of how often the line is bad
OF_AGENTS = (b"/receive ", b"/accept ", b"/events ", b"/heartbeat ")


@dataclass(frozen=True)
class Head:
    """The first line and the headers of a request or an answer."""

    raw: bytes

    def value(self, name: bytes) -> bytes | None:
        """Return a header's value."""
        for row in self.raw.split(b"\r\n")[1:]:
            key, _, value = row.partition(b":")
            if key.strip().lower() == name:
                return value.strip()
        return None

    @property
    def length(self) -> int | None:
        """The length of its body, if it says one."""
        result = self.value(b"content-length")
        return None if result is None else int(result)

    @property
    def closing(self) -> bytes:
        """A request after which its connection ends."""
        first, *rows = self.raw[:-4].split(b"\r\n")
        stored = [row for row in rows if not row.lower().startswith(b"connection:")]
        return b"\r\n".join([first, *stored, b"Connection: close", b"", b""])

    @property
    def bodiless(self) -> bool:
        """Whether an answer has no body, whatever its headers say."""
        return self.raw.split(b" ", 2)[1] in (b"204", b"304")

    @property
    def repeatable(self) -> bool:
        """Whether a request may be sent twice."""
        first = self.raw.split(b"\r\n", 1)[0]
        method = first.split(b" ", 1)[0]
        if self.value(b"accept") == b"text/event-stream":
            return False
        answer = self.value(b"idempotency-key") is not None or method in (b"GET", b"DELETE")
        return answer or any(verb in first for verb in OF_AGENTS)


class Line:
    """Passes requests on to a port of this machine, soundly unless `bad` says how often not."""

    def __init__(self, to: int) -> None:
        self._to = to
        self.bad = 0.0  # the part of requests that something happens to
        self.moods: Sequence[str] = MOODS
        self.done = 0  # to how many something has happened
        self.chance = random.Random(to)
        self._loop = asyncio.new_event_loop()
        self._door = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda *_: None)  # what was cut off complains
        self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._door, limit=1 << 20))
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._door.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the requests of one connection, one after the other, until something happens to one."""
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while await self._pass_one(reader, writer):
                pass
        writer.close()

    async def _pass_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Pass on one request and its answer; False if the connection ends with it."""
        head = Head(await reader.readuntil(b"\r\n\r\n"))
        body = await reader.readexactly(head.length or 0)
        mood = self.chance.choice(self.moods) if self.chance.random() < self.bad else ""
        if mood == "repeat" and not head.repeatable:
            mood = ""
        self.done += bool(mood)
        if mood == "drop":
            return False
        if mood == "delay":
            await asyncio.sleep(self.chance.uniform(0, LONGEST_DELAY))
        if mood == "repeat":
            await self._sent(head, body, None)
        out = None if mood in ("lose", "truncate") else writer
        answer = await self._sent(head, body, out)
        if mood == "truncate":
            writer.write(answer[: len(answer) // 2])
            await writer.drain()
        return out is not None and bool(answer)

    async def _sent(self, head: Head, body: bytes, writer: asyncio.StreamWriter | None) -> bytes:
        """Send a request over a connection of its own and pass its answer on; return what it began with."""
        there, out = await asyncio.open_connection("127.0.0.1", self._to, limit=1 << 20)
        try:
            out.write(head.closing + body)
            await out.drain()
            first = Head(await there.readuntil(b"\r\n\r\n"))
            if first.length is None and not first.bodiless and writer is not None:  # a stream: as it comes
                writer.write(first.raw)
                while piece := await there.read(1 << 16):
                    if self.chance.random() < self.bad * STREAMS:
                        self.done += 1
                        piece, first = piece[: len(piece) // 2], Head(b"")
                    writer.write(piece)
                    await writer.drain()
                    if not first.raw:
                        break
                return b""
            answer = first.raw + (await there.readexactly(first.length) if first.length else b"")
            if writer is not None:
                writer.write(answer)
                await writer.drain()
            return answer
        finally:
            out.close()
