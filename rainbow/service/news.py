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
        self._stirred: set[str] = set()
        self.elsewhere: Callable[[Iterable[str], bool], None] | None = None  # tells the other processes

    def tell(self, *topics: str, changed: bool = False) -> None:
        """Wake those who wait for one of these topics, here and in the other processes; `changed`: graphs have."""
        if topics:
            self.hear(topics)
            if self.elsewhere is not None:
                self.elsewhere(topics, changed)

    def hear(self, topics: Iterable[str]) -> None:
        """Wake those who wait for one of these topics in this process; no topic is every one."""
        found = list(topics)
        self._stirred.update(found)
        for topic in {*(found or list(self._topics)), ALL}:
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
        """Return the clusters something was told of since this was asked last."""
        found, self._stirred = self._stirred, set()
        return found - {ALL}
