"""Clusters that describe themselves: this machine, Slurm where it is there, and what the server hears of changes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rainbow.agent import cluster_survey
from rainbow.agent.cluster_survey import ClusterWatch, Survey, survey
from rainbow.api import create_app
from rainbow.client import Client
from rainbow.errors import RainbowError, RequestError, Unavailable
from rainbow.graph import read_cluster
from tests.conftest import REGISTRATION, grid, jobspec
from tests.scenarios.test_end_to_end import Processes, until
from tests.support.live import agent_of, http, rainbow_at, service_at, url_of
from tests.support.ports import free_port
from tests.support.registering import agent, note_graphs, processes_of


def test_this_machine_is_described_as_it_is() -> None:
    result = survey("local")
    totals = read_cluster(result.document).totals
    assert totals["node"] == 1
    assert 1 <= totals["core"] <= len(psutil.Process().cpu_affinity() or [])
    assert totals["memory"] <= psutil.virtual_memory().total // 2**20
    assert totals.get("gpu", 0) == cluster_survey.gpus()
    assert result.state == {"nodes_free": 1, "memory_per_node": totals["memory"] // 1024}
    assert len(result.up) == 1


def test_cores_are_limited_by_the_time_a_container_may_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster_survey, "CGROUP", tmp_path)
    whole = cluster_survey.cores()
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    (tmp_path / "memory.max").write_text(str(512 * 2**20))
    assert (cluster_survey.cores(), cluster_survey.memory()) == (1, 512)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert cluster_survey.cores() == whole
    assert cluster_survey.memory() > 512


def command_saying(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


CASES = Path(__file__).parents[2] / "cases" / "sources"


def test_slurm_is_asked_as_its_version_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    text = CASES / "slurm-scontrol-oneliner-22.05.txt"
    command_saying(tmp_path, "scontrol", f'test "$3" = --oneliner && cat {text} || exit 1')
    command_saying(
        tmp_path, "sinfo", 'test "$1" = -h && printf "node01|idle\\nnode01|idle\\nnode02|drained\\n" || exit 1'
    )
    result = survey("slurm")
    names = list(read_cluster(result.document).workers)
    assert set(result.up) < set(names)
    assert result.state["nodes_free"] == len({"node01"} & set(result.up))


def test_flux_and_hwloc_are_asked_with_their_own_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    free = 'test "$2" = list && echo 2 && echo 1 && exit 0'  # a line for every set of nodes that are alike
    command_saying(tmp_path, "flux", f'{free}; test "$*" = "resource R" && cat {CASES / "flux-r.json"}')
    command_saying(tmp_path, "lstopo-no-graphics", f'test "$*" = "--of xml" && cat {CASES / "hwloc-2.9.xml"}')
    flux, hwloc = survey("flux-r"), survey("hwloc")
    assert flux.up == ("big", "tioga0", "tioga1", "tioga2", "tioga3")
    assert (flux.state["nodes_free"], read_cluster(flux.document).totals["gpu"]) == (3, 16)
    assert hwloc.up == ("vm",)
    assert (read_cluster(hwloc.document).totals["core"], hwloc.state["nodes_free"]) == (2, 1)


@pytest.mark.skipif(not shutil.which("lstopo-no-graphics"), reason="lstopo is not installed (apt-get install hwloc)")
def test_lstopo_and_the_kernel_agree_on_this_machine() -> None:
    kernel, hwloc = (read_cluster(survey(source).document).totals for source in ("local", "hwloc"))
    assert kernel["core"] <= hwloc["core"]
    assert hwloc["node"] == 1
    assert abs(hwloc["memory"] - kernel["memory"]) <= hwloc["memory"] / 10 or kernel["memory"] < hwloc["memory"]


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
    with pytest.raises(RequestError, match="command flux not found on this machine"):
        survey("flux-r")
    with pytest.raises(RequestError, match="flux-r, gridengine, hwloc, local, slurm"):
        survey("pbs")


@pytest.fixture
def oak(tmp_path: Path) -> Iterator[tuple[str, Client]]:
    with rainbow_at(tmp_path) as url:
        with Client(url, REGISTRATION) as registering:
            registration = registering.register_cluster("oak", grid(2, 2), state={"cost": 3, "nodes_free": 9})
        with Client(url, registration["secret"]) as client:
            yield url, client


def watching(client: Client, surveys: list[Survey], seen: list[Any]) -> ClusterWatch:
    return ClusterWatch(client, "oak", lambda: surveys[0], seen.append, lambda _: None)


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


@pytest.fixture
def graphs_told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return note_graphs(monkeypatch)


def in_order(document: Any) -> Any:
    return document["graph"]["nodes"], sorted(json.dumps(edge, sort_keys=True) for edge in document["graph"]["edges"])


def test_a_graph_that_changes_is_told_by_its_changes(oak: tuple[str, Client], graphs_told: list[str]) -> None:
    _, client = oak
    surveys = [Survey(grid(2, 2), {}, ())]
    watch = watching(client, surveys, [])
    for nodes, cores in ((3, 2), (3, 2), (1, 4), (5, 1)):
        surveys[0] = Survey(grid(nodes, cores), {}, ())
        watch.look()
        assert in_order(client.graph("oak")) == in_order(grid(nodes, cores))
    assert graphs_told == ["patch_graph"] * 3


def test_a_graph_somebody_else_has_changed_is_told_whole(oak: tuple[str, Client], graphs_told: list[str]) -> None:
    _, client = oak
    surveys = [Survey(grid(3, 2), {}, ())]
    watch = watching(client, surveys, [])
    watch.look()
    client.patch_graph("oak", [{"op": "remove", "vertex": "n0"}])
    surveys[0] = Survey(grid(4, 2), {}, ())
    watch.look()
    assert graphs_told == ["patch_graph", "patch_graph", "patch_graph", "put_graph"]
    assert in_order(client.graph("oak")) == in_order(grid(4, 2))
    surveys[0] = Survey(grid(5, 2), {}, ())
    watch.look()
    assert graphs_told[4:] == ["patch_graph"]


def test_a_worker_in_use_is_taken_away_when_it_is_free(oak: tuple[str, Client], tmp_path: Path) -> None:
    url, client = oak
    surveys = [Survey(grid(1, 2), {}, ())]
    watch = watching(client, surveys, [])
    secret = client._calls._http.headers["Authorization"].removeprefix("Bearer ")
    with agent_of(url, "oak", secret):
        spec = jobspec(2, ["sh", "-c", 'while [ ! -e "$1" ]; do sleep 0.1; done', "sh", str(tmp_path / "end")])
        [token] = [client.mint_token(["oak"])["token"]]
        with Client(url, token) as user:
            job = user.submit(spec)["id"]
            until(lambda: user.job(job)["state"] == "RUNNING", 20)
            with pytest.raises(RainbowError, match="worker n1 has tasks"):
                watch.look()
            (tmp_path / "end").touch()
            assert user.wait(job, 20, every=0.1)["state"] == "COMPLETED"
    watch.look()
    assert client.cluster("oak")["totals"]["node"] == 1


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

    watch = ClusterWatch(client, "oak", look, lambda _: None, said.append, every=0.05)
    watch.start()
    until(lambda: bool(said), 5)
    watch.stop()
    assert said == ["failed to report the cluster's state: sinfo: no controller"]


# ── with real processes ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with processes_of(tmp_path) as made:
        yield made


def test_this_machine_registers_itself_and_runs_a_job(tmp_path: Path, processes: Processes) -> None:
    url = url_of(port := free_port())
    running = agent(processes, url, "laptop")
    until(lambda: "trying again in 1 s" in (tmp_path / "agent.log").read_text())  # the server is not up yet
    with service_at(tmp_path) as service, http(create_app(service), port):
        for again in (False, True):  # started again it is the same cluster
            running = agent(processes, url, "laptop") if again else running
            until(lambda: (tmp_path / "credentials.json").exists())
            token = json.loads((tmp_path / "credentials.json").read_text())["clusters"]["laptop"]["token"]
            with Client(url, token) as user:
                job = user.wait(user.submit(jobspec(command=["echo", "hi"]))["id"], 30)
                assert (job["state"], job["tasks"][0]["output"]) == ("COMPLETED", "hi\n")
            running.terminate()
            assert running.wait(20) == 0


def test_registering_without_the_secret_for_it_is_refused_and_says_so(tmp_path: Path, processes: Processes) -> None:
    with rainbow_at(tmp_path) as url:
        inputs = ("--url", url, "--credentials", str(tmp_path / "none.json"))
        ran = processes.start("agent", "--cluster", "x", "--register", *inputs, RAINBOW_REGISTRATION_SECRET="")
        assert ran.wait(20) == 2 or ran.returncode == 1
        assert "is not registered; pass --registration-secret to register it" in (tmp_path / "agent.log").read_text()
