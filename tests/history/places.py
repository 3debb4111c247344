"""What is put to the test: real `rainbow` processes on SQLite, PostgreSQL, Patroni or behind a router."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from tests.conftest import ADMIN, REGISTRATION
from tests.history.line import Line
from tests.history.patroni import Patroni, patroni
from tests.support.keepers import end_of_marked, keepers
from tests.support.ports import free_port
from tests.support.postgres import Postgres, postgres

ROOT = Path(__file__).parents[2]
CLOCK = Path(__file__).parent / "clock"
CONFIGURATION = """
scheduler: {lease: 4, grace: 2, unplaced: wait}
admission: {max_retries: 1, max_lost: 0, quarantine_after_lost: 0}
"""  # leases that end within a pause; a task may be lost any number of times, since the nemeses see to that


class Member:
    """A process of the place, which is killed, paused and started again."""

    def __init__(self, folder: Path, name: str, kind: str, *arguments: str, **environment: str) -> None:
        self.folder, self.name, self.kind = folder, name, kind
        self.clock = folder / f"{name}.clock"
        self.set_clock(0.0)
        self._command = [sys.executable, "-m", "rainbow", *arguments]
        path = f"{CLOCK}:{ROOT}:{os.environ.get('PYTHONPATH', '')}"
        keys = {"RAINBOW_REGISTRATION_SECRET": REGISTRATION, "RAINBOW_ADMIN_TOKEN": ADMIN}
        ours = {"PYTHONPATH": path, "RAINBOW_HISTORY_CLOCK": str(self.clock), "PYTHONUNBUFFERED": "1"}
        self._environment = {**os.environ, **keys, **ours, **environment}
        self.lock = threading.Lock()  # one nemesis at a time
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, in a session of its own so that it is killed with its workers."""
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its first process."""
        return self._process.pid if self._process is not None else 0

    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def processes(self) -> list[psutil.Process]:
        """Return its processes: of a server its parent and its workers."""
        with suppress(psutil.Error):
            first = psutil.Process(self.pid)
            return [first, *first.children()]
        return []

    def kill(self) -> None:
        """Kill it: a server with its workers, an agent without what it runs."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            if self.kind == "agent":
                os.kill(self.pid, signal.SIGKILL)
            else:
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def signal(self, number: int, processes: Sequence[psutil.Process]) -> None:
        """Send these processes of it a signal; those that have ended are left alone."""
        for each in processes:
            with suppress(psutil.Error):
                each.send_signal(number)

    def set_clock(self, by: float) -> None:
        """Let its time of day be wrong by so many seconds."""
        if not self.clock.exists():
            self.clock.write_bytes(bytes(8))
        with self.clock.open("r+b") as file:
            file.write(struct.pack("d", by))


@dataclass
class Place:
    """A topology at work."""

    folder: Path
    name: str
    members: list[Member] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)  # between clients or agents and each server
    doors: list[str] = field(default_factory=list)  # where clients ask, through lines that are cut
    readers: dict[str, str] = field(default_factory=dict)  # {name: URL} of what is read in quiet, on sound lines
    shards: list[str] = field(default_factory=list)  # servers with a store of their own
    agents: dict[str, str] = field(default_factory=dict)  # {cluster: URL of its agent}
    streams: dict[str, str] = field(default_factory=dict)  # {events that are numbered together: their query}
    files: list[Path] = field(default_factory=list)  # of SQLite
    postgres: Postgres | None = None
    patroni: Patroni | None = None

    def member(self, name: str, kind: str, *arguments: str, **environment: str) -> Member:
        """Add a process and start it."""
        made = Member(self.folder, name, kind, *arguments, **environment)
        self.members.append(made)
        made.start()
        return made

    def of(self, *kinds: str) -> list[Member]:
        """Return the members of these kinds."""
        return [each for each in self.members if each.kind in kinds]

    def keepers(self) -> list[psutil.Process]:
        """Return the processes that hold what agents run."""
        return keepers(self.folder)

    def start_agent(self, cluster: str, secret: str) -> None:
        """Start the agent of a cluster."""
        state = str(self.folder / f"state-{cluster}")
        options = ("--cluster", cluster, "--url", self.agents[cluster], "--state-dir", state, "--quiet")
        self.member(f"agent-{cluster}", "agent", "agent", *options, RAINBOW_SECRET=secret)

    def end(self) -> None:
        """End everything."""
        for each in self.members:
            each.signal(signal.SIGCONT, each.processes())
            each.kill()
        for keeper in self.keepers():
            with suppress(psutil.Error):
                keeper.kill()
        for state in self.folder.glob("state-*"):
            end_of_marked(state)


