"""The router: requests as they come → one shard, or several whose answers are merged, by ASGI.

of a cluster  to its shard           of a job  to its shard        a list  from all, merged
a submit      to the shard that      a token   to the shard of     what is a server's own (accounts, figures,
              would choose best                its clusters        settings)  by the header Rainbow-Shard

It passes on what the API knows, by its own table of operations, and keeps nothing that a shard does not have.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote

import structlog
import uvicorn
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import MapAdapter

from rainbow import __version__, process_secrets
from rainbow.api.bodies import Bodies, Sender
from rainbow.api.connections import CONNECTION, Gone, until_gone
from rainbow.api.front import check_stranger
from rainbow.api.problems import plain_problem
from rainbow.api.server import begin_to_accept, listener_at, log_to_stderr, uvicorn_config, with_operations
from rainbow.api.views.jobs import cluster_tokens
from rainbow.api.wire import check, jobspec_in, request_id
from rainbow.cache import LruCache
from rainbow.errors import Conflict, NotFound, RainbowError, RequestError, TooMany, Unauthenticated
from rainbow.federation import answers as merge
from rainbow.federation.callers import Caller, Callers
from rainbow.federation.directory import Directory
from rainbow.federation.question import Question
from rainbow.federation.shards import Answer, Away, Shard
from rainbow.federation.submits import Submits
from rainbow.federation.upstream import Pairs
from rainbow.service import Settings, read_config
from rainbow.service.core.settings import Limits
from rainbow.store.credentials import PREFIXES, TOKEN, digest

PASSED = frozenset({b"content-type", b"accept", b"if-match", b"idempotency-key", b"last-event-id", b"rainbow-login"})
ENVELOPES = frozenset({"jobs.submit", "jobs.match", "jobs.eta_of_jobspec", "batch.submit"})
RETURNED = frozenset(
    {b"content-type", b"location", b"etag", b"retry-after", b"www-authenticate", b"allow", b"cache-control"}
    | {b"idempotent-replayed"}
)
OF_JOBS = frozenset(
    {"show", "eta", "why", "certificate", "replay", "jobspec", "script", "change", "cancel", "update"}
)
STREAM = b"text/event-stream"
MOST_PATHS = 10_000
MOST_SEEING = 4  # callers at once whose clusters are looked at beside their requests
Scope = dict[str, Any]
T = TypeVar("T")


@dataclass(slots=True)
class RoutedRequest:
    """A request that the API knows: its operation, and who asks."""

    operation: str
    arguments: Mapping[str, Any]
    scope: Scope
    headers: Mapping[bytes, bytes]
    body: bytes
    who: Caller

    @property
    def target(self) -> str:
        """The path and query, as they came."""
        query = self.scope["query_string"].decode("latin-1")
        return str(self.scope["raw_path"].decode("latin-1")) + (f"?{query}" if query else "")

    @property
    def query(self) -> dict[str, str]:
        """The query: the first of each."""
        result = parse_qs(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        return {name: values[0] for name, values in result.items()}

    @property
    def passed(self) -> Pairs:
        """The headers that a shard is sent."""
        return [(name, value) for name, value in self.headers.items() if name in PASSED]

    def header(self, name: str) -> str:
        """Return a header, "" if it is not there."""
        return self.headers.get(name.encode(), b"").decode("latin-1")

    @property
    def question(self) -> Question:
        """The body, read as a jobspec with its envelope."""
        return Question.read(self.body, _kind(self.headers), self.header("idempotency-key"))

    def json(self) -> Any:
        """Read the body."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as fault:
            raise RequestError(f"request body is not valid JSON: {fault}", pointer="") from None


