"""Processes die and the store goes away under load: nothing acknowledged is lost, nothing doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rainbow.client import Client
from rainbow.errors import RainbowError, Unavailable
from rainbow.store import jobs, open_store
from tests.conftest import ADMIN, REGISTRATION, grid
from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_two_processes import LONG, SPEC, Processes, register
from tests.support.ports import free_port
from tests.support.postgres import Postgres, postgres
from tests.support.stores import add_cluster


class Load:
    """Clients that submit all the time, and what they were told."""

    def __init__(self, url: str, token: str, clients: int = 6) -> None:
        self.url, self.token = url, token
        self.acknowledged: list[str] = []
        self.refused: list[httpx.Response] = []
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self._submit, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(60)

    def _submit(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        with httpx.Client(base_url=self.url, headers=headers, timeout=40) as api:
            while not self.stop.is_set():
                try:
                    answer = api.post("/v1/jobs", json=SPEC)
                except httpx.TransportError:
                    time.sleep(0.05)
                    continue
                if answer.status_code == 201:
                    self.acknowledged.append(answer.json()["id"])
                else:
                    self.refused.append(answer)
                    time.sleep(0.1)


def listed(url: str, token: str) -> list[str]:
    return [each["id"] for each in Client(url, token).all_jobs()]


@pytest.mark.parametrize("rounds", [1, LONG])
def test_server_and_scheduler_killed_at_random_instants_under_load(
    rounds: int, tmp_path: Path, postgres_server: Postgres
) -> None:
    """A server and a scheduler of their own; one server on SQLite is killed in the histories of tests/history."""
    processes, port = Processes(tmp_path, postgres_server.new_database()), free_port()
    url, chance = f"http://127.0.0.1:{port}", random.Random(rounds)

    def start() -> list[subprocess.Popen[bytes]]:
        return [processes.start("serve", "--port", str(port), "--no-scheduler"), processes.start("scheduler")]

    names: list[str] = []
    known: dict[str, Any] = {}
    try:
        running = start()
        until(Client(url, tries=1).ready)
        known["oak"] = register(url, grid(4, 2))
        oak = known["oak"]
        processes.start("agent", "--cluster", "oak", "--url", url, RAINBOW_SECRET=oak["secret"])
        with Load(url, oak["token"]) as load:
            for k in range(rounds):
                names.append(f"c{k}")
                registering = threading.Thread(target=_register, args=(url, names[-1], known))
                registering.start()
                time.sleep(chance.uniform(0.05, 1.0))
                for process in running:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                registering.join(30)
                running = start()
                until(Client(url, tries=1).ready, seconds=300)
            until(lambda: len(load.acknowledged) > 0)
        results = listed(url, oak["token"])
        assert set(load.acknowledged) <= set(results), "an acknowledged job was lost"
        assert len(results) == len(set(results))
        assert [answer.status_code for answer in load.refused if answer.status_code != 503] == []
        _check_clusters(url, names, known)
    finally:
        processes.end()


def _register(url: str, name: str, known: dict[str, Any]) -> None:
    try:
        with Client(url, REGISTRATION, tries=1) as client:
            known[name] = client.register_cluster(name, grid(2, 2))
    except RainbowError:  # killed meanwhile: it may be there or not, whole
        pass


def _check_clusters(url: str, names: list[str], known: dict[str, Any]) -> None:
    """What was acknowledged is there, and what is there is whole."""
    with Client(url, ADMIN) as admin:
        there = {each["name"]: each for each in admin.clusters()}
        assert set(known) <= set(there)
        for name in set(there) & set(names):
            assert there[name]["totals"] == {"cluster": 1, "core": 4, "node": 2}
            assert len(admin.workers(name)) == 2
            kinds = {each["kind"] for each in admin.tokens() if name in each["clusters"]}
            assert kinds == {"token", "secret"}


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


def test_postgresql_restarted_under_load_is_503_and_then_goes_on(tmp_path: Path, own_postgres: Postgres) -> None:
    processes = Processes(tmp_path, own_postgres.new_database())
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    try:
        processes.start("serve", "--port", str(port))
        until(Client(url, tries=1).ready)
        oak = register(url, grid(4, 2))
        processes.start("agent", "--cluster", "oak", "--url", url, RAINBOW_SECRET=oak["secret"])
        with Load(url, oak["token"]) as load:
            until(lambda: len(load.acknowledged) > 20)
            own_postgres.stop()
            until(lambda: len(load.refused) > 5)
            before = len(load.acknowledged)
            own_postgres.start()
            until(lambda: len(load.acknowledged) > before + 20)
        assert {answer.status_code for answer in load.refused} == {503}
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in load.refused)
        results = listed(url, oak["token"])
        assert set(load.acknowledged) <= set(results)
        assert len(results) == len(set(results))
        until(lambda: len(list(Client(url, oak["token"]).all_jobs(state="COMPLETED"))) > 10)
        assert "Traceback" not in "".join(path.read_text() for path in tmp_path.glob("*serve.log"))
    finally:
        processes.end()


def test_a_server_started_while_postgresql_is_away_says_so_until_it_serves(
    tmp_path: Path, own_postgres: Postgres
) -> None:
    processes, port = Processes(tmp_path, own_postgres.new_database()), free_port()
    own_postgres.stop()
    url = f"http://127.0.0.1:{port}"
    try:
        processes.start("serve", "--port", str(port), "--no-scheduler")
        processes.start("scheduler")
        until(lambda: all("waiting-for-database" in path.read_text() for path in tmp_path.glob("*.log")))
        answers = httpx.get(f"{url}/readyz"), httpx.post(f"{url}/v1/jobs", json=SPEC)
        for answer in answers:
            assert (answer.status_code, answer.json()["outcome"]) == (503, "none")
            assert int(answer.headers["Retry-After"]) > 0
            assert "database" in answer.json()["detail"]
        assert httpx.get(f"{url}/livez").status_code == 200
        own_postgres.start()
        until(Client(url, tries=1).ready)
        oak = register(url, grid(4, 2))
        processes.start("agent", "--cluster", "oak", "--url", url, RAINBOW_SECRET=oak["secret"])
        with Load(url, oak["token"], 1) as load:
            until(lambda: len(load.acknowledged) > 2)
        until(lambda: len(list(Client(url, oak["token"]).all_jobs(state="COMPLETED"))) > 2)
        assert "Traceback" not in "".join(path.read_text() for path in tmp_path.glob("*serve.log"))
    finally:
        processes.end()


# ── SQLite's file ──

FULL = """
import resource, sys
from rainbow.store import open_store, jobs
from rainbow.errors import Unavailable
from tests.support.stores import job
store = open_store(sys.argv[1])
size = {size}
soft = resource.getrlimit(resource.RLIMIT_FSIZE)
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, soft[1]))
k, refused = 0, 0
while refused < 5:
    def add(connection, k=k):
        jobs.add(connection, job("f%05d" % k), "x" * 5000, {{}})
    try:
        store.together(add); print("kept", k, flush=True)
    except Unavailable:
        refused += 1; print("refused", k, flush=True)
    k += 1
resource.setrlimit(resource.RLIMIT_FSIZE, soft)
store.together(lambda connection: jobs.add(connection, job("again"), "x", {{}}))
print("again")
"""


def test_disk_that_is_full_refuses_and_loses_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """A file that may not grow is what a full disk is to SQLite: a write that fails half way."""
    path = str(tmp_path / "x.db")
    store = open_store(path)
    add_cluster(store)
    store.close()
    code = FULL.format(size=1 << 20)
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120, check=False
    )
    answers = [line.split() for line in done.stdout.splitlines()]
    assert answers[-1] == ["again"], done.stderr
    stored = {f"f{int(line[1]):05}" for line in answers if line[0] == "kept"}
    assert len(stored) > 10
    store = open_store(path)
    with store.read() as connection:
        assert {record.id for record in jobs.live(connection, "c1")} == stored | {"again"}
    store.close()


def test_unavailable_names_no_statement_and_no_password() -> None:
    with pytest.raises(Unavailable) as caught:
        open_store("postgresql://rainbow:hunter2@127.0.0.1:1/none")
    assert "hunter2" not in str(caught.value)
