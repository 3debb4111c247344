"""The parts of a request: its query, its body, its credentials, its times."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from ipaddress import ip_address
from math import isfinite
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from flask import Flask, Response, current_app, jsonify, request
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator

from rainbow.api.problems import AS_IT_IS
from rainbow.api.schemas import SCHEMAS
from rainbow.errors import JobspecError, LimitError, RainbowError, RequestError, StateError, Unauthenticated
from rainbow.jobspec.validation import wrong_value
from rainbow.jobspec.yaml_reader import Limits, load, step
from rainbow.service.core.access import Caller, caller
from rainbow.service.core.keyed_call import HEADER, KeyedCall
from rainbow.state_machine import JobState
from rainbow.store.accounts.charges import BY
from rainbow.text import LATEST, as_json, meant, rfc3339
from rainbow.write_queue import WRITER, Writer

if TYPE_CHECKING:
    from rainbow.service import Service
    from rainbow.service.core.settings import Network


def service() -> Service:
    """Return the service this app serves."""
    return cast("Service", current_app.extensions["rainbow"])


def tokens() -> list[str]:
    """Read `Authorization: Bearer a, Bearer b`: up to MOST_CREDENTIALS tokens and secrets."""
    return tokens_of(request.headers.get("Authorization", ""))


def tokens_of(header: str) -> list[str]:
    """Read the credentials of such a header; RequestError if they are too many."""
    parts = [part.strip() for part in header.split(",") if part.strip()]
    result = [part[len("bearer ") :].strip() for part in parts if part.lower().startswith("bearer ")]
    check_credentials(len(result), "the header Authorization")
    return result


MOST_CREDENTIALS = 64  # of a header, and of a body: each one is looked up


def check_credentials(count: int, where: str) -> None:
    """Raise RequestError for more credentials than are looked up for one request."""
    if count > MOST_CREDENTIALS:
        text = f"{where} brings {count} credentials; the limit is {MOST_CREDENTIALS}"
        raise RequestError(text, pointer="")


MOST_LOGIN = 200  # characters
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id(query: str) -> str:
    """Return the id a request brings, or a new one if that cannot be used."""
    return query if REQUEST_ID.fullmatch(query) else secrets.token_hex(8)


def address_of(scope: Mapping[str, Any], proxies: Sequence[Network]) -> str:
    """Return the address that a request comes from: behind proxies of ours, the one that the first of them saw.

    Each proxy adds whom it saw to the end of X-Forwarded-For. So the list is read from its end, for as long as the
    address that said it is a proxy of ours; what strangers wrote before that is not believed.
    """
    address = str(scope["client"][0]) if scope["client"] else ""
    if not proxies:
        return address
    answer = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for").decode("latin-1")
    for each in reversed(answer.split(",")):
        if not _is_in(address, proxies) or not _is_address(each.strip()):
            break
        address = each.strip()
    return address


def _is_address(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    return _is_address(address) and any(ip_address(address) in network for network in networks)


# agents' reports and cancels: what ends work on the machines goes before what brings more
URGENT = frozenset({"agents.receive", "agents.accept", "agents.events", "agents.heartbeat", "jobs.cancel"})
URGENCY = 4.0  # times the share of the writer's time that others have


def who(more: Iterable[str] = ()) -> Caller:
    """Say who asks, by the header and by what the body brings; what is written for this request is theirs."""
    with service().store.look() as connection:
        asking = caller(service(), connection, [*tokens(), *more])
    WRITER.set(Writer(asking.known[0], URGENCY if request.endpoint in URGENT else 1.0))
    return asking


LOGIN = "Rainbow-Login"  # who asks, where a token is shared: whose job `last` is


def login() -> str | None:
    """Read the login of the person who asks; None if the request does not say it."""
    return unquote(request.headers.get(LOGIN, ""))[:MOST_LOGIN] or None


def once(
    act: Callable[[Caller, Any, KeyedCall], dict[str, Any]],
    status: int = 200,
    read: Callable[[], Any] = lambda: None,
    write: Callable[[Any], Any] = lambda reported: reported,
) -> tuple[Response, int]:
    """Answer a call that may be sent again: what `act` returns, or as the first time under its Idempotency-Key.

    `read` reads its body, `write` writes its answer. Credentials count only where nothing was answered before: they
    may have ended by that.
    """
    asking, unknown = None, None
    try:
        asking = who()
    except Unauthenticated as fault:
        unknown = fault
    key = request.headers.get(HEADER)
    if unknown and key is None:
        raise unknown
    operation = (request.method, request.path, sorted(request.args.items(multi=True)))
    try:
        options = read()
        call = KeyedCall.of(service(), key, tokens(), *operation, options)
    except RainbowError as fault:  # strangers hear of nothing but that they are
        raise unknown or fault from None
    if (earlier := call.look()) is not None:
        answer = jsonify(write(earlier))
        answer.headers["Idempotent-Replayed"] = "true"
        return answer, status
    if asking is None:
        raise unknown or Unauthenticated()
    return jsonify(write(act(asking, options, call))), status


def body(graph: bool = False) -> bytes:
    """Read the body, no more than is allowed."""
    limits = service().settings.limits
    most = limits.graph if graph else limits.body
    if (request.content_length or 0) > most:
        raise LimitError(f"request body is {request.content_length} bytes; the limit is {most} bytes", limit="body")
    if request.mimetype == "multipart/form-data":
        raise RequestError(f"the body is a form with files; {AS_IT_IS}", pointer="")
    result = bytes(request.stream.read(most + 1))
    if len(result) > most:
        raise LimitError(f"request body exceeds the limit of {most} bytes", limit="body")
    return result


def read_json(graph: bool = False) -> Any:
    """Read a JSON body."""
    try:
        return _parsed(body(graph).decode())
    except (ValueError, RecursionError) as fault:
        raise RequestError(f"request body is not valid JSON: {fault}", pointer="") from None


def _parsed(text: str) -> Any:
    """Parse JSON; ValueError also for a key that comes twice, and half a surrogate pair, which no store can hold."""
    result = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_once)
    if "\\ud" in text.lower():
        json.dumps(result, ensure_ascii=False).encode()
    return result


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:80]!r} comes twice")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def read_mapping(form: str, graph: bool = False) -> dict[str, Any]:
    """Read a JSON body of one of the forms of schemas.py."""
    result = read_json(graph)
    if not isinstance(result, dict):
        raise RequestError("request body must be a JSON object", pointer="")
    check(result, form)
    return result


def read_state() -> Any:
    """Read a state: JSON, or YAML, so that the founding text's example with its last comma is read."""
    data = body()
    try:
        return load(data, Limits())[0]
    except JobspecError as fault:
        kind = StateError if _is_json(data) else RequestError  # what no state can hold is no matter of form
        raise kind(fault.message, pointer=fault.pointer, line=fault.line, column=fault.column) from None


