"""Shards behind a router against one server with all of their clusters, as processes on this machine.

What a submit costs is the processor time of router and shards together; the bytes between them are counted by a
relay, in a run of its own. Then a shard is killed under load and started again: each job must be there, once.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.served import Served, fill, free_port, serving, started
from benchmarks.submits import CALLERS, SECONDS, Caller, jobspec
from benchmarks.timing import heading, row
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.idempotency import new_key
from rainbow.store import cluster_states, open_store
from rainbow.store.schema import clusters, jobs

NODES = 10
SETTLES = 6.0  # seconds after which what is asked once for a while has been asked
MEASURED = 200  # submits whose bytes are counted
LOADED, AWAY = 3.0, 5.0  # seconds under load, and without the killed shard
CHEAPEST = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "cost"}, {"select": "first"}]}]}
KINDS: dict[str, dict[str, Any]] = {
    "ten shapes": {},
    "all fresh": {"fresh": True},
    "cheapest": {"selector": {"name": "constraint", "options": CHEAPEST}},
}


class Keyed(Caller):
    """A caller that sends a key with each job, as the client does; `fresh`: it asks for what none did before."""

    def __init__(self, served: Served, tokens: Sequence[str], fresh: bool = False, selector: Any = None) -> None:
        super().__init__(served, ", Bearer ".join(tokens))
        self._more, self._fresh = {"selector": selector} if selector else {}, fresh

    def submit(self) -> int:
        """Submit one job."""
        request = jobspec()
        if self._fresh:
            memory = {"type": "memory", "count": 1 + time.perf_counter_ns() % 90_000, "unit": "MB"}
            request["resources"]["work"]["with"].append(memory)
        self.headers["Idempotency-Key"] = new_key()
        return self._post("/v1/jobs", {"jobspec": request, **self._more}, 201)


@dataclass
class Federation:
    """Shards, each in a folder with its store, and a router."""

    folder: Path
    count: int
    of_each: int
    stack: ExitStack
    tokens: list[str] = field(default_factory=list)
    shards: list[Served] = field(default_factory=list)

    def fill(self) -> None:
        """Make the stores and start the shards."""
        for k in range(self.count):
            (self.folder / f"{k}").mkdir()
            self.tokens.append(_filled(self.store(k), self.of_each, k * self.of_each))
            self.shards.append(self.start(k))
        self.router = self.stack.enter_context(self.routing([shard.port for shard in self.shards]))

    def store(self, k: int) -> str:
        """Return where a shard's store is."""
        return str(self.folder / f"{k}" / "rainbow.db")

    def start(self, k: int, port: int | None = None) -> Served:
        """Start a shard."""
        return self.stack.enter_context(serving(self.store(k), self.folder / f"{k}", port=port))

    @contextmanager
    def routing(self, ports: Sequence[int]) -> Iterator[Served]:
        """Run a router until the block is left."""
        shards = [word for port in ports for word in ("--shard", f"http://127.0.0.1:{port}")]
        with started(["route", *shards], free_port(), self.folder / "router.log") as served:
            yield served


def _filled(url: str, count: int, first: int) -> str:
    """Fill a store; each cluster says what it costs."""
    token = fill(url, count, NODES, first=first)
    store = open_store(url)
    with store.write() as connection:
        for cluster_id, name in connection.execute(sa.select(clusters.c.id, clusters.c.name)).all():
            state = {"nodes_free": 10**6, "cost": hash_of(name)}
            cluster_states.put(connection, cluster_id, state, time.time())
    store.close()
    return token


def hash_of(name: str) -> int:
    """Return a cost that has nothing to do with the order of names."""
    return int(name.removeprefix("cluster")) * 7_919 % 10_007


def sharded(count: int = 4, of_each: int = 2_500) -> None:
    """Print what a submit costs over shards, and in one server with as many clusters; then kill a shard."""
    title = f"{count} shards of {of_each:,} clusters behind a router"
    heading(title, "submits", "one: CPU ms", "routed: CPU ms", "router alone", "times one", "bytes")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "one").mkdir()
        url = str(folder / "one" / "rainbow.db")
        token = _filled(url, count * of_each, 0)
        one = stack.enter_context(serving(url, folder / "one"))
        federation = Federation(folder, count, of_each, stack)
        federation.fill()
        for words, kind in KINDS.items():
            _compare(words, kind, one, token, federation)
        print("promised: 2 times the time of one server for shapes that are known, and for what reads states")
        _kill(federation)


def _compare(words: str, kind: dict[str, Any], one: Served, token: str, federation: Federation) -> None:
    [alone] = _cpu([one], one, [token], kind)
    router = federation.router
    first, *others = _cpu([router, *federation.shards], router, federation.tokens, kind)
    routed = first + sum(others)
    row(words, alone, routed, first, f"{routed / alone:.2f}", _bytes(federation, kind))


