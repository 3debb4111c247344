"""SIGINT and SIGTERM as an exception that never comes in the middle of starting or ending a process.

A signal's exception between fork and the assignment of its result would leave an unknown process.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class Interrupted(BaseException):
    """A signal came. `number` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Interrupts:
    """The handler of both signals."""

    def __init__(self) -> None:
        self._holds = 0
        self._came: int | None = None

    def __call__(self, number: int, _: Any) -> None:
        self._came = number
        self._raise()

    def _raise(self) -> None:
        if self._came is not None and self._holds == 0:
            number, self._came = self._came, None
            raise Interrupted(number)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let no exception come before the end of the block."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._raise()


_interrupts = _Interrupts()
held = _interrupts.held


def install() -> None:
    """Raise Interrupted on SIGINT and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupts)
