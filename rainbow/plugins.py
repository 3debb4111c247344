"""Name → plug-in: built-ins first, then installed entry points.

A plug-in point is one `Registry`. An installed package joins it by declaring an entry point in the
registry's group, for example in its pyproject.toml:

    [project.entry-points."rainbow.selectors"]
    cheapest = "their_package:Cheapest"

`Cheapest` may be the plug-in itself, or a class that makes it without arguments. An exception that it raises, unless
it is one of Rainbow's own, is reported as the plug-in's: PluginFault. docs/plugins.md has an example of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from rainbow.errors import RainbowError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

P = TypeVar("P")


class UnknownPlugin(RainbowError):
    """No plug-in of that name is installed."""

    code = "plugin-unknown"


class PluginFault(RainbowError):
    """An installed plug-in failed; its author can mend it."""

    code = "plugin-failed"


class Registry(Generic[P]):
    """The plug-ins of one kind, by name; built-ins win over entry points of the same name.

    Where the plug-ins are `factories`, called to make what is used, a class is one of them as it is.
    """

    def __init__(self, group: str, *, factories: bool = False) -> None:
        self.group = group
        self._factories = factories
        self._built_in: dict[str, P] = {}
        self._installed: dict[str, P] = {}
        self._later: dict[str, str] = {}  # built-ins, and where they are

    def add(self, name: str) -> Callable[[P], P]:
        """Register a built-in under `name`; used as a decorator."""

        def register(plugin: P) -> P:
            self._built_in[name] = self._made(plugin)
            return plugin

        return register

    def add_later(self, name: str, where: str) -> None:
        """Register a built-in that is imported when it is first asked for; `where` is "module:attribute"."""
        self._later[name] = where

    def get(self, name: str) -> P:
        """Return the plug-in called `name`; UnknownPlugin names those there are."""
        for known in (self._built_in, self._installed):
            if name in known:
                return known[name]
        if name in self._later:
            module, _, attribute = self._later[name].partition(":")
            self.add(name)(getattr(import_module(module), attribute))
            return self._built_in[name]
        for entry in _entry_points(group=self.group, name=name):
            self._installed[name] = self._load(entry)
            return self._installed[name]
        raise UnknownPlugin(f"no plug-in {name!r} in {self.group}; there are: {', '.join(self.names())}")

    def _load(self, entry: EntryPoint) -> P:
        try:
            made = self._made(entry.load())
        except Exception as fault:  # somebody else's module: anything may be wrong with it
            raise self.fault(entry.name, fault) from fault
        return made if self._factories else cast("P", _guarded(made, lambda fault: self.fault(entry.name, fault)))

    def _made(self, result: Any) -> P:
        """Return a plug-in: an object as it is, or an instance of a class; else a factory of the object."""
        if self._factories:
            return cast("P", result if callable(result) else lambda *_: result)
        return cast("P", result() if isinstance(result, type) else result)

    def fault(self, name: str, fault: Exception) -> PluginFault:
        """Return the report of an exception of an installed plug-in."""
        return PluginFault(f"plug-in {name} of {self.group} failed: {type(fault).__name__}: {str(fault)[:200]}")

    def is_installed(self, name: str) -> bool:
        """Return whether a plug-in is a third party's."""
        return name not in self._built_in and name not in self._later

    def names(self) -> list[str]:
        """Return the names of all plug-ins of this kind, sorted."""
        return sorted({*self._built_in, *self._later, *names_of(self.group)})

    def __contains__(self, name: object) -> bool:
        # what is installed is read from the files of every package: built-ins need none of them
        known = name in self._built_in or name in self._later or name in self._installed
        return known or name in names_of(self.group)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


Blame = Callable[[Exception], PluginFault]


def _guarded(plugin: Any, blame: Blame) -> Any:
    """Return a wrapper of a plug-in: its attributes, and calls whose exceptions become its own."""
    public = [name for name in dir(plugin) if not name.startswith("_")]
    inside: dict[str, Any] = {name: property(_reading(plugin, name, blame)) for name in public}
    if callable(plugin):
        inside["__call__"] = staticmethod(_calling(plugin, blame))
    return type(type(plugin).__name__, (), inside)()


def _reading(plugin: Any, name: str, blame: Blame) -> Callable[[Any], Any]:
    def read(_: Any) -> Any:
        value = getattr(plugin, name)
        return _calling(value, blame) if callable(value) else value

    return read


def _calling(call: Callable[..., Any], blame: Blame) -> Callable[..., Any]:
    @wraps(call)
    def guarded(*options: Any, **named: Any) -> Any:
        try:
            return call(*options, **named)
        except RainbowError:
            raise
        except Exception as fault:  # somebody else's code: anything may be wrong with it
            raise blame(fault) from fault

    return guarded


def names_of(group: str) -> list[str]:
    """Return the names that installed packages declare in a group."""
    return sorted({entry.name for entry in _entry_points(group=group)})


def _entry_points(group: str, name: str | None = None) -> EntryPoints:
    from importlib import metadata  # a fifth of what a command takes to start, and few ask for what is installed

    result = metadata.entry_points(group=group)
    return result if name is None else result.select(name=name)
