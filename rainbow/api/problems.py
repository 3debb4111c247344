"""Faults as RFC 9457 problem details: tables of the status of each code and of each status's meaning."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import structlog
from flask import Flask, Response, json, request
from werkzeug.exceptions import HTTPException

from rainbow.errors import NONE, UNKNOWN, InputError, InternalError, RainbowError, TryLater
from rainbow.outcome import begin_request, has_stored
from rainbow.plugins import PluginFault

log = structlog.get_logger("rainbow.api")

STATUS = {
    "request-invalid": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not-found": 404,
    "conflict": 409,
    "no-cluster-now": 409,
    "over-budget": 422,
    "precondition-failed": 412,
    "limit-exceeded": 413,
    "graph-invalid": 422,
    "jobspec-invalid": 422,
    "state-invalid": 422,
    "selection-invalid": 422,
    "config-invalid": 422,
    "policy-invalid": 422,
    "plugin-unknown": 422,
    "plugin-failed": 502,
    "unsatisfiable": 422,
    "value-refused": 422,
    "timed-out": 408,
    "undecided": 422,
    "too-many": 429,
    "unavailable": 503,
    "try-later": 503,
}
MEANINGS = {
    400: "not of the documented form: bytes that are no text, no JSON, a wrong envelope",
    401: "missing or unknown credential",
    403: "credential lacks the required permission",
    404: "not found, or not visible to this credential",
    405: "no such method",
    408: "the body did not come in time",
    409: "exists already, or its state does not allow it",
    412: "changed since it was read (If-Match)",
    413: "over a limit",
    422: "understood, but cannot be fulfilled: graph, jobspec, state, no match",
    429: "too many requests; retry after the number of seconds in Retry-After",
    500: "a fault of Rainbow; what was asked may be done",
    502: "an installed plug-in failed",
    503: "temporarily unavailable; retry after the number of seconds in Retry-After; `outcome` says what is done",
}
AS_IT_IS = "with curl send the file as it is: --data-binary @FILE -H 'Content-Type: application/yaml' (or json)"
TYPES = "https://rainbow-scheduler.github.io/problems/"


def problem(status: int, code: str, detail: str, **more: Any) -> Response:
    """Answer with a problem."""
    body = json.dumps(plain_problem(status, code, detail, **more))
    return Response(body, status, mimetype="application/problem+json")


def plain_problem(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    """Return the body of a problem; from 500 on it has an outcome, where none is given that of its status."""
    title = HTTPStatus(status).phrase
    if status >= 500:
        more["outcome"] = more.get("outcome") or (UNKNOWN if status == 500 else NONE)
    return {"type": TYPES + code, "title": title, "status": status, "code": code, "detail": detail, **more}


def body_of(fault: RainbowError) -> dict[str, Any]:
    """Write one of our faults as the body of a problem."""
    more: dict[str, Any] = {key: value for key, value in fault.facts.items() if _writable(value)}
    if isinstance(fault, InputError):
        place = {"pointer": fault.pointer, "line": fault.line, "column": fault.column}
        more |= {key: value for key, value in place.items() if value is not None}
    if fault.outcome is not None:
        more["outcome"] = fault.outcome
    return plain_problem(STATUS.get(fault.code, 500), fault.code, fault.message, **more)


def headers_of(fault: RainbowError) -> dict[str, str]:
    """Return the headers of a fault's problem."""
    result = {"Content-Type": "application/problem+json"}
    if isinstance(fault, TryLater):
        result["Retry-After"] = str(fault.retry_after)
    if STATUS.get(fault.code) == 401:
        result["WWW-Authenticate"] = "Bearer"
    return result


def of_fault(fault: RainbowError) -> Response:
    """Turn one of our faults into a problem."""
    if isinstance(fault, PluginFault):
        log.error("plugin-failed", fault=fault.message, exc_info=fault)
    body = body_of(fault)
    if body["status"] in (401, 403):
        log.info(
            "refused", status=body["status"], method=request.method, path=request.path, address=request.remote_addr
        )
    if body["status"] == 500 or (
        body["status"] > 500 and has_stored()
    ):  # the fault itself knows of its own part only
        body["outcome"] = UNKNOWN
        if request.method not in ("GET", "HEAD"):
            body["detail"] = body["detail"].rstrip(".") + "; it may be done"
    if isinstance(fault, InputError) and request.mimetype == "application/x-www-form-urlencoded":
        body["detail"] += f"; {AS_IT_IS}"  # `curl -d @FILE` has taken the line breaks out
    return Response(json.dumps(body), body["status"], headers_of(fault))


def _writable(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool, list, dict, tuple))


def install(app: Flask) -> None:
    """Let every fault that leaves a view become a problem; nothing else ever leaves the server."""
    app.before_request(begin_request)
    app.register_error_handler(RainbowError, of_fault)
    app.register_error_handler(HTTPException, _of_http)
    app.register_error_handler(Exception, _unexpected)


def _of_http(fault: HTTPException) -> Response:
    status = fault.code or 500
    code = {404: "not-found", 405: "method-not-allowed", 413: "limit-exceeded"}.get(status, "request-invalid")
    unknown = f"path {request.path[:100]} not found; GET /openapi.json lists every path"
    answer = problem(status, code, unknown if status == 404 else fault.description or HTTPStatus(status).phrase)
    answer.headers.extend((name, value) for name, value in fault.get_headers() if name != "Content-Type")
    return answer


def _unexpected(fault: Exception) -> Response:
    log.error("request-failed", method=request.method, path=request.path, fault=repr(fault), exc_info=fault)
    return of_fault(InternalError())
