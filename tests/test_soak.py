"""Long campaigns, run by `make soak`: load on a real server."""

import os
import signal
import threading
import time

import pytest

from rainbow.client import Client
from rainbow.errors import RainbowError
from tests.conftest import REGISTRATION, grid
from tests.test_end_to_end import Processes, free_port, until

pytestmark = pytest.mark.soak
SECONDS = float(os.environ.get("RAINBOW_SOAK_SECONDS", "30"))
SPEC = {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": [{"command": ["true"], "resources": "w"}]}


@pytest.fixture
def processes(tmp_path):
    made = Processes(tmp_path)
    yield made
    made.end()


def test_64_clients_for_half_a_minute_then_kill_9_lose_no_acknowledged_job(tmp_path, processes, capsys):
    port = free_port()
    url, serve = (
        f"http://127.0.0.1:{port}",
        ("serve", "--port", str(port), "--database", str(tmp_path / "rainbow.db")),
    )
    server = processes.start(*serve)
    until(Client(url).ready)
    token = Client(url, REGISTRATION).register_cluster("oak", grid(10, 4))["token"]
    acknowledged, refused, times = [], [], []
    end = time.monotonic() + SECONDS

    def submit():
        api = Client(url, token)
        while (start := time.monotonic()) < end:
            try:
                acknowledged.append(api.submit(SPEC)["id"])
                times.append(time.monotonic() - start)
            except RainbowError as fault:
                refused.append(str(fault))

    threads = [threading.Thread(target=submit) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = [job["id"] for job in Client(url, token).all_jobs()]
    assert refused == []
    assert sorted(listed) == sorted(acknowledged)
    assert len(set(listed)) == len(listed)
    server.send_signal(signal.SIGKILL)
    server.wait()
    processes.start(*serve)
    until(Client(url).ready)
    assert sorted(job["id"] for job in Client(url, token).all_jobs()) == sorted(acknowledged)
    times.sort()
    with capsys.disabled():
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        print(f"\n{len(times)} submits in {SECONDS:.0f} s by 64 clients, p50 {p50:.2f} s, p99 {p99:.2f} s")
