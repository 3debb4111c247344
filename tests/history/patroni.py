"""PostgreSQL with a standby under Patroni, started by deploy/patroni/loopback.sh: its leader is killed for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support import services
from tests.support.ports import free_block

SCRIPT = Path(__file__).parents[2] / "deploy" / "patroni" / "loopback.sh"
PORTS = 6
TTL = 20.0  # seconds, as the script sets it


def require() -> None:
    """Leave the test where Patroni cannot be started."""
    services.without("" if os.getuid() == 0 else "Patroni is started by root, who may become postgres", must=False)
    services.require("PostgreSQL")
    services.require("Patroni")


class Patroni:
    """A leader and a standby in a folder of their own; `url` names both."""

    def __init__(self, *, synchronous: bool = True) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rainbow-patroni-"))
        self._environment = {
            **os.environ,
            "PORT": str(free_block(PORTS)),
            "SYNCHRONOUS": str(synchronous).lower(),
        }
        self.url = ""

    def start(self) -> None:
        """Start what does not run, and wait until a leader has a standby."""
        self.url = self._run("start")

    def crash(self) -> str:
        """Kill the leader and its Patroni by -9; return its name."""
        return self._run("crash")

    def limit_files(self, most: str) -> None:
        """Let no file of the leader grow beyond this, nor of its processes to come."""
        for data in (self.folder / "db1" / "data", self.folder / "db2" / "data"):
            pid = int((data / "postmaster.pid").read_text().split()[0])
            if pid < 0 or (data / "standby.signal").exists():  # below 0: a recovery that Patroni makes by hand
                continue
            parent = psutil.Process(pid)
            for process in [parent, *parent.children(recursive=True)]:
                limit = ["prlimit", f"--pid={process.pid}", f"--fsize={most}:"]
                subprocess.run(limit, user="postgres", capture_output=True, check=False)  # it may just have ended

    def end(self) -> None:
        """Stop everything and leave nothing."""
        self._run("stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, verb: str) -> str:
        command = [str(SCRIPT), str(self.folder), verb]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=180)
        if done.returncode:
            raise ChildProcessError(f"loopback.sh {verb}: {done.stderr.strip()}")
        return done.stdout.strip()


@contextmanager
def patroni(*, synchronous: bool = True) -> Iterator[Patroni]:
    """Run a leader and a standby until the block is left."""
    require()
    database = Patroni(synchronous=synchronous)
    try:
        database.start()
        yield database
    finally:
        database.end()
