"""One HTTP call, repeated where that is safe, with its answer as JSON or as an exception.

A call is sent again after a connection error, 429 or 503: all calls may be. What would be done twice is sent under an
Idempotency-Key, which the server answers as the first time.

What was sent and never answered may be done, and the fault says so (`outcome`); "cannot reach" is where nothing was.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx

from rainbow.errors import NONE, UNKNOWN, RainbowError, RequestError, Unavailable
from rainbow.idempotency import new_strong_key

TRIES = 5
FIRST_PAUSE = 0.2  # seconds, doubled before every further try
LONGEST_PAUSE = 30.0  # a server that asks for more is not waited for
BUSY = frozenset({429, 503})
SAFE = ("/match", "/eta", "/plan", ":diff", ":check")  # the ends of paths that change nothing although they are sent
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)

_PROBLEM_KEYS = frozenset({"type", "code", "title", "status", "detail", "pointer", "line", "column", "instance"})


class Problem(RainbowError):
    """The server refused a call. `facts` holds the members of the problem beyond the named fields.

    `outcome`: "none" (nothing was stored) or "unknown" (it may be done).
    """

    def __init__(self, status: int, body: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.code = str(body.get("code") or re.split(r"[/:#]", str(body.get("type", "")))[-1] or "error")
        self.title = str(body.get("title") or f"HTTP {status}")
        self.detail = str(body.get("detail") or self.title)
        self.pointer: str | None = body.get("pointer")
        self.line: int | None = body.get("line")
        self.column: int | None = body.get("column")
        self.retry_after = retry_after
        super().__init__(self.detail, **{key: body[key] for key in body if key not in _PROBLEM_KEYS})
        self.outcome = str(body.get("outcome") or (UNKNOWN if status >= 500 else NONE))

    def __str__(self) -> str:
        place = [f"line {self.line}, column {self.column}"] if self.line is not None else []
        place += [f"at {self.pointer}"] if self.pointer else []
        missing = [part for part in place if part not in self.detail]
        return f"{self.detail} ({', '.join(missing)})" if missing else self.detail


class UrlError(RequestError):
    """This is no URL of a server."""


class Calls:
    """Calls to one server with one set of credentials. Threads may share it."""

    def __init__(
        self,
        url: str,
        tokens: Sequence[str],
        timeout: float,
        *,
        tries: int = TRIES,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.BaseTransport | None = None,
        sent: Sent | None = None,
        login: str | None = None,
    ) -> None:
        self.url = url
        self._sent = sent
        self._timeout = timeout
        self._tries = tries
        self.sleep = sleep
        self.clock = clock
        self.answered = False  # whether the server has ever done what it was asked
        self.away: dict[str, str] = {}  # shards that a router's lists were without, and why
        try:
            self._http = httpx.Client(
                base_url=url, headers=_headers(tokens, login), timeout=timeout, transport=transport
            )
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            raise UrlError(f"invalid server URL {url!r}: {error}") from error
        if self._http.base_url.scheme not in ("http", "https") or not self._http.base_url.host:
            raise UrlError(f"invalid server URL {url!r}: expected http://HOST:PORT or https://HOST:PORT")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        keyed: bool = False,
        tries: int | None = None,
        patience: float = 0.0,
    ) -> Any:
        """Send one call and return the answer; `patience` seconds are added to the time-out.

        `keyed`: under an Idempotency-Key of its own. Problem if the server refuses, Unavailable if it cannot be
        reached or does not answer.
        """
        if keyed:
            headers = {**(headers or {}), "Idempotency-Key": new_strong_key()}
        request = self._request(verb, path, body, query, headers, patience)
        unanswered: httpx.TransportError | None = None  # the last try that was sent: it may be done
        in_doubt = False  # whether a try before this one may be done
        for pause in _pauses(tries or self._tries):
            try:
                answer = self._http.send(request)
            except httpx.TransportError as error:
                unanswered = unanswered if isinstance(error, NEVER_SENT) else error
                in_doubt = _changes(request) and unanswered is not None
                if pause is None:
                    raise self._unavailable(unanswered or error, request) from error
                self.sleep(pause)
                continue
            problem = _problem(answer)
            if problem is None:
                result = _json(answer)
                self.answered = True
                if in_doubt and isinstance(result, dict):
                    _doubt_parts(result.get("answers"))
                if isinstance(result, dict) and isinstance(missing := result.get("away"), list):
                    self.away |= {one["shard"]: one["reason"] for one in missing}
                return result
            if pause is None or not _worth_repeating(problem):
                if in_doubt and problem.status in BUSY:
                    problem.outcome = UNKNOWN  # this try was not done; one before it may be
                raise problem
            in_doubt = in_doubt or (_changes(request) and problem.outcome == UNKNOWN)
            self.sleep(max(pause, problem.retry_after or 0.0))
        raise AssertionError("the last try returns or raises")

    def lines(self, path: str, query: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines of an answer that has no end; Problem and Unavailable as `call` has them."""
        options = {key: value for key, value in query.items() if value is not None}
        timeout = httpx.Timeout(self._timeout, read=self._timeout + LONGEST_PAUSE)
        try:
            with self._http.stream("GET", path, params=options, timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _problem(answer) or Unavailable("no answer")
                self.answered = True
                yield from answer.iter_lines()
        except httpx.TransportError as error:
            raise self._unavailable(error, error.request) from error

    def _unavailable(self, error: httpx.TransportError, request: httpx.Request) -> Unavailable:
        """Explain a connection that failed, and whether the request may have been carried out."""
        url, reason = self._http.base_url, re.sub(r"^\[Errno \d+\] |\.$", "", str(error)) or type(error).__name__
        if isinstance(error, NEVER_SENT):
            todo = "check --url and that the server is running"
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                todo = "set SSL_CERT_FILE to the certificate of the server or of its authority"
            return Unavailable(f"cannot reach the server at {url}: {reason}; {todo}")
        within = isinstance(error, httpx.TimeoutException)
        allowed = request.extensions.get("timeout", {}).get("read") or self._timeout
        text = f"no answer from {url} within {allowed:g} s" if within else f"no answer from {url}: {reason}"
        changes = _changes(request)
        if changes:
            text += f": it may be done; look with {_command_for(request)}"
        if isinstance(error, httpx.RemoteProtocolError) and url.scheme == "http" and not self.answered:
            text += "; check --url: a server that speaks TLS has one of https://"
        return Unavailable(text, outcome=UNKNOWN if changes else NONE)

    def _request(
        self,
        verb: str,
        path: str,
        body: Any,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        patience: float,
    ) -> httpx.Request:
        if not isinstance(patience, int | float):
            raise RequestError(f"a time to wait is a number of seconds, got {patience!r:.80}")
        content = None if body is None else _encode(body)
        headers = {**(headers or {}), **({"Content-Type": "application/json"} if content else {})}
        sending: bytes | UploadProgress | None = content
        if content and self._sent is not None:
            sending, headers["Content-Length"] = UploadProgress(content, self._sent), str(len(content))
        options = {key: value for key, value in (query or {}).items() if value is not None}
        timeout = httpx.Timeout(self._timeout, read=self._timeout + patience)
        try:
            return self._http.build_request(
                verb, path, content=sending, params=options or None, headers=headers, timeout=timeout
            )
        except UnicodeEncodeError as error:
            raise _no_text(error) from None
        except (httpx.InvalidURL, UnicodeError, TypeError, ValueError) as error:
            raise RequestError(f"cannot be asked for: {error}") from error


def _headers(tokens: Sequence[str], login: str | None) -> dict[str, str]:
    for token in tokens:
        if not re.fullmatch(r"[!-+\--~]+", token):  # visible ASCII without the comma between two tokens
            raise RequestError("invalid character in token; check that you passed the right file")
    credentials = ", ".join(f"Bearer {token}" for token in tokens)
    answer = {"Authorization": credentials} if tokens else {}
    answer |= {"Rainbow-Login": quote(login, errors="replace")} if login else {}
    return {"Accept": "application/json", **answer}


def _pauses(tries: int) -> list[float | None]:
    # one entry per try: how long to wait before the next, None after the last
    return [FIRST_PAUSE * 2**n for n in range(tries - 1)] + [None]


def _worth_repeating(problem: Problem) -> bool:
    return problem.status in BUSY and (problem.retry_after or 0.0) <= LONGEST_PAUSE


def _doubt_parts(answers: Any) -> None:
    """Say of the parts of a batch that this try did not do that one before it may have done them."""
    for part in answers if isinstance(answers, list) else ():
        if isinstance(part, dict) and part.get("status") in BUSY:
            part["outcome"] = UNKNOWN


def _changes(request: httpx.Request) -> bool:
    return request.method not in ("GET", "HEAD") and not request.url.path.endswith(SAFE)


def _command_for(request: httpx.Request) -> str:
    """Name the command that shows whether a call was carried out."""
    parts = [*request.url.path.strip("/").split("/")[1:], "", ""]
    if parts[0] == "clusters":
        named = {"": "cluster list", "reservations": f"reserve list {parts[1]}"}
        return f"`rainbow {named.get(parts[2] if parts[1] else '', f'cluster show {parts[1]}')}`"
    commands = {"tokens": "token list", "accounts": "account list", "qos": "qos list", "config": "config show"}
    return f"`rainbow {commands.get(parts[0].partition(':')[0], 'jobs')}`"


def _problem(answer: httpx.Response) -> Problem | None:
    if answer.is_success:
        return None
    try:
        body = answer.json()
    except ValueError:  # some proxy's page, not ours
        body = None
    request = answer.headers.get("Retry-After", "")
    retry_after = float(request) if request.isdecimal() else None
    return Problem(answer.status_code, body if isinstance(body, dict) else {}, retry_after)


def _json(answer: httpx.Response) -> Any:
    if not answer.content:
        return None
    try:
        return answer.json()
    except ValueError as error:
        raise Unavailable(
            f"{answer.url} did not return JSON; check that it is a Rainbow server", outcome=UNKNOWN
        ) from error


def _encode(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, ensure_ascii=False, default=_document).encode()
    except UnicodeEncodeError as error:
        raise _no_text(error) from None
    except RecursionError as error:
        raise RequestError("request body is nested too deeply") from error
    except (TypeError, ValueError) as error:
        raise RequestError(f"cannot be sent as JSON: {error}") from error


def _document(value: Any) -> Any:
    """Return a library's own object as JSON can hold it: a graph as node-link JSON, a Request as it was read."""
    package = type(value).__module__.partition(".")[0]  # none is imported only to tell what a value is
    if package == "numpy" and hasattr(value, "tolist"):  # a number, or an array
        return value.tolist()
    if package == "rainbow" and hasattr(value, "variants"):  # a Request
        if value.document is None:
            raise TypeError("this Request was made by hand, and has no jobspec to send")
        return value.document.decode() if isinstance(value.document, bytes) else value.document
    if package == "networkx" and hasattr(value, "nodes"):
        from networkx import node_link_data

        if not value.is_directed():
            raise TypeError("the graph must be a networkx.DiGraph: an undirected one does not say what contains what")

        document = node_link_data(value, edges="edges")
        nodes = [{key: _listed(item) for key, item in node.items()} for node in document["nodes"]]
        return {**document, "nodes": nodes}
    raise TypeError(f"{type(value).__name__} is nothing that JSON can say")


def _listed(value: Any) -> Any:
    """Return properties that are a set as a list."""
    return sorted(value) if isinstance(value, set | frozenset) else value


def document_of(graph: Any) -> Any:
    """Return a graph that can be sent: of text its JSON, of a path the file's, of a Cluster its graph."""
    if hasattr(graph, "outline"):
        from rainbow.graph import write_jgf

        return write_jgf(graph)
    if not isinstance(graph, str | bytes | PathLike):
        return graph
    is_text = not isinstance(graph, PathLike) and graph.lstrip()[:1] in ("{", b"{")
    try:
        return json.loads(cast("str | bytes", graph) if is_text else Path(os.fsdecode(graph)).read_bytes())
    except OSError as error:
        raise RequestError(f"cannot read the graph's file {os.fsdecode(graph):.200}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        where = "the graph" if is_text else f"the graph's file {os.fsdecode(graph):.200}"
        raise RequestError(f"{where} is not JSON: {error}") from error


def named(clusters: Any) -> list[Any] | None:
    """Return clusters as an envelope names them; names alone will do."""
    if clusters is None:
        return None
    if isinstance(clusters, str | Mapping) or not isinstance(clusters, Sequence):
        raise RequestError(f"clusters is a list of names or of {{name, token}}, got {clusters!r:.80}")
    return [{"name": one} if isinstance(one, str) else one for one in clusters]


def names(of: Sequence[str] | None) -> list[str] | None:
    """Return names as a list; a text is one name, not the names of its letters."""
    return None if of is None else [of] if isinstance(of, str) else list(of)


def given(**values: Any) -> dict[str, Any]:
    """Return the values that are given."""
    return {key: value for key, value in values.items() if value is not None}


def path(*parts: str) -> str:
    """Return the path of something; RequestError for a name that would lead elsewhere."""
    for part in parts:
        if not isinstance(part, str) or part in ("", ".", ".."):  # they would name another address
            raise RequestError(f"{part!r:.80} is not the name of anything")
    try:
        return "/v1/" + "/".join(quote(part, safe="") for part in parts)
    except UnicodeEncodeError as error:
        raise _no_text(error) from None


def _no_text(error: UnicodeEncodeError) -> RequestError:
    """Name the value that no request can carry: bytes of a command line that are no UTF-8."""
    around = error.object[max(error.start - 20, 0) : error.end + 20]
    shown = "".join(f"\\x{ord(char) - 0xDC00:02x}" if "\udc80" <= char <= "\udcff" else char for char in around)
    return RequestError(f"text must be UTF-8, got a byte or half of a character that is not: {shown}")


def of_cluster(*parts: str) -> str:
    """Return the path of something of a cluster."""
    return path("clusters", *parts)


PART = 1 << 16  # bytes
Sent = Callable[[int, int], None]  # bytes sent so far, bytes in all


class UploadProgress:
    """A body sent part by part, from the beginning each time it is sent; `sent` hears of every part."""

    def __init__(self, content: bytes, sent: Sent) -> None:
        self._content, self._sent = content, sent

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._content), PART):
            yield self._content[start : start + PART]
            self._sent(min(start + PART, len(self._content)), len(self._content))
