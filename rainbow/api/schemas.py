"""What requests must look like: these schemas validate them, and the OpenAPI document is made of them.

They say the form of a request. What a graph, a jobspec, a state or a policy must be is said, with its own code and
place, by the part that reads it; here they are any JSON.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator

from rainbow.errors import RequestError
from rainbow.service.clusters.registering import VARIABLE

NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}
WORDS = {"type": "string", "maxLength": 200}
ANY: dict[str, Any] = {}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(of: dict[str, Any], most: int | None = None) -> dict[str, Any]:
    return {"type": "array", "items": of, **({"maxItems": most} if most else {})}


AGENT = {"type": "string", "minLength": 1, "maxLength": 200}
SEQ = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
RUN = _object(["id", "attempt"], id={"type": "string"}, attempt={"type": "integer"})
EVENT = _object(
    ["task", "attempt", "event"],
    task={"type": "string"},
    attempt={"type": "integer"},
    event={"enum": ["started", "ended", "suspended", "resumed", "unable"]},
    result={"enum": ["exited", "timed_out", "stopped", "failed", "lost"]},
    cause=_or_null({"enum": ["", "memory"]}),
    exit_code=_or_null({"type": "integer", "minimum": -(2**31) + 1, "maximum": 2**31 - 1}),
    output=_or_null({"type": "string"}),
    detail=_or_null({"type": "string"}),
)
LOAD = _or_null({"type": "object", "maxProperties": 100, "additionalProperties": {"type": "number"}})
ENVELOPE = {
    "jobspec": {"type": ["string", "object"]},
    "selector": _or_null(_object([], name=_or_null(WORDS), options=_or_null({"type": "object"}))),
    "clusters": _or_null(_list(_object(["name"], name={"type": "string"}, token=_or_null({"type": "string"})))),
    "name": _or_null(WORDS),
    "requestor": _or_null(WORDS),
    "basis": _or_null(WORDS),
    "tag": _or_null(WORDS),
}
OPTIMAL = {"required": ["assign"], "properties": {"assign": {"const": "optimal"}}}
CHANGE = _object(
    ["op"],
    op={"enum": ["add", "remove", "set", "resize"]},
    vertex={"type": "string"},
    nodes={"type": "object"},
    edges=_list({"type": "object"}),
    properties=ANY,
    size=ANY,
)

SCHEMAS: dict[str, dict[str, Any]] = {
    "Registration": _object(
        ["name", "graph"],
        name=NAME,
        graph=ANY,
        subsystems=_or_null({"type": "object"}),
        state=ANY,
        levels=ANY,
        worker_type={"type": "string"},
        policy=ANY,
    ),
    "Graph": {"description": "JGF, node-link JSON, R version 1", "type": ["object", "array"]},
    "Delta": _object(["changes"], changes=_list(CHANGE)),
    "State": {
        "type": "object",
        "propertyNames": {"pattern": f"^{VARIABLE.pattern}$"},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    },
    "Policy": {**_object([], policy=ANY, settings=ANY, limits=ANY), "additionalProperties": False},
    "Jobspec": {"description": "a jobspec of any dialect", "type": "object"},
    "Submission": _object(["jobspec"], **ENVELOPE),
    "Question": _object(["jobspec"], **ENVELOPE, explain={"type": "boolean"}),
    "Batch": _object(
        ["jobs"],
        jobs={**_list(ANY), "minItems": 1},
        selector=ENVELOPE["selector"],
        clusters=ENVELOPE["clusters"],
        requestor=ENVELOPE["requestor"],
        assign=_or_null({"enum": ["greedy", "optimal"]}),
        minimise=_or_null(WORDS),
        time_limit={"type": "number", "minimum": 0},
    )
    | {"if": OPTIMAL, "then": _object(["minimise"], minimise={**WORDS, "minLength": 1})},
    "Receive": _object(
        ["agent"], agent=AGENT, max={"type": "number", "minimum": 0}, wait={"type": "number", "minimum": 0}
    ),
    "Accept": _object(["agent", "tasks"], agent=AGENT, tasks=_list(RUN), seq=SEQ),
    "Events": _object(["agent", "events"], agent=AGENT, events=_list(EVENT), seq=SEQ),
    "Heartbeat": _object(
        ["agent"],
        agent=AGENT,
        workers=_or_null(_list({"type": "string"})),
        running=_list(RUN),
        seq=SEQ,
        load=LOAD,
        on_lost_server=_or_null({"enum": ["stop", "keep"]}),
    ),
    "Token": {
        **_object(
            [],
            clusters={**_list({**NAME}, 1_000), "minItems": 1},
            requestors=_or_null(_list({**WORDS, "minLength": 1}, 1_000)),
            monitor={"const": True},
            expires_at=_or_null({"type": "string", "format": "date-time"}),
            name=_or_null({"type": "string", "maxLength": 100}),
        ),
        "oneOf": [
            {"required": ["clusters"]},
            {"required": ["monitor"], "properties": {"requestors": {"type": "null"}}},
        ],
    },
    "Reservation": _object(
        ["jobspec"],
        jobspec={"type": ["string", "object"]},
        start=_or_null({"type": "string", "format": "date-time"}),
        end=_or_null({"type": "string", "format": "date-time"}),
        duration=_or_null({"type": "number", "exclusiveMinimum": 0, "maximum": 2**31}),
        requestor=_or_null({**WORDS, "minLength": 1}),
        requestors=_or_null(_list({**WORDS, "minLength": 1}, 1_000)),
        name=_or_null({"type": "string", "maxLength": 100}),
    ),
    "Problem": _object(
        ["type", "title", "status", "code", "detail"],
        type={"type": "string", "format": "uri"},
        title={"type": "string"},
        status={"type": "integer"},
        code={"type": "string"},
        detail={"type": "string"},
        pointer={"type": "string"},
        line={"type": "integer"},
        column={"type": "integer"},
    ),
}


def check(body: Any, name: str) -> None:
    """Raise RequestError, with the place, for a body that is not of this form."""
    fault = best_match(_validator(name).iter_errors(body))
    if fault is not None:
        parts = [str(part).replace("~", "~0").replace("/", "~1") for part in fault.absolute_path]
        missing = fault.validator == "required" and next(p for p in fault.validator_value if p not in fault.instance)
        pointer = "".join(f"/{part}" for part in [*parts, *([missing] if missing else [])])
        raise RequestError(_said(fault.message), pointer=pointer)


def _said(message: str) -> str:
    return message if len(message) <= 200 else f"{message[:100]} ... {message[-90:]}"


@cache
def _validator(name: str) -> Validator:
    return Draft202012Validator(SCHEMAS[name])
