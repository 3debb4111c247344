"""A server in its own process over a store of many clusters: what registering them has left, written at once."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rainbow.graph import read_cluster
from rainbow.service.core.service import keep_summary
from rainbow.store import clusters, credentials, open_store, workers
from rainbow.store.clusters import ClusterRecord
from rainbow.store.credentials import TOKEN, mint, minted
from rainbow.store.schema import clusters as clusters_table
from rainbow.store.schema import workers as workers_table

POLICY = "load_based"
TICKS = os.sysconf("SC_CLK_TCK")
Graph = Callable[[int, int], dict[str, Any]]  # number of the cluster, nodes: its document


def template(number: int, nodes: int) -> dict[str, Any]:
    """A page that stands for equal nodes of 24 cores and some memory; no two clusters have the same."""
    vertices = {
        "c": {"type": "cluster"},
        "n": {"type": "node", "count": nodes},
        "k": {"type": "core", "count": 24},
        "m": {"type": "memory", "size": 100 + number, "unit": "GB"},
    }
    edges = [("c", "n"), ("n", "k"), ("n", "m")]
    return _jgf({key: {"metadata": data} for key, data in vertices.items()}, edges)


def listed(number: int, nodes: int) -> dict[str, Any]:
    """Every node and four cores of each listed, all under names of the cluster's own."""
    top = f"/site{number}"
    vertices: dict[str, Any] = {"c": _named("cluster", f"site{number}", top)}
    edges: list[tuple[str, str]] = []
    for i in range(nodes):
        node = f"s{number}n{i}"
        vertices[f"n{i}"] = _named("node", node, f"{top}/{node}", rank=i, size=1)
        edges.append(("c", f"n{i}"))
        for k in range(4):
            vertices[f"n{i}k{k}"] = _named("core", f"core{k}", f"{top}/{node}/core{k}", id=k)
            edges.append((f"n{i}", f"n{i}k{k}"))
    return _jgf(vertices, edges)


def _named(kind: str, name: str, path: str, **more: int) -> dict[str, Any]:
    return {"metadata": {"type": kind, "name": name, "paths": {"containment": path}, **more}}


def _jgf(vertices: dict[str, Any], edges: list[tuple[str, str]]) -> dict[str, Any]:
    return {"graph": {"nodes": vertices, "edges": [{"source": a, "target": b} for a, b in edges]}}


def fill(url: str, count: int, nodes: int, graph: Graph = template, first: int = 0) -> str:
    """Register clusters in one transaction, numbered from `first`; return a token that is good for all of them."""
    store, now = open_store(url), time.time()
    with store.write() as connection:
        ids = []
        for number in range(first, first + count):
            document = graph(number, nodes)
            cluster = read_cluster(document, f"cluster{number}")
            record = ClusterRecord(secrets.token_hex(8), cluster.name, "any", "node", now, POLICY)
            clusters.add(connection, record, document)
            keep_summary(connection, record.id, record.revision, cluster)
            ids.append(record.id)
            if graph is listed or number == first:
                workers.keep_only(connection, record.id, list(cluster.workers), now)
        if graph is not listed:
            _copy_workers(connection, ids[0])
        made = mint(TOKEN)
        credentials.add(connection, minted(made, TOKEN, now, tuple(ids)))
    store.close()
    return made


def _copy_workers(connection: sa.Connection, first: str) -> None:
    """Give every other cluster the workers of the first: templates of one size name them alike."""
    columns = [column if column.name != "cluster_id" else clusters_table.c.id for column in workers_table.c]
    pairs = workers_table.join(clusters_table, clusters_table.c.id != workers_table.c.cluster_id)
    others = sa.select(*columns).select_from(pairs).where(workers_table.c.cluster_id == first)
    connection.execute(workers_table.insert().from_select([column.name for column in workers_table.c], others))


@dataclass
class Served:
    """A running server. What it used is read from /proc."""

    port: int
    parent: int
    ready: float  # seconds from its start until it answered /readyz
    stopped: bool = False

    @property
    def pids(self) -> list[int]:
        """The server's processes."""
        children = Path(f"/proc/{self.parent}/task/{self.parent}/children").read_text().split()
        return [self.parent, *map(int, children)]

    def cpu(self) -> float:
        """Seconds of processor time used up to now."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.pids]
        return sum(int(one[11]) + int(one[12]) for one in fields) / TICKS

    def memory(self) -> float:
        """Megabytes held by the process that answers."""
        lines = Path(f"/proc/{self.pids[-1]}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def get(self, path: str) -> str:
        """Ask the server."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        return connection.getresponse().read().decode()


@contextmanager
def serving(
    url: str, folder: Path, *options: str, environment: Mapping[str, str] | None = None, port: int | None = None
) -> Iterator[Served]:
    """Run `rainbow serve` over a store until the block is left."""
    where = ["serve", "--database", url, *options]
    with started(where, port or free_port(), folder / "server.log", environment) as served:
        yield served


@contextmanager
def started(
    command: Sequence[str], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """Run a command that serves at a port until the block is left."""
    known = {"RAINBOW_REGISTRATION_SECRET": "rbr_of-the-benchmark", "RAINBOW_ADMIN_TOKEN": "rba_of-the-benchmark"}
    began = time.perf_counter()
    with log.open("a") as answer:
        words = [sys.executable, "-m", "rainbow", *command, "--port", str(port)]
        server = subprocess.Popen(
            words, env={**os.environ, **known, **(environment or {})}, stdout=answer, stderr=answer
        )
    try:
        served = Served(port, server.pid, 0.0)
        _await(served, server)
        served.ready = time.perf_counter() - began
        yield served
    finally:
        server.terminate()
        server.wait(60)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _await(served: Served, server: subprocess.Popen[bytes], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            served.get("/readyz")
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError("the server has ended" if server.poll() is not None else f"not ready after {seconds} seconds")
