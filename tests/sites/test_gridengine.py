"""The executor `gridengine` on a real Grid Engine: states and codes as it has them, none lost, none doubled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Result, Run
from rainbow.agent.executors.gridengine.executor import GridEngineExecutor
from rainbow.agent.executors.run import Ended
from rainbow.agent.executors.slurm import watcher
from rainbow.agent.executors.slurm.accounts import Identity
from rainbow.client import Client
from rainbow.testing.executors import ends, until
from tests.conftest import jobspec
from tests.sites.gridengine_server import GridEngine, grid_engine
from tests.support import services
from tests.support.live import rainbow_at
from tests.support.registering import agent, processes_of

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="Grid Engine is started as root")
SLOT = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}
LIVELY = {"QUICK": 0.5, "SLOW": 0.5, "COST": 1.0}


@pytest.fixture(scope="module")
def server() -> Iterator[GridEngine]:
    services.require("Grid Engine")
    with grid_engine() as made:
        yield made


@pytest.fixture
def site(server: GridEngine, monkeypatch: pytest.MonkeyPatch) -> GridEngine:
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    for name, number in LIVELY.items():
        monkeypatch.setattr(watcher, name, number)
    return server


@pytest.fixture
def executor(site: GridEngine) -> Iterator[GridEngineExecutor]:
    users, state = site.folder / "users.yaml", site.folder / f"state-{time.time_ns()}"
    users.write_text("users: {ann: ann, bob: bob}\n")
    made = GridEngineExecutor({"PATH": os.environ["PATH"]}, state, Identity("root", users))
    yield made
    made.close()


def run_of(name: str, body: str, who: str = "ann", *, cores: int = 1, index: int | None = None, **more: Any) -> Run:
    """Return a run of a script; with `index` it is an element of an array of three."""
    request = {"name": name, "requestor": who, "resources": [{**SLOT, "count": cores}], "gang": 1}
    request |= {"script": f"#!/bin/sh\n{body}\n", "tasks": 1 if index is None else 3}
    request |= {"system": {"output": "/dev/null", **more.pop("system", {})}, "site": more.pop("site", {})}
    environment = {} if index is None else {"RAINBOW_ARRAY_INDEX": str(index)}
    task = (f"{name}-{index or 0}", 1)
    folder = more.pop("cwd", f"/home/{who}")
    return Run(task, name, ("sh", "-c", "a loader"), folder, environment, more.pop("seconds", 0.0), request=request)


def test_states_and_codes_are_told_as_they_are(executor: GridEngineExecutor, site: GridEngine) -> None:
    folder = Path("/home/ann") / f"out-{time.time_ns()}"
    subprocess.run(["install", "-d", "-o", "ann", str(folder)], check=True)
    answer = {"output": f"{folder}/%x.%a", "umask": "0077"}
    runs = [
        run_of("okay", "echo $SLURM_JOB_ID $NSLOTS; umask; pwd; id -un", system=answer),
        run_of("seven", "exit 7", "bob"),
        run_of("again", "exit 99", system=answer),
        run_of("error", "exit 100", system=answer),
        run_of("segv", "ulimit -c 0; kill -SEGV $$"),
        run_of("limit", "sleep 60", seconds=3.0),
        run_of("nodir", "true", cwd="/nonexistent/dir"),
        run_of("wide", "test $NSLOTS = 2", "bob", cores=2),
        run_of("eve", "true", "eve"),
        *[run_of("arr", "test $SGE_TASK_ID = $SLURM_ARRAY_TASK_ID && exit $SGE_TASK_ID", index=k) for k in (1, 2, 3)],
    ]
    for one in runs:
        executor.start(one)
    results = {run[0]: end for run, end in ends(executor, len(runs), seconds=90).items()}
    assert {name: (end.result, end.exit_code, end.cause) for name, end in results.items()} == {
        "okay-0": (Result.EXITED, 0, ""),
        "seven-0": (Result.EXITED, 7, ""),
        "again-0": (Result.EXITED, 99, ""),
        "error-0": (Result.EXITED, 100, ""),
        "segv-0": (Result.EXITED, 139, ""),
        "limit-0": (Result.TIMED_OUT, None, ""),
        "nodir-0": (Result.FAILED, None, "directory"),
        "wide-0": (Result.EXITED, 0, ""),
        "eve-0": (Result.FAILED, None, ""),
        "arr-1": (Result.EXITED, 1, ""),
        "arr-2": (Result.EXITED, 2, ""),
        "arr-3": (Result.EXITED, 3, ""),
    }
    assert "/nonexistent/dir" in results["nodir-0"].detail
    assert results["okay-0"].output.split()[1:] == ["1", "0077", "/home/ann", "ann"]
    assert (folder / "okay.").stat().st_mode & 0o777 == 0o600
    assert site.run("qstat", "-u", "*") == ""


def test_reasons_to_wait_holds_and_the_cancel_of_an_element(executor: GridEngineExecutor, site: GridEngine) -> None:
    for one in (
        run_of("large", "true", cores=7, site={"gridengine": {"l": ["hostname=localhost"]}}),
        run_of("fills", "sleep 60", "bob", cores=8),
    ):
        executor.start(one)
        until(lambda: executor.poll() is not None and len(executor.pending()) + len(executor.begun()) >= 0)
    for index in (1, 2, 3):
        executor.start(run_of("arr", "sleep 60", index=index))
    seen: list[Ended] = []

    def waiting() -> bool:
        seen.extend(executor.poll())
        return any("cannot run" in why.text or "turn" in why.text for why in executor.pending().values())

    until(waiting, 30)
    executor.stop(("arr-2", 1))
    until(lambda: seen.extend(executor.poll()) or any(end.id[0] == "arr-2" for end in seen), 30)
    [end] = [end for end in seen if end.id[0] == "arr-2"]
    assert end.result is Result.STOPPED
    assert ("arr-1", 1) in executor.running()
    assert "arr" in site.run("qstat", "-u", "ann")


def test_what_grid_engine_would_refuse_is_said_before(executor: GridEngineExecutor) -> None:
    executor.check("fits", run_of("q", "true", cores=2))
    executor.check("wide", run_of("q", "true", cores=99))
    executor.check("queue", run_of("q", "true", system={"queue": "nosuch.q"}))
    executor.check("eve", run_of("q", "true", "eve"))
    said: dict[str, Any] = {}
    until(lambda: len(said.update(executor.checked()) or said) == 4, 30)
    assert said["fits"].refused == ""
    assert 'cannot run in PE "smp"' in said["wide"].refused
    assert 'unknown queue "nosuch.q"' in said["queue"].refused
    assert "no account at this site" in said["eve"].refused


AGENT = """
import json, os, sys, time
from pathlib import Path
from rainbow.agent.executors.gridengine.executor import GridEngineExecutor
from rainbow.agent.executors.slurm import watcher
from rainbow.agent.executors.slurm.accounts import Identity
from tests.sites.test_gridengine import run_of
folder, last = Path(sys.argv[1]), int(sys.argv[2])
watcher.APART, watcher.QUICK, watcher.SLOW, watcher.COST = 4.0, 0.5, 0.5, 1.0
told = {json.loads(line)[0] for line in (folder / "told").read_text().splitlines()}
identity = Identity("root", folder / "users.yaml")
made = GridEngineExecutor({"PATH": os.environ["PATH"]}, folder / "state", identity)
here = {run[0] for run in made.running()}
for number in range(last):
    name = f"k{number}"
    if f"{name}-0" not in told and f"{name}-0" not in here:
        body = f"echo {number} >> {folder}/lines; exit {(0, 7, 99, 100)[number % 4]}"
        made.start(run_of(name, body, ("ann", "bob")[number % 2], system={"output": f"{folder}/out/{name}"}))
