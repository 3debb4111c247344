"""A hundred viewers of a fleet: what they cost the server, its agents and those who submit.

The processor's time is that of the threads that answer requests: planning and forecasts of a cluster of 10,000 nodes
take several times as much, and never the same twice. Viewers make none of them.

The viewers do what `page.js` does: each keeps a stream open, and asks for its page when the stream names a cluster of
it. Every cluster's agent waits for work meanwhile, and jobs are submitted at a steady pace; then as fast as they can.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

VIEWERS = 100
PACE, IN_STEP = 0.1, 70  # seconds between two submits, and how many of them
SPELL = 8.0  # seconds in which they and what follows of them take processor time
FLAT_OUT = 60  # submits as fast as they can
PAIRS = 4  # of turns without viewers and with them
LARGE, SOME = "sequoia", 25  # one submit of so many goes to the large cluster
WAIT, CALM = 30, 3.0  # seconds that an agent waits for work; until what was begun has ended
SETTLED = 6.0  # seconds more until viewers have what they asked for first


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
        return status, await reader.readexactly(int(told.get("content-length", 0)))

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


async def _agent(crowd: Crowd, name: str, secret: str, wait: float) -> None:
    line, headers = Line(crowd.port), {"Authorization": f"Bearer {secret}"}

    async def say(verb: str, **more: Any) -> dict[str, Any]:
        status, told = await line.ask("POST", f"/v1/clusters/{name}/{verb}", headers, {"agent": "a", **more})
        crowd.statuses[f"agent {status}"] += 1
        return json.loads(told) if status == 200 else {}

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


async def _submits(crowd: Crowd, pace: float, many: int, names: Iterator[str]) -> list[float]:
    """Submit so many jobs, one each `pace` seconds or as fast as they can; return how long each answer took."""
    line, headers, took = Line(crowd.port), {"Authorization": f"Bearer {crowd.token}"}, []
    began = time.monotonic()
    for k in range(many):
        await asyncio.sleep(max(0.0, began + k * pace - time.monotonic()))
        body = {"jobspec": crowd.spec, "clusters": [{"name": next(names)}]}
        sent = time.monotonic()
        status, _ = await line.ask("POST", "/v1/jobs", headers, body)
        took.append(time.monotonic() - sent)
        crowd.statuses[f"submit {status}"] += 1
    line.close()
    return took


@asynccontextmanager
async def _all(those: Iterator[Coroutine[Any, Any, None]]) -> Any:
    running = [asyncio.create_task(one) for one in those]
    await asyncio.sleep(CALM)
    yield
    for one in running:
        one.cancel()
    for one in running:
        with suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            await one


# ── what is measured ──


@dataclass(frozen=True)
class Turn:
    """What one turn has shown: part of a core; seconds of the processor, and by the clock, of a submit flat out."""

    core: float
    cost: float
    answer: float


async def measured(crowd: Crowd) -> dict[str, float]:
    """Return percent of a core for the viewers, percent of the submits that they take, and refused agents.

    Turns without viewers and with them take the place of each other in the order ABBA, so that what grows with the
    jobs in the store counts for both. All have the same submits, to clusters where every job ends at once. What
    counts is the time of the processor: how many submits it is enough for says nothing of what else the machine does.
    """
    pairs = []
    async with _all(
        _agent(crowd, *one, 3 + WAIT * k / len(crowd.secrets)) for k, one in enumerate(crowd.secrets.items())
    ):
        await _empty(crowd)
        await _turn(crowd, False)  # the first of all reads what later ones remember
        for k in range(PAIRS):
            first = await _turn(crowd, k % 2 == 1)
            second = await _turn(crowd, k % 2 == 0)
            pairs.append((second, first) if k % 2 else (first, second))
            print("alone {}\nwatched {}".format(*pairs[-1]), flush=True)
    print(dict(crowd.statuses))
    refused = [n for kind, n in crowd.statuses.items() if re.fullmatch("(agent|stream) (?!200).*", kind)]
    return {
        "cpu": _middle("of a core", [watched.core - alone.core for alone, watched in pairs]),
        "submits": _middle("fewer submits", [1 - alone.cost / watched.cost for alone, watched in pairs]),
        "answer": _middle("longer answers", [watched.answer / alone.answer - 1 for alone, watched in pairs]),
        "refused": sum(refused),
    }


def _middle(name: str, found: Sequence[float]) -> float:
    """Print the spread, and return the median in percent."""
    print(f"{name}: {', '.join(f'{100 * one:.1f}' for one in sorted(found))} %")
    return 100 * statistics.median(found)


async def _turn(crowd: Crowd, watched: bool) -> Turn:
    small = [name for name in crowd.secrets if name != LARGE]
    names = cycle([LARGE, *small[: SOME - 1]])
    async with _all(_viewer(crowd, number) for number in range(VIEWERS if watched else 0)):
        await asyncio.sleep(SETTLED if watched else 0)
        began, used = time.monotonic(), await _cpu(crowd)
        await _submits(crowd, PACE, IN_STEP, names)
        await asyncio.sleep(max(0.0, began + SPELL - time.monotonic()))
        core = (await _cpu(crowd) - used) / (time.monotonic() - began)
        used = await _cpu(crowd)
        took = await _submits(crowd, 0, FLAT_OUT, cycle(small))
        return Turn(core, (await _cpu(crowd) - used) / FLAT_OUT, statistics.median(took))


async def _cpu(crowd: Crowd) -> float:
    """Return the seconds of the processor that the server's threads have used, but for those that plan."""
    line, headers = Line(crowd.port), {"Authorization": f"Bearer {crowd.token}"}
    _, told = await line.ask("GET", "/metrics?brief=true", headers)
    line.close()
    by = re.findall(r'^rainbow_thread_cpu_seconds{thread="(.*)"} (.*)$', told.decode(), re.M)
    return sum(float(seconds) for name, seconds in by if name not in ("scheduler", "forecaster"))


async def _empty(crowd: Crowd) -> None:
    """Empty the queue of the large cluster: to plan it takes a core by itself, with viewers or without."""
    line, headers = Line(crowd.port), {"Authorization": f"Bearer {crowd.token}"}
    while True:
        _, told = await line.ask("GET", f"/v1/jobs?cluster={LARGE}&state=WAITING,RUNNING&limit=500", headers)
        if not (waiting := json.loads(told)["jobs"]):
            return await asyncio.sleep(2 * CALM)
        for job in waiting:
            await line.ask("DELETE", f"/v1/jobs/{job['id']}", headers)
        await asyncio.sleep(CALM)
