"""A real server under a clock that is moved over HTTP: `python -m tests.support.moved_server DATABASE CONFIG NOW`.

It is the product's application over TCP; beside it `POST /moved` moves the clock, forecasts, and steps clusters, and
answers when that is done. So a replay of days depends on no second of this machine. It prints its port.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from werkzeug.serving import BaseWSGIServer, make_server
from werkzeug.wrappers import Request, Response

from rainbow.api import create_app
from rainbow.service import Service, read_config
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.service.scheduler.step import step
from rainbow.store import open_store
from tests.conftest import ADMIN, REGISTRATION, Clock, new_file
from tests.support.live import Quiet, running

MEMORY = Path("/", "dev", "shm")  # the replay is not one of the disk
FOR_EVER = 1e12  # seconds: agents of a replay say nothing while nothing happens


class Moved:
    """The product's application, and the verb that moves its clock."""

    def __init__(self, service: Service, clock: Clock) -> None:
        self.service, self.clock, self.app = service, clock, create_app(service)
        self.forecaster = Forecaster(service)

    def __call__(self, environ: Any, start: Any) -> Any:
        if environ["PATH_INFO"] != "/moved":
            return self.app(environ, start)
        answer = self.move(json.loads(Request(environ).get_data()))
        return Response(json.dumps(answer), mimetype="application/json")(environ, start)

    def move(self, request: Mapping[str, Any]) -> list[str]:
        """Move the clock, then forecast what is due, then step; return the clusters whose step ordered something."""
        self.clock.now = request.get("now", self.clock.now)
        if request.get("forecast"):
            self.forecaster.turn()
        return [name for name in request.get("step", ()) if step(self.service, name)]


class Kept(Quiet):
    """Keeps its connection open."""

    protocol_version = "HTTP/1.1"


def server_at(database: str, config: str, now: float) -> BaseWSGIServer:
    """Make such a server, which listens."""
    clock = Clock()
    clock.now = now
    options = replace(read_config(config), secret=REGISTRATION, admin=ADMIN, lease=FOR_EVER, forecast_share=1.0)
    app = Moved(Service(open_store(database), options, clock), clock)
    return make_server("127.0.0.1", 0, app, request_handler=Kept)


def main(database: str, config: str, now: str) -> None:
    """Serve until killed."""
    server = server_at(database, config, float(now))
    print(server.server_port, flush=True)
    server.serve_forever()


class Connected:
    """A connection to such a server that is kept open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: Any, *tokens: str) -> Any:
        """Send a request that must succeed and return what it says."""
        headers = {"Content-Type": "application/json", "Authorization": ", ".join(f"Bearer {one}" for one in tokens)}
        self._connection.request(method, path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        return json.loads(text) if text else None

    def move(self, **request: Any) -> list[str]:
        """Move the clock, forecast, step."""
        results: list[str] = self.ask("POST", "/moved", request)
        return results


@contextmanager
def moved_server(config: str, now: float, *, alone: bool = True) -> Iterator[Connected]:
    """Run such a server until the block is left: in a process of its own, or in a thread of this one."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        path = Path(folder) / "rainbow.yaml"
        path.write_text(config)
        where = (str(new_file(Path(folder) / "rainbow.db")), str(path), now)
        with _process(*where) if alone else running(server_at(*where)) as port:
            yield Connected(port)


@contextmanager
def _process(database: str, config: str, now: float) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.support.moved_server", database, config, str(now)]
    options = {**os.environ, "RAINBOW_CHECK": ""}
    server = subprocess.Popen(command, env=options, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
