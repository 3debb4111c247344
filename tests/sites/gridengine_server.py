"""A real Grid Engine for the tests: one qmaster and one execd in a folder of its own, on loopback, started as root.

It has one host of eight slots, the queue all.q and the parallel environment smp. Without its programs, or without
root, the tests that want it are skipped with the reason.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.ports import free_ports

PROGRAMS = Path("/usr/lib/gridengine")
SHARED = Path("/usr/share/gridengine")
OWNER = "sgeadmin"
COMES_UP, CONNECTS = 30.0, 180.0  # seconds
AS_OWNER = ("--reuid", OWNER, "--regid", OWNER, "--clear-groups")
ACCOUNTS = ("ann", "bob")  # of users whose jobs they are
PE = """pe_name smp
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $pe_slots
control_slaves FALSE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""
QUEUE = """qname all.q
hostlist @allhosts
seq_no 0
load_thresholds NONE
suspend_thresholds NONE
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:05:00
processors UNDEFINED
qtype BATCH
ckpt_list NONE
pe_list smp
rerun FALSE
slots 8
tmpdir /tmp
shell /bin/sh
prolog NONE
epilog NONE
shell_start_mode posix_compliant
starter_method NONE
suspend_method NONE
resume_method NONE
terminate_method NONE
notify 00:00:60
owner_list NONE
user_lists NONE
xuser_lists NONE
subordinate_list NONE
complex_values NONE
projects NONE
xprojects NONE
calendar NONE
initial_state default
"""
LIMITS = ("s_rt", "h_rt", "s_cpu", "h_cpu", "s_fsize", "h_fsize", "s_data", "h_data", "s_stack", "h_stack")
LIMITS += ("s_core", "h_core", "s_rss", "h_rss", "s_vmem", "h_vmem")
CHANGES = {  # of the scheduler's configuration
    "schedule_interval": "0:0:1",
    "schedd_job_info": "true",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
}


class GridEngine:
    """A qmaster and an execd."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rainbow-ge-"))
        self.folder.chmod(0o755)
        master, execd = free_ports(2)
        self.variables = {
            "SGE_ROOT": str(self.folder),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(master),
            "SGE_EXECD_PORT": str(execd),
        }
        self._environment = {**os.environ, **self.variables}
        for account in ACCOUNTS:
            if subprocess.run(["id", account], capture_output=True).returncode:
                subprocess.run(["useradd", "-m", account], check=True, capture_output=True)
        try:
            self._lay_out()
            self.start_master()
            self._configure()
            self._run("sge_execd")
            self.wait_for_host()
        except BaseException:
            self.end()
            raise

    def _lay_out(self) -> None:
        common = self.folder / "default" / "common"
        for made in (common, self.folder / "spooldb", self.folder / "qmaster" / "job_scripts", self.folder / "execd"):
            made.mkdir(parents=True)
        for name in ("bin", "lib", "utilbin"):
            (self.folder / name).symlink_to(f"/var/lib/gridengine/{name}")
        (self.folder / "util").symlink_to(SHARED / "util")
        spools = (SHARED / "default-bootstrap").read_text()
        spools = spools.replace("/var/spool/gridengine/", f"{self.folder}/")
        (common / "bootstrap").write_text(spools)
        (common / "act_qmaster").write_text("localhost\n")
        (common / "host_aliases").write_text(f"localhost {socket.gethostname()}\n")
        text = (SHARED / "default-configuration").read_text().replace("/var/spool/gridengine/", f"{self.folder}/")
        changed = {"min_uid": "min_uid 0", "min_gid": "min_gid 0", "load_report_time": "load_report_time 00:00:01"}
        lines = [changed.get(line.split(" ")[0], line) for line in text.splitlines()]
        configuration = self.folder / "configuration"
        # a record that waits in the qmaster's memory is lost when the qmaster is killed
        at_once = "flush_time=00:00:01 accounting_flush_time=00:00:00"
        configuration.write_text("\n".join(lines).replace("flush_time=00:00:15", at_once) + "\n")
        self._run("chown", "-R", f"{OWNER}:{OWNER}", *map(str, self.folder.iterdir()))
        resources = SHARED / "util" / "resources"
        for words in (
            ("spoolinit", "berkeleydb", "libspoolb", f"{self.folder}/spooldb", "init"),
            ("spooldefaults", "configuration", str(configuration)),
            ("spooldefaults", "complexes", str(resources / "centry")),
            ("spooldefaults", "usersets", str(resources / "usersets")),
            ("spooldefaults", "managers", OWNER),
            ("spooldefaults", "managers", "root"),
        ):
            self._run("setpriv", *AS_OWNER, str(PROGRAMS / words[0]), *words[1:])

    def _run(self, program: str, *words: str) -> str:
        path = PROGRAMS / program
        command = [str(path) if path.exists() else program, *words]
        done = subprocess.run(
            command, env=self._environment, cwd="/", capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def run(self, *command: str) -> str:
        """Return what one of its commands prints."""
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60).stdout

    def _configure(self) -> None:
        self.run("qconf", "-ah", "localhost")
        self.run("qconf", "-as", "localhost")
        limits = "".join(f"{name} INFINITY\n" for name in LIMITS)
        for option, text in (
            ("-Ahgrp", "group_name @allhosts\nhostlist localhost\n"),
            ("-Ap", PE),
            ("-Aq", QUEUE + limits),
            ("-Msconf", self._scheduling()),
        ):
            file = self.folder / "text"
            file.write_text(text)
            self._run("qconf", option, str(file))

    def _scheduling(self) -> str:
        rows = [line.split(None, 1) for line in self._run("qconf", "-ssconf").splitlines()]
        return "".join(f"{row[0]} {CHANGES.get(row[0], row[1] if len(row) > 1 else '')}\n" for row in rows)

    def wait_for_host(self) -> None:
        """Wait until the host takes jobs: half a minute to a minute after the qmaster was killed."""
        limit = time.monotonic() + CONNECTS
        while True:
            state = re.search(r"^all\.q@\S+ +\S+ +\S+ +\S+ +\S+(.*)$", said := self.run("qstat", "-f"), re.M)
            if state and not state[1].strip():
                return
            assert time.monotonic() < limit, said
            time.sleep(0.1)

    def start_master(self) -> None:
        """Start the qmaster, and wait until it answers."""
        self._run("sge_qmaster")
        limit = time.monotonic() + COMES_UP
        while not self.run("qconf", "-sconf"):
            assert time.monotonic() < limit, "the qmaster does not answer"
            time.sleep(0.1)

    def kill_master(self) -> None:
        """End the qmaster by KILL."""
        pid = int((self.folder / "qmaster" / "qmaster.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        with suppress(psutil.Error):
            psutil.Process(pid).wait(10)

    def end(self) -> None:
        """Stop it and leave nothing."""
        ours = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("SGE_ROOT") == str(self.folder) and process.pid != os.getpid():
                    ours.append(process)
        for process in ours:
            with suppress(psutil.Error):
                if process.pid not in [parent.pid for parent in psutil.Process().parents()]:
                    process.kill()
        psutil.wait_procs(ours, 10)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def grid_engine() -> Iterator[GridEngine]:
    """Run a Grid Engine until the block is left."""
    made = GridEngine()
    try:
        yield made
    finally:
        made.end()