class Router:
    """An ASGI application in front of shards."""

    def __init__(self, urls: Sequence[str], limits: Limits) -> None:
        self._shards = [Shard(url.rstrip("/")) for url in dict.fromkeys(urls)]
        self._limits = limits
        self._bodies = Bodies(limits)
        self._callers = Callers(self._shards)
        self._directory = Directory(self._shards)
        self._submits = Submits(self._directory)
        self._map: MapAdapter = with_operations().url_map.bind("router")
        self._paths: LruCache[tuple[str, str], tuple[str, Mapping[str, Any]]] = LruCache(MOST_PATHS)
        self._running = 0
        self._seeing: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Find out which shards answer, and look again and again."""
        await asyncio.gather(*(shard.look() for shard in self._shards))
        for shard in self._shards:
            shard.watch()

    async def __call__(self, scope: Scope, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        named = (b"x-request-id", request_id(headers.get(b"x-request-id", b"").decode("latin-1")).encode())
        self._running += 1
        try:
            with suppress(Gone):
                await self._answer_all(scope, headers, named, receive, until_gone(scope, send))
        finally:
            self._running -= 1

    async def _answer_all(
        self, scope: Scope, headers: dict[bytes, bytes], named: tuple[bytes, bytes], receive: Any, send: Any
    ) -> None:
        """Answer, whatever goes wrong."""
        try:
            await self._answer(scope, headers, named, receive, send)
        except Gone:
            raise
        except RainbowError as fault:
            await _send(send, merge.problem_of(fault), named)
        except Exception as fault:  # as the server does: nothing else ever leaves it
            log.error("request-failed", method=scope["method"], path=scope["path"], fault=repr(fault), exc_info=fault)
            text = "internal error; the router's log has the details for this request ID"
            await _send(send, merge.reply(plain_problem(500, "error", text), 500), named)

    async def _answer(
        self, scope: Scope, headers: dict[bytes, bytes], named: tuple[bytes, bytes], receive: Any, send: Any
    ) -> None:
        if self._running > self._limits.waiting:
            raise TooMany("the router has too many requests at once", retry_after=1, limit="waiting")
        try:
            operation, arguments = self._operation(scope["method"], scope["path"])
        except HTTPException as fault:
            await _send(send, _unknown(fault, scope["path"]), named)
            return
        if operation.startswith(("health.", "openapi.")):
            await _send(send, await self._own(operation), named)
            return
        async with self._read(operation, arguments, scope, headers, receive) as request:
            if operation == "events.stream":
                await self._stream(request, named, receive, send)
            else:
                await _send(send, await _unless_gone(self._act(request), receive), named)

    def _operation(self, method: str, path: str) -> tuple[str, Mapping[str, Any]]:
        known = self._paths.get((method, path))
        if known is None:
            known = self._paths.put((method, path), self._map.match(path, method))
        return known

    @asynccontextmanager
    async def _read(
        self, operation: str, arguments: Mapping[str, Any], scope: Scope, headers: dict[bytes, bytes], receive: Any
    ) -> AsyncIterator[RoutedRequest]:
        """Read a request, with its credentials before its body; the block holds its turn and its memory."""
        header = headers.get(b"authorization", b"").decode("latin-1")
        try:
            who = await self._callers.find(header)
        except Unauthenticated:
            check_stranger(scope["path"], headers)
            who = None
        if who is not None:
            self._see(who)
        connection = scope.get(CONNECTION)
        if who and connection is not None and not connection.is_known and not connection.prove(who.digests):
            raise TooMany("too many connections show this credential", retry_after=5, limit="connections")
        async with self._bodies.read(scope, receive, _sender(scope, who)) as body:
            headers.pop(b"content-encoding", None)  # the body is unpacked
            if operation in ENVELOPES and operation != "batch.submit" and b"token" in body:
                who = await self._callers.find(header, cluster_tokens(jobspec_in(body, _kind(headers))[1]))
            yield RoutedRequest(operation, arguments, scope, headers, body, who or await self._callers.find(header))

    def _see(self, who: Caller) -> None:
        """Have the clusters remembered that this caller sees, beside the request."""
        if len(self._seeing) < MOST_SEEING and not self._directory.has_seen(who):
            task = asyncio.get_running_loop().create_task(self._directory.see(who))
            self._seeing.add(task)
            task.add_done_callback(self._seeing.discard)

    # ── what is done ──

    async def _act(self, request: RoutedRequest) -> Answer:
        group, _, name = request.operation.partition(".")
        if url := request.header("rainbow-shard"):
            return await self._pass(request, _named(request.who, url))
        if merged := MERGED.get(request.operation):
            return await merged(self, request)
        if len(request.who.tokens) == 1 and not request.who.away:
            return await self._pass(request, request.who.shards[0])
        if "name" in request.arguments:
            return await self._of_cluster(request, request.arguments["name"])
        if group == "jobs" and name in OF_JOBS:
            shard = await self._directory.of_job(request.who, request.arguments["job_id"], request.passed)
            return await self._pass(request, shard)
        urls = [shard.url for shard in request.who.shards]
        raise Conflict(f"each shard answers this for itself: {_by_url(request.who.shards)}", shards=urls)

    async def _of_cluster(self, request: RoutedRequest, name: str) -> Answer:
        shard = await self._directory.of_cluster(request.who, name)
        answer = await self._pass(request, shard)
        if answer.status == 404:  # it may have been deleted, and be registered somewhere else
            self._directory.forget(name)
            if (other := await self._directory.of_cluster(request.who, name)) is not shard:
                return await self._pass(request, other)
        return answer

    async def _pass(self, request: RoutedRequest, shard: Shard) -> Answer:
        headers = [*request.who.header(shard), *request.passed]
        return await shard.ask(request.scope["method"], request.target, headers, request.body)

    async def _all(self, request: RoutedRequest, combine: Callable[[list[Any]], Any]) -> Answer:
        """Ask every shard of the caller's, and merge what the good answers say."""
        answers = await self._answers(request)
        good = [answer.json() for answer in answers.values() if answer.is_good]
        if answers and not good:
            return merge.nearest(answers.values())
        away = {"away": merge.shards_away(request.who)} if request.who.away else {}
        return merge.reply({**combine(good), **away})

    async def _answers(self, request: RoutedRequest) -> dict[Shard, Answer]:
        here = request.who.here
        results = await asyncio.gather(*(self._pass(request, shard) for shard in here), return_exceptions=True)
        for one in results:
            if isinstance(one, BaseException) and not isinstance(one, Away):
                raise one
        return {shard: one for shard, one in zip(here, results, strict=True) if isinstance(one, Answer)}

    async def _listing(self, request: RoutedRequest) -> Answer:
        return await self._all(request, lambda good: merge.rows("clusters", good, self._directory.gone(request.who)))

    async def _page(self, request: RoutedRequest) -> Answer:
        if (name := request.query.get("cluster")) and len(request.who.tokens) > 1:
            return await self._of_cluster(request, name)
        limit = request.query.get("limit", "100")
        most = int(limit) if limit.isdecimal() else 0  # a shard says what is wrong with it
        oldest = request.query.get("sort") == "oldest"
        return await self._all(request, partial(merge.page, limit=most, oldest=oldest))

    async def _find(self, request: RoutedRequest) -> Answer:
        return await self._all(request, partial(merge.named, request.query.get("job", "")))

    async def _many(self, request: RoutedRequest) -> Answer:
        """Have each shard change those of many jobs that are its own; what a filter chooses, every shard's."""
        if not (texts := merge.texts_of(request.json())):
            return await self._all(request, merge.changed)
        own, refused = await self._directory.divide(request.who, texts, request.passed)
        parts = [replace(request, body=json.dumps(request.json() | {"jobs": some}).encode()) for some in own.values()]
        answers = await asyncio.gather(*(self._pass(part, shard) for part, shard in zip(parts, own, strict=True)))
        bad = [answer for answer in answers if not answer.is_good]
        return merge.nearest(bad) if bad else merge.reply(merge.changed([one.json() for one in answers], refused))

    async def _tokens(self, request: RoutedRequest) -> Answer:
        return await self._all(request, lambda good: {"tokens": [one for answer in good for one in answer["tokens"]]})

    async def _of_token(self, request: RoutedRequest) -> Answer:
        """Rotate or revoke a credential at the shard that has it."""
        answer = None
        for shard in request.who.here:
            answer = await self._pass(request, shard)
            if answer.status not in (403, 404):
                return answer
        if answer is None or request.who.away:
            raise request.who.one_away()
        return answer

    async def _mint(self, request: RoutedRequest) -> Answer:
        names = (body := request.json()) and isinstance(body, dict) and body.get("clusters")
        shards = {await self._directory.of_cluster(request.who, str(name)) for name in names or ()}
        if len(shards) > 1 or (not shards and len(request.who.tokens) > 1):
            raise Conflict("a token is known to one shard: mint one for the clusters of each", shards=_urls(shards))
        return await self._pass(request, next(iter(shards), request.who.shards[0]))

    async def _register(self, request: RoutedRequest) -> Answer:
        """Register a cluster at its home, unless another shard has one of its name."""
        body = request.json()
        name = str(body.get("name")) if isinstance(body, dict) else ""
        home = self._directory.home(name)
        if len(self._shards) > 1:
            await self._check_free(request, name, home)
        return await self._pass(request, home)

    async def _check_free(self, request: RoutedRequest, name: str, home: Shard) -> None:
        """Raise Conflict if another shard than its home has a cluster of this name; the home itself knows repeats."""
        for shard in self._shards:
            if shard is home:
                continue
            digests = ",".join(map(digest, request.who.tokens.get(shard, ())))
            answer = await shard.ask("GET", f"/v1/credentials:known?digests={digests}&cluster={quote(name)}", [])
            if answer.is_good and answer.json().get("taken"):
                raise Conflict(f"cluster {name[:100]} already exists")

    async def _submit(self, request: RoutedRequest) -> Answer:
        return await self._submits.submit(request.who, request.question)

    async def _match(self, request: RoutedRequest) -> Answer:
        return await self._submits.everywhere(request.who, request.question, request.target)

    async def _batch(self, request: RoutedRequest) -> Answer:
        if len(request.who.tokens) == 1 and not request.who.away:
            return await self._pass(request, request.who.shards[0])
        body, header = request.json(), request.header("authorization")
        if not isinstance(body, dict):
            raise RequestError("request body must be a JSON object", pointer="")
        check(body, "Batch")

        async def caller(envelope: Mapping[str, Any]) -> Caller:
            return await self._callers.find(header, cluster_tokens(envelope))

        return await self._submits.batch(caller, body, request.header("idempotency-key"), self._limits.batch)

    # ── streams, and what is the router's own ──

    async def _stream(self, request: RoutedRequest, named: tuple[bytes, bytes], receive: Any, send: Any) -> None:
        """Pass on the events of one shard, as they come."""
        shard = await self._stream_of(request)
        headers = [*request.who.header(shard), *request.passed]
        async with shard.stream("GET", request.target, headers) as (head, parts):
            start = {
                "type": "http.response.start",
                "status": head.status,
                "headers": [*_returned(head.headers), named],
            }
            await send(start)
            await _unless_gone(_forward(parts, send), receive)

    async def _stream_of(self, request: RoutedRequest) -> Shard:
        if url := request.header("rainbow-shard"):
            return _named(request.who, url)
        if name := request.query.get("cluster"):
            return await self._directory.of_cluster(request.who, name)
        if len(request.who.tokens) > 1:
            text = f"events are numbered by each shard: name a `cluster`; {_by_url(request.who.tokens)}"
            raise Conflict(text, shards=_urls(request.who.tokens))
        return request.who.shards[0]

    async def _own(self, operation: str) -> Answer:
        if operation == "openapi.show":
            for shard in (shard for shard in self._shards if shard.since is None):
                return await shard.ask("GET", "/openapi.json", [])
        shards = {shard.url: "away" if shard.since else "up" for shard in self._shards}
        ready = operation == "health.live" or "up" in shards.values()
        status = "live" if operation == "health.live" else "ready" if ready else "away"
        return merge.reply({"service": "rainbow", "version": __version__, "status": status}, 200 if ready else 503)


