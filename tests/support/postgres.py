"""A real PostgreSQL for the tests: made in a folder of its own, and a fresh database for each test.

Without the server's programs or the driver the tests that want it are skipped, with the reason; where CI is set
they fail. RAINBOW_POSTGRES_BIN names the folder of the programs if they are not where Debian puts them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psutil
import sqlalchemy as sa

from rainbow.store import open_store
from tests.support import services
from tests.support.ports import free_port

_numbers = count()
ROOM = 4 << 30  # bytes
BRIEF = "-c fsync=off -c full_page_writes=off -c autovacuum=off -c jit=off"  # it lives for one run of the tests


def require() -> None:
    """Leave the test where there is no PostgreSQL."""
    driver = find_spec("psycopg") is not None
    services.without("" if driver else "psycopg is not installed (pip install 'rainbow-hpc[postgres]')")
    services.require("PostgreSQL")


class Postgres:
    """A server in its own folder, owned by the user who may run it: PostgreSQL refuses to be root."""

    def __init__(self, *initdb: str, durable: bool = False) -> None:
        self.durable = durable
        self.folder = Path(tempfile.mkdtemp(prefix="rainbow-pg-", dir=None if durable else _memory()))
        self.port = free_port()
        self._template = ""
        self._user = "postgres" if os.getuid() == 0 else None
        if self._user:
            shutil.chown(self.folder, self._user)
        self._run("initdb", "-D", self._data, "-U", "rainbow", "--auth=trust", "-E", "UTF8", "--locale=C", *initdb)
        self.start()

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c max_connections=300"
        options += "" if self.durable else f" {BRIEF}"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    @property
    def pid(self) -> int:
        """Its first process, the parent of all others."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def stop(self, mode: str = "immediate") -> None:
        """Stop it: at once, as after a power cut, unless another mode is asked for."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def stand_by(self) -> None:
        """Start it anew as a standby does: it answers, and writes nothing until it is promoted."""
        self.stop("fast")
        signal = self.folder / "data" / "standby.signal"
        signal.touch()
        if self._user:
            shutil.chown(signal, self._user)
        self.start()

    def promote(self) -> None:
        """Let a standby write."""
        self._run("pg_ctl", "-D", self._data, "-w", "promote")

    def limit_files(self, most: str) -> None:
        """Let no file grow beyond this: what a full disk is to who writes."""
        parent = psutil.Process(self.pid)
        for process in [parent, *parent.children(recursive=True)]:
            subprocess.run(["prlimit", f"--pid={process.pid}", f"--fsize={most}:"], user=self._user, check=True)

    def end(self) -> None:
        """Stop it and leave nothing."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self) -> str:
        """Make a database without a row in it and return its URL; the migrations run once, for its template."""
        if not self._template:
            self._template = self._made("template0")
            open_store(self.url(self._template)).close()
        return self.url(self._made(self._template))

    def new_empty_database(self) -> str:
        """Make a database without tables and return its URL."""
        return self.url(self._made("template0"))

    def drop(self, url: str) -> None:
        """Delete a database that no test needs any more: each is 9 MB."""
        self._execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def _made(self, template: str) -> str:
        name = f"test{next(_numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")  # half the work of a log
        return name

    def _execute(self, statement: str) -> None:
        engine = sa.create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql+psycopg://rainbow@127.0.0.1:{self.port}/{database}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(services.SERVICES["PostgreSQL"].program(program)), *arguments]
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(
            command, user=self._user, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL, timeout=60
        )
        assert done.returncode == 0, f"{program} failed"


def _memory() -> str | None:
    """Return a folder in memory, if there is one with room: hundreds of databases are copied there."""
    folder = Path("/dev/shm")  # noqa: S108  (mkdtemp makes a folder of our own in it)
    return str(folder) if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > ROOM else None


@contextmanager
def postgres(*initdb: str, durable: bool = False) -> Iterator[Postgres]:
    """Run a server until the block is left; `durable`: it waits for the disk, as tests need not."""
    require()
    server = Postgres(*initdb, durable=durable)
    try:
        yield server
    finally:
        server.end()
