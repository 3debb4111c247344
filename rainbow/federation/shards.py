"""A shard: one server, asked over HTTP, or known to be away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from rainbow.errors import UNKNOWN, Unavailable
from rainbow.federation.upstream import Broken, Head, Pairs, Upstream
from rainbow.text import rfc3339

LOOK = 1.0  # seconds between two looks whether a shard answers
PATIENCE = 5.0  # seconds for it to answer a look
log = structlog.get_logger("rainbow.router")


class Away(Unavailable):
    """A shard does not answer."""


class NotSent(Away):
    """A shard could not be reached: what was to be sent has not been."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a shard has answered."""

    status: int
    headers: Pairs
    body: bytes = b""

    @property
    def is_good(self) -> bool:
        """Whether it did what it was asked."""
        return self.status < 300

    def json(self) -> Any:
        """Read the body; Away if it is none of ours."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise Away(
                f"a shard answered {self.status} with what is no JSON", retry_after=5, outcome=UNKNOWN
            ) from None

    def header(self, name: bytes) -> str:
        """Return a header's value, "" if there is none."""
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name), "")


@dataclass(eq=False)
class Shard:
    """A server by its URL. What cannot be reached is away until a look finds that it answers again."""

    url: str
    since: float | None = None  # since when it has been away
    reason: str = ""
    back: float = 0.0  # when it was last found to answer again
    _looks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._upstream = Upstream(self.url)

    def away(self, kind: type[Away] = Away) -> Away:
        """Return what is said while it is away."""
        since = rfc3339(self.since or time.time())
        text = f"shard {self.url} does not answer since {since}: {self.reason}"
        return kind(text, retry_after=5, shard=self.url, since=since)

    async def ask(self, method: str, target: str, headers: Pairs, body: bytes = b"") -> Answer:
        """Send a request and return the answer; Away if there is none, NotSent if nothing was sent."""
        async with self.stream(method, target, headers, body) as (head, parts):
            return Answer(head.status, head.headers, b"".join([part async for part in parts]))

    @asynccontextmanager
    async def stream(
        self, method: str, target: str, headers: Pairs, body: bytes = b""
    ) -> AsyncIterator[tuple[Head, AsyncIterator[bytes]]]:
        """Send a request and give the head of the answer, and the parts of its body as they come."""
        if self.since is not None:
            raise self.away(NotSent)
        try:
            async with self._upstream.request(method, target, headers, body) as result:
                yield result
        except Broken as fault:
            self._lose(str(fault))
            if not fault.sent:
                raise self.away(NotSent) from None
            text = f"shard {self.url} stopped answering: it may be done; look, or send it again"
            raise Away(text, retry_after=5, shard=self.url, outcome=UNKNOWN) from None

    def _lose(self, why: str) -> None:
        if self.since is None:
            self.since, self.reason = time.time(), why
            log.error("shard-away", shard=self.url, reason=why)

    def watch(self) -> None:
        """Look from now on whether it answers."""
        self._looks.add(asyncio.get_running_loop().create_task(self._watch()))

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK)

    async def look(self) -> None:
        """Find out whether it answers."""
        try:
            async with asyncio.timeout(PATIENCE), self._upstream.request("GET", "/livez", [], b"") as (head, parts):
                async for _ in parts:
                    pass
            if head.status == 200 and self.since is not None:
                log.info("shard-back", shard=self.url, away=round(time.time() - self.since, 1))
                self.since, self.back = None, time.time()
        except Broken as fault:
            self._lose(str(fault))
        except TimeoutError:
            self._lose(f"it did not answer in {PATIENCE:g} s")
            self._upstream.close()  # nobody else waits for it

    def close(self) -> None:
        """Stop looking, and close the connections."""
        for task in self._looks:
            task.cancel()
        self._upstream.close()
