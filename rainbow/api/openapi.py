"""/openapi.json: the API as OpenAPI 3.1, made of the application's own routes and the schemas that validate."""

from __future__ import annotations

import inspect
import re
from functools import lru_cache
from typing import Any

from flask import Blueprint, Flask, current_app, jsonify

from rainbow import __version__
from rainbow.api.problems import MEANINGS
from rainbow.api.schemas import ANSWERS, BY_ENDPOINT, EXAMPLES, NAME, SCHEMAS, WORD, ref
from rainbow.api.wire import PAGE, QUERIES, service
from rainbow.service.slurm.commands import COMMANDS

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
    "jobs.bid": "Question",
    "jobs.eta_of_jobspec": "Question",
    "jobs.policy_diff": "PolicyDiff",
    "jobs.policy_check": "PolicyCheck",
    "slurm.run": "SlurmCall",
    "batch.submit": "Batch",
    "jobs.change_many": "ManyJobs",
    "jobs.update": "JobChange",
    "agents.receive": "Receive",
    "agents.accept": "Accept",
    "agents.events": "Events",
    "agents.heartbeat": "Heartbeat",
    "tokens.mint": "Token",
    "accounts.put": "Account",
    "accounts.put_qos": "Qos",
    "reservations.create": "Reservation",
    "clusters.plan": "Supposition",
}
# these answer 201, with what names the new thing in other paths
MADE = {
    "clusters.register": ("name", "name"),
    "jobs.submit": ("job_id", "id"),
    "tokens.mint": ("token_id", "id"),
    "reservations.create": ("reservation_id", "id"),
}
# these answer 204
GONE = {"clusters.delete", "clusters.delete_subsystem", "tokens.revoke", "reservations.delete"}
GONE |= {"accounts.delete", "accounts.delete_qos"}
OPEN = {"health.live", "health.ready", "health.front", "openapi.show"}
EVENT = {  # one of the stream, as its lines name it
    "type": "object",
    "required": ["data"],
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "events.stream": ("text/event-stream", EVENT),
    "metrics.show": ("text/plain", {"type": "string"}),
}
CSV = ("accounts.usage",)  # answers that may be asked for as CSV
ID = {"type": "string", "pattern": r"^[^/:]+(:\d+)?$"}
STRONG_KEY = {
    "type": "string",
    "minLength": 22,
    "description": "at least 128 random bits, such as 32 hexadecimal digits; sent again within a day, the call is "
    "answered as the first time",
}
HEADERS: dict[str, dict[str, Any]] = {
    "jobs.submit": {"Idempotency-Key": WORD},
    "jobs.bid": {"Idempotency-Key": WORD},
    "batch.submit": {"Idempotency-Key": WORD},
    "clusters.register": {"Idempotency-Key": STRONG_KEY},
    "clusters.delete": {"Idempotency-Key": STRONG_KEY},
    "tokens.mint": {"Idempotency-Key": STRONG_KEY},
    "tokens.rotate": {"Idempotency-Key": STRONG_KEY},
    "reservations.create": {"Idempotency-Key": STRONG_KEY},
    "clusters.put_graph": {"If-Match": WORD},
    "clusters.patch_graph": {"If-Match": WORD, "Idempotency-Key": STRONG_KEY},
    "events.stream": {"Last-Event-ID": {"type": "string", "pattern": "^[0-9]{0,18}$"}},
}
IN_PATH = {
    "name": NAME,
    "subsystem": NAME,
    **dict.fromkeys(("account", "qos"), NAME),
    "command": {"enum": [*COMMANDS]},
    **dict.fromkeys(("job_id", "token_id", "reservation_id"), ID),
}


