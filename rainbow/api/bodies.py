"""Bodies of requests as they come: how long they may be, whose turn it is, and how much memory reading them takes.

turn     of a caller's large requests, those with a body above LARGE and batches, one is answered at a time. The
         bodies of the others are not read meanwhile. The next turn is no sooner than RATE allows.
length   that of the path. gzip is unpacked here, so what is counted is what will be read.
memory   is counted, not guessed, before anything is parsed. All bodies under way have `limits.body_memory`; each
         caller gets its share in turn. What needs little is not delayed: the number of threads bounds what is
         parsed at once. A graph whose sender may bring one has all of it alone if it needs more.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.api.connections import Gone
from rainbow.errors import LimitError, RainbowError, RequestError, TimedOut, TooMany, Unauthenticated
from rainbow.fair_queue import FairQueue

if TYPE_CHECKING:
    from rainbow.service.core.settings import Limits

Scope = dict[str, Any]
Receive = Callable[[], Any]

STRANGERS = 65_536  # bytes of a body whose credentials may be in it
PACE = 65_536  # bytes of a body that give it another second
LARGE = 1 << 20  # bytes above which a body waits for its turn
RATE = 8 << 20  # bytes a second of a caller's large bodies
MOST_WAITING = 16  # large requests of a caller that wait for the one under way
PIECE = 1 << 20  # bytes that are unpacked at once: the event loop has others
VALUE = 240  # bytes that a value takes once it is read, with its place: measured for the smallest objects of JSON
SEPARATORS = b",{[\n"  # before each value of JSON and of YAML there is one of these
LITTLE = 4 << 20  # bytes of memory that a body takes without a turn
BATCHES = "/v1/jobs:batch"
GRAPHS = re.compile(r"/v1/clusters(/[^/]+/(graph|subsystems/[^/]+))?")
ONE_JOBSPEC = re.compile(r"/v1/(jobs|jobs:bid|match|eta)")


class Sender(NamedTuple):
    """Who sends a body: a name to take turns by, whether a credential is known, and may bring graphs."""

    name: str
    is_known: bool
    brings_graphs: bool = False


class Bodies:
    """The bodies that a process reads. Its methods are called by the event loop's thread alone."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._turns = _Turns()
        self._memory = _Memory(limits.body_memory)

    @asynccontextmanager
    async def read(self, scope: Scope, receive: Receive, sender: Sender) -> AsyncIterator[bytes]:
        """Give the body of a request, plain; its turn and its memory are held until the block is left.

        Raises Gone if the client goes, TooMany, TimedOut, LimitError, RequestError for an encoding that is not gzip.
        """
        limit = _limit_of(scope["path"], sender, self._limits)
        length = int(dict(scope["headers"]).get(b"content-length", b"0"))
        if length > limit.allowed:
            raise limit.exceeded(length)
        turn = _Turn(self._turns, sender.name)
        try:
            if length > LARGE:
                await turn.begin()
            reading = _Reading(scope, receive, limit, self._limits, turn)
            body = await reading.whole()
            if scope["path"] == BATCHES and scope["method"] == "POST":
                await turn.begin()
            async with self._memory.lent(sender.name, reading.memory):
                yield body
        finally:
            turn.end()


# ── length ──


@dataclass(frozen=True, slots=True)
class _Limit:
    name: str  # of the limits
    most: int  # bytes
    allowed: int  # to this sender
    alone: bool  # what needs more memory than there is has all of it

    def exceeded(self, length: int | None) -> RainbowError:
        """Return what is said of a body of this length; None: its length is not known."""
        if self.allowed < self.most and (length is None or length <= self.most):
            text = f"a body of more than {STRANGERS} bytes needs its credential in the header Authorization"
            return Unauthenticated(text)
        if length is None:
            return LimitError(f"request body exceeds the limit of {self.most} bytes", limit=self.name)
        return LimitError(f"request body is {length} bytes; the limit is {self.most} bytes", limit=self.name)


def _limit_of(path: str, sender: Sender, limits: Limits) -> _Limit:
    name = "body"
    if ONE_JOBSPEC.fullmatch(path):
        name = "jobspec"
    elif sender.brings_graphs and GRAPHS.fullmatch(path):
        name = "graph"
    most: int = min(getattr(limits, name), limits.graph if name == "graph" else limits.body)
    return _Limit(name, most, most if sender.is_known else min(most, STRANGERS), name == "graph")


# ── reading ──


