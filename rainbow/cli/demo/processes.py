"""The server and the agents: real processes, each in a session of its own, all ended at the end."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rainbow
from rainbow.cli.session import DEFAULT
from rainbow.cli.session import read as read_credentials
from rainbow.client import Client
from rainbow.errors import Conflict, RainbowError
from rainbow.text import some

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


# ── `rainbow up` and `down`: the same two processes, left running ──


def up_folder() -> Path:
    """Return where `rainbow up` keeps its store, its logs and what it has started."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rainbow" / "up"


def bring_up(name: str, port: int) -> str:
    """Start a server and an agent of this machine where they do not run; return the line that says where."""
    folder = up_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    noted = _noted(folder)
    if noted and noted["cluster"] != name and any(_runs(noted.get(which), folder) for which in ("server", "agent")):
        raise Conflict(f"cluster {noted['cluster']} is up on {noted['url']}; rainbow down ends it")
    noted["cluster"] = name
    if not _runs(noted.get("server"), folder):
        noted["url"] = f"http://127.0.0.1:{port}"
        words = ["serve", "--port", str(port), "--database", f"sqlite:///{folder / 'rainbow.db'}"]
        noted["server"] = _start_apart(words, folder, "server")
        _note(folder, noted)
    try:
        with Client(noted["url"], timeout=2.0, tries=1) as client:
            _until(client.ready, folder / "server.log", lambda: _runs(noted["server"], folder))
        if not _runs(noted.get("agent"), folder):
            secret = folder / "rainbow-registration.secret"
            words = ["agent", "--cluster", name, "--register", "--url", noted["url"], "--state-dir", str(folder)]
            words += ["--registration-secret-file", str(secret), "--credentials", str(_credentials()), "--quiet"]
            noted["agent"] = _start_apart(words, folder, "agent")
            _note(folder, noted)
        shown = _registered(noted, folder)
    except DemoError as fault:
        bring_down()
        raise RainbowError(str(fault)) from fault
    size = f"{some(shown['workers'], 'node')}, {some(shown['totals'].get('core', 0), 'core')}"
    return f"server on {noted['url']}, cluster {name} ({size}), credentials in {_short(_credentials().parent)}"


def bring_down() -> str:
    """End what `bring_up` has started, the agent first; return the line that says so."""
    folder = up_folder()
    noted = _noted(folder)
    ended = [which for which in ("agent", "server") if _runs(noted.get(which), folder)]
    for which in ended:
        _end_apart(noted[which], folder)
    (folder / "up.json").unlink(missing_ok=True)
    return f"ended {' and '.join(ended)} of cluster {noted['cluster']}" if ended else "nothing is up"


def _registered(noted: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return the cluster as its agent has registered it, once it has a node that is ready."""
    result: dict[str, Any] = {}

    def there() -> bool:
        saved = read_credentials(_credentials()).clusters.get(noted["cluster"])
        if saved and "token" in saved:
            with (
                contextlib.suppress(RainbowError),
                Client(noted["url"], saved["token"], timeout=2.0, tries=1) as asking,
            ):
                result.update(asking.cluster(noted["cluster"]))
        return bool(result.get("ready"))

    _until(there, folder / "agent.log", lambda: _runs(noted["agent"], folder))
    return result


def _credentials() -> Path:
    return Path(os.environ.get("RAINBOW_CREDENTIALS") or DEFAULT).expanduser()


def _short(path: Path) -> str:
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


def _noted(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / "up.json").read_text()))
    except (OSError, ValueError):
        return {}


def _note(folder: Path, noted: Mapping[str, Any]) -> None:
    draft = folder / "up.json.new"
    draft.write_text(json.dumps(noted))
    draft.replace(folder / "up.json")


def _start_apart(words: Sequence[str], folder: Path, which: str) -> int:
    path = os.pathsep.join(filter(None, [PACKAGE, os.environ.get("PYTHONPATH")]))
    with (folder / f"{which}.log").open("ab") as out:
        running = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-P", "-m", "rainbow", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while running.poll() is None and not _runs(running.pid, folder):
        time.sleep(0.001)  # a program that has just been loaded has no words yet by which it is known
    return running.pid


def _runs(pid: int | None, folder: Path) -> bool:
    """Return whether this process is one that `bring_up` has started: a number is given again to others."""
    if not pid:
        return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    with contextlib.suppress(OSError):
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _end_apart(pid: int, folder: Path) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    limit = time.monotonic() + READY_WITHIN
    while _runs(pid, folder) and time.monotonic() < limit:
        time.sleep(0.05)
    if _runs(pid, folder):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _until(there: Callable[[], bool], log: Path, lives: Callable[[], bool]) -> None:
    limit = time.monotonic() + READY_WITHIN
    while not there():
        if not lives() or time.monotonic() > limit:
            raise DemoError(f"it did not start; {log} ends with:\n{log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.1)


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
