"""The one stream of a browser: which clusters have changed, at most once in two seconds; less often for many.

It tells names only. The browser asks for what it shows, so that a stream reads nothing from the store but whether its
session still counts, and many that look on cost next to nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

from flask import Response, request

from rainbow.page.frame import guarded, page, service, session
from rainbow.service.core import sessions
from rainbow.service.core.event_stream import held, one_of_few
from rainbow.service.core.pubsub import ALL, Pause

if TYPE_CHECKING:
    from rainbow.service import Service
    from rainbow.service.core.access import Caller

TOGETHER = 2.0  # seconds of news that are told together
STREAMS_AT_PACE = 20  # streams that are told at this pace; more together are told as often as these
ALIVE = 15.0  # seconds after which a stream says that it is still there
OF_SESSION = 8  # streams of one session, as of tabs that cannot agree on one
MOST_NAMED = 100  # clusters; more are told as all
SERVED = "rainbow.waited"  # in the environment where the server waits through pauses


@page.get("/ui/events")
@guarded
def events() -> Any:
    """Tell which of the caller's clusters have changed, as it happens."""
    place, here = ExitStack(), service()
    place.enter_context(one_of_few("page", session().cookie, OF_SESSION, here.settings.limits.viewers))
    parts = _told(here, session().cookie, request.args.get("seen", ""))
    answer = Response(
        cast("Iterator[str]", parts if SERVED in request.environ else _waited(here, parts)),
        mimetype="text/event-stream",
        headers={"Cache-Control": "no-store"},
    )
    answer.call_on_close(place.close)
    return answer


def _waited(here: Service, parts: Iterator[str | Pause]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, Pause):
            here.news.wait_for(part)
        else:
            yield part


def _told(here: Service, cookie: str, stamp: str) -> Iterator[str | Pause]:
    """Yield changes; everything at once if there has been news since the page with this stamp was made."""
    first, seen = sessions.find(here, cookie, notes=False), here.news.version()
    who = first.caller if first else None
    yield "retry: 3000\n\n" if stamp == here.news.stamp() else 'retry: 3000\n\nevent: changed\ndata: ["*"]\n\n'
    while not here.ending:
        result = sessions.find(here, cookie, notes=False)
        if result is None:
            yield "event: end\ndata: {}\n\n"
            return
        pause = here.news.pause([ALL], ALIVE)
        changed = ["*"] if result.caller != who else _changed(here, result.caller, seen)
        who, seen = result.caller, pause.versions[ALL]
        if changed:
            yield f"event: changed\ndata: {json.dumps(changed)}\n\n"
            yield Pause({}, TOGETHER * max(1.0, held("page") / STREAMS_AT_PACE))
            continue
        yield pause
        if not here.news.is_over(pause):
            yield ": alive\n\n"
        else:
            yield Pause({}, TOGETHER / 4)


def _changed(here: Service, who: Caller, seen: int) -> list[str]:
    """Return the caller's clusters with news after this version of all; "*" for many, or if one has gone."""
    answer = here.news.since(seen)
    known = {entry.id: name for name, entry in here.catalogue.items() if entry.id in answer}
    names = sorted(name for one, name in known.items() if who.sees(one))
    gone = any(who.sees(one) for one in answer - known.keys())
    return ["*"] if gone or len(names) > MOST_NAMED else names
