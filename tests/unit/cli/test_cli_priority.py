"""The priority policy through the real command on a running server: timeline, reservations, suspension, reasons."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from rainbow.cli import main
from rainbow.client import Client
from rainbow.text import rfc3339
from tests.conftest import ADMIN, REGISTRATION, grid
from tests.support.live import agent_of, rainbow_at
from tests.support.ports import free_port


@pytest.fixture
def place(tmp_path: Path):
    """A server with a cluster `oak` of two nodes with two cores, an agent, and the command with its credentials."""
    with rainbow_at(tmp_path) as url:
        run = Command(tmp_path, url)
        (tmp_path / "oak.json").write_text(json.dumps(grid(2, 2)))
        graph, saved = str(tmp_path / "oak.json"), str(tmp_path / "credentials")
        said = run("cluster", "register", graph, "--name", "oak", "--save", saved, "-o", "json", secret=REGISTRATION)
        made = json.loads(said)
        run("scheduler", "set", "oak", "--policy", "priority")
        with agent_of(url, "oak", made["secret"]):
            until(lambda: "READY" in run("worker", "list", "--cluster", "oak"))
            yield run


class Command:
    def __init__(self, folder: Path, url: str) -> None:
        self.environment = {
            "HOME": str(folder),
            "RAINBOW_URL": url,
            "RAINBOW_CREDENTIALS": str(folder / "credentials"),
            "COLUMNS": "200",
        }

    def __call__(self, *arguments: str, code: int = 0, secret: str = "", output: str = "table") -> str:
        environment = {**self.environment, "RAINBOW_OUTPUT": output}
        environment |= {"RAINBOW_SECRET": secret} if secret else {}
        done = CliRunner().invoke(main, list(arguments), env=environment)
        assert done.exit_code == code, done.output
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str):
        return json.loads(self(*arguments, output="json"))

    def submit(self, *arguments: str) -> str:
        return str(self.json("submit", *arguments)["id"])


def until(true, seconds: float = 30) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.1)


def test_timeline_and_gantt_show_what_runs_and_what_is_promised(place, tmp_path):
    held = place.submit("-c", "2", "-t", "500", "--", "sleep", "60")
    until(lambda: place.json("job", "show", held)["state"] == "RUNNING")
    place.submit("-N", "2", "-c", "2", "-t", "100", "--", "true")
    assert place("scheduler", "timeline", "oak").startswith("WORKER TYPE of CAPACITY  SECONDS FROM NOW:IN USE")
    line = re.compile(r"^n\d core of 2 ( -?\d+:\d ?)+$", re.MULTILINE)
    until(lambda: len(line.findall(place("scheduler", "timeline", "oak"))) == 2)
    assert place("scheduler", "timeline", "oak", "--svg", str(tmp_path / "oak.svg")) == ""
    assert (tmp_path / "oak.svg").read_text().startswith("<svg ")
    assert (tmp_path / "oak.svg").read_text().count("<rect ") == 2
    lines = place.json("scheduler", "timeline", "oak")["lines"]
    assert {line["worker"] for line in lines} == {"n0", "n1"}


def test_job_why_says_what_blocks_it_since_when_and_whether_it_can_run(place):
    held = place.submit("-c", "2", "-t", "500", "--", "sleep", "60")
    wide = place.submit("-N", "2", "-c", "2", "-t", "100", "--", "true")
    until(lambda: (place.json("job", "show", wide)["wait"] or {}).get("reason") == "reserved")
    said = place("job", "why", wide)
    assert re.search(r"^WAITING on oak: 1/2 workers: 1 busy until \d\d:\d\d.*promised start", said, re.MULTILINE)
    assert re.search(r"^since +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d *$", said, re.MULTILINE)
    assert re.search(r"^promised start +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d, kept unless", said, re.MULTILINE)
    assert re.search(r"^can ever run +yes *$", said, re.MULTILINE)
    assert re.search(r"^can run now +no: 1/2 workers: 1 busy", said, re.MULTILINE)
    assert "can ever run" not in place("job", "why", held)


def test_priorities_are_a_table_of_twenty_lines(place):
    place.submit("-N", "2", "-c", "2", "-t", "500", "--", "sleep", "60")
    jobs = [place.submit("-c", "2", "-t", "100", "--", "true") for _ in range(24)]
    until(lambda: len(place.json("scheduler", "show", "oak")["figures"].get("priorities", [])) == len(jobs))
    shown = place("scheduler", "show", "oak")
    assert len(re.findall(rf"^({'|'.join(jobs)}) +\w+ +[\d.]+", shown, re.MULTILINE)) == 20
    assert re.search(r"^priorities:\njob +verdict +priority ", shown, re.MULTILINE)
    assert re.search(r"^and 4 more$", shown, re.MULTILINE)
    assert max(map(len, shown.splitlines())) <= 200


def test_reserve_creates_lists_shows_and_deletes(place, tmp_path):
    made = place.json(
        "reserve", "create", "--cluster", "oak", "-n", "2", "-c", "2", "-t", "600", "--requestor", "ann"
    )
    assert made["state"] == "active"
    table = place("reserve", "list", "--cluster", "oak")
    assert re.search(rf"^{made['id']} .* active +ann +ann ", table, re.MULTILINE)
    waits = place.submit("-c", "1", "--requestor", "bob", "-t", "30", "--", "true")
    jobspec = {
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "s", "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["true"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 30, "reservation": made["id"]}},
    }
    (tmp_path / "inside.json").write_text(json.dumps(jobspec))
    inside = place.submit(str(tmp_path / "inside.json"), "--requestor", "ann")
    until(lambda: place.json("job", "show", inside)["state"] == "COMPLETED")
    assert place.json("job", "show", waits)["state"] == "WAITING"
    assert "room" in place("reserve", "create", "--cluster", "oak", "-n", "2", "-t", "9", "--start", soon(), code=3)
    before = place.json("reserve", "list", "--cluster", "oak")
    preview = place("reserve", "maintenance", "n0", "--cluster", "oak", "-t", "9", "--preview")
    assert preview.endswith("preview: nothing was changed\n")
    assert place.json("reserve", "list", "--cluster", "oak") == before
    place("reserve", "delete", made["id"], "--cluster", "oak")
    own = place.json("reserve", "create", "--cluster", "oak", "-n", "1", "-t", "9", "--start", soon())
    assert own["requestor"] == getpass.getuser()
    place("reserve", "delete", own["id"], "--cluster", "oak")
    assert place.json("reserve", "list", "--cluster", "oak") == []
    assert re.search(r"^state +over", place("reserve", "show", made["id"], "--cluster", "oak"), re.MULTILINE)
    until(lambda: place.json("job", "show", waits)["state"] == "COMPLETED")


def soon() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))


def test_job_is_suspended_in_place_and_resumed(place, tmp_path):
    code = "import sys, time\nfor _ in range(60): open(sys.argv[1], 'a').write('x'); time.sleep(0.05)"
    ticks = tmp_path / "ticks"
    job = place.submit("-c", "1", "--", sys.executable, "-c", code, str(ticks))
    until(lambda: ticks.exists())
    assert place.json("job", "suspend", job)["suspended_at"] is not None
    until(lambda: place.json("job", "show", job)["tasks"][0]["state"] == "SUSPENDED")
    size = ticks.stat().st_size
    time.sleep(1.0)
    assert ticks.stat().st_size == size < 60
    place("job", "resume", job)
    assert place.json("job", "wait", job)["state"] == "COMPLETED"
    assert ticks.stat().st_size == 60


def test_server_prints_the_timeline_at_every_step_if_asked(tmp_path):
    port = free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "RAINBOW_PRINT_TIMELINE": "1",
        "RAINBOW_REGISTRATION_SECRET": REGISTRATION,
        "RAINBOW_ADMIN_TOKEN": ADMIN,
    }
    database = f"sqlite:///{tmp_path}/rainbow.db"
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "rainbow", "serve", "--port", str(port), "--database", database],
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            client = Client(f"http://127.0.0.1:{port}", [REGISTRATION, ADMIN])
            until(client.ready)
            made = client.register_cluster("oak", grid(1, 2), policy={"name": "priority"})
            client.heartbeat("oak", "a")
            Client(client.url, made["token"]).submit({"resources": {"work": {"type": "core"}}, "tasks": TASKS})
            until(lambda: "n0 core of 2" in (tmp_path / "log").read_text())
        finally:
            server.terminate()
            server.wait(20)


TASKS = [{"command": ["true"], "resources": "work"}]


def test_a_maintenance_requeues_real_tasks_at_its_begin_and_reopened_lets_them_start_again(place, tmp_path):
    pids = {name: tmp_path / name for name in ("one", "two")}
    say = 'echo $$ >> "$1"; exec sleep 600'
    jobs = [
        place.submit("-N", "1", "-c", "2", "--cluster", "oak", "--", "sh", "-c", say, "say", str(pids[name]))
        for name in pids
    ]
    until(lambda: all(path.exists() and path.read_text() for path in pids.values()))
    begin = rfc3339(time.time() + 3)
    requests = (
        "reserve",
        "maintenance",
        "n0",
        "--cluster",
        "oak",
        "--start",
        begin,
        "-t",
        "1h",
        "--at-begin",
        "requeue",
    )
    made = place.json(*requests)
    (task,) = made["must_end"]
    stopped = jobs.index(task.rpartition("-")[0])
    assert place.json("reserve", "show", made["id"], "--cluster", "oak")["must_end"] == [task]

    def states() -> list[str]:
        return [place.json("job", "show", job)["state"] for job in jobs]

    until(lambda: place.json("job", "show", jobs[stopped])["tasks"][0]["state"] == "WAITING")
    assert states()[1 - stopped] == "RUNNING"
    pid = int(list(pids.values())[stopped].read_text())
    assert not Path(f"/proc/{pid}").exists()
    assert place.json("reserve", "show", made["id"], "--cluster", "oak")["must_end"] == []
    place("reserve", "reopen", made["id"], "--cluster", "oak")
    until(lambda: len(list(pids.values())[stopped].read_text().split()) == 2)
    assert states() == ["RUNNING", "RUNNING"]
