"""Agents that say they are there, and ask for work in vain: what one message costs as a cluster grows."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from benchmarks.host import WHO, server
from benchmarks.timing import exponent, once, timed
from rainbow.api import create_app
from rainbow.api.front import Front
from rainbow.service import Service
from rainbow.service.agents.protocol import heartbeat, receive
from rainbow.service.clusters.inventory import workers_of
from rainbow.service.clusters.registration import register
from rainbow.service.core.pubsub import offers_to_all
from rainbow.service.placement.batch import submit
from rainbow.service.placement.submission import Submission
from rainbow.service.scheduler.step import step

SIZES = (100, 1_000, 10_000, 100_000)
POLLS = 500  # at once, each asked twice


def present() -> None:
    """Print microseconds of CPU of a heartbeat, an empty receive, and a poll that is asked again; and exponents."""
    print(f"{'workers':>10}{'heartbeat us':>14}{'receive us':>14}{'asked again us':>16}")
    results: dict[int, tuple[float, ...]] = {}
    for size in SIZES:
        with server() as service:
            results[size] = _messages(service, size)
        print(f"{size:>10}{results[size][0]:>14.0f}{results[size][1]:>14.0f}{results[size][2]:>16.0f}", flush=True)
    exponents = [exponent(SIZES, costs) for costs in zip(*results.values(), strict=True)]
    print(f"{'exponent':>10}{exponents[0]:>14.2f}{exponents[1]:>14.2f}{exponents[2]:>16.2f}   (wanted <= 0.1)")


WAITING = (50, 150, 500)
STARTS = 5  # one after the other
QUIET = 1.5  # seconds in which all that were woken have asked again


def woken() -> None:
    """Print agents asked again and milliseconds of CPU for a start at one worker, by how many agents wait."""
    print(f"{'agents wait':>12}{'woken':>10}{'ms a start':>14}")
    results = []
    for count in WAITING:
        with server() as service:
            request, spent = asyncio.run(_woken(service, count))
        results.append(spent)
        print(f"{count:>12}{request:>10.1f}{results[-1]:>14.1f}", flush=True)
    print(f"{'exponent':>12}{exponent(WAITING, results):>24.2f}   (wanted <= 0.1: those whose workers got something)")


async def _woken(service: Service, count: int) -> tuple[float, float]:
    """Let agents with a worker each wait, and start jobs of one node; CPU is of all but submit and step."""
    answer = register(service, WHO, {"name": "oak", "graph": tiny(count)})
    for k in range(count):
        heartbeat(service, WHO, "oak", f"a{k}", [f"n{k}"], [])
    assert service.turns.scheduling()
    app, request = create_app(service), list[None]()
    app.before_request(lambda: request.append(None))
    front, topic = Front(app, service), offers_to_all(service.catalogue["oak"].id)
    polls = asyncio.gather(*(_poll(front, answer["secret"], k, wait=60) for k in range(count)))
    while len(service.news._listeners.get(topic, ())) < count:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    request.clear()
    began = time.process_time()
    apart = sum([await asyncio.to_thread(_start_one, service) for _ in range(STARTS)])
    await asyncio.sleep(QUIET)
    spent, many = time.process_time() - began - apart, len(request)
    service.let_go()
    await polls
    return many / STARTS, spent / STARTS * 1e3


def _start_one(service: Service) -> float:
    """Let a job start; return the seconds of CPU of this thread for it."""
    began = time.thread_time()
    one = {"n": {"type": "node", "count": 1}}
    spec = {"version": 1, "resources": one, "tasks": [{"command": ["true"], "resources": "n"}]}
    submit(service, WHO, Submission(jobspec=spec))
    assert step(service, "oak")
    return time.thread_time() - began


CATALOGUES = (100, 1_000, 10_000)


def refreshed() -> None:
    """Print milliseconds of CPU for a graph that another server has changed: found among all, or told by its id."""
    print(f"{'clusters':>10}{'looked for ms':>16}{'told ms':>16}")
    results: dict[int, tuple[float, float]] = {}
    for size in CATALOGUES:
        with server() as service:
            for k in range(size):
                register(service, WHO, {"name": f"c{k}", "graph": tiny()})
            one = service.catalogue["c7"]
            looked, answer = (_refreshed(service, ids) for ids in (None, {one.id}))
            results[size] = looked, answer
        print(f"{size:>10}{looked:>16.2f}{answer:>16.2f}", flush=True)
    looked, answer = (exponent(CATALOGUES, costs) for costs in zip(*results.values(), strict=True))
    print(f"{'exponent':>10}{looked:>16.2f}{answer:>16.2f}   (wanted: what is told does not grow)")


ATTENDED = (500, 1_000, 2_000, 4_000)


def attended() -> None:
    """Print milliseconds of CPU of a step and of the list of workers, with an agent and its load for each worker."""
    print(f"{'agents':>10}{'quiet step ms':>16}{'first of many ms':>18}{'list ms':>12}")
    results: list[tuple[float, ...]] = []
    for size in ATTENDED:
        with server() as service:
            register(service, WHO, {"name": "oak", "graph": tiny(size)})
            for k in range(size):
                heartbeat(service, WHO, "oak", f"a{k}", [f"n{k}"], [], load={"load1": 0.5})
            assert service.turns.scheduling()
            first = once(lambda: step(service, "oak")) / 1e3
            quiet = timed(lambda: step(service, "oak"), 21) / 1e3
            listed = timed(lambda: workers_of(service, WHO, "oak"), 11) / 1e3
        results.append((quiet, first, listed))
        print(f"{size:>10}{quiet:>16.2f}{first:>18.2f}{listed:>12.2f}", flush=True)
    shown = [exponent(ATTENDED, costs) for costs in zip(*results, strict=True)]
    print(f"{'exponent':>10}{shown[0]:>16.2f}{shown[1]:>18.2f}{shown[2]:>12.2f}   (wanted: <= 1, the list)")


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