Act = Callable[[Router, RoutedRequest], Awaitable[Answer]]
MERGED: Mapping[str, Act] = {  # what more than one shard may have a part in
    "clusters.register": Router._register,
    "clusters.listing": Router._listing,
    "nodes.listing_nodes": lambda router, asked: router._all(asked, lambda good: merge.rows("nodes", good, ())),
    "jobs.submit": Router._submit,
    "batch.submit": Router._batch,
    "jobs.match": Router._match,
    "jobs.eta_of_jobspec": Router._match,
    "jobs.listing": Router._page,
    "jobs.find": Router._find,
    "jobs.change_many": Router._many,
    "config.version": lambda router, asked: router._all(asked, lambda good: {**good[0], "servers": good}),
    "jobs.counts": lambda router, asked: router._all(asked, merge.counts),
    "tokens.mint": Router._mint,
    "tokens.listing": Router._tokens,
    **dict.fromkeys(("tokens.rotate", "tokens.revoke"), Router._of_token),
}


def _kind(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()


def _named(who: Caller, url: str) -> Shard:
    result = next((shard for shard in who.tokens if shard.url == url.rstrip("/")), None)
    if result is None:
        raise NotFound(f"no shard {url[:200]} knows these credentials")
    return result


def _urls(shards: Iterable[Shard]) -> list[str]:
    return [shard.url for shard in shards]


def _by_url(shards: Iterable[Shard]) -> str:
    return f"ask it at its own URL ({', '.join(_urls(shards))}), or name that in the header Rainbow-Shard"


def _unknown(fault: HTTPException, path: str) -> Answer:
    """Say that there is no such path, or no such method of it."""
    status = fault.code if isinstance(fault, MethodNotAllowed) and fault.code else 404
    unknown = f"path {path[:100]} not found; GET /openapi.json lists every path"
    code, answer = ("method-not-allowed", str(fault.description)) if status == 405 else ("not-found", unknown)
    allowed = [(name.lower().encode(), value.encode()) for name, value in fault.get_headers() if name == "Allow"]
    kind = (b"content-type", b"application/problem+json")
    return Answer(status, [kind, *allowed], json.dumps(plain_problem(status, code, answer)).encode())


def _returned(headers: Pairs) -> Pairs:
    return [(name, value) for name, value in headers if name in RETURNED]


async def _send(send: Callable[[Any], Any], answer: Answer, named: tuple[bytes, bytes]) -> None:
    headers = [*_returned(answer.headers), (b"content-length", b"%d" % len(answer.body)), named]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _forward(parts: AsyncIterator[bytes], send: Callable[[Any], Any]) -> None:
    async for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _unless_gone(work: Coroutine[Any, Any, T], receive: Callable[[], Any]) -> T:
    """Do something that may take long, unless the client goes: a shard, too, sees that."""
    loop = asyncio.get_running_loop()
    task, remaining = loop.create_task(work), loop.create_task(receive())
    try:
        await asyncio.wait((task, remaining), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone
        return task.result()
    finally:
        remaining.cancel()
        task.cancel()


# ── the process ──

GRACE = 2  # seconds that running requests get when the router stops: what waits asks again
log = structlog.get_logger("rainbow.router")


def _sender(scope: Scope, who: Caller | None) -> Sender:
    """Say whose body it is. Who has more than submit tokens may bring graphs; of other rights the shards know."""
    if who is None:
        return Sender(scope["client"][0] if scope["client"] else "", False)
    results = [one for tokens in who.tokens.values() for one in tokens]
    return Sender(who.digests, True, not all(one.startswith(PREFIXES[TOKEN]) for one in results))


class RouterServer(uvicorn.Server):
    """Looks for the shards before it takes requests."""

    def __init__(self, config: uvicorn.Config, router: Router) -> None:
        super().__init__(config)
        self._router = router

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await self._router.open()
        await super().startup(sockets)
        begin_to_accept(sockets)


def route(host: str, port: int, shards: Sequence[str], config: str | None) -> None:
    """Serve in front of shards until told to stop (SIGINT, SIGTERM)."""
    process_secrets.forget()
    settings = read_config(config) if config else Settings()
    log_to_stderr(settings.server.log)
    router = Router(shards, settings.limits)
    served = uvicorn_config(settings, router)
    served.timeout_graceful_shutdown = GRACE
    with listener_at(host, port) as listener:
        scheme = "https" if settings.server.certificate else "http"
        log.info("routing", url=f"{scheme}://{host}:{port}", shards=[*shards])
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: None)  # uvicorn has its own, and raises the signal again at the end
        RouterServer(served, router).run([listener])