while True:
    found = made.poll()
    with (folder / "told").open("a") as file:
        for end in found:
            file.write(json.dumps([end.id[0], str(end.result), end.exit_code, end.detail]) + "\\n")
    time.sleep(0.05)
"""


@pytest.mark.parametrize("jobs", [8, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.timeout(1200)
def test_kills_of_qmaster_and_agent_lose_and_double_nothing(jobs: int, site: GridEngine) -> None:
    folder = site.folder / f"kills-{time.time_ns()}"
    (folder / "out").mkdir(parents=True)
    (folder / "out").chmod(0o777)
    for name in ("told", "lines"):
        (folder / name).touch()
    (folder / "lines").chmod(0o666)
    (folder / "users.yaml").write_text("users: {ann: ann, bob: bob}\n")

    def agent() -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        return subprocess.Popen([sys.executable, "-c", AGENT, str(folder), str(jobs)], env=environment)

    def told() -> dict[str, list[Any]]:
        rows = [json.loads(line) for line in (folder / "told").read_text().splitlines()]
        assert len(rows) == len({row[0] for row in rows}), rows
        return {row[0]: row[1:] for row in rows}

    for _ in range(max(1, jobs // 20)):
        first = agent()
        time.sleep(2.5)
        site.kill_master()
        first.kill()
        first.wait()
        site.start_master()
        site.wait_for_host()
    last = agent()
    try:
        until(lambda: len(told()) == jobs, 60 + 5 * jobs)
    finally:
        last.kill()
        last.wait()
    codes = {name: (result, code) for name, (result, code, _) in told().items()}
    assert codes == {f"k{number}-0": ("exited", (0, 7, 99, 100)[number % 4]) for number in range(jobs)}
    assert sorted(map(int, (folder / "lines").read_text().split())) == list(range(jobs))


def test_a_grid_engine_registers_itself_and_runs_what_is_submitted(site: GridEngine, tmp_path: Path) -> None:
    users = site.folder / "who.yaml"
    users.write_text("users: {ann: ann}\n")
    with processes_of(tmp_path) as processes, rainbow_at(tmp_path) as url:
        agent(processes, url, "elm", "--executor", "gridengine", "--identity", "root", "--users", str(users))
        until(lambda: (tmp_path / "credentials.json").exists(), 30)
        saved = json.loads((tmp_path / "credentials.json").read_text())["clusters"]["elm"]
        with Client(url, saved["token"]) as user:
            spec = jobspec(command=["sh", "-c", "id -un; exit 99"])
            spec["resources"] = [{**SLOT, "count": 2, "label": "it"}]
            until(lambda: user.cluster("elm")["state"] == "up", 30)
            made = user.submit(spec, requestor="ann")
            assert user.cluster("elm")["totals"]["core"] == 8
            [task] = user.wait(made["id"], 60)["tasks"]
    assert (task["exit_code"], task["output"].split()[0]) == (99, "ann")
    assert task["site"]["number"].isdecimal()
