"""Shards and routers in this process: real servers on stores of their own, which can be away and come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from rainbow.api import create_app
from rainbow.api.server import uvicorn_config
from rainbow.client import Client
from rainbow.federation.router import Router, RouterServer
from rainbow.service import Settings
from tests.conftest import REGISTRATION, grid, jobspec
from tests.support.live import http, service_at, url_of
from tests.support.ports import free_port


class ShardHere:
    """A server that can go away and come back with all it had."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        folder.mkdir(parents=True)
        self._stack, self._served = ExitStack(), ExitStack()
        self.service = self._stack.enter_context(service_at(folder, **settings))
        self.port = free_port()
        self.come()

    @property
    def url(self) -> str:
        return url_of(self.port)

    def come(self) -> None:
        self._served.enter_context(http(create_app(self.service), self.port))

    def go(self) -> None:
        self._served.close()

    def close(self) -> None:
        self.go()
        self._stack.close()


@contextmanager
def shards_at(folder: Path, count: int = 2, **settings: Any) -> Iterator[list[ShardHere]]:
    made = [ShardHere(folder / f"shard{k}", **settings) for k in range(count)]
    try:
        yield made
    finally:
        for shard in made:
            shard.close()


@contextmanager
def router_of(urls: Sequence[str], settings: Settings | None = None) -> Iterator[str]:
    """Serve a router in a thread; yields its URL."""
    settings, port = settings or Settings(), free_port()
    router = Router(urls, settings.limits)
    config = uvicorn_config(settings, router)
    config.port = port
    server: uvicorn.Server = RouterServer(config, router)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield url_of(port)
    finally:
        server.should_exit = server.force_exit = True
        thread.join(20)


def until(holds: Callable[[], Any], seconds: float = 15) -> Any:
    """Wait until something holds, and return it."""
    end = time.monotonic() + seconds
    while not (result := holds()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return result


def register(url: str, name: str, **more: Any) -> dict[str, str]:
    with Client(url, REGISTRATION, tries=1) as client:
        return dict(client.register_cluster(name, grid(2, 2), **more))


__all__ = ["ShardHere", "grid", "jobspec", "register", "router_of", "shards_at", "until"]
