"""A graph document as plain lists, every part with the JSON Pointer it came from; nothing is judged yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rainbow.errors import GraphError, LimitError


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a graph may be; `depth` is the longest way down from the root."""

    vertices: int = 2_000_000
    edges: int = 8_000_000
    depth: int = 1_000
    size: int = 2**53  # of one vertex


class DraftVertex(NamedTuple):
    """One vertex as given."""

    id: str
    metadata: Mapping[str, Any]
    label: str
    pointer: str  # of its attributes


class DraftEdge(NamedTuple):
    """One edge as given; `contains` tells whether it says that source contains target."""

    source: str
    target: str
    contains: bool
    pointer: str


@dataclass(frozen=True, slots=True)
class Draft:
    """The vertices and edges of one document, and the name it gives itself."""

    vertices: list[DraftVertex] = field(default_factory=list)
    edges: list[DraftEdge] = field(default_factory=list)
    name: str = ""


def name_of(value: Any, pointer: str) -> str:
    """Return an id as text; ids may be strings or integers."""
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise GraphError(f"an id is text or an integer, not {type(value).__name__}", pointer=pointer)


def mapping(value: Any, what: str, pointer: str) -> Mapping[str, Any]:
    """Return a value that must be a mapping."""
    if isinstance(value, Mapping):
        return value
    raise GraphError(f"{what} must be a mapping, not {type(value).__name__}", pointer=pointer)


def within(count: int, limit: int, what: str, pointer: str) -> None:
    """Refuse more than `limit` of something."""
    if count > limit:
        raise LimitError(f"{count} {what}, the limit is {limit}", pointer=pointer, limit=what)


def escape(key: Any) -> str:
    """Write one step of a JSON Pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")
