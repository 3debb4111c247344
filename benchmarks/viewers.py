"""A hundred viewers of a fleet: what they cost the server, its agents and those who submit.

The processor's time is that of the threads that answer users. Agents have threads of their own, plans and forecasts
too: these take several times as much, never the same twice, and viewers cause none of it.

The viewers do what `page.js` does: each keeps a stream open, asks for its page when the stream names a cluster of it,
and again after CALM seconds, or when it was told to. Every cluster's agent waits for work meanwhile. Short windows
without viewers and with them take the place of each other: in each, jobs are submitted at a steady pace, however long
the answers take, and then as fast as the server answers several at once.
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

from scipy.stats import binom

VIEWERS = 100
PACE, STEADY = 0.1, 5.0  # seconds between two submits, and of that part of a window
AT_ONCE, FLAT_OUT = 4, 4.0  # submits that are under way together, and seconds of that part
PAIRS = 10  # windows of each kind
OTHERS = ("scheduler", "forecaster", "agents")  # threads that answer no viewer
LARGE, SOME = "sequoia", 25  # one submit of so many goes to the large cluster
WAIT, ENDED = 30, 2.0  # seconds that an agent waits for work; until what was begun has ended
SETTLED = 4.0  # seconds more until viewers have what they asked for first, with viewers or without
PAUSE, CALM = 2.0, 10.0  # seconds of page.js


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
    """Ask for a page when there is news, once more after that, and again when the server is too busy."""
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
        again = CALM if is_news else None
        if status == 204:
            again = float(line.told["retry-after"])
        else:
            crowd.ages.append(time.monotonic() - seen)
            seen = time.monotonic()
        await asyncio.sleep(PAUSE)


async def _steadily(crowd: Crowd, names: Iterator[str]) -> list[float]:
    """Submit at a steady pace, whatever the answers take; return the seconds of each."""
    began, sent = time.monotonic(), []
    for k in range(int(STEADY / PACE)):
        await asyncio.sleep(max(0.0, began + k * PACE - time.monotonic()))
        sent.append(asyncio.create_task(_submit(crowd, Line(crowd.port), next(names))))
    took = await asyncio.gather(*sent)
    await asyncio.sleep(max(0.0, began + STEADY - time.monotonic()))
    return took


async def _flat_out(crowd: Crowd, names: Iterator[str]) -> float:
    """Submit as fast as several are answered at once; return how many in a second."""
    began, many = time.monotonic(), 0

    async def go() -> None:
        nonlocal many
        line = Line(crowd.port)
        while time.monotonic() < began + FLAT_OUT:
            await _submit(crowd, line, next(names), keep=True)
            many += 1
        line.close()

    await asyncio.gather(*(go() for _ in range(AT_ONCE)))
    return many / (time.monotonic() - began)


async def _submit(crowd: Crowd, line: Line, name: str, *, keep: bool = False) -> float:
    headers, body = {"Authorization": f"Bearer {crowd.token}"}, {"jobspec": crowd.spec, "clusters": [{"name": name}]}
    sent = time.monotonic()
    status, _ = await line.ask("POST", "/v1/jobs", headers, body)
    crowd.statuses[f"submit {status}"] += 1
    if not keep:
        line.close()
    return time.monotonic() - sent


@asynccontextmanager
async def _all(those: Iterator[Coroutine[Any, Any, None]]) -> Any:
    running = [asyncio.create_task(one) for one in those]
    await asyncio.sleep(ENDED)
    yield
    for one in running:
        one.cancel()
    for one in running:
        with suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            await one


# ── what is measured ──


@dataclass(frozen=True)
class Turn:
    """What one window has shown: part of a core; seconds of a submit; submits in a second, as fast as they can."""

    core: float
    answer: float
    rate: float


async def measured(crowd: Crowd) -> dict[str, float]:
    """Return percent of a core for the viewers, percent of the submits that they take, and refused agents.

    Windows without viewers and with them follow each other in the order ABBA, so that what grows with the jobs in the
    store counts for both. All submit to clusters where every job ends at once. Each pair says one difference; the
    median of these and its interval say whether it is one.
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
    print(
        f"seconds until a viewer's page is new: {[round(one, 1) for one in statistics.quantiles(crowd.ages, n=10)]}"
    )
    refused = [n for kind, n in crowd.statuses.items() if re.fullmatch("(agent|stream) (?!200).*", kind)]
    return {
        "cpu": _middle("of a core", [watched.core - alone.core for alone, watched in pairs]),
        "submits": _middle("fewer submits", [1 - watched.rate / alone.rate for alone, watched in pairs]),
        "answer": _middle("longer answers", [watched.answer / alone.answer - 1 for alone, watched in pairs]),
        "refused": sum(refused),
    }


def _middle(name: str, found: Sequence[float]) -> float:
    """Print the median and its interval of 98 %, by ranks, and return the median in percent."""
    ranked, middle = sorted(found), 100 * statistics.median(found)
    rank = max(1, int(binom.ppf(0.01, len(found), 0.5)))
    low, high = 100 * ranked[rank - 1], 100 * ranked[-rank]
    print(f"{name}: {middle:.1f} % [{low:.1f}, {high:.1f}] of {len(found)} pairs")
    return middle


async def _turn(crowd: Crowd, watched: bool) -> Turn:
    small = [name for name in crowd.secrets if name != LARGE]
    names = cycle([LARGE, *small[: SOME - 1]])
    async with _all(_viewer(crowd, number) for number in range(VIEWERS if watched else 0)):
        await asyncio.sleep(SETTLED)  # the jobs of the window before have ended, too
        began, used = time.monotonic(), await _cpu(crowd)
        took = await _steadily(crowd, names)
        core = (await _cpu(crowd) - used) / (time.monotonic() - began)
        return Turn(core, statistics.median(took), await _flat_out(crowd, cycle(small)))


async def _cpu(crowd: Crowd) -> float:
    """Return the seconds of the processor that threads which answer users have used."""
    line, headers = Line(crowd.port), {"Authorization": f"Bearer {crowd.token}"}
    _, told = await line.ask("GET", "/metrics?brief=true", headers)
    line.close()
    by = re.findall(r'^rainbow_thread_cpu_seconds{thread="(.*)"} (.*)$', told.decode(), re.M)
    return sum(float(seconds) for name, seconds in by if name not in OTHERS)


async def _empty(crowd: Crowd) -> None:
    """Empty the queue of the large cluster: to plan it takes a core by itself, with viewers or without."""
    line, headers = Line(crowd.port), {"Authorization": f"Bearer {crowd.token}"}
    while True:
        _, told = await line.ask("GET", f"/v1/jobs?cluster={LARGE}&state=WAITING,RUNNING&limit=500", headers)
        if not (waiting := json.loads(told)["jobs"]):
            return await asyncio.sleep(3 * ENDED)
        for job in waiting:
            await line.ask("DELETE", f"/v1/jobs/{job['id']}", headers)
        await asyncio.sleep(ENDED)
