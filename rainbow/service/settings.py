"""What can be set for a server, with every default in one place."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rainbow.matching import Budget


@dataclass(frozen=True, slots=True)
class Limits:
    """The most a request may bring, and cost."""

    body: int = 16 << 20  # bytes of any request but a graph
    graph: int = 512 << 20  # bytes of a request that brings a graph
    wait: float = 30.0  # seconds of a long poll
    offers: int = 1_000  # tasks in one answer to an agent
    listed: int = 1_000  # jobs in one page
    tasks: int = 100_000  # of one job
    output: int = 65_536  # characters of a task's output that are kept
    vertices: int = 2_000_000  # of one cluster with its subsystems
    edges: int = 8_000_000
    batch: int = 1_000  # jobs in one request
    live: int = 0  # live jobs of one requestor at one cluster, 0: no limit
    rate: float = 0.0  # requests a second from one caller, 0: no limit
    burst: int = 100  # requests a caller may send at once before the rate counts
    streams: int = 4  # event streams of one caller
    viewers: int = 256  # event streams in all
    waiting: int = 10_000  # requests that wait at once for something to happen; further ones are told to come back
    connections: int = 8_192  # open at once, and at most three quarters of what the process can hold
    connections_per_address: int = 1_024  # open from one address and without a known credential
    header_seconds: float = 10.0  # in which the head of a request has to come
    body_seconds: float = 20.0  # in which a body has to come; one more for each 64 KiB of it
    idle_seconds: float = 75.0  # that a connection with a known credential may carry no request
    match_seconds: float = 1.0  # seconds that matching one request with all clusters may take
    match_cluster_seconds: float = 0.05  # seconds of them for one cluster, before the undecided are asked again


@dataclass(frozen=True, slots=True)
class Server:
    """How requests come in."""

    threads: int = 32  # requests at once; those that wait need none
    certificate: str | None = None  # files: with both TLS is spoken
    key: str | None = None
    client_ca: str | None = None  # with it a client needs a certificate of this authority
    metrics: str = "admin"  # who may read /metrics: admin (with monitor tokens) or everybody
    log: str = "info"  # debug, info, warning, error


@dataclass(frozen=True, slots=True)
class Admission:
    """The limits a cluster begins with under load_based; each can set its own. The original had 10, 100, 30 min."""

    max_requestors: int = -1  # with live jobs; -1: no limit
    max_jobs_per_requestor: int = -1  # live; -1: no limit
    max_waiting_tasks: int = -1
    throttle: int = -1  # tasks waiting and running
    max_retries: int = 0
    max_lost: int = 5  # attempts of a task; 0: no limit
    quarantine_after: int = 0
    quarantine_after_lost: int = 10
    quarantine_minutes: int = 15
    task_minutes: int = 0  # of what asks for no duration; 0: for ever
    allowance_seconds: int = 15


@dataclass(frozen=True, slots=True)
class Settings:
    """A server's settings. `secret` and `admin` None: made at first start, see access.py."""

    name: str = "rainbow"
    secret: str | None = None  # lets clusters register
    admin: str | None = None  # may do everything
    selector: str = "random"
    selector_options: Mapping[str, Any] = field(default_factory=dict)
    backend: str = "index"
    policy: str = "load_based"
    tick: float = 0.25  # seconds between two scheduling steps when nothing happens
    lease: float = 60.0  # seconds without the server after which an agent stops its tasks
    grace: float = 10.0  # seconds more that the server waits before it gives them to the queue again
    history: float = 90 * 86_400.0  # seconds that ended jobs, events and decisions are kept
    limits: Limits = Limits()
    admission: Admission = Admission()
    server: Server = Server()
    warnings: tuple[str, ...] = ()

    def budget(self) -> Budget:
        """Return what matching one request may cost."""
        return Budget(time.monotonic, self.limits.match_cluster_seconds, self.limits.match_seconds)
