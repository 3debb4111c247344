"""How large a graph may be: what keeps a registration from taking the server with it."""

from __future__ import annotations

from dataclasses import dataclass

from rainbow.errors import LimitError


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of everything a graph may have. Templates count as what they stand for."""

    vertices: int = 2_000_000
    edges: int = 8_000_000  # of a subsystem also: how many times its vertices may be attached
    depth: int = 10_000  # vertices on the way from the root down
    templates: int = 64  # one inside the other: each lengthens the ids of all copies in it

    def check(self, limit: str, found: int, pointer: str) -> None:
        """Raise LimitError, naming the limit, if `found` is more than it allows."""
        allowed = getattr(self, limit)
        if found > allowed:
            text = f"the graph is larger than the limit {limit} ({allowed}) allows"
            raise LimitError(text, pointer=pointer, limit=limit, allowed=allowed)


LIMITS = Limits()
