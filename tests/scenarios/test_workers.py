"""Several worker processes of one server: they share its port and a PostgreSQL, and one that is killed comes back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import sqlalchemy as sa

from rainbow.client import Client
from rainbow.idempotency import new_key
from tests.conftest import ADMIN, grid, jobspec
from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_two_processes import Processes, register
from tests.support.ports import free_port
from tests.support.postgres import Postgres

WORKERS, CALLERS = 3, 12


class Site:
    """A server of several workers, and a cluster's token."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        (folder / "rainbow.yaml").write_text(f"server: {{workers: {WORKERS}}}\n")
        self.database, port = processes.database, free_port()
        words = ("serve", "--port", str(port), "--config", "rainbow.yaml")
        self.process = processes.start(*words, TMPDIR=str(folder))  # a server that is killed leaves its figures there
        self.url = f"http://127.0.0.1:{port}"
        until(Client(self.url, tries=1).ready)
        self.token = register(self.url, grid(2, 2))["token"]

    @property
    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def submits(self) -> float:
        """How many submits were placed, as whichever worker is asked says."""
        text = httpx.get(f"{self.url}/metrics", headers={"Authorization": f"Bearer {ADMIN}"}).text
        result = re.search(r'rainbow_submits_total\{outcome="placed"\} (\S+)', text)
        return float(result[1]) if result else 0.0


@pytest.fixture
def processes(postgres_server: Postgres, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path, postgres_server.new_database())
    yield made
    made.end()


@pytest.fixture
def site(processes: Processes, tmp_path: Path) -> Site:
    return Site(processes, tmp_path)


def test_worker_that_is_killed_under_load_costs_its_own_connections_and_comes_back(site: Site) -> None:
    keys: list[str] = []
    broken: list[str] = []
    ended = threading.Event()

    def work() -> None:
        with Client(site.url, site.token, tries=1) as client:
            while not ended.is_set():
                keys.append(key := new_key())
                try:
                    client.submit(jobspec(), name=key, idempotency_key=key)
                except Exception:
                    broken.append(key)

    threads = [threading.Thread(target=work) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    before = site.workers
    os.kill(before[0].pid, signal.SIGKILL)
    until(lambda: len(set(site.workers) - set(before)) == 1)
    assert set(before[1:]) <= set(site.workers)
    time.sleep(1)
    ended.set()
    for thread in threads:
        thread.join()
    assert len(site.workers) == len(before) == WORKERS
    assert len(broken) <= CALLERS  # each had one request at most on its way to the worker that was killed
    with Client(site.url, site.token) as client:
        for key in broken:
            client.submit(jobspec(), name=key, idempotency_key=key)
    engine = sa.create_engine(site.database)
    with engine.connect() as connection:
        assert sorted(connection.execute(sa.text("SELECT name FROM jobs")).scalars()) == sorted(keys)
    engine.dispose()


def test_counters_are_those_of_all_workers_whoever_is_asked_and_never_fall(site: Site) -> None:
    seen = []
    for _ in range(30):
        with Client(site.url, site.token) as client:  # a connection of its own: any worker may take it
            client.submit(jobspec())
        seen.append(site.submits())
    assert seen == sorted(seen)
    until(lambda: site.submits() == 30)  # each has left what it counted
    for worker in site.workers:
        os.kill(worker.pid, signal.SIGKILL)
    until(lambda: len(site.workers) == WORKERS)
    until(Client(site.url, tries=1).ready)
    assert site.submits() == 30


def test_all_workers_end_with_the_server(site: Site) -> None:
    workers = site.workers
    site.process.send_signal(signal.SIGTERM)
    assert site.process.wait(30) == 0
    assert not any(worker.is_running() for worker in workers)


def test_several_workers_of_a_sqlite_file_are_refused(tmp_path: Path) -> None:
    processes = Processes(tmp_path, str(tmp_path / "rainbow.db"))
    (tmp_path / "rainbow.yaml").write_text("server: {workers: 2}\n")
    refused: subprocess.Popen[bytes] = processes.start("serve", "--config", "rainbow.yaml")
    assert refused.wait(60) != 0
    answer = (tmp_path / "0-serve.log").read_text()
    assert "server.workers must be 1 on SQLite, got 2" in answer
    assert "/server/workers" in answer
    assert not (tmp_path / "rainbow.db").exists()
