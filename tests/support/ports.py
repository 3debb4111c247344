"""Ports for servers that tests start."""

from __future__ import annotations

import os
import random
import socket
import time
from contextlib import suppress


def free_port() -> int:
    """Return a port nobody listens on."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return ports nobody listens on, below those that outgoing connections take; elsewhere for every process.

    A port that the system picks is one of those: before the server listens, some connection may have it.
    """
    chance = random.Random(f"{os.getpid()} {time.monotonic_ns()}")
    results: list[int] = []
    while len(results) < count:
        port = chance.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            results += [port] if port not in results else []
    return results


def free_block(count: int) -> int:
    """Return the first of so many ports one after the other on which nobody listens."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
