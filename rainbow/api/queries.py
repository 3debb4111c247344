"""The query parameters of each operation: the document lists them, and any other is refused."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from flask import Flask, request

from rainbow.errors import RequestError
from rainbow.state_machine import JobState

LARGEST = 2**63 - 1
ANY_STATE = f"({'|'.join(JobState)}|)"
PAGE = {
    "state": {"type": "string", "pattern": f"^{ANY_STATE}(,{ANY_STATE})*$"},
    "cluster": {"type": "string"},
    "requestor": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
    "cursor": {"type": "string"},
}
QUERIES: dict[str, dict[str, Any]] = {
    "clusters.delete": {"drain": {"type": "boolean"}},
    "metrics.show": {"brief": {"type": "boolean"}},
    "clusters.put_graph": {"drain": {"type": "boolean"}},
    "reservations.listing": {"over": {"type": "boolean"}},
    "clusters.patch_graph": {"drain": {"type": "boolean"}},
    "jobs.why": {"verify": {"type": "boolean"}},
    "jobs.listing": PAGE,
    "jobs.decisions": PAGE,
    "events.stream": {
        "follow": {"type": "boolean"},
        "after": {"type": "integer", "minimum": 0, "maximum": LARGEST},
        "cluster": {"type": "string"},
    },
}


def refuse_unknown_queries(app: Flask) -> None:
    """Refuse what a request asks in its query that the operation does not read: an ignored filter shows too much."""

    @app.before_request
    def _check() -> None:
        known = QUERIES.get(request.endpoint or "", {})
        unknown = next((name for name in request.args if name not in known), None)
        if unknown is None or request.url_rule is None:
            return
        near = get_close_matches(unknown, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known)) or 'none'}"
        raise RequestError(f"unknown query parameter {unknown[:40]!r}; {hint}", pointer=f"/{unknown[:40]}")
