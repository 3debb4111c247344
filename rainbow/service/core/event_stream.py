"""Events for their readers: those there are, and those to come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from rainbow.errors import TooMany
from rainbow.service.core.access import Caller, visible_cluster
from rainbow.service.core.pubsub import ALL, Pause
from rainbow.store import events
from rainbow.store.events import EventRecord

if TYPE_CHECKING:
    from rainbow.service.core.service import Service


ALIVE = 15.0  # seconds after which a stream says that it is still there
TOPICS = 1_000  # clusters that a stream listens to one by one; with more it is woken by any

_open: Counter[tuple[str, str]] = Counter()  # (kind, caller): requests that wait
_lock = Lock()


def chosen(service: Service, who: Caller, name: str | None) -> str | None:
    """Return the id of the one cluster whose events are asked for; NotFound unless it exists for the caller."""
    if name is None:
        return None
    with service.store.read() as connection:
        return visible_cluster(connection, who, name).id


def since(service: Service, who: Caller, number: int, cluster_id: str | None = None) -> list[EventRecord]:
    """Return events after this one that the caller may see (of one cluster), the oldest first, at most a page."""
    seen = who.visible
    if cluster_id is not None:
        seen = [cluster_id] if who.sees(cluster_id) else []
    with service.store.read() as connection:
        return events.after(connection, number, seen)


def last(service: Service) -> int:
    """Return the number of the newest event."""
    with service.store.read() as connection:
        return events.last(connection)


def follow(
    service: Service, again: Callable[[], Caller], number: int, cluster_id: str | None = None
) -> Iterator[list[EventRecord] | Pause]:
    """Yield events as they come, an empty list now and then, and a pause to wait through before the next.

    `again` says anew who asks: what ends meanwhile is told of no more, the last of them with Unauthenticated.
    Ends when the server stops.
    """
    while not service.ending:
        who = again()
        pause = service.news.pause(_topics(who, cluster_id), ALIVE)
        found = since(service, who, number, cluster_id)
        if found:
            number = found[-1].number
            yield found
            continue
        yield pause
        if not service.news.is_over(pause):
            yield []


def _topics(who: Caller, cluster_id: str | None) -> list[str]:
    if cluster_id is not None:
        return [cluster_id]
    seen = who.visible
    return [ALL] if seen is None or len(seen) > TOPICS else sorted(seen)


@contextmanager
def one_of_few(kind: str, caller: str, most: int, of_all: int) -> Iterator[None]:
    """Hold one of a kind's places for requests that wait; TooMany if the caller, or all together, have too many."""
    with _lock:
        if _open[kind, caller] >= most or sum(n for (of, _), n in _open.items() if of == kind) >= of_all:
            raise TooMany(f"too many requests wait already ({kind})", retry_after=2, limit=kind)
        _open[kind, caller] += 1
    try:
        yield
    finally:
        with _lock:
            _open[kind, caller] -= 1
            if not _open[kind, caller]:
                del _open[kind, caller]
