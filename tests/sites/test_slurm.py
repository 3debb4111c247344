"""A cluster under a real Slurm: registers itself, runs what was selected for it, says what Slurm says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent.cluster_survey import ClusterWatch, survey
from rainbow.agent.executors.local import cores_here
from rainbow.client import Client
from rainbow.graph import read_cluster
from rainbow.graph.sources import graph_sources
from tests.conftest import REGISTRATION, grid, jobspec
from tests.scenarios.test_end_to_end import Processes, until
from tests.support.live import rainbow_at
from tests.support.registering import agent, note_graphs, processes_of
from tests.support.slurm import Slurm
from tests.unit.agent.test_binding import needs_two


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with processes_of(tmp_path) as made:
        yield made


@pytest.fixture
def graphs_told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return note_graphs(monkeypatch)


def rainbow(url: str, token: str, *words: str) -> str:
    """Return what the command prints."""
    environment = {**os.environ, "RAINBOW_URL": url, "RAINBOW_TOKEN": token, "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, "-m", "rainbow", *words], env=environment, capture_output=True, text=True, check=True
    ).stdout


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
        shown = rainbow(url, saved["token"], "job", "show", placed["id"])
        assert f"task-0  FAILED     1  {nodes[0]} core 4, {nodes[1]} core 4" in shown


def test_a_survey_of_slurm_says_what_sinfo_says(on_slurm: Slurm) -> None:
    result = survey("slurm")
    said = on_slurm.run("sinfo", "--json")
    assert read_cluster(result.document).totals == read_cluster(graph_sources.get("slurm")(said)).totals
    assert read_cluster(result.document).totals | {"core": 32, "node": 4} == read_cluster(result.document).totals
    assert result.up == ("n0001", "n0002", "n0003", "n0004")
    assert result.state["memory_per_node"] == 15
    assert 0 <= result.state["nodes_free"] <= 4


def test_a_node_that_slurm_takes_down_is_told_and_comes_back(
    tmp_path: Path, on_slurm: Slurm, graphs_told: list[str]
) -> None:
    first = survey("slurm")
    with rainbow_at(tmp_path) as url, Client(url, REGISTRATION) as registering:
        secret = registering.register_cluster("oak", first.document, state=first.state)["secret"]
        seen: list[Any] = []
        with Client(url, secret) as client:
            watch = ClusterWatch(client, "oak", lambda: survey("slurm"), seen.append, lambda _: None)
            watch.look()
            on_slurm.run("scontrol", "update", "nodename=n0004", "state=drain", "reason=a fan is broken")
            try:
                watch.look()
                node = client.graph("oak")["graph"]["nodes"]["cluster/n0004"]["metadata"]
                assert "a fan is broken" in node["unavailable"]
                assert client.state("oak")["state"]["nodes_free"] == 3
            finally:
                on_slurm.run("scontrol", "update", "nodename=n0004", "state=resume")
            until(lambda: survey("slurm").up == first.up, 20)
            watch.look()
    assert seen == [first.up, first.up[:3], first.up]
    assert graphs_told == ["patch_graph", "patch_graph"]


TOLD_INSIDE = "taskset -cp $$ | sed 's/.*: //'; sleep 4"


@needs_two
def test_tasks_on_an_owned_slurm_have_the_cores_that_job_show_says(
    tmp_path: Path, processes: Processes, on_slurm: Slurm
) -> None:
    """Slurm gives others than planned, for it has given the first one away: read back, bound, and booked so."""
    first = on_slurm.run("sbatch", "--parsable", "-wn0001", "-n1", "--output=/dev/null", "--wrap=sleep 60").strip()
    until(lambda: on_slurm.run("squeue", "-h", "-t", "R", "-j", first, "-o", "%N").strip() == "n0001")
    with rainbow_at(tmp_path) as url:
        agent(processes, url, "oak", "--executor", "slurm", "--mode", "owned", "--identity", "service", "--quiet")
        until(lambda: (tmp_path / "credentials.json").exists())
        saved = json.loads((tmp_path / "credentials.json").read_text())["clusters"]["oak"]
        slot = {"type": "slot", "count": 1, "label": "w", "with": [{"type": "core", "count": 1}]}
        task = {"command": ["sh", "-c", TOLD_INSIDE], "slot": "w", "count": {"per_slot": 1}}
        spec = {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": {"duration": 60}}}
        with Client(url, saved["token"]) as user:
            one = user.submit(spec)["id"]
            until(lambda: user.job(one)["tasks"][0]["state"] == "RUNNING", 30)
            on_slurm.run("scancel", first)  # its core is the second task's
            two = user.submit(spec)["id"]
            ended = [user.wait(job, 60)["tasks"][0] for job in (one, two)]
    threads = [",".join(map(str, core)) for core in cores_here()]
    assert [task["output"].strip() for task in ended] == [threads[1], threads[0]]
    assert [task["held"] for task in ended] == [{"n0001": ["socket0/core1"]}, {"n0001": ["socket0/core0"]}]
