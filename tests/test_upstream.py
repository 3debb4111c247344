"""Connections to a shard that are kept, and closed by it while nobody used them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rainbow.federation.upstream import Broken, Pairs, Upstream
from tests.live import url_of

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
KEY = [(b"Idempotency-Key", b"one")]
Asked = tuple[str, Pairs]


def answers(asked: Sequence[Asked], per_connection: int) -> tuple[list[bytes | str], int]:
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

    async def ask(upstream: Upstream, method: str, headers: Pairs) -> bytes | str:
        try:
            async with upstream.request(method, "/", headers, b"") as (_, parts):
                return b"".join([part async for part in parts])
        except Broken as fault:
            return str(fault)

    async def run() -> list[bytes | str]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        upstream = Upstream(url_of(server.sockets[0].getsockname()[1]))
        try:
            return [await ask(upstream, *one) for one in asked]
        finally:
            upstream.close()
            server.close()

    return asyncio.run(run()), received


@pytest.mark.parametrize("asked", [("GET", []), ("POST", KEY)])
def test_what_may_be_done_twice_is_sent_again_when_a_kept_connection_ends(asked: Asked) -> None:
    assert answers([asked] * 3, per_connection=1) == ([b"ok"] * 3, 5)


def test_what_may_be_done_once_is_sent_once() -> None:
    assert answers([("POST", [])] * 3, per_connection=1) == ([b"ok", "it closed the connection", b"ok"], 3)


@pytest.mark.parametrize("asked", [("GET", []), ("POST", KEY)])
def test_who_never_answers_is_asked_twice_at_most(asked: Asked) -> None:
    assert answers([asked], per_connection=0) == (["it closed the connection"], 2)
