"""2,000 agents that only wait, on one server of one core: others read beside them as if they were not there."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import grid
from tests.support.ports import free_port
from tests.unit.api.test_api_server import REGISTRATION, client, server

WAIT = 20  # seconds an agent asks to wait; an idle one sends no heartbeat beside


class Crowd:
    """Agents of one cluster, each for one of its workers, on a connection of its own."""

    def __init__(self, port: int, name: str, secret: str) -> None:
        self.port, self.name, self.secret = port, name, secret
        self.statuses: Counter[int] = Counter()

    async def call(self, line: Any, method: str, path: str, body: Any = None) -> None:
        reader, writer = line
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.secret}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        text = (await reader.readuntil(b"\r\n\r\n")).lower()
        self.statuses[int(text.split()[1])] += 1
        await reader.readexactly(int(text.split(b"content-length:")[1].split()[0]))

    async def agent(self, number: int, worker: str, pause: float) -> None:
        await asyncio.sleep(pause)
        line = await asyncio.open_connection("127.0.0.1", self.port)
        path, me = f"/v1/clusters/{self.name}", {"agent": f"a{number}"}
        await self.call(line, "POST", f"{path}/heartbeat", {**me, "workers": [worker], "running": []})
        while True:
            await self.call(line, "POST", f"{path}/receive", {**me, "max": 8, "wait": WAIT})

    async def reads(self, seconds: float) -> list[float]:
        """Return how long each of some reads took, in order."""
        line, results, end = await asyncio.open_connection("127.0.0.1", self.port), [], time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            await self.call(line, "GET", "/v1/jobs?limit=10")
            results.append(time.monotonic() - began)
            await asyncio.sleep(0.1)
        return sorted(results)


async def wait_and_read(crowd: Crowd, workers: list[str], server: list[psutil.Process], settle: float) -> Any:
    agents = [
        asyncio.ensure_future(crowd.agent(k, worker, k * WAIT / len(workers))) for k, worker in enumerate(workers)
    ]
    await asyncio.sleep(settle)
    assert not any(each.done() for each in agents)
    before, began = sum(sum(one.cpu_times()[:2]) for one in server), time.monotonic()
    results = await crowd.reads(2 * WAIT)
    share = (sum(sum(one.cpu_times()[:2]) for one in server) - before) / (time.monotonic() - began)
    for each in agents:
        each.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*agents)
    return results, share


@pytest.mark.soak
def test_two_thousand_agents_that_wait_leave_the_server_to_others(tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    port = free_port()
    with server(tmp_path, port) as process:
        with client(port, REGISTRATION) as api:
            oak = api.post("/v1/clusters", json={"name": "oak", "graph": grid(2000, 1)}).json()
        with client(port, oak["secret"]) as api:
            workers = [one["name"] for one in api.get("/v1/clusters/oak/workers").json()["workers"]]
        parts = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for part in parts:
            part.cpu_affinity([0])
        crowd = Crowd(port, "oak", oak["secret"])
        result, share = asyncio.run(wait_and_read(crowd, workers, parts, settle=70))
    p99 = result[int(len(result) * 0.99)]
    text = f"reads p99 {p99:.3f} s, server {share:.0%} of a core, answers {dict(crowd.statuses)}"
    print(f"2,000 waiting agents: {text}")
    assert set(crowd.statuses) == {200}
    assert p99 <= 0.1
    assert share <= 0.3
