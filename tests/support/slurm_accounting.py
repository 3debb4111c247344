"""A Slurm with accounting: slurmdbd over a MariaDB of its own, which keeps every job's environment and script."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support import services
from tests.support.ports import free_ports
from tests.support.slurm import COMES_UP, DIE_WITH_US, Slurm

ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoreFlags=job_comment,job_env,job_script
"""
SLURMDBD = """
AuthType=auth/none
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
CommunicationParameters=NoInAddrAny
"""
GRANT = (
    "create database slurm_acct_db; create user 'slurm'@'127.0.0.1' identified by 'slurm';"
    " create user 'slurm'@'localhost' identified by 'slurm';"
    " grant all on slurm_acct_db.* to 'slurm'@'127.0.0.1'; grant all on slurm_acct_db.* to 'slurm'@'localhost'"
)


class Accounted(Slurm):
    """A Slurm whose jobs `sacct` tells of."""

    def _configure(self, ports: list[int]) -> None:
        super()._configure(ports)
        self._accounts, database = free_ports(2)
        with self.conf.open("a") as conf:
            conf.write(ACCOUNTING.format(port=self._accounts))
        host = socket.gethostname().partition(".")[0]
        text = SLURMDBD.format(host=host, port=self._accounts, folder=self.folder, database=database)
        (self.folder / "slurmdbd.conf").write_text(text)
        (self.folder / "slurmdbd.conf").chmod(0o600)
        self._open_database(database)

    def _open_database(self, port: int) -> None:
        data, door = self.folder / "db", self.folder / "db.sock"
        shutil.rmtree(data, ignore_errors=True)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        made = ("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db")
        subprocess.run([*made, "--auth-root-authentication-method=normal"], check=True, **quiet)
        where = (f"--datadir={data}", f"--socket={door}", "--bind-address=127.0.0.1", f"--port={port}")
        program = shutil.which("mariadbd", path=f"{os.environ.get('PATH')}:/usr/sbin") or "mariadbd"
        self._programs([program, "--no-defaults", "--user=root", *where])
        ask = ["mariadb", "--no-defaults", "-S", str(door), "-u", "root", "-e"]
        self._patiently([*ask, "select 1"])
        subprocess.run([*ask, GRANT], check=True, **quiet)

    def _start(self) -> None:
        program = shutil.which("slurmdbd", path=f"{os.environ.get('PATH')}:/usr/sbin") or "slurmdbd"
        self._programs([program, "-D"])
        self._patiently(["sacctmgr", "-i", "add", "cluster", "emulated"])
        super()._start()

    def _programs(self, command: list[str]) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            started = subprocess.Popen(
                [*DIE_WITH_US, *command],
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._daemons.append(started)

    def _patiently(self, command: list[str]) -> None:
        limit = time.monotonic() + COMES_UP
        while (done := subprocess.run(command, env=self._environment, capture_output=True, timeout=60)).returncode:
            assert time.monotonic() < limit, f"{command} fails:\n{done.stderr!r}\n{self._told()}"
            time.sleep(0.3)


@contextmanager
def accounted(kind: type[Accounted] = Accounted) -> Iterator[Accounted]:
    """Run a Slurm with accounting until the block is left."""
    services.require("Slurm")
    absent = [name for name in ("slurmdbd", "mariadbd", "sacctmgr") if not _there(name)]
    services.without(f"not installed: {', '.join(absent)}" if absent else "")
    made = kind()
    try:
        yield made
    finally:
        made.end()


def _there(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ.get('PATH')}:/usr/sbin:/sbin") is not None