def _is_json(data: bytes) -> bool:
    try:
        _parsed(data.decode())
    except (ValueError, RecursionError):
        return False
    return True


def read_jobspec() -> tuple[Any, Mapping[str, Any]]:
    """Read a jobspec and its envelope ({} if it came without one)."""
    return jobspec_in(body(), request.mimetype)


def jobspec_in(data: bytes, kind: str) -> tuple[Any, Mapping[str, Any]]:
    """Read a jobspec and its envelope of a body: JSON or YAML, told by its media type and by how it looks."""
    if not data.strip():
        raise RequestError("request body is empty: expected a jobspec", pointer="")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise RequestError("the body is not UTF-8 text", pointer="") from None
    if kind.endswith("json") or (not kind.endswith("yaml") and text.lstrip().startswith("{")):
        try:
            result = _parsed(text)
        except (ValueError, RecursionError) as fault:
            raise RequestError(f"request body is not valid JSON: {fault}", pointer="") from None
        if not isinstance(result, dict):
            raise RequestError("request body must be a JSON object", pointer="")
        return (result["jobspec"], result) if "jobspec" in result else (result, {})
    if "\njobspec:" in f"\n{text}":
        result, _ = load(text, Limits())
        if isinstance(result, dict) and "jobspec" in result:
            return result["jobspec"], result
    return text, {}


def flag(name: str) -> bool:
    """Read true or false of the query."""
    value = request.args.get(name, "false").lower()
    if value not in ("true", "false"):
        raise RequestError(f"{name} must be true or false", pointer=f"/{name}")
    return value == "true"


