"""A real Slurm for the tests: one controller and four emulated nodes in a folder of its own, on loopback.

One `slurmd` a node, every one on a port of its own; no munge, no cgroups, no accounting. Without Slurm's programs the
tests that want it are skipped, with the reason; where CI is set they must be there. Everything Slurm starts
carries the folder in its environment, so that whatever is left of it is found and ended.
"""

from __future__ import annotations

import getpass
import importlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support import services
from tests.support.ports import free_ports

DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()  # tests may be killed, too
NODES = 4
CORES = 8
TRIES = 3  # another's port may be taken between our look and our use
COMES_UP = 30.0  # seconds

CONF = """
ClusterName=emulated
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/spool/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,default_queue_depth=10000,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MaxJobCount=100000
MinJobAge=300
KillWait=5
TreeWidth=65533
GetEnvTimeout=0
MessageTimeout=60
{nodes}
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL MaxTime=10:00 State=UP
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} Sockets=1 CoresPerSocket={cores}"
    " ThreadsPerCore=1 RealMemory=16000 State=UNKNOWN"
)


class Slurm:
    """A controller and its nodes, n0001 to n0004."""

    def __init__(self, nodes: int = NODES, cores: int = CORES) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rainbow-slurm-"))
        self.folder.chmod(0o755)  # other accounts call Slurm, too
        self.conf = self.folder / "slurm.conf"
        self.nodes = [f"n{number:04}" for number in range(1, nodes + 1)]
        self._cores = cores
        self._environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self._daemons: list[subprocess.Popen[bytes]] = []
        try:
            self._start_somewhere()
        except BaseException:
            self.end()
            raise

    def _start_somewhere(self) -> None:
        for last in (number == TRIES for number in range(1, TRIES + 1)):
            self._configure(free_ports(len(self.nodes) + 1))
            self._start()
            if self._is_up():
                return
            assert not last, f"Slurm does not come up:\n{self._told()}"
            self._kill()

    def _configure(self, ports: list[int]) -> None:
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        (self.folder / "state").mkdir()
        for name in self.nodes:
            (self.folder / "spool" / name).mkdir(parents=True, exist_ok=True)
        self._know_logins()
        host = socket.gethostname().partition(".")[0]
        nodes = [
            NODE.format(name=name, host=host, port=port, cores=self._cores)
            for name, port in zip(self.nodes, ports[1:], strict=True)
        ]
        user = getpass.getuser()
        text = CONF.format(host=host, user=user, port=ports[0], folder=self.folder, nodes="\n".join(nodes))
        self.conf.write_text(text + (self._tokens() if not services.missing("slurmrestd") else ""))

    def _tokens(self) -> str:
        """Let slurmctld take tokens of accounts beside what it takes from its own machine."""
        key = self.folder / "jwt.key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        return f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={key}\n"

    def token(self, account: str, seconds: int = 600) -> str:
        """Return a token of an account."""
        return self.run("scontrol", "token", f"username={account}", f"lifespan={seconds}").strip().partition("=")[2]

    def _know_logins(self) -> None:
        """Say what a login of each account would set: else Slurm starts a login shell for every job."""
        (self.folder / "state" / "env_cache").mkdir()
        for account in pwd.getpwall():
            said = {"USER": account.pw_name, "HOME": account.pw_dir, "PATH": os.environ["PATH"]}
            text = "".join(f"{name}={value}\n" for name, value in said.items())
            (self.folder / "state" / "env_cache" / account.pw_name).write_text(text)

    def _start(self) -> None:
        self._start_controller()
        for name in self.nodes:
            self._daemon("slurmd", "-D", "-N", name, "-f", str(self.conf))

    def restart_controller(self, seconds: float, *, kill: bool) -> None:
        """End the controller, by KILL or by TERM as an operator does, and start it again after so many seconds."""
        old = self._controller
        (old.kill if kill else old.terminate)()
        old.wait()
        self._daemons.remove(old)
        time.sleep(seconds)
        self._start_controller()

    def _start_controller(self) -> None:
        self._daemon("slurmctld", "-D", "-i", "-f", str(self.conf))
        self._controller = self._daemons[-1]

    def _daemon(self, program: str, *arguments: str) -> None:
        command = [*DIE_WITH_US, str(services.SERVICES["Slurm"].program(program)), *arguments]
        with (self.folder / "daemons.log").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    command,
                    env=self._environment,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _is_up(self) -> bool:
        limit = time.monotonic() + COMES_UP
        while time.monotonic() < limit and all(daemon.poll() is None for daemon in self._daemons):
            if self.run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(len(self.nodes)):
                return True
            time.sleep(0.2)
        return False

    def run(self, *command: str) -> str:
        """Return what one of Slurm's commands prints."""
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60)
        return done.stdout

    def records(self, jobs: Collection[str]) -> dict[str, str]:
        """Return what `scontrol show job` says of each of these jobs, and cancel them: two commands for all."""
        lines = self.run("scontrol", "-o", "show", "job").splitlines()
        if jobs:
            self.run("scancel", *jobs)
        said = {line.split(maxsplit=1)[0].removeprefix("JobId="): line for line in lines if line.startswith("JobId=")}
        return {job: said[job] for job in jobs}

    def _told(self) -> str:
        logs = [path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("*.log"))]
        return "\n".join(logs)

    def _kill(self) -> None:
        """End the daemons and whatever they have started, job steps too."""
        for daemon in self._daemons:
            daemon.kill()
        for daemon in self._daemons:
            daemon.wait()
        self._daemons = []
        limit = time.monotonic() + COMES_UP
        while (processes := _ours(self.folder)) and time.monotonic() < limit:
            for process in processes:
                with suppress(psutil.Error):
                    process.kill()
            time.sleep(0.05)

    def end(self) -> None:
        """Stop it and leave nothing."""
        self._kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _ours(folder: Path) -> list[psutil.Process]:
    """Find what Slurm has started: daemons and job steps by where they work, jobs by what sbatch gave them."""
    results = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cwd().startswith(str(folder)) or str(folder) in process.environ().get("SLURM_CONF", ""):
                results.append(process)
    return [process for process in results if process.pid != os.getpid()]


