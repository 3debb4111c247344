"""Strangers who hold connections without a credential: `python -m tests.support.strangers PORT IDLE SLOW SECONDS`.

An idle one connects and says nothing; a slow one sends the head of a submit and a byte of its body now and then.
One that the server closes comes again after a second.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

AGAIN = 1.0  # seconds
HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: rainbow\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n"


async def _idle(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await reader.read()
    finally:
        writer.close()


async def _slow(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD)
    try:
        while not (reader.at_eof() or writer.is_closing()):
            writer.write(b" ")
            await asyncio.sleep(2.0)
    finally:
        writer.close()


async def _for_ever(hold: Callable[[int], Awaitable[None]], port: int) -> None:
    while True:
        with suppress(OSError):
            await hold(port)
        await asyncio.sleep(AGAIN)


async def hold(port: int, idle: int, slow: int, seconds: float) -> None:
    """Hold as many connections as the server lets, for some seconds."""
    held = []
    for k in range(idle + slow):
        held.append(asyncio.ensure_future(_for_ever(_idle if k < idle else _slow, port)))
        if k % 50 == 49:
            await asyncio.sleep(0.02)  # a burst of a thousand fills the kernel's queue for a moment
    await asyncio.sleep(seconds)
    for each in held:
        each.cancel()
    await asyncio.gather(*held, return_exceptions=True)


def main() -> None:
    """Hold them."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(19)  # strangers have machines of their own: what they compute is not what the server does for them
    port, idle, slow = map(int, sys.argv[1:4])
    asyncio.run(hold(port, idle, slow, float(sys.argv[4])))


if __name__ == "__main__":
    main()