def _cpu(counted: Sequence[Served], request: Served, tokens: Sequence[str], kind: dict[str, Any]) -> list[float]:
    """Return milliseconds of processor time of each of these processes for a submit."""
    callers = [Keyed(request, tokens, **kind) for _ in range(CALLERS)]
    callers[0].until(time.perf_counter() + SETTLES, callers[0].submit)
    before, end = [each.cpu() for each in counted], time.perf_counter() + 2 * SECONDS
    with ThreadPoolExecutor(CALLERS) as pool:
        done = sum(pool.map(lambda caller: caller.until(end, caller.submit), callers))
    return [(each.cpu() - was) / done * 1e3 for each, was in zip(counted, before, strict=True)]


# ── bytes ──


class Relay:
    """Passes on what goes to a server and comes from it, and counts the bytes."""

    def __init__(self, port: int) -> None:
        self.count, self._to = 0, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            here, _ = self._listener.accept()
            there = socket.create_connection(("127.0.0.1", self._to))
            threading.Thread(target=self._pass, args=(here, there), daemon=True).start()

    def _pass(self, here: socket.socket, there: socket.socket) -> None:
        with suppress(ConnectionError), selectors.DefaultSelector() as ready, here, there:  # either may be killed
            ready.register(here, selectors.EVENT_READ, (here, there))
            ready.register(there, selectors.EVENT_READ, (there, here))
            while True:
                for key, _ in ready.select():
                    data = key.data[0].recv(65_536)
                    if not data:
                        return
                    self.count += len(data)
                    key.data[1].sendall(data)


def _bytes(federation: Federation, kind: dict[str, Any]) -> float:
    """Return the bytes between router and shards for a submit, both ways, with one caller."""
    relays = [Relay(shard.port) for shard in federation.shards]
    with federation.routing([relay.port for relay in relays]) as router:
        caller = Keyed(router, federation.tokens, **kind)
        caller.until(time.perf_counter() + SETTLES, caller.submit)
        before = sum(relay.count for relay in relays)
        for _ in range(MEASURED):
            caller.submit()
        return (sum(relay.count for relay in relays) - before) / MEASURED


# ── one is killed ──


class Load:
    """Callers that submit until they are told to end, and what each submit was answered: a job, or a code."""

    def __init__(self, federation: Federation) -> None:
        self.told: dict[str, tuple[float, str]] = {}
        self._asked: dict[str, dict[str, Any]] = {}
        self._url, self._tokens = f"http://127.0.0.1:{federation.router.port}", federation.tokens
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        with Client(self._url, self._tokens, tries=1) as client:
            while not self._ended.is_set():
                self.submit(client, new_key())

    def submit(self, client: Client, key: str) -> None:
        """Submit the job of a key: a key that is sent again with another one is refused."""
        request = self._asked.setdefault(key, jobspec())
        try:
            answer = client.submit(request, name=key, idempotency_key=key)["id"]
        except RainbowError as fault:
            answer = fault.code
        self.told[key] = time.monotonic(), answer

    def end(self) -> None:
        """Let all come to their end."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def since(self, when: float) -> Counter[bool]:
        """Count answers since a time: jobs, and problems."""
        return Counter(is_job(answer) for at, answer in self.told.values() if at > when)


def is_job(answer: str) -> bool:
    """Return whether a submit was answered with a job."""
    return len(answer) == 24


def _kill(federation: Federation) -> None:
    load = Load(federation)
    time.sleep(LOADED)
    killed = time.monotonic()
    lost = federation.shards[0]
    for pid in lost.pids:
        os.kill(pid, signal.SIGKILL)
    time.sleep(AWAY)
    away = load.since(killed)
    with Client(f"http://127.0.0.1:{federation.router.port}", federation.tokens) as client:
        listed = Counter(one["state"] == "away" for one in client.clusters())
    federation.start(0, lost.port)
    time.sleep(LOADED)
    load.end()
    _settle(federation, load)
    print(
        f"a shard killed under load: {away[True]} submits placed by the others in {AWAY:g} s, {away[False]} told 503;"
    )
    print(f"{listed[True]} clusters listed as away, {listed[False]} not; {len(load.told)} submits in all: ", end="")
    print("none lost, none twice")


def _settle(federation: Federation, load: Load) -> None:
    """Send again what was in doubt, and look for every job in the stores: once, where it was said to be."""
    with Client(f"http://127.0.0.1:{federation.router.port}", federation.tokens) as client:
        for key in [key for key, (_, answer) in load.told.items() if not is_job(answer)]:
            load.submit(client, key)
    results: dict[str, list[str]] = {}
    for k in range(federation.count):
        store = open_store(federation.store(k))
        with store.read() as connection:
            for job, name in connection.execute(sa.select(jobs.c.id, jobs.c.name)):
                results.setdefault(name, []).append(job)
        store.close()
    wrong = [key for key, (_, answer) in load.told.items() if results.get(key) != [answer]]
    assert not wrong, f"{len(wrong)} lost or twice: {wrong[:3]}, {[results.get(key) for key in wrong[:3]]}"


if __name__ == "__main__":
    sharded(*map(int, sys.argv[1:]))
