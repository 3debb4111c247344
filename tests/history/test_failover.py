"""A PostgreSQL under Patroni loses its leader under load: nothing is lost, nothing is doubled, no server ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from rainbow.cli.main import main
from rainbow.client import Client
from tests.conftest import grid
from tests.history.patroni import TTL, Patroni, patroni
from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_faults import Load, listed
from tests.scenarios.test_two_processes import Processes, register
from tests.support.ports import free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
PROMISED = TTL + 10.0  # seconds without a submit


@pytest.fixture
def database() -> Iterator[Patroni]:
    with patroni() as made:
        yield made


class Watch:
    """Asks servers whether they are ready, all the time: when each was not, and with what words."""

    def __init__(self, urls: list[str]) -> None:
        self.refusals: dict[str, list[str]] = {url: [] for url in urls}
        self.odd: Counter[int] = Counter()
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._ask, args=(url,), daemon=True) for url in urls]

    def __enter__(self) -> Watch:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(30)

    def _ask(self, url: str) -> None:
        while not self.over.wait(0.2):
            answer = httpx.get(f"{url}/readyz", timeout=15)
            if answer.status_code == 503:
                self.refusals[url].append(answer.json()["detail"])
            elif answer.status_code != 200:
                self.odd[answer.status_code] += 1


def test_the_leader_killed_under_four_submitters_costs_a_pause_and_nothing_else(
    tmp_path: Path, database: Patroni
) -> None:
    processes = Processes(tmp_path, database.url)
    try:
        urls = [processes.serve(), processes.serve()]
        processes.start("scheduler")
        oak = register(urls[0], grid(4, 2))
        processes.start("agent", "--cluster", "oak", "--url", f"{urls[0]}", RAINBOW_SECRET=oak["secret"])
        with Watch(urls) as watch, Load(urls[0], oak["token"], 2) as one, Load(urls[1], oak["token"], 2) as two:
            until(lambda: min(len(one.acknowledged), len(two.acknowledged)) > 20)
            killed, before = time.monotonic(), len(one.acknowledged) + len(two.acknowledged)
            database.crash()
            until(lambda: all(watch.refusals.values()), PROMISED)
            until(lambda: len(one.acknowledged) + len(two.acknowledged) > before + 20, 2 * PROMISED)
            took = time.monotonic() - killed
            until(lambda: all(Client(url, tries=1).ready() for url in urls))
        acknowledged, refused = one.acknowledged + two.acknowledged, one.refused + two.refused
        outcomes = Counter(answer.json()["outcome"] for answer in refused)
        results = Counter(listed(urls[0], oak["token"]))
        lost, doubled = set(acknowledged) - set(results), [job for job, count in results.items() if count > 1]
        print(f"{took:.1f} s without a submit, {len(acknowledged)} done, {dict(outcomes)} refused")
        assert took <= PROMISED
        assert {answer.status_code for answer in refused} == {503}
        assert not lost
        assert not doubled
        assert len(results) <= len(acknowledged) + outcomes["unknown"]
        assert not watch.odd
        assert all(process.poll() is None for process in processes.running), "a process has ended"
        until(lambda: len(list(Client(urls[0], oak["token"]).all_jobs(state="COMPLETED"))) > 20)
    finally:
        processes.end()


def test_a_server_started_without_a_leader_waits_and_then_serves(tmp_path: Path, database: Patroni) -> None:
    processes, port = Processes(tmp_path, database.url), free_port()
    try:
        processes.serve()  # makes the tables
        database.crash()
        processes.start("serve", "--port", str(port), "--no-scheduler")
        url = f"http://127.0.0.1:{port}"
        until(lambda: any("waiting-for-database" in path.read_text() for path in tmp_path.glob("1-serve.log")))
        assert httpx.get(f"{url}/readyz").status_code == 503
        until(Client(url, tries=1).ready, PROMISED)
        assert "Traceback" not in "".join(path.read_text() for path in tmp_path.glob("*.log"))
    finally:
        processes.end()


def test_doctor_names_a_standby_that_is_not_synchronous_and_a_lease_that_is_too_short(tmp_path: Path) -> None:
    config = tmp_path / "short.yaml"
    config.write_text("scheduler: {lease: 12}\n")
    with patroni(synchronous=False) as database:
        shell = CliRunner().invoke(
            main, ["doctor", "--database", database.url, "--config", str(config), "-o", "json"]
        )
    assert "is not synchronous: a failover may lose what was answered" in shell.output
    assert "scheduler.lease is 12 s: tasks may run twice after a failover" in shell.output
