"""Those who ask a server: the agents of its clusters, and viewers of its page.

The viewers do what `page.js` does: each keeps a stream open, asks for its page when the stream names a cluster of it,
and again after CALM seconds, or when it was told to. Every cluster's agent waits for work. Each crowd has a process
of its own, so that it takes nothing from those who submit.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

VIEWERS = 100
WAIT, ENDED = 30, 2.0  # seconds that an agent waits for work; until what was begun has ended
PAUSE, CALM = 2.0, 10.0  # seconds of page.js
SPAWN = get_context("spawn")
RecallState = Iterator[Coroutine[Any, Any, None]]


@dataclass
class Crowd:
    """Who asks: the server's port, the sessions of the viewers, what they look at, and what they were answered."""

    port: int
    cookies: Sequence[str]  # of a session for each viewer
    token: str
    secrets: dict[str, str]  # of each cluster whose agent waits
    spec: dict[str, Any]
    pages: Sequence[tuple[str, str]]  # (path, the cluster that it is about, or nothing)
    statuses: Counter[str] = field(default_factory=Counter)
    ages: list[float] = field(default_factory=list)  # seconds between two answers that a viewer could draw


class Line:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.told: dict[str, str] = {}  # headers of the last answer

    async def ask(self, method: str, path: str, headers: dict[str, str], body: Any = None) -> tuple[int, bytes]:
        """Send a request and return the answer's status and body."""
        try:
            status, answer = await self.head(await self.send(method, path, headers, body))
        except (asyncio.IncompleteReadError, ConnectionError):  # the server hangs up after a while
            self.close()
            status, answer = await self.head(await self.send(method, path, headers, body))
        reader = self._reader
        return status, await reader.readexactly(int(answer.get("content-length", 0)))

    async def send(self, method: str, path: str, headers: dict[str, str], body: Any = None) -> asyncio.StreamReader:
        """Send a request; the answer is the reader's."""
        if self._ends is None:
            self._ends = await asyncio.open_connection("127.0.0.1", self._port)
        content = b"" if body is None else json.dumps(body).encode()
        more = {"Host": "x", "Content-Length": str(len(content)), "Content-Type": "application/json", **headers}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{key}: {value}\r\n" for key, value in more.items())
        self._ends[1].write(head.encode() + b"\r\n" + content)
        return self._ends[0]

    async def head(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
        """Read the head of an answer."""
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.told = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), self.told

    def close(self) -> None:
        """Hang up."""
        if self._ends is not None:
            self._ends[1].close()
            self._ends = None

    @property
    def _reader(self) -> asyncio.StreamReader:
        assert self._ends is not None
        return self._ends[0]


# ── who asks ──


def agents(crowd: Crowd) -> RecallState:
    """Every cluster's agent; what they wait ends at unlike times."""
    for k, (name, secret) in enumerate(crowd.secrets.items()):
        yield _agent(crowd, name, secret, 3 + WAIT * k / len(crowd.secrets))


def viewers(crowd: Crowd) -> RecallState:
    """As many viewers as there are to be."""
    return (_viewer(crowd, number) for number in range(VIEWERS))


async def _agent(crowd: Crowd, name: str, secret: str, wait: float) -> None:
    line, headers = Line(crowd.port), {"Authorization": f"Bearer {secret}"}

    async def say(verb: str, **more: Any) -> dict[str, Any]:
        status, answer = await line.ask("POST", f"/v1/clusters/{name}/{verb}", headers, {"agent": "a", **more})
        crowd.statuses[f"agent {status}"] += 1
        return json.loads(answer) if status == 200 else {}

    await say("heartbeat", running=[])
    while True:
        tasks, wait = (await say("receive", wait=wait)).get("tasks"), WAIT
        if not tasks:
            continue
        offered = [{"id": task["id"], "attempt": task["attempt"]} for task in tasks]
        accepted = (await say("accept", tasks=offered)).get("accepted", [])
        ended = {"event": "ended", "result": "exited", "exit_code": 0}
        run = [task for task in tasks if task["id"] in accepted]
        events = [{"task": task["id"], "attempt": task["attempt"], **ended} for task in run]
        if events:
            await say("events", events=events)


async def _viewer(crowd: Crowd, number: int) -> None:
    path, about = crowd.pages[number % len(crowd.pages)]
    headers = {"Cookie": f"rainbow={crowd.cookies[number % len(crowd.cookies)]}", "Accept-Encoding": "gzip"}
    stream, line = Line(crowd.port), Line(crowd.port)
    due: asyncio.Queue[bool] = asyncio.Queue()
    reader = await stream.send("GET", "/ui/events", headers)
    status, _ = await stream.head(reader)
    crowd.statuses[f"stream {status}"] += 1
    looks = asyncio.create_task(_looks(crowd, line, path, headers, due))
    try:
        while status == 200 and (text := (await reader.readline()).decode()):
            names = json.loads(text[6:]) if text.startswith("data: [") else []
            if names and (not about or about in names or "*" in names):
                due.put_nowait(True)
    finally:
        looks.cancel()
        stream.close()
        line.close()


async def _looks(crowd: Crowd, line: Line, path: str, headers: dict[str, str], due: asyncio.Queue[bool]) -> None:
    """Ask for a page when there is news, once more after that, and when the server has said if it is too busy."""
    seen, again = time.monotonic(), None
    while True:
        try:
            is_news = await asyncio.wait_for(due.get(), again)
        except TimeoutError:
            is_news = False
        while not due.empty():
            due.get_nowait()
        status, _ = await line.ask("GET", path, {**headers, "X-Live": "1"})
        crowd.statuses[f"page {status}"] += 1
        if status == 204:
            await asyncio.sleep(float(line.told["retry-after"]))
            due.put_nowait(True)
            continue
        again = CALM if is_news else None
        crowd.ages.append(time.monotonic() - seen)
        seen = time.monotonic()
        await asyncio.sleep(PAUSE)


# ── their process ──


@contextmanager
def apart(who: Callable[[Crowd], RecallState], crowd: Crowd) -> Iterator[Connection]:
    """Give those a process of their own, that `asking` speaks to; afterwards note what they were answered."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_run, args=(theirs, who, crowd), daemon=True)
    process.start()
    yield ours
    ours.send(False)
    statuses, ages = ours.recv()
    crowd.statuses.update(statuses)
    crowd.ages += ages
    process.join()


@contextmanager
def asking(those: Connection) -> Iterator[None]:
    """Let those of that process ask within the block."""
    those.send(True)
    those.recv()
    try:
        yield
    finally:
        those.send(True)
        those.recv()


def _run(parent: Connection, who: Callable[[Crowd], RecallState], crowd: Crowd) -> None:
    asyncio.run(_obey(parent, who, crowd))


async def _obey(parent: Connection, who: Callable[[Crowd], RecallState], crowd: Crowd) -> None:
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, parent.recv):
        async with _all(who(crowd)):
            parent.send(None)
            await loop.run_in_executor(None, parent.recv)
        parent.send(None)
    parent.send((crowd.statuses, crowd.ages))


@asynccontextmanager
async def _all(those: RecallState) -> AsyncIterator[None]:
    running = [asyncio.create_task(one) for one in those]
    await asyncio.sleep(ENDED)
    yield
    for one in running:
        one.cancel()
    for one in running:
        with suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            await one