@openapi.get("/openapi.json")
def show() -> Any:
    """This document."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    return jsonify(_document(app, service().settings.limits.listed))


@lru_cache(maxsize=4)
def _document(app: Flask, listed: int) -> dict[str, Any]:
    """Describe the operations of an application whose pages have at most `listed` entries."""
    paths: dict[str, dict[str, Any]] = {}
    for rule in (rule for rule in app.url_map.iter_rules() if not rule.endpoint.startswith("page.")):
        for path, fixed in _paths(rule.rule):
            fixed = fixed or (rule.defaults or {}).get("verb", "")
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                paths.setdefault(path, {})[method.lower()] = _operation(app, rule.endpoint, method, path, fixed)
    every = [answer for methods in paths.values() for answer in methods.values()]
    _limit_pages(every, listed)
    _link(every)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rainbow",
            "version": __version__,
            "summary": "Which cluster should run this job, and when?",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": SCHEMAS | ANSWERS,
            "securitySchemes": {"credentials": {"type": "http", "scheme": "bearer"}},
        },
    }


def _limit_pages(operations: list[dict[str, Any]], listed: int) -> None:
    for parameter in (parameter for answer in operations for parameter in answer["parameters"]):
        if parameter["schema"] is PAGE["limit"]:
            parameter["schema"] = {**PAGE["limit"], "maximum": listed}


def _link(every: list[dict[str, Any]]) -> None:
    """Say of each answer that makes something which operations are about it."""
    for endpoint, (parameter, key) in MADE.items():
        about = [answer for answer in every if any(p["name"] == parameter for p in answer["parameters"])]
        known = {parameter: f"$response.body#/{key}"}
        links = {
            answer["operationId"]: {"operationId": answer["operationId"], "parameters": known} for answer in about
        }
        [maker] = [answer for answer in every if answer["operationId"] == f"{endpoint.replace('.', '_')}_post"]
        maker["responses"]["201"]["links"] = links


def _paths(rule: str) -> list[tuple[str, str]]:
    """Return the paths of a rule; one that has a choice in it is as many paths."""
    plain = re.sub(r"<(?:path:|id:|worker:)?(\w+)>", r"{\1}", rule)
    choice = re.search(r"<any\(([^)]*)\):\w+>", plain)
    if not choice:
        return [(plain, "")]
    return [(plain.replace(choice.group(0), word.strip()), word.strip()) for word in choice.group(1).split(",")]


def _operation(app: Flask, endpoint: str, method: str, path: str, fixed: str) -> dict[str, Any]:
    summary, _, description = inspect.cleandoc(app.view_functions[endpoint].__doc__ or "").partition("\n")
    answer: dict[str, Any] = {
        "operationId": "_".join(filter(None, [endpoint.replace(".", "_"), fixed, method.lower()])),
        "summary": summary,
        "description": " ".join(description.split()),
        "parameters": [*_in_path(path), *_in_query(endpoint), *_in_headers(endpoint)],
        "responses": _responses(endpoint),
    }
    if endpoint not in OPEN:
        answer["security"] = [{"credentials": []}]
    if endpoint in BODIES:
        answer["requestBody"] = {"required": endpoint != "clusters.plan", "content": _bodies(endpoint)}
    return answer


def _bodies(endpoint: str) -> dict[str, Any]:
    example = {"example": EXAMPLES[endpoint]}
    if endpoint in ("jobs.submit", "jobs.match"):
        bare = {"schema": {"anyOf": [ref(BODIES[endpoint]), ref("Jobspec")]}, **example}
        return {"application/json": bare, "application/yaml": {"schema": {"type": "string", "pattern": "\\S"}}}
    return {"application/json": {"schema": ref(BODIES[endpoint]), **example}}


def _responses(endpoint: str) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": ref("Problem")}}
    faults: dict[str, Any] = {
        str(code): {"description": words, "content": problem} for code, words in MEANINGS.items()
    }
    if endpoint in GONE:
        return {"204": {"description": "done"}, **_drained(endpoint), **faults}
    kind = TEXT[endpoint][0] if endpoint in TEXT else "application/json"
    schema = TEXT[endpoint][1] if endpoint in TEXT else _answer(endpoint)
    content = {kind: {"schema": schema}, **({"text/csv": {"schema": WORD}} if endpoint in CSV else {})}
    good = {"description": "done", "content": content}
    answers = {"201": good} if endpoint in MADE else {"200": good}
    return {**answers, **({"200": dict(good)} if endpoint == "jobs.submit" else {}), **faults}


def _answer(endpoint: str) -> dict[str, Any]:
    return ref(BY_ENDPOINT.get(endpoint, "Answer"))


def _drained(endpoint: str) -> dict[str, Any]:
    if endpoint != "clusters.delete":
        return {}
    content = {"application/json": {"schema": ref("Answer")}}
    return {"202": {"description": "it goes when its jobs have ended", "content": content}}


def _in_path(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": IN_PATH.get(name, WORD)} for name in names]


def _in_query(endpoint: str) -> list[dict[str, Any]]:
    return [{"name": name, "in": "query", "schema": schema} for name, schema in QUERIES.get(endpoint, {}).items()]


def _in_headers(endpoint: str) -> list[dict[str, Any]]:
    return [{"name": name, "in": "header", "schema": schema} for name, schema in HEADERS.get(endpoint, {}).items()]