def count_in_query(name: str, default: int, most: int, least: int = 1) -> int:
    """Read a whole number of the query between two bounds."""
    text = request.args.get(name, str(default))
    if not text.isdecimal() or not least <= int(text[:MOST_DIGITS]) <= most:
        raise RequestError(f"{name} must be between {least} and {most}", pointer=f"/{name}")
    return int(text)


def number_of(values: Mapping[str, Any], key: str, default: float, most: float) -> float:
    """Read a number from 0 to `most`, larger ones are taken for it."""
    value = values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise RequestError(f"{key} must be a number >= 0", pointer=f"/{key}")
    return min(value, most)


def list_of(values: Mapping[str, Any], key: str) -> list[Any]:
    """Read a list."""
    value = values.get(key, [])
    if isinstance(value, list):
        return value
    raise RequestError(f"{key} is a list", pointer=f"/{key}")


TIMES = frozenset(
    {
        *("submitted_at", "canceled_at", "ended_at", "assigned_at", "started_at", "suspended_at", "held_at"),
        *("created_at", "reported_at", "since", "changed_at", "drained_at", "over_since", "expires_at", "revoked_at"),
    }
)


def timed(value: Any) -> Any:
    """Write the times of an answer, given in seconds since 1970, as RFC 3339.

    >>> timed({"since": 0.5, "steps": [{"since": None}]})
    {'since': '1970-01-01T00:00:00.500Z', 'steps': [{'since': None}]}
    """
    if isinstance(value, Mapping):
        return {key: _time(item) if key in TIMES else timed(item) for key, item in value.items()}
    return [timed(item) for item in value] if isinstance(value, list) else value


def _time(value: Any) -> Any:
    return value if isinstance(value, bool) or not isinstance(value, (int, float)) else rfc3339(value)


LARGEST = 2**63 - 1
MOST_DIGITS = 9  # of a whole number in a query
ANY_STATE = f"({'|'.join(JobState)}|)"
ANY_COLUMN = f"({'|'.join(BY)})"
ANY_KEY = r"(name|requestor|parameter\.[A-Za-z0-9_.-]{1,100})"
PAGE: dict[str, dict[str, Any]] = {
    "state": {"type": "string", "pattern": f"^{ANY_STATE}(,{ANY_STATE})*$"},
    "cluster": {"type": "string"},
    "requestor": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1},  # at most `listed` of the server's limits
    "cursor": {"type": "string"},
}
QUERIES: dict[str, dict[str, Any]] = {
    "clusters.delete": {"drain": {"type": "boolean"}},
    "accounts.usage": {
        "by": {"type": "string", "pattern": f"^{ANY_COLUMN}(,{ANY_COLUMN})*$"},
        **{name: {"type": "string", "format": "date"} for name in ("since", "until")},
        "csv": {"type": "boolean"},
    },
    "config.audit": {
        "job": {"type": "string"},
        "credential": {"type": "string"},
        **{name: {"type": "string", "format": "date-time"} for name in ("since", "until")},
        "limit": PAGE["limit"],
        "cursor": PAGE["cursor"],
    },
    "config.models": {
        "since": {"type": "string", "format": "date"},
        "group": {"type": "string", "pattern": f"^{ANY_KEY}(,{ANY_KEY})*$"},
        "by": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.]{0,99}$"},
    },
    "credentials.known": {"digests": {"type": "string"}, "cluster": {"type": "string"}},
    "metrics.show": {"brief": {"type": "boolean"}},
    "clusters.put_graph": {"drain": {"type": "boolean"}},
    "reservations.create": {"preview": {"type": "boolean"}},
    "reservations.listing": {"over": {"type": "boolean"}},
    "clusters.patch_graph": {"drain": {"type": "boolean"}},
    "jobs.show": {"limit": PAGE["limit"], "after": {"type": "integer", "minimum": 0, "maximum": 99_999_999}},
    "jobs.why": {"verify": {"type": "boolean"}},
    "jobs.certificate": {"task": {"type": "integer", "minimum": 0, "maximum": 99_999_999}},
    "jobs.listing": {
        **PAGE,
        "summary": {"type": "boolean"},
        **{key: {"type": "string"} for key in ("number", "id", "site", "name", "user", "account", "reason")},
        **{key: {"type": "string", "format": "date-time"} for key in ("since", "until")},
        "tasks": {"type": "boolean"},
        "sort": {"type": "string", "enum": ["newest", "oldest"]},
    },
    "jobs.find": {"job": {"type": "string"}},
    "jobs.counts": {"by": {"type": "string", "enum": ["state", "cluster", "requestor", "reason"]}},
    "clusters.bars": {
        "from": {"type": "number", "minimum": 0, "exclusiveMaximum": LATEST},
        "to": {"type": "number", "minimum": 0, "exclusiveMaximum": LATEST},
        "limit": {"type": "integer", "minimum": 1, "maximum": 20_000},
    },
    "nodes.summary": {"top": {"type": "integer", "minimum": 0, "maximum": 1000}},
    "jobs.decisions": {**PAGE, "matched": {"type": "string"}},
    "nodes.series": {"cluster": {"type": "string"}},
    "clusters.forecast": {"limit": {**PAGE["limit"], "maximum": 1000}, "after": {"type": "string"}},
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
        if request.blueprint == "page":
            return  # its addresses are made by itself, and last longer than a version
        unknown = next((name for name in request.args if name not in known), None)
        if unknown is None or request.url_rule is None:
            return
        hint = meant(unknown, known) or f"known: {', '.join(sorted(known)) or 'none'}"
        raise RequestError(f"unknown query parameter {unknown[:40]!r}; {hint}", pointer=f"/{unknown[:40]}")


