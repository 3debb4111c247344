"""/openapi.json: the API as OpenAPI 3.1, made of the application's own routes and the schemas that validate."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from flask import Blueprint, Flask, current_app, jsonify

from rainbow import __version__
from rainbow.api.schemas import SCHEMAS

openapi = Blueprint("openapi", __name__)

BODIES = {
    "clusters.register": "Registration",
    "clusters.put_graph": "Graph",
    "clusters.patch_graph": "Delta",
    "clusters.put_subsystem": "Graph",
    "clusters.put_state": "State",
    "clusters.put_scheduler": "Policy",
    "jobs.submit": "Submission",
    "jobs.match": "Question",
    "batch.submit": "Batch",
    "agents.receive": "Receive",
    "agents.accept": "Accept",
    "agents.events": "Events",
    "agents.heartbeat": "Heartbeat",
    "tokens.mint": "Token",
    "reservations.create": "Reservation",
}
MADE = {"clusters.register", "jobs.submit", "tokens.mint", "reservations.create"}  # these answer 201
GONE = {"clusters.delete", "clusters.delete_subsystem", "tokens.revoke", "reservations.delete"}  # these answer 204
OPEN = {"health.live", "health.ready", "health.front", "openapi.show"}
TEXT = {"events.stream": "text/event-stream", "metrics.show": "text/plain"}
QUERIES: dict[str, dict[str, Any]] = {
    "clusters.delete": {"drain": {"type": "boolean"}},
    "clusters.put_graph": {"drain": {"type": "boolean"}},
    "reservations.listing": {"over": {"type": "boolean"}},
    "clusters.patch_graph": {"drain": {"type": "boolean"}},
    "jobs.listing": {
        "state": {"type": "string"},
        "cluster": {"type": "string"},
        "requestor": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
        "cursor": {"type": "string"},
    },
    "jobs.decisions": {
        "state": {"type": "string"},
        "cluster": {"type": "string"},
        "requestor": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
        "cursor": {"type": "string"},
    },
    "events.stream": {"follow": {"type": "boolean"}, "after": {"type": "integer", "minimum": 0}},
}
HEADERS = {
    "jobs.submit": ["Idempotency-Key"],
    "batch.submit": ["Idempotency-Key"],
    "clusters.put_graph": ["If-Match"],
    "clusters.patch_graph": ["If-Match"],
    "events.stream": ["Last-Event-ID"],
}
FAULTS = {
    400: "not of this form",
    401: "no credential, or one nobody knows",
    403: "a known credential without the right",
    404: "does not exist, or not for you",
    405: "no such method",
    409: "exists already, or its state does not allow it",
    412: "it has changed since it was read",
    413: "over a limit",
    422: "understood and refused",
    429: "too many; see Retry-After",
    503: "not now; see Retry-After",
}


@openapi.get("/openapi.json")
def show() -> Any:
    """This document."""
    return jsonify(_document(current_app._get_current_object()))  # type: ignore[attr-defined]


@lru_cache(maxsize=4)
def _document(app: Flask) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for rule in app.url_map.iter_rules():
        for path, fixed in _paths(rule.rule):
            fixed = fixed or (rule.defaults or {}).get("verb", "")
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                paths.setdefault(path, {})[method.lower()] = _operation(app, rule.endpoint, method, path, fixed)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rainbow",
            "version": __version__,
            "summary": "Which cluster should run this job, and when?",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"credentials": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths(rule: str) -> list[tuple[str, str]]:
    """Return the paths of a rule; one that has a choice in it is as many paths."""
    plain = re.sub(r"<(?:path:)?(\w+)>", r"{\1}", rule)
    choice = re.search(r"<any\(([^)]*)\):\w+>", plain)
    if not choice:
        return [(plain, "")]
    return [(plain.replace(choice.group(0), word.strip()), word.strip()) for word in choice.group(1).split(",")]


def _operation(app: Flask, endpoint: str, method: str, path: str, fixed: str) -> dict[str, Any]:
    words = (app.view_functions[endpoint].__doc__ or "").strip()
    told: dict[str, Any] = {
        "operationId": "_".join(filter(None, [endpoint.replace(".", "_"), fixed, method.lower()])),
        "summary": words,
        "parameters": [*_in_path(path), *_in_query(endpoint), *_in_headers(endpoint)],
        "responses": _responses(endpoint),
    }
    if endpoint not in OPEN:
        told["security"] = [{"credentials": []}]
    if endpoint in BODIES:
        told["requestBody"] = {"required": True, "content": _bodies(endpoint)}
    return told


def _bodies(endpoint: str) -> dict[str, Any]:
    named = {"schema": _ref(BODIES[endpoint])}
    if endpoint in ("jobs.submit", "jobs.match"):
        bare = {"schema": {"anyOf": [_ref(BODIES[endpoint]), _ref("Jobspec")]}}
        return {"application/json": bare, "application/yaml": {"schema": {"type": "string"}}}
    return {"application/json": named}


def _responses(endpoint: str) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    faults: dict[str, Any] = {str(code): {"description": words, "content": problem} for code, words in FAULTS.items()}
    if endpoint in GONE:
        return {"204": {"description": "done"}, **_drained(endpoint), **faults}
    kind = TEXT.get(endpoint, "application/json")
    schema = {"type": "string"} if endpoint in TEXT else _answer(endpoint)
    good = {"description": "done", "content": {kind: {"schema": schema}}}
    answers = {"201": good} if endpoint in MADE else {"200": good}
    return {**answers, **({"200": good} if endpoint == "jobs.submit" else {}), **faults}


def _answer(endpoint: str) -> dict[str, Any]:
    return _ref("Graph" if endpoint in ("clusters.graph", "clusters.subsystem") else "Answer")


def _drained(endpoint: str) -> dict[str, Any]:
    schema = {"application/json": {"schema": _ref("Answer")}}
    return (
        {"202": {"description": "it goes when its jobs have ended", "content": schema}}
        if endpoint == "clusters.delete"
        else {}
    )


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _in_path(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _in_query(endpoint: str) -> list[dict[str, Any]]:
    return [{"name": name, "in": "query", "schema": schema} for name, schema in QUERIES.get(endpoint, {}).items()]


def _in_headers(endpoint: str) -> list[dict[str, Any]]:
    return [{"name": name, "in": "header", "schema": {"type": "string"}} for name in HEADERS.get(endpoint, [])]
