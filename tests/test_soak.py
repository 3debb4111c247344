"""Long campaigns, run by `make soak`: load on a real server."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from rainbow.client import Client
from rainbow.errors import RainbowError
from tests.conftest import grid
from tests.test_end_to_end import free_port, until
from tests.test_two_processes import SPEC, Processes, register

pytestmark = pytest.mark.soak
SECONDS = float(os.environ.get("RAINBOW_SOAK_SECONDS", "60"))
CLIENTS = int(os.environ.get("RAINBOW_SOAK_CLIENTS", "256"))


class Crowd:
    """Clients that submit until the time is over: what was acknowledged, how long each took, what was refused."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.times: list[float] = []

    def run(self) -> None:
        end = time.monotonic() + SECONDS
        threads = [threading.Thread(target=self._submit, args=(end,)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.times.sort()

    def _submit(self, end: float) -> None:
        with Client(self.url, self.token, timeout=60) as api:
            while (start := time.monotonic()) < end:
                try:
                    self.acknowledged.append(api.submit(SPEC)["id"])
                    self.times.append(time.monotonic() - start)
                except RainbowError as fault:
                    self.refused.append(str(fault))

    def figures(self, kind: str) -> str:
        p50, p99 = (self.times[int(len(self.times) * part)] for part in (0.5, 0.99))
        told = f"{len(self.times)} submits in {SECONDS:.0f} s by {CLIENTS} clients on {kind}"
        return f"{told}: p50 {p50:.2f} s, p99 {p99:.2f} s, longest {self.times[-1]:.2f} s"


def listed(url: str, token: str) -> list[str]:
    with Client(url, token) as api:
        return sorted(job["id"] for job in api.all_jobs())


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_256_clients_for_a_minute_then_kill_9_lose_no_acknowledged_job(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    database = f"sqlite:///{tmp_path}/rainbow.db"
    if kind == "postgresql":
        database = request.getfixturevalue("postgres_server").new_database()
    processes, port = Processes(tmp_path, database), free_port()
    url = f"http://127.0.0.1:{port}"
    try:
        server = processes.start("serve", "--port", str(port))
        until(Client(url).ready)
        token = register(url, grid(10, 4))["token"]
        crowd = Crowd(url, token)
        crowd.run()
        with capsys.disabled():
            print(f"\n{crowd.figures(kind)}")
        assert crowd.refused == []
        assert listed(url, token) == sorted(crowd.acknowledged)  # none lost, none doubled
        server.send_signal(signal.SIGKILL)
        server.wait()
        processes.start("serve", "--port", str(port))
        until(Client(url).ready)
        assert listed(url, token) == sorted(crowd.acknowledged)
    finally:
        processes.end()