class _Reading:
    """Reads one body, no more and no longer than is allowed, and counts the memory that it will take."""

    def __init__(self, scope: Scope, receive: Receive, limit: _Limit, limits: Limits, turn: _Turn) -> None:
        self._receive, self._limit, self._limits, self._turn = receive, limit, limits, turn
        self._is_packed = _is_packed(dict(scope["headers"]))
        self._found = bytearray()
        self._length = self._separators = 0
        self.memory = 0  # bytes, once it is read

    async def whole(self) -> bytes:
        """Return the body."""
        limits = self._limits
        try:
            async with asyncio.timeout(limits.body_seconds) as deadline:
                await self._read(deadline)
        except TimeoutError:
            text = f"the body was not here after {limits.body_seconds:g} s"
            raise TimedOut(text, limit="body_seconds") from None
        needed, most = self._needed(), limits.body_memory
        if needed > most and not self._limit.alone:
            text = f"the body would take {needed >> 20} MiB of memory; the limit is {most >> 20} MiB"
            raise LimitError(text, limit="body_memory")
        self.memory = min(needed, most)
        return bytes(self._found)

    async def _read(self, deadline: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        unpacking = _Unpacking() if self._is_packed else None
        began, came = loop.time(), 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Gone
            part = message.get("body", b"")
            came += len(part)
            for piece in unpacking.pieces(part) if unpacking else (part,):
                self._take(piece)
                if self._length > LARGE and not self._turn.is_begun:  # its head did not say so
                    deadline.reschedule(None)
                    waits = loop.time()
                    await self._turn.begin()
                    began += loop.time() - waits
                elif unpacking:
                    await asyncio.sleep(0)
            self._turn.bytes = came
            if not message.get("more_body"):
                break
            deadline.reschedule(began + self._limits.body_seconds + came / PACE)
        if unpacking and came:
            unpacking.end()

    def _take(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._limit.allowed:
            raise self._limit.exceeded(None if self._is_packed else self._length)
        self._separators += len(piece) - len(piece.translate(None, SEPARATORS))
        if self._limit.alone or self._needed() <= self._limits.body_memory:
            self._found += piece
        else:
            self._found.clear()  # it is refused when all of it is counted

    def _needed(self) -> int:
        return 3 * self._length + VALUE * self._separators


def _is_packed(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a body comes as gzip; RequestError for an encoding that is neither that nor none."""
    text = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    if text not in ("", "identity", "gzip", "x-gzip"):
        raise RequestError(f"Content-Encoding must be gzip or identity, got {text:.40}", pointer="")
    return text in ("gzip", "x-gzip")


class _Unpacking:
    """Unpacks gzip piece by piece."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._follows = False

    def pieces(self, part: bytes) -> Iterator[bytes]:
        """Unpack a part of the body, PIECE by PIECE."""
        while part:
            self._follows = self._follows or self._inflate.eof
            if self._follows:
                return
            try:
                yield self._inflate.decompress(part, PIECE)
            except zlib.error as fault:
                raise RequestError(f"the body is not gzip: {fault}", pointer="") from None
            part = self._inflate.unconsumed_tail or self._inflate.unused_data

    def end(self) -> None:
        """Raise RequestError unless the body ended where its gzip did."""
        if self._follows or not self._inflate.eof:
            text = "the body is not gzip: it ends before its end, or something follows it"
            raise RequestError(text, pointer="")


# ── turns ──


@dataclass(slots=True)
class _Line:
    """A caller's large requests: those that are here, and when the next may begin."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    here: int = 0
    free_at: float = 0.0


class _Turns:
    """One large request of a caller at a time."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    async def take(self, caller: str) -> None:
        """Wait for a turn; TooMany if many do."""
        line = self._lines.setdefault(caller, _Line())
        if line.here > MOST_WAITING:
            text = f"{MOST_WAITING} large requests wait already; send the next when one of them is answered"
            raise TooMany(text, retry_after=2, limit="bodies")
        line.here += 1
        try:
            await line.lock.acquire()
            try:
                await asyncio.sleep(max(0.0, line.free_at - asyncio.get_running_loop().time()))
            except BaseException:
                line.lock.release()
                raise
        except BaseException:
            self._leave(caller, line)
            raise

    def give_back(self, caller: str, free_at: float) -> None:
        """End a turn; the next one begins no sooner than `free_at` by the loop's clock."""
        line = self._lines[caller]
        line.free_at = free_at
        line.lock.release()
        self._leave(caller, line)

    def _leave(self, caller: str, line: _Line) -> None:
        line.here -= 1
        loop = asyncio.get_running_loop()
        loop.call_at(max(line.free_at, loop.time()), self._forget, caller, line)

    def _forget(self, caller: str, line: _Line) -> None:
        free = not line.here and line.free_at <= asyncio.get_running_loop().time() + 0.001
        if free and self._lines.get(caller) is line:
            del self._lines[caller]


class _Turn:
    """The turn of one request, if it needs one."""

    def __init__(self, turns: _Turns, caller: str) -> None:
        self._turns, self._caller = turns, caller
        self._began = 0.0
        self.is_begun = False
        self.bytes = 0  # of the body, that have come

    async def begin(self) -> None:
        """Wait for it, unless it has begun."""
        if not self.is_begun:
            await self._turns.take(self._caller)
            self.is_begun, self._began = True, asyncio.get_running_loop().time()

    def end(self) -> None:
        """Give it back, if it has begun."""
        if self.is_begun:
            seconds = self.bytes / RATE if self.bytes > LARGE else 0.0
            self._turns.give_back(self._caller, self._began + seconds)


# ── memory ──


class _Need(NamedTuple):
    bytes: int
    given: asyncio.Future[None]


class _Memory:
    """What all bodies under way may take together."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._waiting: FairQueue[_Need] = FairQueue()

    @asynccontextmanager
    async def lent(self, caller: str, needed: int) -> AsyncIterator[None]:
        """Hold the memory that is needed while the block runs; wait until it is free."""
        if needed <= LITTLE:
            yield
            return
        need = _Need(needed, asyncio.get_running_loop().create_future())
        waiting = self._waiting.put(caller, need)
        self._give()
        try:
            await need.given
        except BaseException:
            if need.given.done() and not need.given.cancelled():
                self._held -= needed
            else:
                self._waiting.remove(waiting)
            self._give()
            raise
        try:
            yield
        finally:
            self._held -= needed
            self._give()

    def _give(self) -> None:
        """Give those in front what they need while it is free; who needs much is not overtaken."""
        while (first := self._waiting.first()) and self._held + first.item.bytes <= self._most:
            self._waiting.take()
            self._held += first.item.bytes
            self._waiting.charge(first, first.item.bytes)
            first.item.given.set_result(None)
        if not self._held:
            self._waiting.rest()
