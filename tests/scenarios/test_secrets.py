"""No secret of a server or an agent is in what others see: environments, arguments, the records of a site."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from rainbow.client import Client
from rainbow.graph.sources import graph_sources
from tests.conftest import grid, jobspec
from tests.scenarios.test_end_to_end import Processes, until
from tests.support.agent_sites import Site
from tests.support.live import rainbow_at
from tests.support.ports import free_port
from tests.support.registering import processes_of
from tests.support.slurm import Slurm
from tests.support.slurm_accounting import accounted

SHOW = ["sh", "-c", "env; sleep 60"]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with processes_of(tmp_path) as made:
        yield made


def known_by(secret: str) -> dict[int, str]:
    """Return the processes whose environment or arguments have a secret in them: /proc/*/environ and cmdline."""
    results = {}
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            folder = Path(f"/proc/{process.pid}")
            if secret.encode() in (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes():
                results[process.pid] = " ".join(process.cmdline())
    return results


def test_no_process_of_a_server_or_an_agent_shows_a_secret(tmp_path: Path, processes: Processes) -> None:
    port, registration, admin = free_port(), f"rbr_{uuid4().hex}", f"rba_{uuid4().hex}"
    url = f"http://127.0.0.1:{port}"
    options = {"RAINBOW_REGISTRATION_SECRET": registration, "RAINBOW_ADMIN_TOKEN": admin}
    processes.start("serve", "--port", str(port), "--database", str(tmp_path / "rainbow.db"), **options)
    until(Client(url).ready)
    answer = Client(url, registration).register_cluster("oak", grid(4, 1))
    assert Client(url, admin).jobs()["jobs"] == [], "a worker of the server has what its parent was given"
    where = ("--cluster", "oak", "--url", url, "--state-dir", str(tmp_path / "state"), "--registration-secret")
    processes.start("agent", *where, registration, RAINBOW_SECRET=answer["secret"])
    site = Site(url, Client(url, answer["token"]), answer["secret"])
    site.until(site.submit(*SHOW), "RUNNING")
    for secret in (answer["secret"], registration, admin):
        assert known_by(secret) == {}


def test_a_secret_may_come_by_a_descriptor(tmp_path: Path, processes: Processes) -> None:
    with rainbow_at(tmp_path) as url:
        site = Site.registered(url)
        reading, writing = os.pipe()
        os.write(writing, site.secret.encode())
        os.close(writing)
        where = ("--cluster", "oak", "--url", url, "--state-dir", str(tmp_path / "state"))
        # the pipe is reached through our own /proc, for what we start inherits nothing
        processes.start("agent", *where, "--secret-file", f"/proc/{os.getpid()}/fd/{reading}")
        site.until(site.submit("true"), "COMPLETED")
        os.close(reading)


def submitted_to(slurm: Slurm, tmp_path: Path, processes: Processes, url: str) -> tuple[Site, str, str]:
    """Run a job through an agent that knows two secrets and has a third; return its site, native id and output."""
    nodes = graph_sources.get("slurm")(slurm.run("scontrol", "show", "nodes", "--oneliner"))
    site = Site.registered(url, nodes)
    where = ("--cluster", "oak", "--url", url, "--state-dir", str(tmp_path / "state"), "--executor", "psij:slurm")
    options = {
        "RAINBOW_SECRET": site.secret,
        "SLURM_CONF": str(slurm.conf),
        "SBATCH_TIMELIMIT": "1",
        "OPERATORS": "x3",
    }
    processes.start("agent", *where, **options)
    job = site.user.submit(jobspec(command=["sh", "-c", "env; sleep 2"]))["id"]
    site.until(job, "RUNNING", 60)
    native = slurm.run("squeue", "-h", "-o", "%A").split()[0]
    stored = b"".join(path.read_bytes() for path in slurm.folder.glob("state/hash.*/job.*/*"))
    shown = slurm.run("scontrol", "show", "job", native) + slurm.run("scontrol", "write", "batch_script", native, "-")
    assert "JobState=RUNNING" in shown
    assert stored
    for secret in (site.secret, "OPERATORS", "RAINBOW_REGISTRATION_SECRET", "SBATCH_TIMELIMIT"):
        assert secret not in shown
        assert secret.encode() not in stored, "the controller keeps what sbatch has sent"
    assert known_by(site.secret) == {}
    site.until(job, "COMPLETED", 60)
    return site, native, site.task(job)["output"]


def test_nothing_of_an_agents_environment_goes_to_slurm(
    tmp_path: Path, processes: Processes, on_slurm: Slurm
) -> None:
    with rainbow_at(tmp_path) as url:
        site, _, output = submitted_to(on_slurm, tmp_path, processes, url)
        said = dict(line.partition("=")[::2] for line in output.splitlines())
        assert {"SLURM_JOB_ID", "PATH", "HOME"} <= said.keys()
        assert not {"SLURM_EXPORT_ENV", "SBATCH_EXPORT", "OPERATORS", "RAINBOW_SECRET"} & said.keys()
        assert site.secret not in output


@pytest.mark.soak
def test_slurms_accounting_knows_no_secret(tmp_path: Path, processes: Processes) -> None:
    with accounted() as slurm, rainbow_at(tmp_path) as url:
        site, native, _ = submitted_to(slurm, tmp_path, processes, url)
        limit = time.monotonic() + 30
        while not (said := slurm.run("sacct", "-j", native, "--env-vars")).strip():
            assert time.monotonic() < limit, slurm.run("sacct", "-j", native)
            time.sleep(0.5)
        said += slurm.run("sacct", "-j", native, "--batch-script")
        for secret in (site.secret, "OPERATORS", "RAINBOW_REGISTRATION_SECRET", "RAINBOW_SECRET"):
            assert secret not in said
