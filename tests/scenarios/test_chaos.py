"""Server and agent killed at random, the line between them cut and slowed: every task ends once (`make soak`)."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rainbow.client import Client
from rainbow.errors import TryLater
from tests.conftest import REGISTRATION, grid
from tests.scenarios.test_end_to_end import Processes, until
from tests.support.keepers import end_of_marked, keepers
from tests.support.killed import Killed
from tests.support.ports import free_port
from tests.support.unruly import Proxy

TASKS = int(os.environ.get("RAINBOW_CHAOS_TASKS", "500"))
SEED = int(os.environ.get("RAINBOW_CHAOS_SEED", "7"))
LET_UP = 0.8  # how often a server that was killed may answer before the next trouble
STORES = ["sqlite", "postgresql"]
CALM = 1_200.0  # seconds until everything must have ended


@dataclass
class Place(Killed):
    """A server and an agent, each a process that can be killed and started again, and the line between them."""

    folder: Path
    lease: float
    database: str
    processes: Processes
    port: int = field(default_factory=free_port)
    count: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        (self.folder / "rainbow.yaml").write_text(f"scheduler:\n  lease: {self.lease}\n")
        self.proxy = Proxy(self.port)
        self.start_server()
        self.url = f"http://127.0.0.1:{self.port}"
        until(Client(self.url).ready)
        registration = Client(self.url, REGISTRATION).register_cluster("oak", grid(40, 1))
        self.secret = registration["secret"]
        self.user = Client(self.url, registration["token"])
        self.start_agent()

    def start_server(self) -> None:
        where = ("--port", str(self.port), "--database", self.database)
        self.server = self.processes.start("serve", *where, "--config", str(self.folder / "rainbow.yaml"))

    def start_agent(self) -> None:
        where = ("--url", f"http://127.0.0.1:{self.proxy.port}", "--state-dir", str(self.folder / "state"))
        self.agent = self.processes.start("agent", "--cluster", "oak", *where, "--quiet", RAINBOW_SECRET=self.secret)

    # ── what goes wrong ──

    def cut(self, seconds: float) -> None:
        self.proxy.cut = True
        self.proxy.close_all()
        time.sleep(seconds)
        self.proxy.cut = False

    def cut_short(self, seconds: float) -> None:
        self.proxy.close_all()  # in the midst of a message; the next one gets through
        time.sleep(seconds)

    def slow(self, seconds: float) -> None:
        self.proxy.delay = seconds / 4
        time.sleep(seconds)
        self.proxy.delay = 0.0

    def torment(self, chance: random.Random, longest: float, over: threading.Event) -> None:
        """Let things go wrong until it is over."""
        while not over.is_set():
            wrong = chance.choice([self.kill_server, self.kill_agent, self.cut, self.cut_short, self.slow])
            self.count[wrong.__name__] += 1
            wrong(chance.uniform(0, longest))
            if chance.random() < LET_UP:  # else it may be killed again while it comes up
                self.let_it_come_up(over)
            over.wait(chance.uniform(0.2, 2))

    def let_it_come_up(self, over: threading.Event) -> None:
        """Wait until the server answers: a slow machine must get something done between two kills."""
        with Client(self.url, tries=1) as client:
            end = time.monotonic() + 60
            while not over.is_set() and not client.ready() and time.monotonic() < end:
                over.wait(0.1)


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    processes = Processes(tmp_path)
    lease, store = request.param
    database = str(tmp_path / "rainbow.db")
    if store == "postgresql":
        database = request.getfixturevalue("postgres_server").new_database()
    made = Place(tmp_path, lease, database, processes)
    with made.proxy:
        yield made
    processes.end()
    for keeper in keepers(tmp_path):
        keeper.kill()
    end_of_marked(tmp_path)


def task(lines: Path, seconds: float) -> dict[str, Any]:
    command = ["sh", "-c", 'echo "$RAINBOW_TASK" >> "$1"; sleep "$2"', "sh", str(lines), f"{seconds:.2f}"]
    return {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": [{"command": command, "resources": "w"}]}


def patiently(call: Callable[[], Any]) -> Any:
    """Call until the server is there."""
    end = time.monotonic() + 120
    while True:
        try:
            return call()
        except TryLater:
            assert time.monotonic() < end
            time.sleep(0.2)


def campaign(place: Place, longest: float, capsys: pytest.CaptureFixture[str]) -> Counter[int]:
    """Run the tasks while everything goes wrong; return {how often a side effect happened: how many tasks}."""
    chance, over, lines = random.Random(SEED), threading.Event(), place.folder / "lines"
    begun = time.monotonic()
    trouble = threading.Thread(target=place.torment, args=(random.Random(SEED + 1), longest, over))
    trouble.start()
    jobs: list[str] = []
    ended: dict[str, Any] = {}
    try:
        for number in range(TASKS):
            spec, key = task(lines, chance.uniform(0, 3)), f"task {number}"
            jobs.append(patiently(lambda spec=spec, key=key: place.user.submit(spec, idempotency_key=key))["id"])
            if number % 50 == 0:
                watch(place, ended)
        while len(ended) < TASKS:
            watch(place, ended)
            assert time.monotonic() < begun + CALM, f"{len(ended)} of {TASKS} have ended"
            time.sleep(1)
    finally:
        over.set()
        trouble.join()
    assert sorted(set(jobs)) == sorted(ended), "no job is lost, none is there that nobody submitted"
    happened = Counter(lines.read_text().splitlines())
    return judge(place, jobs, happened, time.monotonic() - begun, capsys)


def watch(place: Place, ended: dict[str, Any]) -> None:
    """Look at the record: what has ended stays as it ended."""
    for job in patiently(lambda: list(place.user.all_jobs())):
        if job["state"] in ("COMPLETED", "FAILED", "CANCELED"):
            now = (job["state"], job["ended_at"])
            assert ended.setdefault(job["id"], now) == now, "it ended a second time"


def judge(
    place: Place, jobs: list[str], happened: Counter[str], seconds: float, capsys: pytest.CaptureFixture[str]
) -> Counter[int]:
    results = {job: patiently(lambda job=job: place.user.job(job))["tasks"][0] for job in jobs}
    times: Counter[int] = Counter(happened[one["id"]] for one in results.values())
    leases = sum(one["attempt"] - 1 for one in results.values())
    with capsys.disabled():
        store = place.database.partition(":")[0] if ":" in place.database else "sqlite"
        print(f"\n{len(jobs)} tasks in {seconds:.0f} s over {store}, seed {SEED}, lease {place.lease:g} s")
        print(f"went wrong: {dict(place.count)}")
        print(f"side effects: {dict(sorted(times.items()))} (times: tasks); attempts begun anew: {leases}")
    assert {(one["state"], one["exit_code"]) for one in results.values()} == {("COMPLETED", 0)}
    assert times[0] == 0, "every task has had its effect"
    for one in results.values():
        assert happened[one["id"]] <= one["attempt"], "its effect came again without its lease having run out"
    assert set(happened) == {one["id"] for one in results.values()}
    return times


@pytest.mark.soak
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("place", [(60.0, "sqlite"), (60.0, "postgresql")], ids=STORES, indirect=True)
def test_outages_shorter_than_a_lease_run_nothing_twice(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(campaign(place, 3.0, capsys)) == {1}


@pytest.mark.soak
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("place", [(8.0, "sqlite"), (8.0, "postgresql")], ids=STORES, indirect=True)
def test_outages_longer_than_a_lease_run_twice_only_what_had_run_out(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 in campaign(place, 16.0, capsys)
