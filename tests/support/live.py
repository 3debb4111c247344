"""A real server in this process: the real application over a real store, or a script of answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from rainbow.agent import Agent, Executor, open_executor
from rainbow.api import create_app
from rainbow.client import Client
from rainbow.service import Service, Settings
from rainbow.service.scheduler.loop import Loop
from rainbow.store import open_store
from tests.conftest import ADMIN, REGISTRATION, new_file


class Quiet(WSGIRequestHandler):
    """A handler of requests that prints nothing."""

    def log(self, *_: Any) -> None:
        pass


@contextmanager
def http(app: Any, port: int = 0) -> Iterator[int]:
    """Serve a WSGI application; yields its port."""
    server: BaseWSGIServer = make_server("127.0.0.1", port, app, threaded=True, request_handler=Quiet)
    server.daemon_threads = True  # type: ignore[attr-defined]  # of socketserver's mixin
    with running(server) as bound:
        yield bound


@contextmanager
def running(server: BaseWSGIServer) -> Iterator[int]:
    """Let a server answer in a thread of this process; yields its port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"


@contextmanager
def service_at(folder: Path, monotonic: Callable[[], float] | None = None, **settings: Any) -> Iterator[Service]:
    """Open a service over a store in `folder`, its scheduler running."""
    service = Service(
        open_store(str(new_file(folder / "rainbow.db"))),
        Settings(secret=REGISTRATION, admin=ADMIN, **settings),
        monotonic=monotonic,
    )
    loop = Loop(service)
    loop.start()
    try:
        yield service
    finally:
        loop.stop()
        service.close()


@contextmanager
def rainbow_at(folder: Path, **settings: Any) -> Iterator[str]:
    """Serve Rainbow over a store in `folder`; yields its URL."""
    with service_at(folder, **settings) as service, http(create_app(service)) as port:
        yield url_of(port)


@contextmanager
def agent_of(
    url: str, cluster: str, secret: str, executor: Executor | None = None, **options: Any
) -> Iterator[Agent]:
    """Run an agent in a thread until the block is left."""
    with Client(url, secret, timeout=5, tries=1) as client:
        runs = executor or open_executor("local", {"PATH": "/usr/local/bin:/usr/bin:/bin"})
        agent = Agent(client, cluster, runs, wait=1, say=lambda _: None, **options)
        thread = threading.Thread(target=agent.run, daemon=True)
        thread.start()
        try:
            yield agent
        finally:
            agent.stop()
            thread.join(20)
            assert not thread.is_alive()


Answer = tuple[int, Mapping[str, str], bytes]


@dataclass
class Script:
    """An application that gives the answers it was told to, in order, the last one for ever; keeps the requests."""

    answers: Sequence[Answer | Callable[[Request], Answer]]
    requests: list[Request] = field(default_factory=list)

    def __call__(self, environ: Any, start: Any) -> Any:
        request = Request(environ)
        request.get_data()
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        status, headers, body = answer(request) if callable(answer) else answer
        return Response(body, status, dict(headers))(environ, start)
