"""/v1/events: server-sent events, resumed by Last-Event-ID."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

from flask import Blueprint, Response, request

from rainbow.api.pauses import without_pauses
from rainbow.api.wire import LARGEST, flag, service, tokens, who
from rainbow.errors import RainbowError, RequestError
from rainbow.service import Service
from rainbow.service.core import event_stream
from rainbow.service.core.access import Caller, caller
from rainbow.service.core.pubsub import Pause
from rainbow.store.events import EventRecord
from rainbow.text import rfc3339

events = Blueprint("events", __name__, url_prefix="/v1")


@events.get("/events")
def stream() -> Any:
    """Stream events as server-sent events: those after `Last-Event-ID` (or `after`), else new ones.

    The number after which a new stream begins is sent first. `follow=false` ends after the recorded ones.
    """
    here, brought, asking = service(), tokens(), who()
    start = _start(here)
    cluster_id = event_stream.chosen(here, asking, request.args.get("cluster"))
    if not flag("follow") and "follow" in request.args:
        first = event_stream.since(here, asking, start, cluster_id)  # what fails is answered with its status
        return _answer(_whole(_pages(here, asking, *first, cluster_id)))
    held, limits = ExitStack(), here.settings.limits
    held.enter_context(event_stream.one_of_few("streams", ",".join(asking.known), limits.streams, limits.viewers))
    answer = _answer(without_pauses(_whole(_stream(here, brought, start, cluster_id))))
    answer.call_on_close(held.close)
    return answer


def _answer(parts: Iterator[str | Pause]) -> Response:
    return Response(cast("Iterator[str]", parts), mimetype="text/event-stream", headers={"Cache-Control": "no-store"})


def _start(here: Service) -> int:
    """Return the number after which events are wanted."""
    brought = [request.headers.get("Last-Event-ID") or None, request.args.get("after")]
    numbers = [_number(text) for text in brought if text is not None]
    if numbers:
        return numbers[0]
    return 0 if "follow" in request.args and not flag("follow") else event_stream.last(here)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > LARGEST:
        raise RequestError("Last-Event-ID must be the ID of an event", pointer="/after")
    return int(text)


def _stream(here: Service, brought: list[str], start: int, cluster_id: str | None) -> Iterator[str | Pause]:
    def again() -> Any:
        with here.store.read() as connection:
            return caller(here, connection, brought)

    # where it begins, so that a stream that breaks off before it told anything is taken up without a gap
    yield f": rainbow\nid: {start}\n\n"
    for some in event_stream.follow(here, again, start, cluster_id):
        yield some if isinstance(some, Pause) else "".join(map(_written, some)) or ": alive\n\n"


def _pages(
    here: Service, asking: Caller, some: list[EventRecord], reached: int | None, cluster_id: str | None
) -> Iterator[str]:
    while reached is not None:
        if some:
            yield "".join(map(_written, some))
        some, reached = event_stream.since(here, asking, reached, cluster_id)


def _whole(parts: Iterator[str | Pause]) -> Iterator[str | Pause]:
    """End what cannot continue with an event that says why: a stream has told its status long ago."""
    try:
        yield from parts
    except RainbowError as fault:  # revoked, or the store is away: whoever asks again is told in full
        yield f"event: end\ndata: {json.dumps({'code': fault.code})}\n\n"


def _written(event: EventRecord) -> str:
    data = json.dumps({"at": rfc3339(event.at), **event.facts})
    return f"id: {event.number}\nevent: {event.kind}\ndata: {data}\n\n"
