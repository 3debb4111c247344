"""Where in a document something stands: JSON Pointers (RFC 6901), and the line and column they lead to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml


def step(key: object) -> str:
    """Write one step of a JSON Pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def place(part: Any) -> dict[str, int]:
    """Return line and column (from 1) of a node or an event of YAML."""
    return {"line": part.start_mark.line + 1, "column": part.start_mark.column + 1}


class Path:
    """The way from the top to where a reader is. A pointer is written only for a fault: most values have none."""

    def __init__(self) -> None:
        self._steps: list[str | int] = []

    @contextmanager
    def below(self, key: str | int) -> Iterator[None]:
        """Be one step deeper, also while a fault is made there."""
        self._steps.append(key)
        yield
        self._steps.pop()

    def __str__(self) -> str:
        return "".join(f"/{step(key)}" for key in self._steps)


class Positions:
    """The places of all values of one document; without a document it knows none."""

    def __init__(self, top: Any = None) -> None:
        self._top = top

    def nearest(self, pointer: str) -> tuple[int, int] | None:
        """Return line and column of what a pointer leads to, or of the nearest thing above it."""
        node = self._top
        if node is None:
            return None
        for key in pointer.split("/")[1:]:
            inner = _inner(node, key)
            if inner is None:
                break
            node = inner
        found = place(node)
        return found["line"], found["column"]


def _inner(node: Any, key: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if step(name.value) == key), None)
    if isinstance(node, yaml.SequenceNode) and key.isdecimal() and len(key) < 10:
        return node.value[int(key)] if int(key) < len(node.value) else None
    return None
