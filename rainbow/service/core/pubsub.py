"""Notifications between threads, by topic: a cluster's id, what its agents wait for, or ALL.

An agent waits for three kinds of topics: what concerns all agents of its cluster, what concerns it alone, and work
for each of its workers. One that serves all workers, or very many, waits for work for any.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from rainbow.outcome import after_commit
from rainbow.service.core.memory import place

ALL = ""
OFFERS = "offers:"  # before a cluster's id: its agents may have something to start, stop or hold
MOST_WORKERS = 64  # that an agent waits for one by one
MOST_TOPICS = 50_000  # of which it is remembered when something was told last


def offers_to_all(cluster_id: str) -> str:
    """Name the topic of what may concern any agent of a cluster."""
    return f"{OFFERS}{cluster_id}"


def orders_to(cluster_id: str, agent: str) -> str:
    """Name the topic of what concerns one agent."""
    return f"{OFFERS}{cluster_id}/agent/{agent}"


def work_for(cluster_id: str, worker: str = "") -> str:
    """Name the topic of work for a worker; without one, for any."""
    return f"{OFFERS}{cluster_id}/worker/{worker}"


def checks_of(cluster_id: str) -> str:
    """Name the topic of what a cluster's site has said of jobs to come."""
    return f"{OFFERS}{cluster_id}/checks"


def cluster_of(topic: str) -> str:
    """Return the id of the cluster whose agents a topic concerns."""
    return topic.removeprefix(OFFERS).partition("/")[0]


def awaited_by(cluster_id: str, agent: str, serves: Collection[str] | None) -> list[str]:
    """Return the topics for which an agent waits that serves these workers (None: all)."""
    one_by_one = serves is not None and len(serves) <= MOST_WORKERS
    named = [work_for(cluster_id, worker) for worker in serves or ()] if one_by_one else [work_for(cluster_id)]
    return [offers_to_all(cluster_id), orders_to(cluster_id, agent), *named]


@dataclass(frozen=True, slots=True)
class Pause:
    """Something to wait for: news of these topics after these versions, for some seconds at most."""

    versions: Mapping[str, int]
    seconds: float


@place("notifications", most=f"{MOST_TOPICS:,} topics", of="when something was told last of each topic")
class PubSub:
    """Counts the news, and calls what wakes who waits for it.

    A topic's version is the number of its last news. ALL has all news but what is for agents.
    """

    def __init__(self) -> None:
        self._number = 0
        self._born = secrets.token_hex(4)  # another process counts for itself
        self._last: dict[str, int] = {}  # topic → the number of what was told of it last, the latest at the end
        self._any = 0  # the number of what was told last and is not for agents
        self._whole = 0  # of every topic something was told then, or it is not remembered
        self._listeners: dict[str, set[Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._stirred: set[str] = {ALL}
        self.elsewhere: Callable[[Iterable[str], bool], None] | None = None  # tells the other processes
        self.heard = False  # whether what other processes tell is heard at the moment

    def tell(self, *topics: str, changed: bool = False) -> None:
        """Wake who waits for one of these topics (none: any), here and elsewhere; `changed`: graphs have."""
        self.hear(topics)
        if self.elsewhere is not None:
            with after_commit("tell elsewhere"):
                self.elsewhere(topics or (ALL,), changed)

    def hear(self, topics: Iterable[str]) -> None:
        """Wake those who wait for one of these topics in this process; no topic, or ALL, is every one."""
        named = set(topics)
        with self._lock:
            every, others = not named or ALL in named, {one for one in named if not one.startswith(OFFERS)}
            self._stirred |= {ALL} if every else others
            self._note(named, every, bool(others))
            heard = self._listeners if every else named | ({ALL} if others else set())
            woken = {wake for topic in heard for wake in self._listeners.get(topic, ())}
        for wake in woken:
            with after_commit("wake"):  # who waits is told when all is stored: one that fails keeps no other waiting
                wake()

    def _note(self, named: set[str], every: bool, any_other: bool) -> None:
        self._number += 1
        if every:
            self._whole = self._any = self._number
            return
        for topic in named:
            self._last.pop(topic, None)
            self._last[topic] = self._number
        self._any = self._number if any_other else self._any
        while len(self._last) > MOST_TOPICS:
            self._whole = max(self._whole, self._last.pop(next(iter(self._last))))

    def version(self, topic: str = ALL) -> int:
        """Return the number of what was told last of a topic, or could have been."""
        return self._any if topic == ALL else max(self._last.get(topic, 0), self._whole)

    def now(self) -> int:
        """Return the number of what was told last of any topic: what comes later is news to who looks now."""
        return self._number

    def since(self, version: int) -> set[str]:
        """Return the topics told after this version of ALL, without those for agents; ALL alone: every one may be."""
        with self._lock:
            if version < self._whole:
                return {ALL}
            answer = takewhile(lambda topic: self._last[topic] > version, reversed(self._last))
            return {topic for topic in answer if not topic.startswith(OFFERS)}

    def stamp(self) -> str:
        """Return a text that is another one after any news, and in any other process."""
        return f"{self._born}.{self.version()}"

    def pause(self, topics: Iterable[str], seconds: float, since: int | None = None) -> Pause:
        """Return a pause that ends with the next news of one of these topics.

        It is made before one looks, or `since` is what `now` said then.
        """
        after = self._number if since is None else since
        return Pause(dict.fromkeys(topics, after), seconds)

    def is_over(self, pause: Pause) -> bool:
        """Return whether there has been news since a pause was made."""
        return any(self.version(topic) > version for topic, version in pause.versions.items())

    @contextmanager
    def listening(self, topics: Iterable[str], wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` at all news of these topics, in the thread that tells it; it must be quick."""
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

    def changed_clusters(self) -> set[str]:
        """Return the clusters something was told of since this was asked last; ALL among them: any."""
        with self._lock:
            result, self._stirred = self._stirred, set()
        return result
