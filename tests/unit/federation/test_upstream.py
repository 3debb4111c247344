"""Connections to a shard that are kept, and closed by it while nobody used them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from rainbow.federation.upstream import Broken, Pairs, Upstream
from tests.support.live import url_of

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
KEY = [(b"Idempotency-Key", b"one")]
RoutedRequest = tuple[str, Pairs]
Serving = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
T = TypeVar("T")


def answers(requests: Sequence[RoutedRequest], per_connection: int) -> tuple[list[bytes | str], int]:
    """Ask a server that answers so many requests of a connection and ends it at the next; return who got what."""
    received = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        for _ in range(per_connection):
            await reader.readuntil(b"\r\n\r\n")
            received += 1
            writer.write(ANSWER)
        await reader.readuntil(b"\r\n\r\n")
        received += 1
        writer.close()

    async def use(upstream: Upstream, _: asyncio.Server) -> list[bytes | str]:
        return [await ask(upstream, *one) for one in requests]

    return asyncio.run(served(serve, use)), received


async def served(serve: Serving, use: Callable[[Upstream, asyncio.Server], Awaitable[T]]) -> T:
    """Return what comes of the use of a server that serves each connection so."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = Upstream(url_of(server.sockets[0].getsockname()[1]))
    try:
        return await use(upstream, server)
    finally:
        upstream.close()
        server.close()


async def ask(upstream: Upstream, method: str, headers: Pairs) -> bytes | str:
    try:
        async with upstream.request(method, "/", headers, b"") as (_, parts):
            return b"".join([part async for part in parts])
    except Broken as fault:
        return str(fault)


@pytest.mark.parametrize("asked", [("GET", []), ("POST", KEY)])
def test_what_may_be_done_twice_is_sent_again_when_a_kept_connection_ends(asked: RoutedRequest) -> None:
    assert answers([asked] * 3, per_connection=1) == ([b"ok"] * 3, 5)


def test_what_may_be_done_once_is_sent_once() -> None:
    assert answers([("POST", [])] * 3, per_connection=1) == ([b"ok", "it closed the connection", b"ok"], 3)


@pytest.mark.parametrize("asked", [("GET", []), ("POST", KEY)])
def test_the_second_try_is_by_a_connection_of_its_own(asked: RoutedRequest) -> None:
    both_here = asyncio.Barrier(2)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if not both_here.broken:
            await both_here.wait()
        writer.write(ANSWER)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def use(upstream: Upstream, _: asyncio.Server) -> list[bytes | str]:
        stored = await asyncio.gather(ask(upstream, *asked), ask(upstream, *asked))
        await both_here.abort()
        return [*stored, await ask(upstream, *asked)]

    assert asyncio.run(served(serve, use)) == [b"ok"] * 3


def test_what_was_sent_may_be_done_although_nobody_listens_any_more() -> None:
    event, writers = asyncio.Event(), list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writers.append(writer)
        event.set()

    async def use(upstream: Upstream, server: asyncio.Server) -> bool:
        async def end() -> None:
            await event.wait()
            server.close()
            writers[0].close()

        ending = asyncio.create_task(end())
        with pytest.raises(Broken) as fault:
            async with upstream.request("POST", "/", KEY, b""):
                pass
        await ending
        return fault.value.sent

    assert asyncio.run(served(serve, use))


@pytest.mark.parametrize("asked", [("GET", []), ("POST", KEY)])
def test_who_never_answers_is_asked_twice_at_most(asked: RoutedRequest) -> None:
    assert answers([asked], per_connection=0) == (["it closed the connection"], 2)
