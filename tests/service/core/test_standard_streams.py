"""A server and an agent whose log cannot be written work on; a command whose output is closed ends in order."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rainbow.client import Client, Problem
from rainbow.errors import Unavailable
from tests.conftest import ADMIN, REGISTRATION
from tests.support.ports import free_port

ECHO = "{resources: {work: {type: core, count: 1}}, tasks: [{command: [echo, hi], resources: work}]}"
RAINBOW = [sys.executable, "-m", "rainbow"]
SECRETS = {"RAINBOW_REGISTRATION_SECRET": REGISTRATION, "RAINBOW_ADMIN_TOKEN": ADMIN}


@contextmanager
def started(words: Sequence[str], folder: Path) -> Iterator[None]:
    """Run a command whose stderr has no room."""
    shell = ["sh", "-c", 'exec "$@" > /dev/null 2> /dev/full', "sh", *RAINBOW, *words]
    running = subprocess.Popen(shell, cwd=folder, env={**os.environ, **SECRETS})
    try:
        yield
        assert running.poll() is None
    finally:
        running.terminate()
        running.wait(20)


def test_a_server_and_an_agent_work_without_a_log(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    agent = ["agent", "--register", "--cluster", "desk", "--url", url, "--credentials", "c.json", "--state-dir", "s"]
    with started(["serve", "--port", str(port)], tmp_path), started(agent, tmp_path):
        job = eventually(lambda: Client(url, ADMIN, tries=1).submit(ECHO))
        with Client(url, ADMIN) as client:
            assert client.wait(job["id"], timeout=60, every=0.2)["state"] == "COMPLETED"


def eventually(do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what is answered as soon as the server is up and knows the cluster."""
    end = time.monotonic() + 60
    while True:
        try:
            return do()
        except (Problem, Unavailable):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@pytest.mark.parametrize(("to", "code"), [(">&-", 0), ("2>&-", 0), ("<&-", 0), ("> /dev/full", 1)])
def test_a_command_with_a_closed_stream_ends_in_order(to: str, code: int, tmp_path: Path) -> None:
    shell = ["sh", "-c", f'exec "$@" {to}', "sh", *RAINBOW, "cluster", "import", "local"]
    done = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert "error" not in done.stderr
