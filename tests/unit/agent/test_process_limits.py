"""Processes of a task are bounded when it is submitted and by the agent; memory and cores where it may."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Agent, Run
from rainbow.agent.executors import cgroups
from rainbow.agent.executors.keeper_client import SupervisedExecutor
from rainbow.agent.executors.run import Result
from rainbow.agent.messages import run_of
from rainbow.client import Client
from rainbow.testing.executors import ends
from rainbow.testing.executors import run_of as run
from tests.conftest import Cluster, grid
from tests.support import services
from tests.support.agent_sites import PATH, Site, Watched
from tests.support.keepers import end_of_marked, keepers
from tests.support.live import rainbow_at

BILLION = 1_000_000_000


def spec(count: dict[str, Any], **slot: int) -> dict[str, Any]:
    held = [{"type": kind, "count": amount} for kind, amount in (slot or {"core": 1}).items()]
    resources = [{"type": "slot", "label": "s", "count": 1, "with": held}]
    tasks = [{"command": ["true"], "slot": "s", "count": count}]
    return {"version": 1, "resources": resources, "tasks": tasks, "attributes": {"system": {"duration": 60}}}


@pytest.fixture
def oak(api: Any) -> Cluster:
    made: Cluster = api.register("oak", grid(2, 4))
    return made


@pytest.mark.parametrize(
    ("count", "slot", "processes", "cores"),
    [
        ({"total": BILLION}, {"core": 1}, "1,000,000,000", 1),
        ({"per_slot": 3}, {"core": 2}, "3", 2),
        ({"total": 9}, {"node": 2}, "9", 8),
    ],
)
def test_a_task_of_more_processes_than_its_cores_is_refused_with_the_number(
    oak: Cluster, count: dict[str, int], slot: dict[str, int], processes: str, cores: int
) -> None:
    result = oak.api.problem(422, "unsatisfiable", "POST", "/v1/jobs", spec(count, **slot), oak.token)
    assert f"starts {processes} processes on {cores} core" in result["detail"]
    assert "limits.processes_per_core" in result["detail"]
    assert result["most"] == cores


@pytest.mark.parametrize(
    ("count", "slot"),
    [
        ({"total": 2}, {"core": 2}),
        ({"per_slot": 1}, {"core": 1}),
        ({"total": 8}, {"node": 2}),
        ({"per_slot": 4}, {"node": 1}),
    ],
)
def test_a_task_of_as_many_processes_as_cores_is_accepted(
    oak: Cluster, count: dict[str, int], slot: dict[str, int]
) -> None:
    oak.api.good("POST", "/v1/jobs", spec(count, **slot), oak.token)


def test_an_agent_starts_no_more_whatever_the_server_says(tmp_path: Path) -> None:
    offer: Any = {
        "id": "t",
        "attempt": 1,
        "job": "j",
        "command": ["true"],
        "processes": BILLION,
        "placement": {"n0": {"core": 2}},
    }
    with Client("http://127.0.0.1:1", "rbs_x") as client:
        runs = Watched()
        agent = Agent(client, "oak", runs, say=lambda _: None)
        assert run_of(offer).processes == BILLION
        agent._start(offer)
        [event] = agent._journal.outbox
    assert runs.started == []
    assert event["detail"] == "it starts 1,000,000,000 processes, and may start 2 here (--processes-per-core)"
    assert threading.active_count() < 50


def in_group(tmp_path: Path) -> None:
    bases = cgroups.bases_here()
    services.without("" if {"memory", "pids"} <= bases.keys() else "no control groups may be made here")


def test_a_run_that_needs_more_memory_than_it_holds_is_told_as_out_of_memory(tmp_path: Path) -> None:
    in_group(tmp_path)
    one = SupervisedExecutor(PATH, tmp_path)
    try:
        hungry = "b = bytearray(400 << 20); print(len(b))"
        one.start(run(sys.executable, "-c", hungry, placement={"n0": {"core": 1, "memory": 64}}))
        [end] = ends(one).values()
    finally:
        one.close()
        for keeper in keepers(tmp_path):
            keeper.kill()
        end_of_marked(tmp_path)
    assert (end.result, end.exit_code, end.cause) == (Result.EXITED, 137, "memory")
    assert end.detail == "out of memory: it needed more than the 64 MiB it holds"


def test_a_task_that_was_out_of_memory_says_so_as_the_cause(tmp_path: Path) -> None:
    in_group(tmp_path)
    with rainbow_at(tmp_path) as url:
        site = Site.registered(url, grid(1, 2))
        offered = site.user.submit(spec({"total": 1}))
        with Client(url, site.secret) as owner:
            owner.heartbeat("oak", "a")
            while not (tasks := owner.receive("oak", "a", max=1, wait=5)["tasks"]):
                pass
            owner.accept("oak", "a", [{"id": tasks[0]["id"], "attempt": 1}])
            event: Any = {
                "task": tasks[0]["id"],
                "attempt": 1,
                "event": "ended",
                "result": "exited",
                "exit_code": 137,
            }
            owner.events("oak", "a", [{**event, "cause": "memory", "detail": "out of memory: it needed more"}])
        task = site.task(offered["id"])
    assert (task["state"], task["cause"], task["detail"]) == ("FAILED", "memory", "out of memory: it needed more")


BOMB = """
import os, time
n = 0
try:
    while n < 60:
        if os.fork() == 0:
            time.sleep(9)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n)
"""
# as a warden does it, in a process without threads: who starts a run is of its group for a moment, with all threads
BOUNDED = """
import pathlib, subprocess, sys
from rainbow.agent.executors import cgroups
name, bomb = sys.argv[1:]
folders = {kind: base / name for kind, base in cgroups.bases_here().items()}
group = cgroups.ControlGroup(folders, {"memory": 0, "cores": 1, "pids": 12})
try:
    with group.inside():
        bombs = subprocess.Popen([sys.executable, "-c", bomb], stdout=subprocess.PIPE)
    print(bombs.stdout.readline().decode())
finally:
    group.remove()
sys.exit(any(folder.exists() for folder in folders.values()))
"""


def test_a_fork_bomb_has_the_processes_it_holds(tmp_path: Path) -> None:
    in_group(tmp_path)
    command = [sys.executable, "-c", BOUNDED, f"run-test-{tmp_path.name}", BOMB]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert 5 <= int(done.stdout) <= 12


def test_limits_of_a_run_are_what_it_holds() -> None:
    held = Run(("t", 1), "j", ("x",), placement={"n0": {"core": 2, "memory": 512}, "": {"licence": 1}})
    assert cgroups.limits_of(held) == {"memory": 512 << 20, "cores": 2, "pids": 2 * cgroups.PROCESSES}
