"""Events for their readers: stored ones, and new ones as they happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from rainbow.errors import TooMany
from rainbow.service.core.access import Caller, visible_cluster
from rainbow.service.core.pubsub import ALL, Pause
from rainbow.store import events, jobs
from rainbow.store.events import EventRecord

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service


ALIVE = 15.0  # seconds after which a stream says that it is still there
SOON = 0.05  # seconds until it is looked again for events that are being stored
OF_CLUSTERS = ("cluster", "graph", "worker")  # kinds of events that are about nobody's jobs
TOPICS = 1_000  # clusters that a stream listens to one by one; with more it is woken by any

_open: Counter[tuple[str, str]] = Counter()  # (kind, caller): requests that wait
_lock = Lock()


def chosen(service: Service, who: Caller, name: str | None) -> str | None:
    """Return the id of the one cluster whose events are asked for; NotFound unless it exists for the caller."""
    if name is None:
        return None
    with service.store.read() as connection:
        return visible_cluster(connection, who, name).id


def since(
    service: Service, who: Caller, number: int, cluster_id: str | None = None
) -> tuple[list[EventRecord], int | None]:
    """Return events after this one that the caller may see (of one cluster), the oldest first, at most a page.

    And the number up to which all have been looked at; None: there are no more.
    """
    return _read(service, who, number, cluster_id, service.store.event_horizon().number)


def _read(
    service: Service, who: Caller, number: int, cluster_id: str | None, upto: int | None
) -> tuple[list[EventRecord], int | None]:
    seen = who.visible
    if cluster_id is not None:
        seen = [cluster_id] if who.sees(cluster_id) else []
    with service.store.read() as connection:
        result = events.after(connection, number, seen, upto=upto)
        return _shown(connection, who, result), result[-1].number if result else None


def _shown(connection: sa.Connection, who: Caller, records: list[EventRecord]) -> list[EventRecord]:
    """Leave out what is about other people's jobs, reservations and tokens where those are not shown."""
    hidden = [event for event in records if event.cluster_id in who.confined and event.kind not in OF_CLUSTERS]
    if not hidden:
        return records
    requests = {event.facts["job"] for event in hidden if "job" in event.facts}
    whose = {record.id: record.requestor for record in jobs.some(connection, requests)}
    own = {
        id_ for event in hidden if (id_ := event.facts.get("job")) and _is_own(who, event.cluster_id, whose.get(id_))
    }
    remaining = {event.number for event in hidden if event.facts.get("job") not in own}
    return [event for event in records if event.number not in remaining]


def _is_own(who: Caller, cluster_id: str, requestor: str | None) -> bool:
    return requestor is not None and who.sees_of(cluster_id, requestor)


def last(service: Service) -> int:
    """Return the number of the newest event."""
    upto = service.store.event_horizon().number
    with service.store.read() as connection:
        return events.last(connection, upto)


def follow(
    service: Service, again: Callable[[], Caller], number: int, cluster_id: str | None = None
) -> Iterator[list[EventRecord] | Pause]:
    """Yield events as they come, an empty list now and then, and a pause to wait through before the next.

    `again` says again who asks: what ends meanwhile is told of no more, the last of them with Unauthenticated.
    Ends when the server stops.
    """
    while not service.ending:
        who = again()
        topics, answer = _topics(who, cluster_id), service.news.now()
        upto, is_final = service.store.event_horizon()
        result, reached = _read(service, who, number, cluster_id, upto)
        if reached is not None:
            number = reached
            if result:
                yield result
            continue
        pause = service.news.pause(topics, ALIVE if is_final else SOON, answer)
        yield pause
        if is_final and not service.news.is_over(pause):
            yield []


def _topics(who: Caller, cluster_id: str | None) -> list[str]:
    if cluster_id is not None:
        return [cluster_id]
    seen = who.visible
    return [ALL] if seen is None or len(seen) > TOPICS else sorted(seen)


def held(kind: str) -> int:
    """Return how many places of a kind are held."""
    with _lock:
        return sum(n for (of, _), n in _open.items() if of == kind)


@contextmanager
def one_of_few(kind: str, caller: str, most: int, of_all: int) -> Iterator[None]:
    """Hold one of a kind's places for requests that wait; TooMany if the caller, or all together, have too many."""
    with _lock:
        if _open[kind, caller] >= most or sum(n for (of, _), n in _open.items() if of == kind) >= of_all:
            raise TooMany(
                f"too many open event streams and waiting requests ({kind}); try again later",
                retry_after=2,
                limit=kind,
            )
        _open[kind, caller] += 1
    try:
        yield
    finally:
        with _lock:
            _open[kind, caller] -= 1
            if not _open[kind, caller]:
                del _open[kind, caller]
