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
from rainbow.api.server import QUEUE, listener_at, log_to_stderr, uvicorn_config, with_operations
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
class Asked:
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
        found = parse_qs(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

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
            told = "internal error; the router's log has the details for this request ID"
            await _send(send, merge.told(plain_problem(500, "error", told), 500), named)

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
        async with self._read(operation, arguments, scope, headers, receive) as asked:
            if operation == "events.stream":
                await self._stream(asked, named, receive, send)
            else:
                await _send(send, await _unless_gone(self._act(asked), receive), named)

    def _operation(self, method: str, path: str) -> tuple[str, Mapping[str, Any]]:
        known = self._paths.get((method, path))
        if known is None:
            known = self._paths.put((method, path), self._map.match(path, method))
        return known

    @asynccontextmanager
    async def _read(
        self, operation: str, arguments: Mapping[str, Any], scope: Scope, headers: dict[bytes, bytes], receive: Any
    ) -> AsyncIterator[Asked]:
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
            yield Asked(operation, arguments, scope, headers, body, who or await self._callers.find(header))

    def _see(self, who: Caller) -> None:
        """Have the clusters remembered that this caller sees, beside the request."""
        if len(self._seeing) < MOST_SEEING and not self._directory.has_seen(who):
            task = asyncio.get_running_loop().create_task(self._directory.see(who))
            self._seeing.add(task)
            task.add_done_callback(self._seeing.discard)

    # ── what is done ──

    async def _act(self, asked: Asked) -> Answer:
        group, _, name = asked.operation.partition(".")
        if url := asked.header("rainbow-shard"):
            return await self._pass(asked, _named(asked.who, url))
        if merged := MERGED.get(asked.operation):
            return await merged(self, asked)
        if len(asked.who.tokens) == 1 and not asked.who.away:
            return await self._pass(asked, asked.who.shards[0])
        if "name" in asked.arguments:
            return await self._of_cluster(asked, asked.arguments["name"])
        if group == "jobs" and name in OF_JOBS:
            return await self._pass(
                asked, await self._directory.of_job(asked.who, asked.arguments["job_id"], asked.passed)
            )
        raise Conflict(
            f"each shard answers this for itself: {_by_url(asked.who.shards)}",
            shards=[shard.url for shard in asked.who.shards],
        )

    async def _of_cluster(self, asked: Asked, name: str) -> Answer:
        shard = await self._directory.of_cluster(asked.who, name)
        answer = await self._pass(asked, shard)
        if answer.status == 404:  # it may have been deleted, and be registered somewhere else
            self._directory.forget(name)
            if (other := await self._directory.of_cluster(asked.who, name)) is not shard:
                return await self._pass(asked, other)
        return answer

    async def _pass(self, asked: Asked, shard: Shard) -> Answer:
        headers = [*asked.who.header(shard), *asked.passed]
        return await shard.ask(asked.scope["method"], asked.target, headers, asked.body)

    async def _all(self, asked: Asked, combine: Callable[[list[Any]], Any]) -> Answer:
        """Ask every shard of the caller's, and merge what the good answers say."""
        answers = await self._answers(asked)
        good = [answer.json() for answer in answers.values() if answer.is_good]
        if answers and not good:
            return merge.nearest(answers.values())
        away = {"away": merge.shards_away(asked.who)} if asked.who.away else {}
        return merge.told({**combine(good), **away})

    async def _answers(self, asked: Asked) -> dict[Shard, Answer]:
        here = asked.who.here
        found = await asyncio.gather(*(self._pass(asked, shard) for shard in here), return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, Away):
                raise one
        return {shard: one for shard, one in zip(here, found, strict=True) if isinstance(one, Answer)}

    async def _listing(self, asked: Asked) -> Answer:
        return await self._all(asked, lambda good: merge.rows("clusters", good, self._directory.gone(asked.who)))

    async def _page(self, asked: Asked) -> Answer:
        if (name := asked.query.get("cluster")) and len(asked.who.tokens) > 1:
            return await self._of_cluster(asked, name)
        limit = asked.query.get("limit", "100")
        most = int(limit) if limit.isdecimal() else 0  # a shard says what is wrong with it
        oldest = asked.query.get("sort") == "oldest"
        return await self._all(asked, partial(merge.page, limit=most, oldest=oldest))

    async def _find(self, asked: Asked) -> Answer:
        return await self._all(asked, partial(merge.named, asked.query.get("job", "")))

    async def _many(self, asked: Asked) -> Answer:
        """Have each shard change those of many jobs that are its own; what a filter chooses, every shard's."""
        texts = merge.texts_of(asked.json())
        if not texts:
            return await self._all(asked, merge.changed)
        own, refused = await self._directory.divide(asked.who, texts, asked.passed)
        parts = (replace(asked, body=json.dumps({**asked.json(), "jobs": some}).encode()) for some in own.values())
        answers = await asyncio.gather(*(self._pass(part, shard) for part, shard in zip(parts, own, strict=True)))
        bad = [answer for answer in answers if not answer.is_good]
        return merge.nearest(bad) if bad else merge.told(merge.changed([one.json() for one in answers], refused))

    async def _tokens(self, asked: Asked) -> Answer:
        return await self._all(asked, lambda good: {"tokens": [one for answer in good for one in answer["tokens"]]})

    async def _of_token(self, asked: Asked) -> Answer:
        """Rotate or revoke a credential at the shard that has it."""
        answer = None
        for shard in asked.who.here:
            answer = await self._pass(asked, shard)
            if answer.status not in (403, 404):
                return answer
        if answer is None or asked.who.away:
            raise asked.who.one_away()
        return answer

    async def _mint(self, asked: Asked) -> Answer:
        names = (body := asked.json()) and isinstance(body, dict) and body.get("clusters")
        shards = {await self._directory.of_cluster(asked.who, str(name)) for name in names or ()}
        if len(shards) > 1 or (not shards and len(asked.who.tokens) > 1):
            raise Conflict("a token is known to one shard: mint one for the clusters of each", shards=_urls(shards))
        return await self._pass(asked, next(iter(shards), asked.who.shards[0]))

    async def _register(self, asked: Asked) -> Answer:
        """Register a cluster at its home, unless another shard has one of its name."""
        body = asked.json()
        name = str(body.get("name")) if isinstance(body, dict) else ""
        home = self._directory.home(name)
        if len(self._shards) > 1:
            await self._check_free(asked, name, home)
        return await self._pass(asked, home)

    async def _check_free(self, asked: Asked, name: str, home: Shard) -> None:
        """Raise Conflict if another shard than its home has a cluster of this name; the home itself knows repeats."""
        for shard in self._shards:
            if shard is home:
                continue
            digests = ",".join(map(digest, asked.who.tokens.get(shard, ())))
            answer = await shard.ask("GET", f"/v1/credentials:known?digests={digests}&cluster={quote(name)}", [])
            if answer.is_good and answer.json().get("taken"):
                raise Conflict(f"cluster {name[:100]} already exists")

    async def _submit(self, asked: Asked) -> Answer:
        return await self._submits.submit(asked.who, asked.question)

    async def _match(self, asked: Asked) -> Answer:
        return await self._submits.everywhere(asked.who, asked.question, asked.target)

    async def _batch(self, asked: Asked) -> Answer:
        if len(asked.who.tokens) == 1 and not asked.who.away:
            return await self._pass(asked, asked.who.shards[0])
        body, header = asked.json(), asked.header("authorization")
        if not isinstance(body, dict):
            raise RequestError("request body must be a JSON object", pointer="")
        check(body, "Batch")

        async def caller(envelope: Mapping[str, Any]) -> Caller:
            return await self._callers.find(header, cluster_tokens(envelope))

        return await self._submits.batch(caller, body, asked.header("idempotency-key"), self._limits.batch)

    # ── streams, and what is the router's own ──

    async def _stream(self, asked: Asked, named: tuple[bytes, bytes], receive: Any, send: Any) -> None:
        """Pass on the events of one shard, as they come."""
        shard = await self._stream_of(asked)
        async with shard.stream("GET", asked.target, [*asked.who.header(shard), *asked.passed]) as (head, parts):
            await send(
                {"type": "http.response.start", "status": head.status, "headers": [*_returned(head.headers), named]}
            )
            await _unless_gone(_forward(parts, send), receive)

    async def _stream_of(self, asked: Asked) -> Shard:
        if url := asked.header("rainbow-shard"):
            return _named(asked.who, url)
        if name := asked.query.get("cluster"):
            return await self._directory.of_cluster(asked.who, name)
        if len(asked.who.tokens) > 1:
            told = f"events are numbered by each shard: name a `cluster`; {_by_url(asked.who.tokens)}"
            raise Conflict(told, shards=_urls(asked.who.tokens))
        return asked.who.shards[0]

    async def _own(self, operation: str) -> Answer:
        if operation == "openapi.show":
            for shard in (shard for shard in self._shards if shard.since is None):
                return await shard.ask("GET", "/openapi.json", [])
        shards = {shard.url: "away" if shard.since else "up" for shard in self._shards}
        ready = operation == "health.live" or "up" in shards.values()
        status = "live" if operation == "health.live" else "ready" if ready else "away"
        return merge.told({"service": "rainbow", "version": __version__, "status": status}, 200 if ready else 503)


Act = Callable[[Router, Asked], Awaitable[Answer]]
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
    code, told = ("method-not-allowed", str(fault.description)) if status == 405 else ("not-found", unknown)
    allowed = [(name.lower().encode(), value.encode()) for name, value in fault.get_headers() if name == "Allow"]
    kind = (b"content-type", b"application/problem+json")
    return Answer(status, [kind, *allowed], json.dumps(plain_problem(status, code, told)).encode())


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
    task, left = loop.create_task(work), loop.create_task(receive())
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone
        return task.result()
    finally:
        left.cancel()
        task.cancel()


# ── the process ──

GRACE = 2  # seconds that running requests get when the router stops: what waits asks again
log = structlog.get_logger("rainbow.router")


def _sender(scope: Scope, who: Caller | None) -> Sender:
    """Say whose body it is. Who has more than submit tokens may bring graphs; of other rights the shards know."""
    if who is None:
        return Sender(scope["client"][0] if scope["client"] else "", False)
    found = [one for tokens in who.tokens.values() for one in tokens]
    return Sender(who.digests, True, not all(one.startswith(PREFIXES[TOKEN]) for one in found))


class RouterServer(uvicorn.Server):
    """Looks for the shards before it takes requests."""

    def __init__(self, config: uvicorn.Config, router: Router) -> None:
        super().__init__(config)
        self._router = router

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await self._router.open()
        await super().startup(sockets)
        for each in sockets or []:
            each.listen(QUEUE)  # the event loop has set it to what it accepts at once


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