def be_lively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let executors of this process ask Slurm twice a second, whatever its answers cost; no file comes late here."""
    for name, value in {"QUICK": 0.5, "SLOW": 0.5, "COST": 1.0}.items():
        monkeypatch.setattr(importlib.import_module("rainbow.agent.executors.slurm.watcher"), name, value)
    monkeypatch.setattr(importlib.import_module("rainbow.agent.executors.slurm.executor"), "LATE", 2.0)


@contextmanager
def rest_of(site: Slurm) -> Iterator[str]:
    """Run slurmrestd, which refuses to be root, until the block is left; return its address."""
    services.require("slurmrestd")
    port = free_ports(1)[0]
    program = services.SERVICES["slurmrestd"].program("slurmrestd")
    nobody = ("--reuid=65534", "--regid=65534", "--clear-groups") if os.getuid() == 0 else ()
    words = [*DIE_WITH_US, *nobody] if DIE_WITH_US else []
    words += [str(program), "-a", "rest_auth/jwt", "-s", "openapi/v0.0.38", f"127.0.0.1:{port}"]
    environment = {"PATH": os.environ["PATH"], "SLURM_CONF": str(site.conf), "SLURM_JWT": "daemon"}
    with (site.folder / "slurmrestd.log").open("wb") as log:
        daemon = subprocess.Popen(words, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        limit = time.monotonic() + COMES_UP
        while not _listens(port):
            assert daemon.poll() is None, (site.folder / "slurmrestd.log").read_text()[-2000:]
            assert time.monotonic() < limit
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/slurm/v0.0.38"
    finally:
        daemon.kill()
        daemon.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def slurm(kind: Callable[[], Slurm] = Slurm) -> Iterator[Slurm]:
    """Run a Slurm until the block is left."""
    services.require("Slurm")
    made = kind()
    try:
        yield made
    finally:
        made.end()
