"""The main job with real processes: a server killed at any moment loses nothing, and what ended never runs again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from rainbow.client import Client
from tests.conftest import REGISTRATION, grid
from tests.support.ports import free_port

JOBS = 100
ROOT = Path(__file__).parents[2]

SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"


class Processes:
    """Runs `rainbow` with these arguments; everything is ended with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, module: str = "rainbow", **environment: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{arguments[0]}.log").open("ab")
        command = [sys.executable, "-m", module, *arguments]
        ours = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(self.folder / "state-home")}
        options = {**os.environ, **ours, "RAINBOW_REGISTRATION_SECRET": REGISTRATION, **environment}
        self.running.append(subprocess.Popen(command, env=options, stdout=log, stderr=log, cwd=self.folder))
        return self.running[-1]

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def processes(tmp_path):
    made = Processes(tmp_path)
    yield made
    made.end()


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def appending(path, text):
    command = ["sh", "-c", 'echo "$1" >> "$2"', "append", text, str(path)]
    slot = {"work": {"type": "core", "replicas": 1}}
    return {"resources": slot, "tasks": [{"command": command, "resources": "work"}]}


def test_killed_server_loses_no_job_and_no_ended_task_runs_again(tmp_path, processes):
    port, written = free_port(), tmp_path / "written"
    url = f"http://127.0.0.1:{port}"
    serve = ("serve", "--port", str(port), "--database", str(tmp_path / "rainbow.db"))
    server = processes.start(*serve)
    until(Client(url).ready)
    registration = Client(url, REGISTRATION).register_cluster("oak", grid(8, 2))
    api = Client(url, registration["token"])
    acknowledged = [api.submit(appending(written, f"line {k}"))["id"] for k in range(JOBS)]
    processes.start("agent", "--cluster", "oak", "--url", url, RAINBOW_SECRET=registration["secret"])
    until(lambda: written.exists() and len(written.read_text().splitlines()) >= JOBS // 10)
    ended = {job["id"] for job in api.all_jobs() if job["state"] == "COMPLETED"}

    server.send_signal(signal.SIGKILL)
    server.wait()
    processes.start(*serve)
    until(api.ready)

    assert {job["id"] for job in api.all_jobs()} == set(acknowledged)
    assert ended <= {job["id"] for job in api.all_jobs(state="COMPLETED")}
    assert api.match(appending(written, "never"))["candidates"]
    until(lambda: len(list(api.all_jobs(state="COMPLETED"))) == JOBS, seconds=120)
    lines = Counter(written.read_text().splitlines())
    assert lines == Counter(f"line {k}" for k in range(JOBS))


def test_command_is_never_read_by_a_shell(tmp_path, processes):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    processes.start("serve", "--port", str(port), "--database", str(tmp_path / "rainbow.db"))
    until(Client(url).ready)
    registration = Client(url, REGISTRATION).register_cluster("oak", grid(1, 1))
    api = Client(url, registration["token"])
    processes.start("agent", "--cluster", "oak", "--url", url, RAINBOW_SECRET=registration["secret"])
    argv = [
        sys.executable,
        "-c",
        "import json, sys; print(json.dumps(sys.argv[1:]))",
        "; touch x",
        '"',
        "$HOME",
        "naïve",
    ]
    spec = {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": [{"command": argv, "resources": "w"}]}
    job = api.wait(api.submit(spec)["id"], timeout=60)
    assert job["state"] == "COMPLETED"
    assert json.loads(job["tasks"][0]["output"]) == argv[3:]
    assert not (tmp_path / "x").exists()
