"""kill -9 of a real server while jobs wait without a cluster: none is lost, none is placed or run twice."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rainbow.client import Client
from rainbow.errors import Unavailable
from tests.conftest import REGISTRATION, grid, jobspec
from tests.scenarios.test_end_to_end import Processes, appending, until
from tests.support.ports import free_port

FREE = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": [{"filter": "nodes_free > 0"}]}]}}
ROUNDS = int(os.environ.get("RAINBOW_FAULT_ROUNDS", "50"))
LONG = [
    pytest.param(kind, ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3_000)])
    for kind in ("sqlite", "postgresql")
]


class Site:
    """A server that can be killed, its store, and a cluster that has no node free."""

    def __init__(self, folder: Path, database: str, state: int = 0, **scheduler: Any) -> None:
        self.processes, self.database = Processes(folder), database
        self.config = folder / "rainbow.yaml"
        self.config.write_text(json.dumps({"scheduler": scheduler}))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()
        with Client(self.url, REGISTRATION) as client:
            self.oak = client.register_cluster("oak", grid(4, 2), state={"nodes_free": state})

    def start(self) -> None:
        self.server = self.processes.start(
            "serve", "--port", str(self.port), "--config", str(self.config), RAINBOW_DATABASE=self.database
        )
        until(Client(self.url, tries=1).ready)

    def kill(self) -> None:
        """Kill the server, wherever it is, and start it again on its store."""
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        self.start()

    def jobs(self) -> list[Any]:
        return list(Client(self.url, self.oak["token"]).all_jobs())

    def free(self, nodes: int) -> None:
        Client(self.url, self.oak["secret"]).change_state("oak", {"nodes_free": nodes})


def submit_until_acknowledged(site: Site, ran: Path, keys: list[str], made: dict[str, Any]) -> None:
    """Submit each job under its key, as often as it takes to hear of it."""
    for key in keys:
        while key not in made:
            try:
                with Client(site.url, site.oak["token"], tries=1) as client:
                    spec = appending(ran, key)
                    made[key] = client.submit(spec, selector=FREE, queue=True, idempotency_key=key)
            except Unavailable:  # it may have been accepted or not
                time.sleep(0.02)


@pytest.mark.parametrize(
    ("kind", "rounds"), [("sqlite", 1), pytest.param("postgresql", 1, marks=pytest.mark.soak), *LONG]
)
def test_job_accepted_for_no_cluster_yet_survives_kill_9_and_is_placed_and_run_once(
    kind: str, rounds: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database = f"sqlite:///{tmp_path}/rainbow.db"
    if kind == "postgresql":
        database = request.getfixturevalue("postgres_server").new_database()
    site = Site(tmp_path, database)
    try:
        survive(site, tmp_path / "ran", rounds)
    finally:
        site.processes.end()


def survive(site: Site, ran: Path, rounds: int) -> None:
    """Kill the server while it accepts jobs, and while it places them; each job runs once all the same."""
    made, chance = dict[str, Any](), random.Random(rounds)
    keys = [f"k{number}" for number in range(12 * rounds)]
    for first in range(0, len(keys), 12):  # accepted, while the server dies
        some = threading.Thread(target=submit_until_acknowledged, args=(site, ran, keys[first : first + 12], made))
        some.start()
        time.sleep(chance.uniform(0.05, 0.3))
        site.kill()
        some.join(60)
    check_unplaced(site, made)
    for _ in range(rounds):  # placed, while the server dies
        site.free(len(keys))
        time.sleep(chance.uniform(0.0, 0.3))
        site.kill()
    until(lambda: {job["state"] for job in site.jobs()} == {"WAITING"})
    site.processes.start("agent", "--cluster", "oak", "--url", site.url, RAINBOW_SECRET=site.oak["secret"])
    until(lambda: {job["state"] for job in site.jobs()} == {"COMPLETED"}, seconds=60 + 2 * len(keys))
    assert Counter(ran.read_text().split()) == Counter(keys)
    client = Client(site.url, site.oak["token"])
    shown = [client.job(made[key]["id"]) for key in keys]
    assert [[task["attempt"] for task in job["tasks"]] for job in shown] == [[1]] * len(keys)


def check_unplaced(site: Site, made: dict[str, Any]) -> None:
    """Every job that was acknowledged waits as it was told, and there is no other."""
    answer = {job["id"]: (job["state"], job["wait"]["reason"], job["wait"]["since"]) for job in made.values()}
    results = [(job["id"], (job["state"], job["wait"]["reason"], job["wait"]["since"])) for job in site.jobs()]
    assert len(results) == len(answer)
    assert dict(results) == answer
    assert {state for state, _, _ in answer.values()} == {"UNPLACED"}


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def test_what_is_kept_for_a_job_survives_kill_9_and_the_job_is_placed_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Killed between booking and placing: the nodes stay kept, and it is placed by the server that comes after."""
    database = f"sqlite:///{tmp_path}/rainbow.db"
    if kind == "postgresql":
        database = request.getfixturevalue("postgres_server").new_database()
    site, ran = Site(tmp_path, database, 4, unplaced="wait", unplaced_patience=0), tmp_path / "ran"
    try:
        with Client(site.url, site.oak["token"]) as client:

            def submit(key: str, nodes: int) -> str:
                spec = jobspec(nodes, ["sh", "-c", 'echo "$1" >> "$2"', "append", key, str(ran)])
                return str(client.submit(spec, selector=FREE, requestor=key)["id"])

            def text(job: str) -> str:
                return str((client.job(job)["wait"] or {}).get("text"))

            first, wide = submit("first", 1), submit("wide", 4)
            stored = "3 of 4 nodes of oak are kept for it, the others as they become free"
            until(lambda: text(wide) == stored)
            site.kill()
            assert text(wide) == stored
            narrow = submit("narrow", 1)
            assert client.job(narrow)["state"] == "UNPLACED"
            client.cancel(first)
            site.kill()
            until(lambda: client.job(wide)["state"] == "WAITING")
            assert client.job(narrow)["state"] == "UNPLACED"
            site.processes.start("agent", "--cluster", "oak", "--url", site.url, RAINBOW_SECRET=site.oak["secret"])
            until(lambda: client.job(narrow)["state"] == "COMPLETED")
            assert Counter(ran.read_text().split()) == {"wide": 4, "narrow": 1}  # once in each slot
            assert [task["attempt"] for task in client.job(wide)["tasks"]] == [1]
    finally:
        site.processes.end()
