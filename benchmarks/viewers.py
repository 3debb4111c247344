"""A hundred viewers of a fleet: what they cost the server, its agents and those who submit.

The viewers do what `page.js` does: each keeps a stream open, and asks for its page when the stream names a cluster of
it. Every cluster's agent waits for work meanwhile, and jobs are submitted at a steady pace; then as fast as they can.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import statistics
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from benchmarks.served import Served

VIEWERS = 100
PACE = 0.1  # seconds between two submits
SPELL = 15.0  # seconds in which processor time is measured
BURST = 4.0  # seconds of submits as fast as they can, several times in turn with viewers and without
ROUNDS = 3


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


class Line:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, headers: dict[str, str], body: Any = None) -> tuple[int, bytes]:
        """Send a request and return the answer's status and body."""
        try:
            status, told = await self.head(await self.send(method, path, headers, body))
        except (asyncio.IncompleteReadError, ConnectionError):  # the server hangs up after a while
            self.close()
            status, told = await self.head(await self.send(method, path, headers, body))
        reader = self._reader
        content = await reader.readexactly(int(told.get("content-length", 0)))
        return status, gzip.decompress(content) if told.get("content-encoding") == "gzip" else content

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
        told = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), told

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


async def _agent(crowd: Crowd, name: str, secret: str) -> None:
    line, headers = Line(crowd.port), {"Authorization": f"Bearer {secret}"}

    async def say(verb: str, **more: Any) -> dict[str, Any]:
        status, told = await line.ask("POST", f"/v1/clusters/{name}/{verb}", headers, {"agent": "a", **more})
        crowd.statuses[f"agent {status}"] += 1
        return json.loads(told) if status == 200 else {}

    await say("heartbeat", running=[])
    while True:
        if not (tasks := (await say("receive", wait=20)).get("tasks")):
            continue
        offered = [{"id": task["id"], "attempt": task["attempt"]} for task in tasks]
        accepted = (await say("accept", tasks=offered)).get("accepted", [])
        ended = {"event": "ended", "result": "exited", "exit_code": 0}
        run = [task for task in tasks if task["id"] in accepted and len(task["placement"]) == 1]
        events = [{"task": task["id"], "attempt": task["attempt"], **ended} for task in run]
        if events:
            await say("events", events=events)


async def _viewer(crowd: Crowd, number: int) -> None:
    path, about = crowd.pages[number % len(crowd.pages)]
    headers = {"Cookie": f"rainbow={crowd.cookies[number % len(crowd.cookies)]}", "Accept-Encoding": "gzip"}
    stream, line, asked = Line(crowd.port), Line(crowd.port), 0.0
    reader = await stream.send("GET", "/ui/events", headers)
    status, _ = await stream.head(reader)
    crowd.statuses[f"stream {status}"] += 1
    while status == 200:
        text = (await reader.readline()).decode()
        if not text.startswith("data: ["):
            continue
        names = json.loads(text[6:])
        if about and about not in names and "*" not in names:
            continue
        await asyncio.sleep(max(0.0, asked + 2 - time.monotonic()))
        asked = time.monotonic()
        got, _ = await line.ask("GET", path, {**headers, "X-Live": "1"})
        crowd.statuses[f"page {got}"] += 1


async def _submits(crowd: Crowd, pace: float, seconds: float) -> float:
    """Submit for so long; return how many jobs a second were taken."""
    line, headers, many = Line(crowd.port), {"Authorization": f"Bearer {crowd.token}"}, 0
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        status, _ = await line.ask("POST", "/v1/jobs", headers, {"jobspec": crowd.spec})
        crowd.statuses[f"submit {status}"] += 1
        many += 1
        await asyncio.sleep(pace)
    line.close()
    return many / (time.monotonic() - began)


@asynccontextmanager
async def _all(those: Iterator[Coroutine[Any, Any, None]]) -> Any:
    running = [asyncio.create_task(one) for one in those]
    await asyncio.sleep(3)
    yield
    for one in running:
        one.cancel()
    for one in running:
        with suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            await one


# ── what is measured ──


async def measured(crowd: Crowd, served: Served) -> dict[str, float]:
    """Return percent of a core for the viewers, what they take of the submits in percent, and refused agents."""
    async with _all(_agent(crowd, name, secret) for name, secret in crowd.secrets.items()):
        await asyncio.sleep(4)
        alone = await _spent(crowd, served)
        before, after = [], []
        async with _all(_viewer(crowd, number) for number in range(VIEWERS)):
            watched = await _spent(crowd, served)
            after.append(await _submits(crowd, 0, BURST))
        for _ in range(ROUNDS - 1):
            before.append(await _submits(crowd, 0, BURST))
            async with _all(_viewer(crowd, number) for number in range(VIEWERS)):
                after.append(await _submits(crowd, 0, BURST))
        before.append(await _submits(crowd, 0, BURST))
    print(dict(crowd.statuses), f"alone {alone:.3f}, watched {watched:.3f} of a core; submits {before} {after}")
    refused = sum(n for kind, n in crowd.statuses.items() if kind.startswith("agent ") and kind != "agent 200")
    refused += sum(n for kind, n in crowd.statuses.items() if kind.startswith("stream ") and kind != "stream 200")
    return {
        "cpu": 100 * (watched - alone),
        "submits": 100 * (1 - statistics.median(after) / statistics.median(before)),
        "refused": refused,
    }


async def _spent(crowd: Crowd, served: Served) -> float:
    """Return the part of a core that the server takes while jobs come at a steady pace."""
    began, used = time.monotonic(), served.cpu()
    await _submits(crowd, PACE, SPELL)
    return (served.cpu() - used) / (time.monotonic() - began)
