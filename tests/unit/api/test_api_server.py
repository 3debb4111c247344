"""The real server: killed at once and started again on the same port and store, and told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import ADMIN, REGISTRATION, grid, jobspec
from tests.support.ports import free_port

START = 60.0  # seconds a start may take on a busy machine


@pytest.fixture
def port() -> int:
    return free_port()


@contextmanager
def server(folder: Path, port: int, config: str = "{}\n") -> Iterator[subprocess.Popen[bytes]]:
    """Run `serve` over the store in this folder until the block ends."""
    (folder / "rainbow.yaml").write_text(config)
    served = f"port={port}, database='rainbow.db', config='rainbow.yaml'"
    code = f"from rainbow.api.server import serve; serve({served})"
    keys = {"RAINBOW_REGISTRATION_SECRET": REGISTRATION, "RAINBOW_ADMIN_TOKEN": ADMIN}
    path = {"PYTHONPATH": str(Path(__file__).parents[3])}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=folder, env={**os.environ, **keys, **path}, stdout=log, stderr=log
        )
    try:
        _await_ready(process, port)
        yield process
    finally:
        process.kill()
        process.wait()


def _await_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("the server did not start")


def client(port: int, token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30)


def register(port: int) -> dict[str, Any]:
    with client(port, REGISTRATION) as api:
        answer = api.post("/v1/clusters", json={"name": "oak", "graph": grid(8, 2)})
    assert answer.status_code == 201, answer.text
    reported: dict[str, Any] = answer.json()
    return reported


def listed(api: httpx.Client) -> list[str]:
    return [job["id"] for job in api.get("/v1/jobs", params={"limit": 1000}).json()["jobs"]]


def test_kill_9_and_restart_after_100_submits_loses_none(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port) as first:
        oak = register(port)
        worker = [child.pid for child in psutil.Process(first.pid).children()]
        with client(port, oak["token"]) as api:
            acknowledged = [api.post("/v1/jobs", json=jobspec()).json()["id"] for _ in range(100)]
        with client(port, oak["secret"]) as agent:
            done = _run_some(agent)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with server(tmp_path, port):
            assert not any(psutil.pid_exists(pid) and _runs(pid) for pid in worker)
            with client(port, oak["token"]) as api:
                assert sorted(listed(api)) == sorted(acknowledged)
                assert api.post("/v1/match", json=jobspec()).json()["candidates"][0]["cluster"] == "oak"
            with client(port, oak["secret"]) as agent:
                again = _run_some(agent)
    assert done
    assert again
    assert not set(done) & set(again), "a finished task ran again"


def _runs(pid: int) -> bool:
    return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


def _run_some(agent: httpx.Client) -> list[str]:
    """Take what is offered, and end all of it well."""

    def say(verb: str, **body: Any) -> Any:
        answer = agent.post(f"/v1/clusters/oak/{verb}", json={"agent": "a", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    offers = say("receive", max=16, wait=10)["tasks"]
    named = [{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers]
    accepted: list[str] = say("accept", tasks=named)["accepted"]
    ends = [{"task": ref["id"], "attempt": ref["attempt"], "event": "ended", "exit_code": 0} for ref in named]
    assert say("events", events=ends)["recorded"] == accepted
    return accepted


def test_64_clients_submitting_at_once_lose_no_job_and_double_none(tmp_path: Path, port: int) -> None:
    acknowledged: list[str] = []

    def submit(token: str) -> None:
        with client(port, token) as api:
            acknowledged.extend(api.post("/v1/jobs", json=jobspec()).json()["id"] for _ in range(4))

    with server(tmp_path, port):
        oak = register(port)
        threads = [threading.Thread(target=submit, args=(oak["token"],)) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with client(port, oak["token"]) as api:
            assert sorted(listed(api)) == sorted(acknowledged)
    assert len(set(acknowledged)) == 256


def test_server_told_to_stop_answers_who_waits_and_ends(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port) as process:
        oak = register(port)
        answers: list[int] = []
        waiting = threading.Thread(target=_wait_for_work, args=(port, oak["secret"], answers), daemon=True)
        waiting.start()
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
        waiting.join(timeout=1)
        assert answers == [200]


def _wait_for_work(port: int, secret: str, answers: list[int]) -> None:
    with client(port, secret) as agent:
        answers.append(agent.post("/v1/clusters/oak/receive", json={"agent": "a", "wait": 25}).status_code)


def test_random_bytes_and_a_wrong_token_leave_the_server_serving(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port):
        oak = register(port)
        with client(port, oak["token"]) as api:
            assert api.post("/v1/jobs", content=os.urandom(100_000)).status_code == 400
            assert api.post("/v1/jobs", json=jobspec()).status_code == 201
        with client(port, "rbt_wrong") as api:
            assert api.post("/v1/jobs", json=jobspec()).status_code == 401
    text = (tmp_path / "log").read_text()
    assert "Traceback" not in text
    assert oak["token"] not in text
    assert REGISTRATION not in text
