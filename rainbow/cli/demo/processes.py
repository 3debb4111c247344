"""The server and the agents: real processes, each in a session of its own, all ended at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rainbow
from rainbow.client import Client

READY_WITHIN = 30.0  # seconds
END_WITHIN = 5.0
PACKAGE = str(Path(rainbow.__file__).resolve().parents[1])


class DemoError(Exception):
    """Something did not start, or did not end in time."""


@dataclass(frozen=True, slots=True)
class DemoServer:
    """A server that answers, and what lets clusters register."""

    url: str
    secret: str


@contextlib.contextmanager
def server(folder: Path) -> Iterator[DemoServer]:
    """Run a server with a new database in `folder` on a free port of the loopback interface."""
    secret = "rbr_" + secrets.token_urlsafe(32)
    config = folder / "config.yaml"
    config.write_text(f"scheduler:\n  secret: {secret}\n")
    port = _free_port()
    database = f"sqlite:///{folder / 'rainbow.db'}"
    words = ["serve", "--host", "127.0.0.1", "--port", str(port), "--database", database, "--config", str(config)]
    with process(words, folder / "server.log") as running:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, running, folder / "server.log")
        yield DemoServer(url, secret)


@contextlib.contextmanager
def process(
    words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `rainbow WORDS`, writing to `log`; end it and all it started."""
    # PYTHONPATH: the processes run this package, whatever else is installed
    # XDG_STATE_HOME: an agent's journal is deleted with the demo's folder
    path = os.pathsep.join(filter(None, [PACKAGE, os.environ.get("PYTHONPATH")]))
    ours = {"PYTHONPATH": path, "XDG_STATE_HOME": str(log.parent / "state")}
    variables = {**os.environ, **ours, **(environment or {})}
    running: subprocess.Popen[bytes] | None = None
    try:
        with log.open("wb") as out, held():
            running = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-P", "-m", "rainbow", *words],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        yield running
    finally:
        if running is not None:
            with held():
                _end(running)


def _end(running: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.terminate()
        running.wait(END_WITHIN)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)  # what it left behind, if anything
    running.wait()


def _wait_until_ready(url: str, running: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + READY_WITHIN
    with Client(url, timeout=2.0, tries=1) as client:
        while not client.ready():
            if running.poll() is not None or time.monotonic() > limit:
                raise DemoError(f"the server does not answer; it wrote:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# ── SIGINT and SIGTERM as an exception that never comes in the middle of starting or ending a process ──
# Between fork and the assignment of its result it would leave an unknown process.


class Interrupted(BaseException):
    """A signal came. `number` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Interrupts:
    """The handler of both signals."""

    def __init__(self) -> None:
        self._holds = 0
        self._came: int | None = None

    def __call__(self, number: int, _: Any) -> None:
        self._came = number
        self._raise()

    def _raise(self) -> None:
        if self._came is not None and self._holds == 0:
            number, self._came = self._came, None
            raise Interrupted(number)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let no exception come before the end of the block."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._raise()


_interrupts = _Interrupts()
held = _interrupts.held


def install() -> None:
    """Raise Interrupted on SIGINT and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupts)
