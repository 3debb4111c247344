"""A task that ends whatever it can: its neighbours go on, and it has failed after a few attempts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent.executors import isolation
from tests.scenarios.test_end_to_end import ROOT, Processes
from tests.support import services
from tests.support.agent_sites import Site
from tests.support.live import rainbow_at
from tests.support.registering import processes_of

PARENT = "kill -9 $PPID; sleep 9"
# those of its own session and of its parent's, as they are before anybody is killed
SESSION = """
import os, signal, time
ours = {os.getsid(0), os.getsid(os.getppid())} - {0, 1, os.getsid(1) if os.getpid() > 9 else 1}
found = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) not in (os.getpid(), 1)]
def session(one):
    try:
        return os.getsid(one)
    except OSError:
        return 0
for one in [one for one in found if session(one) in ours]:
    try:
        os.kill(one, signal.SIGKILL)
    except OSError:
        pass
time.sleep(9)
"""
# whoever reads this: outside a space of its own it would end the machine, so it looks first
EVERYBODY = "test $(ls -d /proc/[0-9]* | wc -l) -lt 40 || exit 3; kill -9 -1; sleep 1"
NEIGHBOUR = ["sh", "-c", 'echo begun >> "$1"; sleep 8; echo done', "sh"]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with processes_of(tmp_path) as made:
        yield made


def agent(processes: Processes, site: Site, *more: str) -> None:
    where = ("--cluster", "oak", "--url", site.url, "--state-dir", str(processes.folder / "state"))
    processes.start("agent", *where, *more, RAINBOW_SECRET=site.secret)


def beside(site: Site, folder: Path, *poison: str) -> tuple[Any, Any, int]:
    """Run a task that does harm beside one that does none; return both as they ended, and how often that began."""
    lines = folder / "neighbour"
    good = site.submit(*NEIGHBOUR, str(lines))
    site.until(good, "RUNNING")
    bad = site.submit(*poison)
    ended = site.end(bad, 60)["tasks"][0], site.end(good, 90)["tasks"][0]
    return (*ended, len(lines.read_text().splitlines()))


@pytest.mark.parametrize(
    ("isolate", "poison"),
    [
        pytest.param("none", [sys.executable, "-c", SESSION], id="none-session"),
        pytest.param("auto", ["sh", "-c", PARENT], id="auto-parent"),
        pytest.param("none", ["sh", "-c", PARENT], id="none-parent", marks=pytest.mark.soak),
        pytest.param("auto", [sys.executable, "-c", SESSION], id="auto-session", marks=pytest.mark.soak),
    ],
)
def test_a_task_that_kills_its_keeper_harms_itself_alone(
    tmp_path: Path, processes: Processes, isolate: str, poison: list[str]
) -> None:
    with rainbow_at(tmp_path) as url:
        site = Site.registered(url)
        site.limit(max_lost=2)
        agent(processes, site, "--isolate", isolate)
        bad, good, begun = beside(site, tmp_path, *poison)
    assert (good["state"], good["output"], good["attempt"], begun) == ("COMPLETED", "done\n", 1, 1)
    if bad["cause"] == "lost":
        assert (bad["state"], bad["attempt"]) == ("FAILED", 2)
        assert bad["detail"].startswith("lost 2 times, the limit is 2: attempt 1: ")
    else:  # in a space of its own it could not even do that
        assert isolate == "auto"


@pytest.mark.skipif(bool(isolation.allowed()), reason="no process may have a space of its own here")
def test_a_task_in_a_space_of_its_own_cannot_end_anybody_else(tmp_path: Path, processes: Processes) -> None:
    with rainbow_at(tmp_path) as url:
        site = Site.registered(url)
        agent(processes, site)
        seen = site.end(site.submit("sh", "-c", "ls -d /proc/[0-9]* | wc -l"))["tasks"][0]
        assert int(seen["output"]) < 8, "it must see nobody before it may kill everybody"
        bad, good, begun = beside(site, tmp_path, "sh", "-c", EVERYBODY)
    assert (good["state"], good["attempt"], begun) == ("COMPLETED", 1, 1)
    assert (bad["attempt"], bad["losses"]) == (1, [])


OUTER = """
import os, subprocess, sys, time
agent = None
while not os.path.exists(sys.argv[1]):
    if agent is None or agent.poll() is not None:
        agent = subprocess.Popen(sys.argv[2:])
    time.sleep(0.2)
agent.kill()
"""


@pytest.mark.soak
@pytest.mark.skipif(os.getuid() != 0 or bool(isolation.allowed()), reason="needs root and namespaces to be harmless")
def test_a_task_that_kills_all_of_its_user_is_told_lost_and_tried_a_few_times(
    tmp_path: Path, processes: Processes
) -> None:
    """All of it, agent, keeper and wardens, is killed each time; a service manager starts the agent again."""
    services.without("" if shutil.which("unshare") else "no unshare")
    with rainbow_at(tmp_path, lease=6.0, grace=2.0) as url:
        site = Site.registered(url)
        site.limit(max_lost=4)
        secret = tmp_path / "secret"
        secret.write_text(site.secret)
        where = (
            "--cluster",
            "oak",
            "--url",
            url,
            "--state-dir",
            str(tmp_path / "state"),
            "--secret-file",
            str(secret),
        )
        command = ["agent", *where, "--isolate", "none"]
        over, apart = tmp_path / "over", ("unshare", "-p", "-f", "--mount-proc")
        with (tmp_path / "agent.log").open("ab") as log:
            outer = subprocess.Popen(
                [*apart, sys.executable, "-c", OUTER, str(over), sys.executable, "-m", "rainbow", *command],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
                stdout=log,
                stderr=log,
            )
        try:
            good = site.submit("sh", "-c", "sleep 4; echo done")
            site.until(good, "RUNNING", 60)
            bad = site.submit("sh", "-c", EVERYBODY)
            result = site.end(bad, 200)["tasks"][0]
            neighbour = site.end(good, 200)["tasks"][0]
        finally:
            over.touch()
            outer.wait(30)
    assert (result["state"], result["cause"], result["attempt"]) == ("FAILED", "lost", 4)
    assert neighbour["attempt"] <= 4
    assert neighbour["state"] in ("COMPLETED", "FAILED")
    assert len(neighbour["losses"]) == neighbour["attempt"] - (neighbour["state"] == "COMPLETED")
