"""Never two runs of one task at a time: an agent that has lost the server stops before others may start."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Agent
from rainbow.agent.executors import lease
from rainbow.agent.executors.keeper_client import SupervisedExecutor
from rainbow.agent.executors.run import Result
from rainbow.api import create_app
from rainbow.client import Client
from rainbow.service import Service
from rainbow.testing.executors import ends, run_of
from tests.scenarios.test_end_to_end import Processes
from tests.support.agent_sites import PATH, Site, Watched, until
from tests.support.keepers import end_of_marked, keepers
from tests.support.live import http, rainbow_at, service_at, url_of
from tests.support.registering import processes_of
from tests.support.unruly import Proxy

# writes when it begins and every 50 ms that it is there, with a clock that all processes share
ALIVE = """
import os, sys, time
mark = os.urandom(8).hex()
out = open(sys.argv[1], "a", buffering=1)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    out.write(f"{os.environ['RAINBOW_TASK']} {mark} {time.monotonic():.3f}\\n")
    time.sleep(0.05)
"""
LEASE, GRACE = 2.0, 4.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for keeper in keepers(tmp_path):
        keeper.kill()
    end_of_marked(tmp_path)


def test_a_run_ends_with_the_lease_though_agent_and_keeper_are_gone(folder: Path) -> None:
    one = SupervisedExecutor(PATH, folder)
    one.renew(lease.now() + 60, 1.0)
    one.start(run_of("sh", "-c", 'trap "" TERM; echo begun > "$1"; sleep 300', "sh", str(folder / "begun")))
    until(lambda: (folder / "begun").exists())
    one.renew(lease.now() + 4, 1.0)  # the last word
    [keeper] = keepers(folder)
    keeper.kill()
    keeper.wait()
    two = SupervisedExecutor(PATH, folder)
    begun = time.monotonic()
    [end] = ends(two).values()
    assert (end.result, end.detail) == (Result.LOST, "its agent had no word from the server for a lease")
    assert time.monotonic() - begun < 20


def test_nothing_starts_after_the_lease(folder: Path) -> None:
    one = SupervisedExecutor(PATH, folder)
    one.renew(lease.now() - 1, 1.0)
    one.start(run_of("sh", "-c", 'echo >> "$1"', "sh", str(folder / "n")))
    [end] = ends(one).values()
    assert end.result is Result.LOST
    assert not (folder / "n").exists()


class Moved:
    """A clock that nobody sets, moved forward for all who read it: leases of a minute end at once."""

    def __init__(self) -> None:
        self.by = 0.0

    def __call__(self) -> float:
        return lease.now() + self.by


@contextmanager
def at_work(
    folder: Path, clock: Moved, how: str = "stop"
) -> Iterator[tuple[Site, Proxy, Watched, str, list[str], Service]]:
    """Give a site whose agent runs one job, its line, what runs, the job, what it says; lease 60 s, grace 10."""
    with service_at(folder, clock) as service, http(create_app(service)) as port:
        site = Site.registered(url_of(port))
        with Proxy(port) as line, Client(url_of(line.port), site.secret, timeout=5, tries=1) as client:
            runs, said = Watched(), list[str]()
            agent = Agent(client, "oak", runs, wait=0.2, say=said.append, on_lost_server=how, clock=clock)
            thread = threading.Thread(target=agent.run, daemon=True)
            thread.start()
            job = site.submit("sleep", "60")
            site.until(job, "RUNNING")
            yield site, line, runs, job, said, service
            line.cut = False
            agent.stop()
            thread.join(20)


@pytest.mark.parametrize("keeps", [False, True])
def test_an_agent_that_hears_nothing_for_a_lease_stops_its_tasks_unless_told_to_keep_them(
    tmp_path: Path, keeps: bool
) -> None:
    clock = Moved()
    with at_work(tmp_path, clock, "keep" if keeps else "stop") as (site, line, runs, job, said, _service):
        line.cut = True
        line.close_all()
        time.sleep(0.5)  # what was under way comes to its end, by a clock that has not moved yet
        clock.by = 45
        time.sleep(0.5)
        assert (len(runs.running()), site.task(job)["state"]) == (1, "RUNNING")
        clock.by = 61  # the lease is over, the grace is not
        if not keeps:
            until(lambda: runs.running() == [])
            assert any("no word from the server" in words for words in said)
        assert site.task(job)["state"] == "RUNNING"
        clock.by = 75
        if keeps:
            time.sleep(1)
            assert (len(runs.running()), site.task(job)["state"]) == (1, "RUNNING")
        else:
            until(lambda: site.task(job)["state"] == "WAITING")


def test_an_agent_measures_by_a_clock_that_nobody_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The time of day steps by an hour, forward and back: tasks go on, at the agent and at the server."""
    clock, real = Moved(), time.time
    with at_work(tmp_path, clock) as (site, _, runs, job, *_):
        for hours in (3_600.0, -3_600.0):
            monkeypatch.setattr(time, "time", lambda hours=hours: real() + hours)
            clock.by += 25  # a heartbeat is due, and a look for what is lost
            time.sleep(1)
            assert (len(runs.running()), site.task(job)["attempt"]) == (1, 1)
        monkeypatch.undo()
    assert runs.started == [(f"{job}-0", 1)]


