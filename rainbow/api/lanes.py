"""Lanes: threads that answer requests, some for each kind, so that no kind waits behind another.

door    is a credential known?                     admin   health, figures, tokens, what the administrator asks
    agents  receive, accept, events, heartbeat         streams events to come
    work    all the rest

In a lane no caller has more than half of the threads while others wait for one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rainbow.errors import TryLater

T = TypeVar("T")
MOST_REQUESTS = 1_000  # requests of a lane that are under way or wait for a thread
MOST_OF_AGENTS = 10_000  # a restart of the server has all of them ask at once
AGENTS = re.compile(r"/v1/clusters/[^/]+/(receive|accept|events|heartbeat)")
ADMIN = re.compile(r"/(readyz|metrics|openapi\.json|v1/(tokens|config)\b.*)?")
SUBMITS = re.compile(r"/v1/(jobs|match)(:.*)?")


class Lane:
    """Some threads. Its methods are called by the event loop's thread alone."""

    def __init__(self, name: str, threads: int, most: int = MOST_REQUESTS) -> None:
        self._most = most
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._share = max(1, threads // 2)
        self._callers: dict[str, tuple[asyncio.Semaphore, int]] = {}  # and how many of its requests are here
        self._held = 0

    async def run(self, caller: str, act: Callable[..., T], *arguments: Any) -> T:
        """Call a function in one of the threads; TryLater if too many wait for one."""
        if self._held >= self._most:
            raise TryLater("the server has more requests than it can answer in time", retry_after=1, limit="requests")
        share, held = self._callers.get(caller) or (asyncio.Semaphore(self._share), 0)
        self._callers[caller] = share, held + 1
        self._held += 1
        try:
            async with share:
                return await asyncio.get_running_loop().run_in_executor(self._pool, act, *arguments)
        finally:
            self._held -= 1
            held = self._callers[caller][1] - 1
            self._callers[caller] = share, held
            if not held:
                del self._callers[caller]


class Lanes:
    """The lanes of a server with `threads` for its work."""

    def __init__(self, threads: int) -> None:
        self.door = Lane("door", 2)
        self.admin = Lane("admin", 4)
        self.agents = Lane("agents", max(2, threads // 2), MOST_OF_AGENTS)
        self.streams = Lane("streams", max(2, threads // 4))
        self.work = Lane("work", threads)

    def of(self, path: str, administrator: bool) -> Lane:
        """Choose the lane of a request."""
        if AGENTS.fullmatch(path):
            return self.agents
        if path in ("/v1/events", "/ui/events"):
            return self.streams
        if ADMIN.fullmatch(path) or (administrator and not SUBMITS.fullmatch(path)):
            return self.admin
        return self.work
