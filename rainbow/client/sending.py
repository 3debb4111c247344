"""A body that says how far it has been sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

PART = 1 << 16  # bytes
Sent = Callable[[int, int], None]  # bytes sent so far, bytes in all


class Told:
    """A body sent part by part, from the beginning each time it is sent; `sent` hears of every part."""

    def __init__(self, content: bytes, sent: Sent) -> None:
        self._content, self._sent = content, sent

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._content), PART):
            yield self._content[start : start + PART]
            self._sent(min(start + PART, len(self._content)), len(self._content))
