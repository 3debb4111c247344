"""A server at a steady rate grows no further: memory, descriptors, threads and tables stay where they are."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil
import pytest
import sqlalchemy as sa

from rainbow.client import Client
from rainbow.store import open_store
from rainbow.store.schema import metadata
from tests.conftest import grid
from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_two_processes import Processes, register
from tests.support.ports import free_port

SECONDS = float(os.environ.get("RAINBOW_STEADY_SECONDS", "1800"))
RATE = 4.0  # jobs a second, about half of what two cores run
HISTORY = SECONDS / 12  # seconds after which ended jobs are forgotten: each row of a job goes many times over
EACH = 5.0  # seconds between two looks
# the part by which the last third may be above the second: what a heap that is full gives and takes back
MARGIN = {"memory": 0.05, "descriptors": 0.05, "threads": 0.0, "rows": 0.10}


@dataclass
class Looks:
    """What was seen of the server's processes and its tables, one list a measure."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def note(self, processes: list[psutil.Process], store: sa.Engine) -> None:
        """Look once."""
        seen = {
            "memory": sum(each.memory_full_info().uss for each in processes) / 2**20,
            "descriptors": sum(each.num_fds() for each in processes),
            "threads": sum(each.num_threads() for each in processes),
        }
        with store.connect() as connection:
            counts = [
                connection.scalar(sa.select(sa.func.count()).select_from(each)) for each in metadata.sorted_tables
            ]
        for measure, value in (*seen.items(), ("rows", sum(counts))):
            self.values.setdefault(measure, []).append(value)

    def thirds(self, measure: str) -> tuple[float, float]:
        """Return the medians of the second and of the last third."""
        values = self.values[measure]
        third = len(values) // 3
        return median(values[third : 2 * third]), median(values[2 * third :])


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 600)
def test_half_an_hour_at_a_steady_rate_is_flat_after_ten_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short.yaml").write_text(f"scheduler: {{history: {HISTORY / 86_400:.6f}}}\n")
    database, port = f"sqlite:///{tmp_path}/rainbow.db", free_port()
    processes, url = Processes(tmp_path, database), f"http://127.0.0.1:{port}"
    looks, over = Looks(), threading.Event()
    try:
        server = processes.start("serve", "--port", str(port), "--config", str(tmp_path / "short.yaml"))
        until(Client(url, tries=1).ready)
        oak = register(url, grid(2, 8))
        processes.start("agent", "--cluster", "oak", "--url", url, "--quiet", RAINBOW_SECRET=oak["secret"])
        submits = threading.Thread(target=submit_steadily, args=(url, oak["token"], over), daemon=True)
        submits.start()
        store = open_store(database)
        began = time.monotonic()
        while time.monotonic() < began + SECONDS:
            parent = psutil.Process(server.pid)
            looks.note([parent, *parent.children(recursive=True)], store.engine)
            time.sleep(EACH)
        over.set()
        submits.join()
        done = sum(1 for _ in Client(url, oak["token"]).all_jobs(state="COMPLETED"))
    finally:
        over.set()
        processes.end()
    with capsys.disabled():
        print()
        for measure in MARGIN:
            before, after = looks.thirds(measure)
            print(f"{measure}: {before:,.1f} in the second third, {after:,.1f} in the last; {done} jobs remembered")
    assert done > 0
    for measure, margin in MARGIN.items():
        before, after = looks.thirds(measure)
        assert after <= before * (1 + margin), measure


def submit_steadily(url: str, token: str, over: threading.Event) -> None:
    """Submit short jobs at the rate, and read what became of the last one."""
    spec = {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": [{"command": ["true"], "resources": "w"}]}
    client, due = Client(url, token), time.monotonic()
    while not over.wait(max(0.0, due - time.monotonic())):
        due += 1 / RATE
        job = client.submit(spec)["id"]
        client.job(job)
