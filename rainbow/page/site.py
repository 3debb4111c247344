"""The whole page: its views, static files and faults, served with the API's application."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import cast

import structlog
from flask import Flask, Response, abort, current_app, g, request
from werkzeug.exceptions import HTTPException

from rainbow.errors import InputError, NotFound, RainbowError
from rainbow.page import words
from rainbow.page.frame import KINDS, files, page, render, service, with_headers
from rainbow.page.views import clusters, doors, jobs, live, trial  # their routes are added to the blueprint

VIEWS = (clusters, doors, jobs, live, trial)
log = structlog.get_logger("rainbow.page")


@page.get("/static/<version>/<name>")
def static(version: str, name: str) -> Response:
    """Return a static file; its address names its content, so browsers keep it."""
    known = files().get(name)
    if known is None:
        raise NotFound(f"file {name[:100]} not found")
    answer = Response(known[1], content_type=KINDS[Path(name).suffix])
    stored = "public, max-age=31536000, immutable" if version == known[0] else "no-cache"
    answer.headers["Cache-Control"] = stored
    return answer


# ── faults ──


def _of_fault(fault: RainbowError) -> Response:
    status = cast("Mapping[str, int]", current_app.config["PAGE_STATUSES"]).get(fault.code, 500)
    place = ""
    if isinstance(fault, InputError) and fault.line is not None:
        place = f"line {fault.line}, column {fault.column}"
    return _problem(status, fault.message, place)


def _of_http(fault: HTTPException) -> Response:
    return _problem(fault.code or 500, fault.description or "")


def _unexpected(fault: Exception) -> Response:
    log.error("page-failed", path=request.path, fault=repr(fault), exc_info=fault)
    return _problem(500, "the server log has the details for this request ID")


def _problem(status: int, detail: str, place: str = "") -> Response:
    title = HTTPStatus(status).phrase
    return render("fault.html", status, title=title, code=status, detail=detail, place=place, id=g.get("id", ""))


def install(app: Flask, statuses: Mapping[str, int]) -> None:
    """Serve the page with an application; `statuses`: the HTTP status of each fault's code."""
    app.config["PAGE_STATUSES"] = statuses
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters.update(words.FILTERS)
    app.register_blueprint(page)


@page.before_request
def _look_whether_it_is_served() -> None:
    if not service().settings.server.page:
        abort(404)


page.register_error_handler(RainbowError, _of_fault)
page.register_error_handler(HTTPException, _of_http)
page.register_error_handler(Exception, _unexpected)
page.after_request(with_headers)
