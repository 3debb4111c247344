"""Standard streams of processes that work for months: no closed terminal and no full disk of a log ends them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO, cast


class LossyStream:
    """A text stream that drops text it cannot write, where another would raise."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, or lose it."""
        with suppress(OSError, ValueError):  # ValueError: it has been closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write the text held back, or try later."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Do all else as the stream does."""
        return getattr(self._stream, name)


def keep_working_without_log() -> None:
    """Let lines on stderr be lost where it has no room for them."""
    if not isinstance(sys.stderr, LossyStream):
        sys.stderr = cast("TextIO", LossyStream(sys.stderr))


def open_closed() -> None:
    """Open the streams that the caller has closed: a file of ours would get their number, and their text."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
        name, mode = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))[number]
        setattr(sys, name, os.fdopen(number, mode))
    os.close(number)
