"""Agents that say they are there, and ask for work in vain: what one message costs as a cluster grows."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from benchmarks.host import WHO, server
from benchmarks.timing import exponent, timed
from rainbow.api import create_app
from rainbow.api.front import Front
from rainbow.service import Service
from rainbow.service.agents.protocol import heartbeat, receive
from rainbow.service.clusters.registration import register
from rainbow.service.core.pubsub import OFFERS

SIZES = (100, 1_000, 10_000, 100_000)
POLLS = 500  # at once, each asked twice


def present() -> None:
    """Print microseconds of CPU of a heartbeat, an empty receive, and a poll that is asked again; and exponents."""
    print(f"{'workers':>10}{'heartbeat us':>14}{'receive us':>14}{'asked again us':>16}")
    found: dict[int, tuple[float, ...]] = {}
    for size in SIZES:
        with server() as service:
            found[size] = _messages(service, size)
        print(f"{size:>10}{found[size][0]:>14.0f}{found[size][1]:>14.0f}{found[size][2]:>16.0f}", flush=True)
    exponents = [exponent(SIZES, costs) for costs in zip(*found.values(), strict=True)]
    print(f"{'exponent':>10}{exponents[0]:>14.2f}{exponents[1]:>14.2f}{exponents[2]:>16.2f}   (wanted <= 0.1)")


WAITING = (50, 150, 500)
QUIET = 6.0  # seconds in which all that were woken have asked again


def woken() -> None:
    """Print milliseconds of CPU for a start at one worker, by how many agents of the cluster wait for offers."""
    print(f"{'agents wait':>12}{'ms an event':>14}")
    found = []
    for count in WAITING:
        with server() as service:
            found.append(asyncio.run(_woken(service, count)))
        print(f"{count:>12}{found[-1]:>14.1f}", flush=True)
    print(f"{'exponent':>12}{exponent(WAITING, found):>14.2f}   (wanted <= 0.1: those whose workers got something)")


async def _woken(service: Service, count: int) -> float:
    """Let agents with a worker each wait, and tell the cluster what a step tells that has started a task."""
    secret = register(service, WHO, {"name": "oak", "graph": tiny(count)})["secret"]
    for k in range(count):
        heartbeat(service, WHO, "oak", f"a{k}", [f"n{k}"], [])
    assert service.turns.scheduling()
    front, topic = Front(create_app(service), service), f"{OFFERS}{service.catalogue['oak'].id}"
    polls = asyncio.gather(*(_poll(front, secret, k, wait=30) for k in range(count)))
    while len(service.news._listeners.get(topic, ())) < count:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    began = time.process_time()
    service.tell(service.catalogue["oak"].id)
    await asyncio.sleep(QUIET)
    spent = (time.process_time() - began) * 1e3
    service.let_go()
    await polls
    return spent


CATALOGUES = (100, 1_000, 10_000)


def refreshed() -> None:
    """Print milliseconds of CPU for a graph that another server has changed: found among all, or told by its id."""
    print(f"{'clusters':>10}{'looked for ms':>16}{'told ms':>16}")
    found: dict[int, tuple[float, float]] = {}
    for size in CATALOGUES:
        with server() as service:
            for k in range(size):
                register(service, WHO, {"name": f"c{k}", "graph": tiny()})
            one = service.catalogue["c7"]
            looked, told = (_refreshed(service, ids) for ids in (None, {one.id}))
            found[size] = looked, told
        print(f"{size:>10}{looked:>16.2f}{told:>16.2f}", flush=True)
    looked, told = (exponent(CATALOGUES, costs) for costs in zip(*found.values(), strict=True))
    print(f"{'exponent':>10}{looked:>16.2f}{told:>16.2f}   (wanted: what is told does not grow)")


def tiny(nodes: int = 0) -> dict[str, Any]:
    """Return the graph of one node, or of numbered ones."""
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node", **({"count": nodes} if nodes else {})}}
    nodes = {key: {"metadata": data} for key, data in vertices.items()}
    return {"graph": {"nodes": nodes, "edges": [{"source": "c", "target": "n"}]}}


def _refreshed(service: Service, ids: set[str] | None) -> float:
    return timed(lambda: service.refresh(ids), 21) / 1e3


def _messages(service: Service, size: int) -> tuple[float, ...]:
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node", "count": size}}
    nodes = {key: {"metadata": data} for key, data in vertices.items()}
    graph = {"graph": {"nodes": nodes, "edges": [{"source": "c", "target": "n"}]}}
    secret = register(service, WHO, {"name": "oak", "graph": graph})["secret"]
    heartbeat(service, WHO, "oak", "all", None, [])
    for k in range(POLLS):
        heartbeat(service, WHO, "oak", f"a{k}", [f"n{k % size}"], [])
    assert service.turns.scheduling()
    beat = timed(lambda: heartbeat(service, WHO, "oak", "a7", ["n7"], []), 51)
    ask = timed(lambda: receive(service, WHO, "oak", "a7", 8, 0.0), 51)
    return beat, ask, asyncio.run(_asked_again(service, secret))


async def _asked_again(service: Service, secret: str) -> float:
    """Return the microseconds of CPU of this process for a poll that finds nothing a second time."""
    front = Front(create_app(service), service)
    await asyncio.gather(*(_poll(front, secret, k) for k in range(POLLS)))
    began = time.process_time()
    await asyncio.gather(*(_poll(front, secret, k) for k in range(POLLS)))
    return (time.process_time() - began) / POLLS * 1e6


async def _poll(front: Front, secret: str, k: int, wait: float = 0.5) -> None:
    body = json.dumps({"agent": f"a{k}", "wait": wait}).encode()
    path, sent = "/v1/clusters/oak/receive", [{"type": "http.request", "body": body}]
    headers = [(b"authorization", f"Bearer {secret}".encode()), (b"content-length", str(len(body)).encode())]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"", "headers": headers, "scheme": "http", "http_version": "1.1"}
    scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}

    async def receive() -> dict[str, Any]:
        return sent.pop() if sent else await asyncio.Future()

    async def send(_: dict[str, Any]) -> None:
        pass

    await front(scope, receive, send)
