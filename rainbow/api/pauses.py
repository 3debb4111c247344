"""Pauses: requests that wait for something without a thread.

Who serves the application (front.py) says in the environment how long a request has waited. A view that finds nothing
then leaves a pause there, or yields one in a stream; the server waits through it and asks the view again. Without
such a server the view waits in its own thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flask import request

from rainbow.api.wire import service
from rainbow.service.core.pubsub import News, Pause

WAITED = "rainbow.waited"  # seconds this request has waited so far
PAUSE = "rainbow.pause"  # what it waits for next


def waited() -> float | None:
    """Return how long this request has waited; None where the view has to wait itself."""
    found: float | None = request.environ.get(WAITED)
    return found


def park(pause: Pause | None) -> None:
    """Let the server ask again after a pause, and send this answer only if nothing happens in it."""
    if pause is not None:
        request.environ[PAUSE] = pause


def without_pauses(parts: Iterable[str | Pause]) -> Iterator[str | Pause]:
    """Yield the parts of a stream; wait through its pauses unless the server does."""
    return iter(parts) if waited() is not None else _waiting(service().news, parts)


def _waiting(news: News, parts: Iterable[str | Pause]) -> Iterator[str | Pause]:
    for part in parts:
        if isinstance(part, Pause):
            news.wait_for(part)
        else:
            yield part
