"""The client for asyncio: every method of Client, to be awaited; those that yield are asynchronous iterators.

async with AsyncClient("http://127.0.0.1:8080", token="rbt_...") as client:
    job = await client.submit(open("job.yaml").read())
    await client.wait(job["id"])
    async for job in client.all_jobs():
        ...

No method is written twice: Client's own runs in a greenlet, which leaves the event loop to others wherever it would
block, as SQLAlchemy's asyncio does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx

from rainbow.client.http_client import Client
from rainbow.errors import RequestError

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise ImportError("AsyncClient requires greenlet; run: pip install 'rainbow-hpc[async]'") from error

T = TypeVar("T")
_END = object()


def _await(awaitable: Awaitable[T]) -> T:
    """Let `_run` await a call, and return the result."""
    result: T = getcurrent().parent.switch(awaitable)
    return result


async def _run(work: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """Run a function that may call `_await`."""
    child, here = greenlet(work), getcurrent()
    child.gr_context = here.gr_context
    result = child.switch(*inputs, **named)
    while not child.dead:
        try:
            answer = await result
        except BaseException as fault:  # what ends the await, a cancellation too, is the function's to handle
            result = child.throw(fault)
        else:
            result = child.switch(answer)
    return result


class _Stream(httpx.SyncByteStream):
    """The body of an answer, as the blocking client reads it."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        parts = self._answer.aiter_raw()
        while (part := _await(anext(parts, b""))) != b"":
            yield part

    def close(self) -> None:
        _await(self._answer.aclose())


class _Transport(httpx.BaseTransport):
    """Sends the blocking client's requests by an asynchronous one."""

    def __init__(self) -> None:
        self._http = httpx.AsyncClient()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = _await(self._http.send(request, stream=True))
        return httpx.Response(answer.status_code, headers=answer.headers, stream=_Stream(answer))

    def close(self) -> None:
        _await(self._http.aclose())


def _sleep(seconds: float) -> None:
    _await(asyncio.sleep(seconds))


class AsyncClient:
    """A Rainbow server, as seen with some credentials, for one event loop; arguments are those of Client."""

    def __init__(
        self, url: str, token: str | Sequence[str] | None = None, timeout: float = 30.0, **options: Any
    ) -> None:
        if "sent" in options:
            raise RequestError("AsyncClient does not report how much is sent; use Client")
        self._client = Client(url, token, timeout, **{"sleep": _sleep, "transport": _Transport(), **options})
        self.has_credentials = self._client.has_credentials

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._client.url

    @property
    def away(self) -> Mapping[str, str]:
        """The servers behind a router that lists of this client were without, and why."""
        return self._client.away

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self.close()

    if TYPE_CHECKING:  # the methods of Client

        def __getattr__(self, name: str) -> Callable[..., Any]: ...


def _awaited(work: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(work)
    async def method(self: AsyncClient, *options: Any, **named: Any) -> Any:
        return await _run(work, self._client, *options, **named)

    return method


def _iterated(work: Callable[..., Iterator[Any]]) -> Callable[..., Any]:
    @wraps(work)
    async def method(self: AsyncClient, *options: Any, **named: Any) -> AsyncIterator[Any]:
        items = work(self._client, *options, **named)
        try:
            while (item := await _run(next, items, _END)) is not _END:
                yield item
        finally:
            await _run(items.close)  # type: ignore[attr-defined] # a generator

    return method


for _name, _work in inspect.getmembers(Client, inspect.isfunction):
    if not _name.startswith("_"):
        setattr(AsyncClient, _name, (_iterated if inspect.isgeneratorfunction(_work) else _awaited)(_work))
