"""Name → plug-in: built-ins first, then installed entry points.

A plug-in point is one `Registry`. Somebody else's package joins it by declaring an entry point in the
registry's group, for example in its pyproject.toml:

    [project.entry-points."rainbow.selectors"]
    cheapest = "their_package:Cheapest"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Generic, TypeVar

from rainbow.errors import RainbowError

P = TypeVar("P")


class UnknownPlugin(RainbowError):
    """No plug-in of that name is installed."""

    code = "plugin-unknown"


class Registry(Generic[P]):
    """The plug-ins of one kind, by name; built-ins win over entry points of the same name."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._built_in: dict[str, P] = {}

    def add(self, name: str) -> Callable[[P], P]:
        """Register a built-in under `name`; used as a decorator."""

        def register(plugin: P) -> P:
            self._built_in[name] = plugin
            return plugin

        return register

    def get(self, name: str) -> P:
        """Return the plug-in called `name`; UnknownPlugin names those there are."""
        if name in self._built_in:
            return self._built_in[name]
        for entry in metadata.entry_points(group=self.group, name=name):
            self._built_in[name] = entry.load()
            return self._built_in[name]
        raise UnknownPlugin(f"no plug-in {name!r} in {self.group}; there are: {', '.join(self.names())}")

    def names(self) -> list[str]:
        """Return the names of all plug-ins of this kind, sorted."""
        return sorted({*self._built_in, *(entry.name for entry in metadata.entry_points(group=self.group))})

    def __contains__(self, name: str) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
