"""Preemption with real processes: a signal and its grace, and a server and an agent that are killed meanwhile.

Every attempt of a task locks a file of its own task, and writes when it begins, gets a signal and is done.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from rainbow.client import Client
from tests.conftest import ADMIN, REGISTRATION, grid
from tests.killed import Killed
from tests.test_end_to_end import Processes, free_port, processes, until

__all__ = ["processes"]  # a fixture
SECONDS = float(os.environ.get("RAINBOW_SOAK_SECONDS", "60"))
GRACE = 1.0
TASK = """
import fcntl, os, signal, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])
task = os.environ["RAINBOW_TASK"]
lock = open(f"{folder}/{task}.lock", "w")
def say(word):
    with open(f"{folder}/said", "a") as file:
        file.write(f"{task} {os.getpid()} {word} {time.time()}\\n")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    say("twice")
    sys.exit(1)
signal.signal(signal.SIGUSR1, lambda *_: say("warned"))
signal.signal(signal.SIGTERM, lambda *_: (say("ended"), os._exit(0)))
say("begun")
end = time.monotonic() + seconds
while time.monotonic() < end:
    time.sleep(0.02)
say("done")
"""


class Site(Killed):
    """A server and an agent of a cluster of four cores, and the tasks' words."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self.processes, self.folder, port = processes, folder, free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.serve = ("serve", "--port", str(port), "--database", str(folder / "rainbow.db"))
        self.start_server()
        told = Client(self.url, REGISTRATION).register_cluster("oak", grid(2, 2))
        self.secret, self.api = told["secret"], Client(self.url, told["token"])
        urgent = {"priority": 100, "preempts": ["default"], "signal": "USR1", "grace": GRACE}
        Client(self.url, ADMIN).put_qos("urgent", urgent)
        self.start_agent()

    def start_server(self) -> None:
        self.server = self.processes.start(*self.serve, RAINBOW_ADMIN_TOKEN=ADMIN, RAINBOW_CHECK="1")
        until(Client(self.url).ready)

    def start_agent(self) -> None:
        agent = ("agent", "--cluster", "oak", "--url", self.url, "--state-dir", str(self.folder / "state"))
        self.agent = self.processes.start(*agent, RAINBOW_SECRET=self.secret)

    def submit(self, seconds: float, **system: str) -> str:
        command = [sys.executable, "-c", TASK, str(self.folder), str(seconds)]
        slot = {"type": "slot", "count": 1, "label": "s", "with": [{"type": "core", "count": 1}]}
        task = {"command": command, "slot": "s", "count": {"per_slot": 1}}
        asked = {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": system}}
        return str(self.api.submit(asked)["id"])

    def said(self, word: str) -> list[tuple[str, str, float]]:
        """Return (task, process, time) of each time a word was said."""
        path = self.folder / "said"
        lines = [line.split() for line in (path.read_text() if path.exists() else "").splitlines()]
        return [(task, pid, float(at)) for task, pid, said, at in lines if said == word]


@pytest.fixture
def site(processes: Processes, tmp_path: Path) -> Site:
    return Site(processes, tmp_path)


def graces(site: Site) -> list[float]:
    """Return the seconds between the signal and the end of each attempt that was preempted."""
    warned = {(task, pid): at for task, pid, at in site.said("warned")}
    return [at - warned[task, pid] for task, pid, at in site.said("ended") if (task, pid) in warned]


def test_a_preempted_task_gets_its_signal_and_its_grace_and_runs_again(site: Site) -> None:
    plain = [site.submit(6) for _ in range(4)]
    until(lambda: len(site.said("begun")) == 4)
    urgent = site.submit(0.1, qos="urgent")
    assert site.api.wait(urgent, timeout=60)["state"] == "COMPLETED"
    assert [site.api.wait(job, timeout=60)["state"] for job in plain] == ["COMPLETED"] * 4
    [grace] = graces(site)
    assert GRACE <= grace < GRACE + 5
    [(again, _, _)] = site.said("warned")
    begun = [task for task, _, _ in site.said("begun")]
    assert (begun.count(again), len(begun)) == (2, 6)
    assert site.said("twice") == []


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_runs_twice_while_server_and_agent_are_killed(site: Site) -> None:
    chance, jobs, until_ = random.Random(5), list[str](), time.monotonic() + SECONDS
    while time.monotonic() < until_:
        waiting = len(list(site.api.all_jobs(state="WAITING")))
        jobs += [site.submit(chance.uniform(0.5, 5)) for _ in range(6 - waiting)]
        if chance.random() < 0.8:
            jobs.append(site.submit(chance.uniform(0.1, 1), qos="urgent"))
        if chance.random() < 0.1:
            chance.choice([site.kill_server, site.kill_agent])(chance.uniform(0, 2))
        time.sleep(0.7)
    for job in jobs:
        assert site.api.wait(job, timeout=300)["state"] == "COMPLETED"
    done = defaultdict(int)
    for task, _, _ in site.said("done"):
        done[task] += 1
    print(len(jobs), "jobs,", len(site.said("warned")), "preempted,", sorted(graces(site))[:3])
    assert site.said("warned"), "nothing was preempted"
    assert site.said("twice") == []
    assert sorted(done) == sorted(f"{job}-0" for job in jobs)  # each ran to its end
    assert all(grace >= GRACE - 0.05 for grace in graces(site))
