"""A hundred viewers of a fleet: what they cost the server, its agents and those who submit.

Short windows without viewers and with them follow each other in the order ABBA, so that what grows with the jobs in
the store counts for both. Each pair says one difference; the median of these and its interval say whether it is one.

The processor's time is that of the threads that answer users, while every cluster's agent waits for work and jobs are
submitted at a steady pace. Agents have threads of their own, plans and forecasts too: these take several times as
much, never the same twice, and viewers cause none of it.

How many submits a server takes is counted while it has nothing else to do: no agents, and jobs that are held. It has
a core to itself, and so have those who ask. On that core a small loop runs again and again, too: a virtual machine
can be half as fast in one second as in the next, and counted by loops that could run, both are comparable.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from scipy.stats import binom

from benchmarks.crowd import ENDED, SPAWN, Crowd, Line, agents, apart, asking, viewers

PACE, STEADY = 0.1, 5.0  # seconds between two submits, and of a window of these
AT_ONCE, FLAT_OUT = 4, 8.0  # submits that are under way together, and seconds of a window of these
CORES, RATES = 10, 20  # pairs of windows for the one and the other
OTHERS = ("scheduler", "forecaster", "agents")  # threads that answer no viewer
LARGE, SOME = "sequoia", 25  # one submit of so many goes to the large cluster
SETTLED = 4.0  # seconds more until viewers have what they asked for first, with viewers or without
REST, LOOP = 0.02, 3_000  # seconds between two small loops, and rounds of one
Tempo = Callable[[], tuple[float, ...]]  # seconds that small loops took, their number, seconds stolen from the core


async def measured(crowd: Crowd, server: Sequence[int]) -> dict[str, float]:
    """Return percent of a core for the viewers, percent of the submits that they take, and refused agents."""
    with _own_core(server) as tempo, apart(viewers, crowd) as those:
        rates = await _pairs(RATES, lambda: _rate(crowd, tempo), those)  # before agents: they leave lost clusters
        with apart(agents, crowd) as others, asking(others):
            await _empty(crowd)
            cores = await _pairs(CORES, lambda: _core(crowd), those)
    print(dict(crowd.statuses))
    ages = [round(one, 1) for one in statistics.quantiles(crowd.ages, n=10)]
    print(f"seconds until a viewer's page is new: {ages}")
    refused = [n for kind, n in crowd.statuses.items() if re.fullmatch("(agent|stream) (?!200).*", kind)]
    return {
        "cpu": _middle("of a core", [watched - alone for alone, watched in cores]),
        "submits": _middle("fewer submits", [1 - watched / alone for alone, watched in rates]),
        "refused": sum(refused),
    }


async def _pairs(many: int, window: Callable[[], Awaitable[float]], those: Connection) -> list[tuple[float, float]]:
    """Measure windows without viewers and with them."""
    results = []
    for k in range(-1, many):  # the first reads what later ones remember
        first, second = [await _window(window, those if k % 2 == at else None) for at in (1, 0)]
        results.append((second, first) if k % 2 else (first, second))
        print("alone {:.4g}, watched {:.4g}".format(*results[-1]), flush=True)
    return results[1:]


async def _window(window: Callable[[], Awaitable[float]], those: Connection | None) -> float:
    with asking(those) if those else nullcontext():
        await asyncio.sleep(SETTLED + (0 if those else ENDED))  # the jobs of the window before have ended, too
        return await window()


def _middle(name: str, results: Sequence[float]) -> float:
    """Print the median and its interval of 98 %, by ranks, and return the median in percent."""
    ranked, middle = sorted(results), 100 * statistics.median(results)
    rank = max(1, int(binom.ppf(0.01, len(results), 0.5)))
    low, high = 100 * ranked[rank - 1], 100 * ranked[-rank]
    print(f"{name}: {middle:.1f} % [{low:.1f}, {high:.1f}] of {len(results)} pairs")
    return middle


# ── the processor while jobs come at a steady pace ──


async def _core(crowd: Crowd) -> float:
    """Return the part of a core that those threads use."""
    names = cycle([LARGE, *_small(crowd)[: SOME - 1]])
    began, used = time.monotonic(), await _cpu(crowd)
    await asyncio.gather(*[_later(crowd, k * PACE, next(names)) for k in range(int(STEADY / PACE))])
    return (await _cpu(crowd) - used) / (time.monotonic() - began)


async def _later(crowd: Crowd, seconds: float, name: str) -> None:
    await asyncio.sleep(seconds)
    line = Line(crowd.port)
    await _submit(crowd, line, name, crowd.spec)
    line.close()


async def _cpu(crowd: Crowd) -> float:
    """Return the seconds of the processor that threads which answer users have used."""
    line, headers = Line(crowd.port), {"Authorization": f"Bearer {crowd.token}"}
    _, answer = await line.ask("GET", "/metrics?brief=true", headers)
    line.close()
    by = re.findall(r'^rainbow_thread_cpu_seconds{thread="(.*)"} (.*)$', answer.decode(), re.M)
    return sum(float(seconds) for name, seconds in by if name not in OTHERS)


# ── how many submits a server takes ──


async def _rate(crowd: Crowd, tempo: Tempo) -> float:
    """Return how many held jobs are submitted while a thousand small loops could run."""
    names, before, many = cycle(_small(crowd)), tempo(), 0
    held = {**crowd.spec, "attributes": {"system": {"duration": 60, "hold": True}}}
    began = time.monotonic()

    async def go() -> None:
        nonlocal many
        line = Line(crowd.port)
        while time.monotonic() < began + FLAT_OUT:
            await _submit(crowd, line, next(names), held)
            many += 1
        line.close()

    await asyncio.gather(*(go() for _ in range(AT_ONCE)))
    took, ran, stolen = (after - first for after, first in zip(tempo(), before, strict=True))
    seconds = time.monotonic() - began
    return many / (seconds - stolen) * took / ran * 1_000


@contextmanager
def _own_core(server: Sequence[int]) -> Iterator[Tempo]:
    """Give the server a core to itself, and yield that core's tempo."""
    first, *others = os.sched_getaffinity(0)
    for thread in [thread for pid in server for thread in Path(f"/proc/{pid}/task").iterdir()]:
        os.sched_setaffinity(int(thread.name), {first})
    os.sched_setaffinity(0, others or {first})  # and so for whoever this thread starts
    loops = SPAWN.Array("d", 2, lock=False)
    process = SPAWN.Process(target=_loop, args=(loops, first), daemon=True)
    process.start()
    yield lambda: (*loops, psutil.cpu_times(percpu=True)[first].steal)
    process.terminate()


