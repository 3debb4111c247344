"""Real servers on one PostgreSQL, killed with kill -9 in the midst of a move, and real agents, killed and lost.

Jobs that come to one cluster move to where they are expected to end sooner. Nothing that was accepted moves, no task
runs at two clusters or twice within an attempt, nobody moves more often than `most`, each decision tells every move.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rainbow.client import Client
from rainbow.errors import TryLater
from rainbow.service.placement.replacement import WHY
from rainbow.testing.executors import until
from tests.conftest import ADMIN, REGISTRATION, grid
from tests.scenarios.test_end_to_end import Processes
from tests.support.keepers import end_of_marked, keepers
from tests.support.ports import free_ports
from tests.support.postgres import Postgres

KILLS = int(os.environ.get("RAINBOW_KILLS", "20"))  # in moves
LONGEST = 1_200.0  # seconds for them
MOST = 2
RULES = {"gain": 0.05, "least": 1, "most": MOST, "apart": 0, "every": 1}
CONFIG = """
scheduler: {lease: 3, grace: 1, forecast_share: 1.0}
limits: {rate: 0}
"""
NAMES = ("ash", "elm", "oak")  # the cheapest first
STEPS = [{"sort_ascending": "cost"}, {"select": "first"}]
CHEAPEST = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": STEPS}]}}
FAILOVER = "rainbow.service.placement.failover:carry_out"
PLACES = (
    (FAILOVER, "before"),  # a move was chosen
    ("rainbow.store.jobs:move", "after"),  # half of it is written
    (FAILOVER, "after"),  # it is written, not committed
    ("rainbow.service.live_state.mirror:Mirror.see_off", "before"),  # it is committed, nobody in memory knows
    ("rainbow.service.live_state.mirror:Mirror.see_off", "after"),  # nobody else was told
)


def task(lines: Path, seconds: float) -> dict[str, Any]:
    """A job that fills a node: it says where it runs, then takes its time."""
    command = ["sh", "-c", 'echo "$RAINBOW_TASK $SITE" >> "$1"; sleep "$2"', "sh", str(lines), f"{seconds:.2f}"]
    slot = {"w": {"type": "node", "count": 1, "with": [{"type": "core", "count": 2}]}}
    attributes = {"system": {"duration": 20 * seconds}}
    return {"resources": slot, "tasks": [{"command": command, "resources": "w"}], "attributes": attributes}


class Site:
    """Two servers on one store, and three clusters with an agent each."""

    def __init__(self, folder: Path, database: str, seed: int) -> None:
        self.folder, self.database, self.chance = folder, database, random.Random(seed)
        self.processes, self.ports, self.lines = Processes(folder), free_ports(2), folder / "lines"
        (folder / "rainbow.yaml").write_text(CONFIG)
        self.lines.touch()
        self.peace, self.kills, self.jobs = False, Counter[str](), dict[str, str]()  # and where each was placed first
        self.servers = [self.serve(k) for k in range(2)]
        self.users = [Client(f"http://127.0.0.1:{port}", ADMIN) for port in self.ports]
        for one in self.users:
            until(one.ready)
        self.secrets = {name: self.register(name, cost) for cost, name in enumerate(NAMES)}
        self.agents = {name: self.join(name) for name in NAMES}

    def serve(self, k: int) -> subprocess.Popen[bytes]:
        """Start a server, which ends in one of its first moves until there is peace."""
        where = ("--port", str(self.ports[k]), "--database", self.database)
        arguments = ("serve", *where, "--config", str(self.folder / "rainbow.yaml"))
        if self.peace:
            return self.processes.start(*arguments, RAINBOW_ADMIN_TOKEN=ADMIN)
        dying = (*self.chance.choice(PLACES), str(self.chance.choice((1, 1, 2))))
        return self.processes.start(*dying, *arguments, module="tests.support.dying", RAINBOW_ADMIN_TOKEN=ADMIN)

    def register(self, name: str, cost: int) -> str:
        """Register a cluster of two nodes whose jobs may move; return its secret."""
        with Client(self.users[0].url, REGISTRATION) as client:
            secret: str = client.register_cluster(name, grid(2, 2), state={"cost": cost})["secret"]
        with Client(self.users[0].url, secret) as owner:
            owner.set_scheduler(name, {"limits": {"replace": RULES}})
        return secret

    def join(self, name: str) -> subprocess.Popen[bytes]:
        """Start an agent, again on its state; it talks to one of the servers."""
        where = ("--url", self.users[NAMES.index(name) % 2].url, "--state-dir", str(self.folder / "state"))
        own = {"RAINBOW_SECRET": self.secrets[name], "SITE": name}
        return self.processes.start("agent", "--cluster", name, *where, "--pass-env", "SITE", "--quiet", **own)

    def submit(self, count: int) -> None:
        """Submit jobs, all to the cheapest cluster whose agent is there."""
        for _ in range(count):
            spec, key = task(self.lines, self.chance.uniform(0.2, 2)), f"job {len(self.jobs)}"
            answer = self.patiently(partial(Client.submit, jobspec=spec, selector=CHEAPEST, idempotency_key=key))
            self.jobs[answer["id"]] = answer["cluster"]

    def patiently(self, call: Callable[[Client], Any]) -> Any:
        """Ask one server, or the other, until one answers."""
        end = time.monotonic() + 120
        while True:
            try:
                return call(self.chance.choice(self.users))
            except TryLater:
                assert time.monotonic() < end
                self.revive()
                time.sleep(0.1)

    # ── what goes wrong ──

    def trouble(self) -> None:
        """Start again what has ended, so that it ends in another move; sometimes let something else go wrong."""
        self.revive()
        chance = self.chance.random()
        if chance < 0.15:
            self.lose(self.chance.choice(NAMES), self.chance.choice((0.5, 8.0)))
        elif chance < 0.2:
            self.kill(self.servers[self.chance.randrange(2)])
            self.kills["anywhere"] += 1
            self.kills["in a move"] -= 1  # as which it will be counted

    def revive(self) -> None:
        """Start again the servers that have ended."""
        for k, server in enumerate(self.servers):
            if server.poll() is not None:
                self.kills["in a move"] += 1
                self.servers[k] = self.serve(k)

    def lose(self, name: str, seconds: float) -> None:
        """Kill an agent, and start it again later."""
        self.kill(self.agents[name])
        time.sleep(seconds)
        self.agents[name] = self.join(name)
        self.kills["agents"] += 1

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def settle(self, seconds: float) -> None:
        """Let all end in peace."""
        self.peace, end = True, time.monotonic() + seconds
        while remaining := self.left():
            assert time.monotonic() < end, remaining
            self.revive()
            time.sleep(0.5)

    def left(self) -> list[str]:
        return [job["id"] for job in self.every() if job["state"] != "COMPLETED"]

    def every(self) -> list[dict[str, Any]]:
        """Return all jobs that the servers know."""
        results: list[dict[str, Any]] = self.patiently(lambda one: list(one.all_jobs()))
        return results

    # ── what must hold ──

    def check(self) -> int:
        """Look at all that was submitted; return how many moves there were."""
        ran: dict[str, list[str]] = {}
        for line in self.lines.read_text().splitlines():
            ran.setdefault(line.split()[0], []).append(line.split()[1])
        accepted = self.accepted()
        assert sorted(job["id"] for job in self.every()) == sorted(self.jobs)
        return sum(self.moves(job, ran, accepted) for job in self.jobs)

    def moves(self, job_id: str, ran: dict[str, list[str]], accepted: dict[str, set[str]]) -> int:
        """Look at one job; return how often it moved to end sooner."""
        job = self.patiently(lambda one: one.job(job_id))
        moves = self.patiently(lambda one: one.why(job_id))["decision"].get("moves", [])
        [own], places = job["tasks"], [self.jobs[job_id], *(move["to"] for move in moves)]
        assert [move["from"] for move in moves] == places[:-1], moves
        assert job["cluster"] == places[-1]
        assert len([move for move in moves if move["why"] == WHY]) <= MOST, moves
        ours = [move["expected_end"] for move in moves if move["why"] == WHY]
        assert all(ends["to"] < ends["from"] for ends in ours)
        assert accepted[own["id"]] == {places[-1]}, "what was accepted has moved"
        assert set(ran[own["id"]]) == {places[-1]}, "it ran at another cluster"
        assert len(ran[own["id"]]) <= own["attempt"], "an attempt ran twice"
        return len(ours)

    def accepted(self) -> dict[str, set[str]]:
        """Return by task where it was accepted, as the events tell."""
        results: dict[str, set[str]] = {}
        for event in self.patiently(lambda one: list(one.stream(0, follow=False))):
            if event["event"] == "task" and event["data"]["state"] == "ACCEPTED":
                results.setdefault(event["data"]["task"], set()).add(event["data"]["cluster"])
        return results

    def end(self) -> None:
        for one in self.users:
            one.close()
        self.processes.end()
        for keeper in keepers(self.folder):
            with suppress(Exception):
                keeper.kill()
        end_of_marked(self.folder)


@pytest.fixture
def site(tmp_path: Path, postgres_server: Postgres, request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(tmp_path, postgres_server.new_database(), getattr(request, "param", 1))
    yield made
    made.end()


@pytest.mark.soak
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("site", [1, 2], indirect=True)
def test_servers_killed_in_moves_and_agents_that_are_lost_place_each_job_once(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    while site.kills["in a move"] < KILLS and time.monotonic() < began + LONGEST:
        site.submit(max(0, 15 - len(site.left())))
        site.trouble()
        time.sleep(site.chance.uniform(0, 2))
    site.settle(600)
    moved = site.check()
    with capsys.disabled():
        print(f"\n{len(site.jobs)} jobs, {moved} moves, kills: {dict(site.kills)}, {time.monotonic() - began:.0f} s")
    assert moved
    assert site.kills["in a move"] >= KILLS
