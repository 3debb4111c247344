"""Executors by name, runs to give them, and waiting for how they end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from rainbow.agent import Ended, Executor, Run, RunId, open_executor
from rainbow.agent.executors.local import allowed
from tests import services

NAMES = ["local", "local, kept", "psij:local", "psij:slurm", "slurm:owned", "slurm:shared", "dask"]
PYTHON = sys.executable
LEAVE_A_CHILD = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"


def there(request: pytest.FixtureRequest) -> str:
    """Return the executor to open; the test is skipped where its library or its cluster is not there."""
    return there_of(request.param, request)


def there_of(called: str, request: pytest.FixtureRequest) -> str:
    """Return the executor of this name, with its address."""
    if called.startswith("psij"):
        services.without("" if find_spec("psij") else "psij-python is not installed")
    if "slurm" in called:
        request.getfixturevalue("on_slurm")
    if called == "dask":
        services.without("" if find_spec("distributed") else "distributed is not installed")
        return f"dask:{request.getfixturevalue('dask_scheduler')}, kept"
    return called


def opened(called: str, folder: Path) -> Executor:
    name, _, kept = called.partition(", ")
    return open_executor(name, {**allowed(os.environ), "LC_ALL": "C.UTF-8"}, folder if kept else None)


def run_of(*command: str, task: str = "t1", **more: object) -> Run:
    return replace(Run((task, 1), "job1", command), **more)  # type: ignore[arg-type]  # more are fields of Run


def python(code: str, **more: object) -> Run:
    return run_of(PYTHON, "-c", code, **more)


def ends(executor: Executor, count: int = 1, seconds: float = 60) -> Mapping[RunId, Ended]:
    found: dict[RunId, Ended] = {}
    limit = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < limit:
        for end in executor.poll():
            assert end.id not in found, "told twice"
            found[end.id] = end
        time.sleep(0.01)
    assert len(found) == count
    return found


def end_of(executor: Executor, run: Run) -> Ended:
    executor.start(run)
    return ends(executor)[run.id]


def until(true: object, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not true():  # type: ignore[operator]  # a function without arguments
        assert time.monotonic() < limit
        time.sleep(0.01)