def until_ready(urls: Sequence[str], seconds: float = 120.0) -> None:
    """Wait until servers answer."""
    end = time.monotonic() + seconds
    for url in urls:
        while not _is_ready(url):
            if time.monotonic() > end:
                raise TimeoutError(f"{url} did not come up within {seconds:.0f} s")
            time.sleep(0.1)


def _is_ready(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    return False


def _serve(place: Place, stack: ExitStack, name: str, database: str, *options: str) -> tuple[str, str]:
    """Start a server; return its URL and that of a line to it."""
    port = free_port()
    config = place.folder / f"{name}.yaml"
    config.write_text(CONFIGURATION)
    place.member(
        name, "server", "serve", "--port", str(port), "--config", str(config), *options, RAINBOW_DATABASE=database
    )
    line = stack.enter_context(Line(port))
    place.lines.append(line)
    return f"http://127.0.0.1:{port}", line.url


def _sqlite(place: Place, stack: ExitStack) -> None:
    """One server on a file."""
    file = place.folder / "rainbow.db"
    url, door = _serve(place, stack, "server", f"sqlite:///{file}")
    place.files.append(file)
    place.doors, place.readers, place.shards = [door], {"server": url}, [url]
    place.agents = dict.fromkeys(("oak", "elm"), door)
    place.streams = {"all": ""}


def _postgresql(place: Place, stack: ExitStack) -> None:
    """Two servers and two schedulers on one database."""
    place.postgres = stack.enter_context(postgres(durable=True))
    _on_one_database(place, stack, place.postgres.new_empty_database())


def _patroni(place: Place, stack: ExitStack) -> None:
    """Two servers and two schedulers on a database that has a standby."""
    place.patroni = stack.enter_context(patroni())
    _on_one_database(place, stack, place.patroni.url)


def _on_one_database(place: Place, stack: ExitStack, database: str) -> None:
    for name in ("one", "two"):
        place.readers[name], door = _serve(place, stack, name, database, "--no-scheduler")
        place.doors.append(door)
    for name in ("scheduler-one", "scheduler-two"):
        config = str(place.folder / "one.yaml")
        place.member(name, "scheduler", "scheduler", "--config", config, RAINBOW_DATABASE=database)
    place.shards = [place.readers["one"]]
    place.agents = dict(zip(("oak", "elm"), place.doors, strict=True))
    place.streams = {"all": ""}


def _router(place: Place, stack: ExitStack) -> None:
    """A router before two servers, each with a file and one of the clusters."""
    for name, cluster in (("one", "oak"), ("two", "elm")):
        file = place.folder / f"{name}.db"
        url, door = _serve(place, stack, name, f"sqlite:///{file}")
        place.files.append(file)
        place.shards.append(url)
        place.agents[cluster] = door
        place.streams[cluster] = f"&cluster={cluster}"
    port = free_port()
    shards = [part for door in place.agents.values() for part in ("--shard", door)]
    until_ready(place.shards)
    place.member("router", "router", "route", "--port", str(port), *shards)
    line = stack.enter_context(Line(port))
    place.lines.append(line)
    place.doors, place.readers = [line.url], {"router": f"http://127.0.0.1:{port}"}


TOPOLOGIES: Mapping[str, Callable[[Place, ExitStack], None]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "patroni": _patroni,
    "router": _router,
}


@contextmanager
def place_of(topology: str, folder: Path) -> Iterator[Place]:
    """Start a topology; everything ends with the block."""
    with ExitStack() as stack:
        place = Place(folder, topology)
        stack.callback(place.end)
        TOPOLOGIES[topology](place, stack)
        until_ready(list(place.readers.values()))
        yield place
