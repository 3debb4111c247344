"""What can be set for a server, with every default in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """The most a request may bring."""

    body: int = 16 << 20  # bytes of any request but a graph
    graph: int = 512 << 20  # bytes of a request that brings a graph
    wait: float = 30.0  # seconds of a long poll
    offers: int = 1_000  # tasks in one answer to an agent
    listed: int = 1_000  # jobs in one page
    tasks: int = 100_000  # of one job
    batch: int = 1_000  # jobs in one batch
    output: int = 65_536  # characters of a task's output that are kept


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
    lease: float = 60.0  # seconds without a sign of life before an agent's tasks are given to the queue again
    limits: Limits = Limits()
    warnings: tuple[str, ...] = ()
