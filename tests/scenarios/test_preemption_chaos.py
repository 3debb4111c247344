"""Preemption with real processes: a signal and its grace, and a server and an agent that are killed meanwhile.

Every attempt of a task locks a file of its own task, and writes when it begins, gets a signal and is done.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import pytest

from rainbow.client import Client
from tests.conftest import ADMIN, REGISTRATION, grid
from tests.scenarios.test_end_to_end import Processes, processes, until
from tests.support.killed import Killed
from tests.support.ports import free_port

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
while time.monotonic() < end and not os.path.exists(folder + "/go"):
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
        registration = Client(self.url, REGISTRATION).register_cluster("oak", grid(2, 2))
        self.secret, self.api = registration["secret"], Client(self.url, registration["token"])
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
        request = {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": system}}
        return str(self.api.submit(request)["id"])

    def words(self) -> list[tuple[str, str, float]]:
        """Return (task, word, time) of all that was said, in order."""
        path = self.folder / "said"
        lines = [line.split() for line in (path.read_text() if path.exists() else "").splitlines()]
        return [(task, word, float(at)) for task, _, word, at in lines]

    def said(self, word: str) -> list[str]:
        """Return the tasks that said a word, as often as they did."""
        return [task for task, one, _ in self.words() if one == word]


@pytest.fixture
def site(processes: Processes, tmp_path: Path) -> Site:
    return Site(processes, tmp_path)


def graces(site: Site) -> list[float]:
    """Return the seconds between the signal and the end of each attempt that was preempted."""
    warned, result = dict[str, float](), list[float]()
    for task, word, at in site.words():
        if (
            word == "begun"
        ):  # another attempt: its process may have the number of the one before, in a space of its own
            warned.pop(task, None)
        if word == "warned":
            warned.setdefault(task, at)
        if word == "ended" and task in warned:
            result.append(at - warned.pop(task))
    return result


def test_a_preempted_task_gets_its_signal_and_its_grace_and_runs_again(site: Site) -> None:
    plain = [site.submit(600) for _ in range(4)]
    until(lambda: len(site.said("begun")) == 4)
    urgent = site.submit(0.1, qos="urgent")
    assert site.api.wait(urgent, timeout=60)["state"] == "COMPLETED"
    until(lambda: len(site.said("begun")) == 6)
    (site.folder / "go").touch()
    assert [site.api.wait(job, timeout=60)["state"] for job in plain] == ["COMPLETED"] * 4
    [grace] = graces(site)
    assert grace >= GRACE
    [again] = site.said("warned")
    begun = site.said("begun")
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
    print(len(jobs), "jobs,", len(site.said("warned")), "preempted,", sorted(graces(site))[:3])
    assert site.said("warned"), "nothing was preempted"
    assert site.said("twice") == []
    assert sorted(set(site.said("done"))) == sorted(f"{job}-0" for job in jobs)  # each ran to its end
    assert all(grace >= GRACE - 0.05 for grace in graces(site))
