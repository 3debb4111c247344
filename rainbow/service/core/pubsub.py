"""Notifications between threads, by topic: a cluster's id, the offers to its agents, or ALL."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

ALL = ""
OFFERS = "offers:"  # before a cluster's id: its agents may have something to start, stop or hold


@dataclass(frozen=True, slots=True)
class Pause:
    """Something to wait for: news of these topics after these versions, for some seconds at most."""

    versions: Mapping[str, int]
    seconds: float


class PubSub:
    """Versions of topics, and the calls that wake who waits for the next. Any news is news of ALL too."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._born = secrets.token_hex(4)  # another process counts for itself
        self._every = 0  # how often something was told of every topic
        self._last: dict[str, int] = {}  # topic → the version of ALL when it was told last, the latest at the end
        self._whole = 0  # the version of ALL when something was told of every topic
        self._listeners: dict[str, set[Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._stirred: set[str] = {ALL}
        self.elsewhere: Callable[[Iterable[str], bool], None] | None = None  # tells the other processes
        self.heard = False  # whether what other processes tell is heard at the moment

    def tell(self, *topics: str, changed: bool = False) -> None:
        """Wake who waits for one of these topics (none: any), here and elsewhere; `changed`: graphs have."""
        self.hear(topics)
        if self.elsewhere is not None:
            self.elsewhere(topics or (ALL,), changed)

    def hear(self, topics: Iterable[str]) -> None:
        """Wake those who wait for one of these topics in this process; no topic, or ALL, is every one."""
        named = set(topics)
        with self._lock:
            every = not named or ALL in named
            self._stirred |= {ALL} if every else {topic for topic in named if not topic.startswith(OFFERS)}
            self._every += every
            for topic in () if every else {*named, ALL}:
                self._versions[topic] = self._versions.get(topic, 0) + 1
            self._note(named, every)
            heard = self._listeners if every else {*named, ALL}
            woken = {wake for topic in heard for wake in self._listeners.get(topic, ())}
        for wake in woken:
            wake()

    def version(self, topic: str = ALL) -> int:
        """Return how often something has happened."""
        return self._versions.get(topic, 0) + self._every

    def _note(self, named: set[str], every: bool) -> None:
        now = self.version()
        self._whole = now if every else self._whole
        for topic in () if every else named:
            self._last.pop(topic, None)
            self._last[topic] = now

    def since(self, version: int) -> set[str]:
        """Return the topics told after this version of ALL; ALL alone: every one may have been."""
        with self._lock:
            if version < self._whole:
                return {ALL}
            return set(takewhile(lambda topic: self._last[topic] > version, reversed(self._last)))

    def stamp(self) -> str:
        """Return a text that is another one after any news, and in any other process."""
        return f"{self._born}.{self.version()}"

    def pause(self, topics: Iterable[str], seconds: float) -> Pause:
        """Return a pause that ends with the next news of one of these topics: to be made before one looks."""
        return Pause({topic: self.version(topic) for topic in topics}, seconds)

    def is_over(self, pause: Pause) -> bool:
        """Return whether there has been news since a pause was made."""
        return any(self.version(topic) != version for topic, version in pause.versions.items())

    @contextmanager
    def listening(self, topics: Iterable[str], wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` at all news of these topics, in the thread that tells it; it must be quick and not fail."""
        heard = list(topics)
        with self._lock:
            for topic in heard:
                self._listeners.setdefault(topic, set()).add(wake)
        try:
            yield
        finally:
            with self._lock:
                for topic in heard:
                    self._listeners[topic].discard(wake)
                    if not self._listeners[topic]:
                        del self._listeners[topic]

    def wait_for(self, pause: Pause) -> bool:
        """Wait in this thread until a pause ends; return whether there is news."""
        woken = threading.Event()
        with self.listening(pause.versions, woken.set):
            return self.is_over(pause) or woken.wait(max(0.0, pause.seconds))

    def wait(self, topic: str, version: int, seconds: float) -> int:
        """Wait until something happens after `version`, or the seconds are over; return the version then."""
        self.wait_for(Pause({topic: version}, seconds))
        return self.version(topic)

    def waited_for(self, prefix: str) -> set[str]:
        """Return what follows a prefix in the topics for which a call waits."""
        with self._lock:
            return {topic.removeprefix(prefix) for topic in self._listeners if topic.startswith(prefix)}

    def stirred(self) -> set[str]:
        """Return the clusters something was told of since this was asked last; ALL among them: any."""
        with self._lock:
            found, self._stirred = self._stirred, set()
        return found
