"""Long campaigns, run by `make soak`: load on a real server."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rainbow.client import Client
from rainbow.errors import RainbowError
from tests.conftest import REGISTRATION, grid
from tests.scenarios.test_end_to_end import Processes as Ended
from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_two_processes import SPEC, Processes, register
from tests.support.ports import free_port

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
        text = f"{len(self.times)} submits in {SECONDS:.0f} s by {CLIENTS} clients on {kind}"
        return f"{text}: p50 {p50:.2f} s, p99 {p99:.2f} s, longest {self.times[-1]:.2f} s"


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


LARGE = 100_000


class Others:
    """A client that submits small jobs all the time: how long each submit took."""

    def __init__(self, url: str, token: str) -> None:
        self._client, self._over = Client(url, token, timeout=60), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.times: list[float] = []
        self.jobs: set[str] = set()

    def _run(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            self.jobs.add(self._client.submit(SPEC)["id"])
            self.times.append(time.monotonic() - began)
            self._over.wait(0.05)

    def __enter__(self) -> Others:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()


def took(act: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    result = act()
    return time.monotonic() - began, result


def test_a_job_of_100_000_tasks_is_shown_and_canceled_beside_others_and_survives_a_kill(tmp_path: Path) -> None:
    port, database = free_port(), str(tmp_path / "rainbow.db")
    made = Ended(tmp_path)
    try:
        server = made.start("serve", "--port", str(port), "--database", database)
        url = f"http://127.0.0.1:{port}"
        until(Client(url).ready)
        registration = Client(url, REGISTRATION).register_cluster("oak", grid(8, 2))
        user = Client(url, registration["token"], timeout=120)
        tasks = [{"command": ["true"], "resources": "w", "replicas": LARGE}]
        spec = {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": tasks}
        first, second = user.submit(spec)["id"], user.submit(spec)["id"]
        shown, page = took(lambda: user.job(first, limit=1_000))
        with Others(url, registration["token"]) as others:
            canceled, _ = took(lambda: user.cancel(first))
            whole = canceled + took(lambda: user.wait(first, timeout=120))[0]
        user.cancel(second)
        server.send_signal(signal.SIGKILL)
        server.wait()
        made.start("serve", "--port", str(port), "--database", database)
        until(user.ready)
        remaining = user.job(second, limit=1)["counts"]
        again = took(lambda: until(lambda: user.job(second, limit=1)["state"] == "CANCELED", 120))[0]
        counts = user.job(second, limit=1)["counts"]
    finally:
        made.end()
    print(f"{LARGE} tasks: a page {shown:.2f} s, cancel answers after {canceled:.1f} s, done after {whole:.1f} s;")
    print(f"others' submits meanwhile: {len(others.times)}, longest {max(others.times):.2f} s;")
    print(f"killed when {remaining} were; done {again:.1f} s after the restart")
    assert len(page["tasks"]) == 1_000
    assert page["counts"] == {"WAITING": LARGE}
    assert counts == {"CANCELED": LARGE}
    assert remaining["WAITING"] > 0
    assert shown < 1.0
    assert max(others.times) <= 0.5


@pytest.mark.parametrize("after", [0.5, 1.5, 3.0])
def test_a_job_of_100_000_tasks_is_whole_or_not_there_when_its_server_is_killed(tmp_path: Path, after: float) -> None:
    port, database = free_port(), str(tmp_path / "rainbow.db")
    made = Ended(tmp_path)
    tasks = [{"command": ["true"], "resources": "w", "replicas": LARGE}]
    spec = {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": tasks}
    try:
        server = made.start("serve", "--port", str(port), "--database", database)
        url = f"http://127.0.0.1:{port}"
        until(Client(url).ready)
        registration = Client(url, REGISTRATION).register_cluster("oak", grid(8, 2))
        cut = Client(url, registration["token"], timeout=60, tries=1)
        user = Client(url, registration["token"], timeout=120)
        sender = threading.Thread(target=_sent, args=(cut, spec))
        sender.start()
        time.sleep(after)
        server.send_signal(signal.SIGKILL)
        server.wait()
        sender.join()
        made.start("serve", "--port", str(port), "--database", database)
        until(user.ready)
        there = [job["id"] for job in user.jobs()["jobs"]]
        with Others(url, registration["token"]) as others:
            seconds, job = took(lambda: user.submit(spec, idempotency_key="one"))
        counts = user.job(job["id"], limit=1)["counts"]
        listed = [one["id"] for one in user.all_jobs() if one["id"] not in others.jobs]
    finally:
        made.end()
    print(f"killed after {after} s: {len(there)} there; submitted again in {seconds:.1f} s, ")
    print(f"others' submits meanwhile: {len(others.times)}, longest {max(others.times):.2f} s")
    assert counts == {"WAITING": LARGE}
    assert listed == [job["id"]]
    assert there in ([], [job["id"]])
    assert max(others.times) <= 0.5  # 0.2 alone on a machine


def _sent(user: Client, spec: Any) -> None:
    with suppress(RainbowError):
        user.submit(spec, idempotency_key="one")
