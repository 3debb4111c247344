"""A hundred viewers of a fleet: what they cost the server, its agents and those who submit.

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
from itertools import count, cycle
from typing import Any

from benchmarks.served import Served

VIEWERS = 100
PACE = 0.1  # seconds between two submits
SPELL = 8.0  # seconds in which processor time is measured
BURST = 3.0  # seconds of submits as fast as they can
ROUNDS = 3
LARGE, SOME = "sequoia", 25  # one submit of so many goes to the large cluster
WAIT, CALM = 20, 3.0  # seconds that an agent waits for work; until what was begun has ended


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


async def _submits(crowd: Crowd, pace: float, seconds: float, names: Iterator[str]) -> float:
    """Submit to one of these clusters after the other for so long; return how many jobs a second were taken."""
    line, headers, many = Line(crowd.port), {"Authorization": f"Bearer {crowd.token}"}, 0
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        body = {"jobspec": crowd.spec, "clusters": [{"name": next(names)}]}
        status, _ = await line.ask("POST", "/v1/jobs", headers, body)
        crowd.statuses[f"submit {status}"] += 1
        many += 1
        await asyncio.sleep(pace)
    line.close()
    return many / (time.monotonic() - began)


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


async def measured(crowd: Crowd, served: Served) -> dict[str, float]:
    """Return percent of a core for the viewers, what they take of the submits in percent, and refused agents.

    Medians of rounds: in each the same is measured without viewers and then with them, so that what grows with the
    jobs in the store counts for both.
    """
    rounds, small = [], cycle(name for name in crowd.secrets if name != LARGE)
    async with _all(
        _agent(crowd, *one, 3 + WAIT * k / len(crowd.secrets)) for k, one in enumerate(crowd.secrets.items())
    ):
        await _empty(crowd)
        for _ in range(ROUNDS):
            await asyncio.sleep(CALM)
            alone = await _spent(crowd, served, small), await _submits(crowd, 0, BURST, small)
            async with _all(_viewer(crowd, number) for number in range(VIEWERS)):
                watched = await _spent(crowd, served, small), await _submits(crowd, 0, BURST, small)
            rounds.append((alone, watched))
            print(f"of a core, submits a second: alone {_two(alone)}; watched {_two(watched)}", flush=True)
    print(dict(crowd.statuses))
    refused = [n for kind, n in crowd.statuses.items() if re.fullmatch("(agent|stream) (?!200).*", kind)]
    return {
        "cpu": 100 * statistics.median(watched[0] - alone[0] for alone, watched in rounds),
        "submits": 100 * statistics.median(1 - watched[1] / alone[1] for alone, watched in rounds),
        "refused": sum(refused),
    }


def _two(found: tuple[float, float]) -> str:
    return f"{found[0]:.3f}, {found[1]:.0f}"


async def _empty(crowd: Crowd) -> None:
    """Empty the queue of the large cluster: to plan it takes a core by itself, with viewers or without."""
    line, headers = Line(crowd.port), {"Authorization": f"Bearer {crowd.token}"}
    _, told = await line.ask("GET", f"/v1/jobs?cluster={LARGE}&state=WAITING,RUNNING&limit=500", headers)
    for job in json.loads(told)["jobs"]:
        await line.ask("DELETE", f"/v1/jobs/{job['id']}", headers)
    await asyncio.sleep(2 * CALM)


async def _spent(crowd: Crowd, served: Served, small: Iterator[str]) -> float:
    """Return the part of a core that the server takes while jobs come at a steady pace, some to the large cluster."""
    names = (LARGE if k % SOME == 0 else next(small) for k in count())
    began, used = time.monotonic(), served.cpu()
    await _submits(crowd, PACE, SPELL, names)
    return (served.cpu() - used) / (time.monotonic() - began)
