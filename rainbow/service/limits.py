"""How much one request may ask of the server. All of it can be set under `limits:` in the configuration."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    body_bytes: int = 16 * MIB  # of any request but a graph
    graph_bytes: int = 512 * MIB
    state_bytes: int = MIB
    state_keys: int = 1_000
    text_length: int = 4_096  # of a state's value, a name of a job or requestor
    credentials: int = 1_000  # in one request
    page: int = 1_000  # jobs in one listing
    messages: int = 10_000  # tasks or events in one message of an agent
    output_tail: int = 64 * 1024  # characters kept of what a task wrote
    wait_seconds: float = 30.0  # the longest a receiver is kept waiting
    waiting_receivers: int = 32  # more are answered at once, so that they never take every thread