def overlaps(lines: list[str], slack: float = 0.0) -> list[tuple[str, float]]:
    """Return (task, seconds) wherever two runs of one task were there at the same time."""
    seen: dict[str, dict[str, list[float]]] = {}
    for line in lines:
        task, mark, at = line.split()
        seen.setdefault(task, {}).setdefault(mark, []).append(float(at))
    results = []
    for task, runs in seen.items():
        spans = sorted((min(times), max(times)) for times in runs.values())
        results += [(task, end - begin) for (_, end), (begin, _) in pairwise(spans) if end > begin]
    return [one for one in results if one[1] > slack]


@dataclass
class Trouble:
    """Agents whose lines to a server are cut and slowed at random, and that are killed."""

    site: Site
    processes: Processes
    over: threading.Event = field(default_factory=threading.Event)
    lines: list[Proxy] = field(default_factory=list)
    agents: list[Any] = field(default_factory=list)

    def start(self, k: int) -> Any:
        where = ("--url", url_of(self.lines[k].port), "--state-dir", str(self.processes.folder / f"state{k}"))
        more = ("--quiet", "--max-tasks", "4")
        return self.processes.start("agent", "--cluster", "oak", *where, *more, RAINBOW_SECRET=self.site.secret)

    def add(self) -> None:
        self.lines.append(Proxy(int(self.site.url.rpartition(":")[2])))
        self.lines[-1].__enter__()
        self.agents.append(self.start(len(self.agents)))

    def make(self, k: int, seed: int) -> None:
        luck = random.Random(seed * 10 + k)
        while not self.over.is_set():
            what = luck.choice(["cut", "cut", "slow", "kill"])
            self.begin(k, what, luck)
            self.over.wait(luck.uniform(0.5, 2.5 * LEASE))
            self.lines[k].cut, self.lines[k].delay = False, 0.0
            if what == "kill":
                self.agents[k] = self.start(k)
            self.over.wait(luck.uniform(1.5, 4))

    def begin(self, k: int, what: str, luck: random.Random) -> None:
        if what == "cut":
            self.lines[k].cut = True
            self.lines[k].close_all()
        elif what == "slow":
            self.lines[k].delay = luck.uniform(0.2, 2)
        else:
            self.agents[k].kill()
            self.agents[k].wait()


def campaign(folder: Path, processes: Processes, seconds: float, seed: int, tasks: int) -> tuple[list[str], int]:
    """Return what the tasks wrote while two agents had trouble, and how many attempts there were."""
    chance = random.Random(seed)
    with rainbow_at(folder, lease=LEASE, grace=GRACE, tick=0.1) as url:
        trouble = Trouble(Site.registered(url), processes)
        trouble.site.limit(max_lost=0)
        trouble.add()
        for _ in range(tasks):
            trouble.site.submit("python3", "-c", ALIVE, str(folder / "lines"), f"{chance.uniform(8, 14):.1f}")
        until(lambda: (folder / "lines").exists())
        trouble.add()
        time.sleep(2)
        trouble.begin(0, "cut", chance)  # at first for so long that its tasks are given to the other
        time.sleep(3 * LEASE + GRACE)
        trouble.lines[0].cut = False
        threads = [threading.Thread(target=trouble.make, args=(k, seed)) for k in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        trouble.over.set()
        for thread in threads:
            thread.join()
        results = [trouble.site.user.job(job["id"])["tasks"][0] for job in trouble.site.user.all_jobs()]
        for line in trouble.lines:
            line.__exit__(None, None, None)
    return (folder / "lines").read_text().splitlines(), sum(task["attempt"] for task in results)


def test_no_task_runs_twice_at_a_time_while_lines_are_cut_and_slowed(tmp_path: Path) -> None:
    with processes_of(tmp_path) as processes:
        lines, attempts = campaign(tmp_path, processes, 4.0, seed=1, tasks=4)
    assert lines
    assert attempts > 4, "something must have been lost, or nothing was shown"
    assert overlaps(lines) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 6))
def test_no_task_runs_twice_at_a_time_for_long(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    with processes_of(tmp_path) as processes:
        lines, attempts = campaign(tmp_path, processes, float(os.environ.get("RAINBOW_FENCING", "120")), seed, 30)
    with capsys.disabled():
        print(f"\nseed {seed}: {attempts} attempts at 30 tasks, {len(overlaps(lines))} at the same time")
    assert overlaps(lines) == []


def test_two_runs_at_a_time_would_be_seen() -> None:
    assert overlaps(["t a 1.0", "t a 3.0", "t b 2.0", "t b 4.0", "u a 1.0"]) == [("t", 1.0)]
