"""Events for whoever may see their clusters: those there are, and those to come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from rainbow.errors import TooMany
from rainbow.service.access import Caller
from rainbow.service.news import ALL
from rainbow.store import events
from rainbow.store.events import EventRecord

if TYPE_CHECKING:
    from rainbow.service.service import Service

ALIVE = 15.0  # seconds after which a stream says that it is still there

_open: Counter[str] = Counter()
_lock = Lock()


def since(service: Service, who: Caller, number: int) -> list[EventRecord]:
    """Return events after this one that the caller may see, the oldest first, at most a page."""
    with service.store.read() as connection:
        return events.after(connection, number, who.visible)


def last(service: Service) -> int:
    """Return the number of the newest event."""
    with service.store.read() as connection:
        return events.last(connection)


def follow(service: Service, again: Callable[[], Caller], number: int) -> Iterator[list[EventRecord]]:
    """Yield events as they come, an empty list now and then; ends when the server stops.

    `again` says anew who asks: what ends meanwhile is told of no more, the last of them with Unauthenticated.
    """
    while not service.ending:
        version = service.news.version(ALL)
        found = since(service, again(), number)
        if found:
            number = found[-1].number
            yield found
            continue
        if service.news.wait(ALL, version, ALIVE) == version:
            yield []


@contextmanager
def one_of_few(service: Service, caller: str, most: int) -> Iterator[None]:
    """Hold one of the places for requests that wait; TooMany if the caller, or all together, have too many."""
    with _lock:
        if _open[caller] >= most or sum(_open.values()) >= service.settings.limits.waiting:
            raise TooMany("too many requests wait already", retry_after=2, limit="waiting")
        _open[caller] += 1
    try:
        yield
    finally:
        with _lock:
            _open[caller] -= 1
            if not _open[caller]:
                del _open[caller]
