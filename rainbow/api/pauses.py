"""Pauses: requests that wait for something without a thread.

Who serves the application (front.py) says in the environment how long a request has waited. A view that finds nothing
then leaves a pause there, or yields one in a stream; the server waits through it and asks the view again. Without
such a server the view waits in its own thread.

An agent with nothing to do asks the same again for hours. The server remembers what the view has found (`Polls`), and
waits and answers without the view while nothing happens: no thread, no statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flask import request

from rainbow.api.wire import service
from rainbow.cache import LruCache
from rainbow.service.core.pubsub import Pause, PubSub

if TYPE_CHECKING:
    from rainbow.service import Service

WAITED = "rainbow.waited"  # seconds this request has waited so far; 0 the first time that the view is asked
PAUSE = "rainbow.pause"  # what it waits for next
AGENT = "rainbow.agent"  # (cluster id, agent) whose lease begins again when it asks this
MOST_POLLS = 20_000  # polls that are remembered
A = TypeVar("A")


def waited() -> float | None:
    """Return how long this request has waited; None where the view has to wait itself."""
    result: float | None = request.environ.get(WAITED)
    return result


def park(pause: Pause | None, agent: tuple[str, str] | None = None) -> None:
    """Let the server ask again after a pause, and send this answer only if nothing happens in it.

    `agent`: the poll is one of this cluster's agent, and says the same while nothing happens.
    """
    if pause is not None:
        request.environ[PAUSE], request.environ[AGENT] = pause, agent


def without_pauses(parts: Iterable[str | Pause]) -> Iterator[str | Pause]:
    """Yield the parts of a stream; wait through its pauses unless the server does."""
    return iter(parts) if waited() is not None else _waiting(service().news, parts)


def _waiting(news: PubSub, parts: Iterable[str | Pause]) -> Iterator[str | Pause]:
    for part in parts:
        if isinstance(part, Pause):
            news.wait_for(part)
        else:
            yield part


@dataclass(frozen=True, slots=True)
class Poll(Generic[A]):
    """A question of an agent that found nothing: what to wait for, and the answer if nothing happens."""

    pause: Pause
    answer: A
    agent: tuple[str, str]
    until: float  # the view is asked again then, whatever is heard


class Polls(Generic[A]):
    """The last polls that found nothing, by path, credentials and body. Its methods are called by one thread.

    They are remembered where this process hears of all that agents are told: it alone steps clusters, or the others
    tell it; for a lease, so that what was changed behind its back is found.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: LruCache[Any, Poll[A]] = LruCache(MOST_POLLS)

    def keep(self, query: Any, environ: Mapping[str, Any], answer: A, now: float) -> None:
        """Remember a question and its answer, if it was an agent's and the view waits for something."""
        pause, agent, settings = environ.get(PAUSE), environ.get(AGENT), self._service.settings
        watched = settings.limits.rate or settings.server.log == "debug"  # every request has to be seen by the view
        if pause is None or agent is None or watched or not self._hears_all:
            return
        whole = replace(pause, seconds=pause.seconds + environ[WAITED])
        self._known.put(query, Poll(whole, answer, agent, now + settings.lease))

    def again(self, query: Any, now: float) -> Poll[A] | None:
        """Return a poll that is asked again, if nothing has happened since; the agent's lease begins again."""
        poll, service = self._known.get(query), self._service
        if poll is None or poll.until < now or not self._hears_all or service.news.is_over(poll.pause):
            return None
        return poll if service.heartbeats.renew(*poll.agent) else None

    @property
    def _hears_all(self) -> bool:
        return self._service.turns.alone or self._service.news.heard
