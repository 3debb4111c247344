"""Who waits for something to happen waits here, on one topic: a cluster's id, or ALL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

ALL = ""


class _Topic:
    def __init__(self) -> None:
        self.news = threading.Condition()
        self.version = 0


class News:
    """Versions of topics, and whoever waits for the next. What is told of a cluster is told of ALL too."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {ALL: _Topic()}
        self._lock = threading.Lock()
        self._stirred: set[str] = {ALL}
        self.elsewhere: Callable[[Iterable[str], bool], None] | None = None  # tells the other processes

    def tell(self, *topics: str, changed: bool = False) -> None:
        """Wake who waits for one of these topics (none: any), here and elsewhere; `changed`: graphs have."""
        self.hear(topics)
        if self.elsewhere is not None:
            self.elsewhere(topics or (ALL,), changed)

    def hear(self, topics: Iterable[str]) -> None:
        """Wake those who wait for one of these topics in this process; no topic, or ALL, is every one."""
        named = set(topics)
        found = set() if ALL in named else named
        with self._lock:
            self._stirred |= found or {ALL}
        for topic in {*(found or set(self._topics)), ALL}:
            known = self._topics.setdefault(topic, _Topic())
            with known.news:
                known.version += 1
                known.news.notify_all()

    def version(self, topic: str = ALL) -> int:
        """How often something has happened."""
        return self._topics.setdefault(topic, _Topic()).version

    def wait(self, topic: str, version: int, seconds: float) -> int:
        """Wait until something happens after `version`, or the seconds are over; return the version then."""
        known = self._topics.setdefault(topic, _Topic())
        with known.news:
            known.news.wait_for(lambda: known.version != version, timeout=max(0.0, seconds))
            return known.version

    def stirred(self) -> set[str]:
        """Return the clusters something was told of since this was asked last; ALL among them: any."""
        with self._lock:
            found, self._stirred = self._stirred, set()
        return found