def _loop(loops: Any, core: int) -> None:
    """Note the seconds of small loops on that core, and their number."""
    os.sched_setaffinity(0, {core})
    some: dict[int, int] = {}
    while True:
        time.sleep(REST)
        began = time.thread_time()
        for k in range(LOOP):
            some[k & 255] = 3 * k
        loops[0] += time.thread_time() - began
        loops[1] += 1


# ── requests ──


def _small(crowd: Crowd) -> list[str]:
    return [name for name in crowd.secrets if name != LARGE]


async def _submit(crowd: Crowd, line: Line, name: str, spec: dict[str, Any]) -> None:
    headers, body = {"Authorization": f"Bearer {crowd.token}"}, {"jobspec": spec, "clusters": [{"name": name}]}
    status, _ = await line.ask("POST", "/v1/jobs", headers, body)
    crowd.statuses[f"submit {status}"] += 1


async def _empty(crowd: Crowd) -> None:
    """Empty the queue of the large cluster: to plan it takes a core by itself, with viewers or without."""
    line, headers = Line(crowd.port), {"Authorization": f"Bearer {crowd.token}"}
    while True:
        _, answer = await line.ask("GET", f"/v1/jobs?cluster={LARGE}&state=WAITING,RUNNING&limit=500", headers)
        if not (waiting := json.loads(answer)["jobs"]):
            return await asyncio.sleep(3 * ENDED)
        for job in waiting:
            await line.ask("DELETE", f"/v1/jobs/{job['id']}", headers)
        await asyncio.sleep(ENDED)
