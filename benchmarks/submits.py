"""Submits per second, end to end: over HTTP to a server in its own process, durable before the answer.

Every job has a jobspec of its own (JSON), and asks for one of ten shapes: 1 to 5 nodes with 1 to 10 cores on each.
The token is good for all clusters, all of them match, and the server steps them too, as it does by default.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.served import Served, fill, serving

SECONDS = 3.0  # of each measurement
CALLERS = 8
WARM = 40  # submits that are not counted: each shape is matched afresh once
BATCH = 100
ORIGINAL = 4.0  # submits a second, of the original with 1,000 clusters
PHASES = ("parse", "match", "select", "store", "answer")
PHASE = re.compile(r'rainbow_phase_cpu_seconds_(sum|count)\{phase="(\w+)"\} (\S+)')

_numbers = count()


def jobspec() -> dict[str, Any]:
    """Return a job like no other."""
    k = next(_numbers)
    cores = {"type": "core", "count": 1 + k % 10}
    resources = {"work": {"type": "node", "count": 1 + k % 5, "with": [cores]}}
    return {"version": 1, "resources": resources, "tasks": [{"command": ["app", str(k)], "resources": "work"}]}


class Caller:
    """One that keeps its connection and waits for every answer."""

    def __init__(self, served: Served, token: str) -> None:
        self.connection = HTTPConnection("127.0.0.1", served.port, timeout=120)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.waits: list[float] = []

    def submit(self) -> int:
        """Submit one job."""
        return self._post("/v1/jobs", jobspec(), 201)

    def batch(self) -> int:
        """Submit many in one request."""
        self._post("/v1/jobs:batch", {"jobs": [{"jobspec": jobspec()} for _ in range(BATCH)]}, 200)
        return BATCH

    def _post(self, path: str, body: object, status: int) -> int:
        began = time.perf_counter()
        self.connection.request("POST", path, json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        reported = answer.read()
        self.waits.append(time.perf_counter() - began)
        assert answer.status == status, reported[:300]
        return 1

    def until(self, end: float, work: Callable[[], int]) -> int:
        """Work until a time; return how many jobs that were."""
        done = 0
        while time.perf_counter() < end:
            done += work()
        return done


def rate(served: Served, token: str, callers: int, batch: bool) -> tuple[float, float, float]:
    """Return jobs a second, milliseconds of the server's CPU for each, and the median wait for an answer."""
    those = [Caller(served, token) for _ in range(callers)]
    for _ in range(WARM):
        those[0].submit()
    cpu, began = served.cpu(), time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        done = sum(pool.map(lambda one: one.until(began + SECONDS, one.batch if batch else one.submit), those))
    spent = time.perf_counter() - began
    waits = [wait for one in those for wait in one.waits[-1_000:]]
    return done / spent, (served.cpu() - cpu) / done * 1e3, median(waits) * 1e3


def phases(served: Served) -> dict[str, float]:
    """Return milliseconds of CPU for each submit by phase, as the server has counted them."""
    results = {(which, name): float(value) for which, name, value in PHASE.findall(served.get("/metrics?brief=true"))}
    jobs = results.get(("count", "select"), 0.0)
    return {name: results.get(("sum", name), 0.0) / jobs * 1e3 if jobs else 0.0 for name in PHASES}


# ── stores ──


@contextmanager
def stores() -> Iterator[dict[str, Callable[[Path], str]]]:
    """Give, by name, what makes a new store in a folder and returns its URL."""
    made: dict[str, Callable[[Path], str]] = {"SQLite": lambda folder: str(folder / "rainbow.db")}
    with ExitStack() as stack:
        try:
            from tests.support import postgres, services

            if find_spec("psycopg") and not services.missing("PostgreSQL"):
                server = stack.enter_context(postgres.postgres(durable=True))
                made["PostgreSQL"] = lambda _: server.new_database()
        except ImportError:
            pass
        yield made


def disk() -> float:
    """Return milliseconds for one small write to reach the disk: no submit by one caller takes less."""
    with tempfile.NamedTemporaryFile(dir=".") as file:
        times = []
        for _ in range(200):
            os.pwrite(file.fileno(), os.urandom(8_192), 0)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return median(times) * 1e3


# rates are of the whole machine; CPU is of the server with its scheduler, the phases are of the thread that submits
HEAD = ("store", "clusters", "nodes", "caller/s", "8 callers/s", "batch of 100/s", "CPU ms", "p50 ms")


def submitting(counts: tuple[int, ...] = (10, 100, 1_000, 10_000), sizes: tuple[int, ...] = (10, 1_000)) -> None:
    """Print submits per second as the clusters grow."""
    print(f"\nsubmits; one write reaches this disk in {disk():.2f} ms")
    print("".join(f"{word:>15}" for word in (*HEAD, *PHASES)))
    with stores() as known:
        for name, make in known.items():
            for nodes in sizes:
                first = 0.0
                for clusters in counts:
                    one = _row(name, make, clusters, nodes)
                    first = first or one
                    if nodes == sizes[0]:
                        _judge(clusters, one, first)


def _row(name: str, make: Callable[[Path], str], clusters: int, nodes: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        url = make(Path(folder))
        token = fill(url, clusters, nodes)
        with serving(url, Path(folder)) as served:
            one, cpu, wait = rate(served, token, 1, batch=False)
            by_phase = phases(served)
            many, _, _ = rate(served, token, CALLERS, batch=False)
            batch, _, _ = rate(served, token, 1, batch=True)
    cells = [f"{one:.0f}", f"{many:.0f}", f"{batch:.0f}", f"{cpu:.2f}", f"{wait:.2f}"]
    cells += [f"{by_phase[phase]:.2f}" for phase in PHASES]
    print("".join(f"{cell:>15}" for cell in (name, clusters, nodes, *cells)), flush=True)
    return one


def _judge(clusters: int, one: float, first: float) -> None:
    """Say whether what is promised holds: 100 times the original, and at 10,000 clusters half of what it is at 10."""
    if clusters == 1_000:
        print(f"{'':>15}{one / ORIGINAL:.0f} times the original's {ORIGINAL:.0f} a second; promised are 100")
    if clusters == 10_000:
        print(f"{'':>15}{one / first:.2f} of the rate at the fewest clusters; promised are 0.50")
