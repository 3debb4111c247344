"""Clusters that describe themselves: this machine, Slurm where it is there, and what the server hears of changes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rainbow.agent import machine
from rainbow.agent.survey import Survey, survey
from rainbow.agent.watch import Watch
from rainbow.client import Client
from rainbow.errors import RainbowError, RequestError, Unavailable
from rainbow.graph import read_cluster
from tests.conftest import REGISTRATION, grid, jobspec
from tests.live import agent_of, rainbow_at
from tests.test_end_to_end import Processes, until
from tests.test_recovery import end_of_marked, keepers


def test_this_machine_is_described_as_it_is() -> None:
    found = survey("local")
    totals = read_cluster(found.document).totals
    assert totals["node"] == 1
    assert 1 <= totals["core"] <= len(psutil.Process().cpu_affinity() or [])
    assert totals["memory"] <= psutil.virtual_memory().total // 2**20
    assert totals.get("gpu", 0) == machine.gpus()
    assert found.state == {"nodes_free": 1, "memory_per_node": totals["memory"] // 1024}
    assert len(found.up) == 1


def test_cores_are_limited_by_the_time_a_container_may_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    whole = machine.cores()
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    (tmp_path / "memory.max").write_text(str(512 * 2**20))
    assert (machine.cores(), machine.memory()) == (1, 512)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.cores() == whole
    assert machine.memory() > 512


def command_saying(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


CASES = Path(__file__).parent / "cases" / "sources"


def test_slurm_is_asked_as_its_version_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    text = CASES / "slurm-scontrol-oneliner-22.05.txt"
    command_saying(tmp_path, "scontrol", f'test "$3" = --oneliner && cat {text} || exit 1')
    command_saying(
        tmp_path, "sinfo", 'test "$1" = -h && printf "node01|idle\\nnode01|idle\\nnode02|drained\\n" || exit 1'
    )
    found = survey("slurm")
    names = list(read_cluster(found.document).workers)
    assert set(found.up) < set(names)
    assert found.state["nodes_free"] == len({"node01"} & set(found.up))


@pytest.mark.parametrize("script", ["echo no controller >&2; exit 1", "echo '{'", "echo '{}'"])
def test_a_resource_manager_that_says_nothing_useful_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("scontrol", "sinfo"):
        command_saying(tmp_path, name, script)
    with pytest.raises(RainbowError):
        survey("slurm")


def test_what_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RequestError, match="there is no flux here"):
        survey("flux-r")
    with pytest.raises(RequestError, match="flux-r, hwloc, local, slurm"):
        survey("pbs")


@pytest.fixture
def oak(tmp_path: Path) -> Iterator[tuple[str, Client]]:
    with rainbow_at(tmp_path) as url:
        with Client(url, REGISTRATION) as registering:
            told = registering.register_cluster("oak", grid(2, 2), state={"cost": 3, "nodes_free": 9})
        with Client(url, told["secret"]) as client:
            yield url, client


def watching(client: Client, surveys: list[Survey], seen: list[Any]) -> Watch:
    return Watch(client, "oak", lambda: surveys[0], seen.append, lambda _: None)


def test_a_change_is_told_once_and_what_others_have_set_stays(oak: tuple[str, Client]) -> None:
    _, client = oak
    surveys, seen = [Survey(grid(2, 2), {"nodes_free": 2}, ("n0", "n1"))], []
    watch = watching(client, surveys, seen)
    watch.look()
    first = client.cluster("oak")["revision"]
    state = client.state("oak")
    watch.look()
    assert client.cluster("oak")["revision"] == first
    assert client.state("oak")["reported_at"] == state["reported_at"]
    surveys[0] = Survey(grid(3, 2), {"nodes_free": 1}, ("n1",))
    watch.look()
    assert client.cluster("oak")["totals"]["node"] == 3
    reported = client.state("oak")["state"]
    assert (reported["cost"], reported["nodes_free"]) == (3, 1)
    assert seen == [("n0", "n1"), ("n0", "n1"), ("n1",)]


def test_a_worker_that_is_down_is_lost_and_comes_back(oak: tuple[str, Client]) -> None:
    url, client = oak

    def states() -> list[str]:
        return [worker["state"] for worker in client.workers("oak")]

    secret = client._calls._http.headers["Authorization"].removeprefix("Bearer ")
    with agent_of(url, "oak", secret) as agent:
        until(lambda: states() == ["READY", "READY"], 10)
        agent.speak_for(("n1",))
        until(lambda: states() == ["LOST", "READY"], 10)
        agent.speak_for(("n0", "n1"))
        until(lambda: states() == ["READY", "READY"], 10)


def test_a_resource_manager_that_is_away_for_a_while_is_complained_of_once(oak: tuple[str, Client]) -> None:
    _, client = oak
    said: list[str] = []

    def look() -> Survey:
        raise Unavailable("sinfo: no controller")

    watch = Watch(client, "oak", look, lambda _: None, said.append, every=0.05)
    watch.start()
    until(lambda: bool(said), 5)
    watch.stop()
    assert said == ["the cluster's state is not told: sinfo: no controller"]


# ── with real processes ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    made.end()
    for keeper in keepers(tmp_path):
        keeper.kill()
    end_of_marked(tmp_path)


def agent(processes: Processes, url: str, cluster: str, *more: str) -> Any:
    folder = processes.folder
    given = ("--url", url, "--state-dir", str(folder / "state"), "--credentials", str(folder / "credentials.json"))
    return processes.start("agent", "--cluster", cluster, "--register", *given, *more)


def test_this_machine_registers_itself_and_runs_a_job(tmp_path: Path, processes: Processes) -> None:
    with rainbow_at(tmp_path) as url:
        for _ in range(2):  # started again it is the same cluster
            running = agent(processes, url, "laptop")
            until(lambda: (tmp_path / "credentials.json").exists())
            token = json.loads((tmp_path / "credentials.json").read_text())["clusters"]["laptop"]["token"]
            with Client(url, token) as user:
                job = user.wait(user.submit(jobspec(command=["echo", "hi"]))["id"], 30)
                assert (job["state"], job["tasks"][0]["output"]) == ("COMPLETED", "hi\n")
            running.terminate()
            assert running.wait(20) == 0


def test_registering_without_the_secret_for_it_is_refused_and_says_so(tmp_path: Path, processes: Processes) -> None:
    with rainbow_at(tmp_path) as url:
        given = ("--url", url, "--credentials", str(tmp_path / "none.json"))
        ran = processes.start("agent", "--cluster", "x", "--register", *given, RAINBOW_REGISTRATION_SECRET="")
        assert ran.wait(20) == 2 or ran.returncode == 1
        assert "the registration secret is needed" in (tmp_path / "agent.log").read_text()


@pytest.mark.usefixtures("on_slurm")
def test_a_slurm_cluster_registers_itself_and_runs_the_job_that_was_selected_for_it(
    tmp_path: Path, processes: Processes
) -> None:
    with rainbow_at(tmp_path) as url, Client(url, REGISTRATION) as registering:
        tokens = [
            registering.register_cluster(name, grid(4, cores), state={"cost": cost, "nodes_free": 4})["token"]
            for name, cores, cost in (("dear", 8, 9), ("small", 1, 1))
        ]
        agent(processes, url, "oak", "--executor", "psij:slurm")
        until(lambda: (tmp_path / "credentials.json").exists())
        saved = json.loads((tmp_path / "credentials.json").read_text())["clusters"]["oak"]
        with Client(url, saved["secret"]) as owner:
            owner.change_state("oak", {"cost": 2})
        steps = [{"filter": "nodes_free > 1"}, {"sort_ascending": "cost"}, {"select": "first"}]
        choose = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": steps}]}}
        with Client(url, [*tokens, saved["token"]]) as user:
            command = ["sh", "-c", "echo $SLURMD_NODENAME; exit $RAINBOW_TASK_RANK"]
            spec = jobspec(2, command)
            spec["resources"][0]["with"][0]["with"][0]["count"] = 4
            placed = user.submit(spec, selector=choose)
            assert sorted(c["cluster"] for c in placed["decision"]["candidates"]) == ["dear", "oak"]
            assert placed["cluster"] == "oak"
            [task] = user.wait(placed["id"], 60)["tasks"]
        nodes = sorted(task["placement"])
        assert len(nodes) == 2
        assert set(nodes) <= {"n0001", "n0002", "n0003", "n0004"}
        assert (task["state"], task["exit_code"]) == ("FAILED", 1)
        assert sorted(task["output"].split()) == nodes


@pytest.mark.usefixtures("on_slurm")
def test_a_survey_of_slurm_says_what_sinfo_says() -> None:
    found = survey("slurm")
    assert found.up == ("n0001", "n0002", "n0003", "n0004")
    assert found.state["memory_per_node"] == 15
    assert 0 <= found.state["nodes_free"] <= 4
