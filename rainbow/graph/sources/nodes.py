"""What every source tells of a cluster: its nodes, where they stand and what they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Part:
    """Equal parts of a node with what each contains, called by their type and a number that counts from `first`."""

    type: str
    count: int = 1
    first: int = 0
    size: int = 1
    unit: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    @property
    def vertices(self) -> int:
        """How many vertices this stands for."""
        return self.count * (1 + sum(part.vertices for part in self.parts))


@dataclass(frozen=True)
class Node:
    """One node; `above` is what contains it below the cluster, as (type, name), from the top down."""

    name: str
    parts: tuple[Part, ...]
    pointer: str  # of what describes it, for faults
    properties: tuple[str, ...] = ()
    rank: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    above: tuple[tuple[str, str], ...] = ()
    id: str = ""  # where names need not be unique

    @property
    def likeness(self) -> tuple[Any, ...]:
        """What two nodes have in common if only their names and ranks tell them apart."""
        return self.parts, self.properties, self.metadata


def amount(kind: str, size: int, unit: str) -> tuple[Part, ...]:
    """Return one divisible part, none where there is nothing of it."""
    return (Part(kind, size=size, unit=unit),) if size else ()


def numbered(kind: str, numbers: list[int]) -> tuple[Part, ...]:
    """Return parts of one type that carry these numbers.

    >>> [(part.count, part.first) for part in numbered("core", [0, 1, 2])]
    [(3, 0)]
    >>> [(part.count, part.first) for part in numbered("core", [0, 7])]
    [(1, 0), (1, 7)]
    """
    if numbers and numbers == list(range(len(numbers))):
        return (Part(kind, count=len(numbers)),)
    return tuple(Part(kind, first=number) for number in numbers)