# ── forms of bodies ──


def check(body: Any, name: str) -> None:
    """Raise RequestError, with the place, for a body that is not of this form."""
    fault = _first(list(_validator(name).iter_errors(body)))
    if fault is not None:
        missing = _missing(fault)
        unknown = _unknown(fault)
        at = [*fault.absolute_path, *filter(None, [missing or unknown])]
        pointer = "".join(f"/{step(part)}" for part in at)
        raise RequestError(_said(fault) if unknown is None else _not_known(unknown, fault), pointer=pointer)


def _first(faults: list[ValidationError]) -> ValidationError | None:
    """Return what to say first: a value that is wrong by itself, before which of a body's forms it has."""
    forms = [fault for fault in faults if not fault.path and _ways(fault)]
    return best_match([fault for fault in faults if fault not in forms]) or next(iter(forms), None)


def _missing(fault: ValidationError) -> str | None:
    """Return the key that an object lacks, if that is the fault; the first, if it has those of several forms."""
    options: Any = fault.instance
    if fault.validator == "required":
        required: Any = fault.validator_value
        return next((str(key) for key in required if key not in options), None)
    keys = [key for way in _ways(fault) for key in way]
    return next((key for key in keys if options.get(key) is None), keys[0] if keys else None)


def _ways(fault: ValidationError) -> list[list[str]]:
    """Return the keys of each of the forms that an object may have, if it has none of them."""
    forms: Any = fault.validator_value if fault.validator in ("oneOf", "anyOf") else []
    return [form["required"] for form in forms] if all("required" in form for form in forms) else []


def _unknown(fault: ValidationError) -> str | None:
    """Return the key that an object may not have, if that is the fault."""
    if fault.validator != "additionalProperties" or not isinstance(fault.instance, dict):
        return None
    return next((key for key in fault.instance if key not in _properties(fault)), None)


def _properties(fault: ValidationError) -> list[str]:
    return [*fault.schema.get("properties", {})] if isinstance(fault.schema, Mapping) else []


def _not_known(key: str, fault: ValidationError) -> str:
    known = _properties(fault)
    return f"unknown key {key:.80}; {meant(key, known) or 'known are: ' + ', '.join(known)}"


def _said(fault: ValidationError) -> str:
    if ways := _ways(fault):
        return f"give {', or '.join(' and '.join(way) for way in ways)}"
    name = str(next(reversed(fault.absolute_path), "the body"))
    message = wrong_value(name, fault) or fault.message
    if fault.validator == "pattern" and isinstance(fault.schema, Mapping) and "description" in fault.schema:
        message = f"{name} must be {fault.schema['description']}, got {as_json(fault.instance)}"
    return message if len(message) <= 200 else f"{message[:100]} ... {message[-90:]}"


@cache
def _validator(name: str) -> Validator:
    return Draft202012Validator(SCHEMAS[name])
