"""Runs for an executor, and waiting for how they end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import psutil

from rainbow.agent import Ended, Executor, Run, RunId

PYTHON = sys.executable
LEAVE_A_CHILD = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"


def run_of(*command: str, task: str = "t1", **more: Any) -> Run:
    """Return a run of a command; `more` are fields of Run."""
    return replace(Run((task, 1), "job1", command), **more)


def python(code: str, **more: Any) -> Run:
    """Return a run of Python code."""
    return run_of(PYTHON, "-c", code, **more)


def ends(executor: Executor, count: int = 1, seconds: float = 60) -> Mapping[RunId, Ended]:
    """Poll until `count` runs have ended; return their ends."""
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
    """Start a run and wait for its end."""
    executor.start(run)
    return ends(executor)[run.id]


def until(true: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is true."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.01)


def sleepers(seconds: str) -> list[psutil.Process]:
    """Return the processes `sleep SECONDS`."""
    return [one for one in psutil.process_iter() if words_of(one) == ["sleep", seconds]]


def words_of(process: psutil.Process) -> list[str]:
    """Return the command line of a process; empty for a zombie."""
    try:
        return [] if process.status() == psutil.STATUS_ZOMBIE else process.cmdline()
    except psutil.Error:
        return []
