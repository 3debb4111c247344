"""An outline that is read when somebody looks at its vertices, not before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rainbow.graph.outline import Outline

PARTS = ("ids", "fields", "parents", "counts", "templates")


class Deferred(Outline):
    """An outline of which only the totals are known; `read` gives the rest at the first look at any of it."""

    def __init__(self, read: Callable[[], Outline], sizes: Mapping[str, int], numbers: Mapping[str, int]) -> None:
        self._read = read
        self.sizes = dict(sizes)
        self.numbers = dict(numbers)

    def __getattr__(self, name: str) -> Any:
        """Read the outline: one of its parts is asked for and not yet there."""
        if name not in PARTS:
            raise AttributeError(name)
        whole = self._read()
        for part in PARTS:
            setattr(self, part, getattr(whole, part))
        return getattr(whole, name)
