"""Attributes that are worked out, and modules that are imported, when they are first asked for.

functools.cached_property of Python 3.11 holds one lock for all instances of a class while it works one value out:
while a search for one job runs, every other thread waits. Here no lock is held; two threads that ask at once may
both work it out, and the value of the first to finish is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801 - it stands where functools' own stood
    """A property worked out once and kept in the instance's dictionary.

    >>> class Square:
    ...     @cached_property
    ...     def area(self) -> int:
    ...         print("once")
    ...         return 4
    >>> square = Square()
    >>> square.area + square.area
    once
    8
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Note under which name the value is kept."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> cached_property[T] | T:
        """Return the value; what is kept is found before this is asked."""
        if instance is None:
            return self
        found: T = instance.__dict__.setdefault(self._name, self._work_out(instance))
        return found


class LazyModule:
    """Stands for a module until something of it is used: what takes long to import need not be waited for.

    >>> LazyModule("math").floor(2.5)
    2
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Return what the module has, and keep it."""
        found = vars(self)[name] = getattr(import_module(self._name), name)
        return found
