"""Executors that hold runs in place: no process goes on, time stands still, and a held run can be ended."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rainbow.agent import Executor, Result
from rainbow.agent.executors.interface import Suspends
from rainbow.agent.messages import hold
from rainbow.testing.executors import ends, python, run_of, until

TICK = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as file:
    for _ in range(int(sys.argv[2])):
        file.write(b"x")
        time.sleep(0.05)
"""
STILL = 1.5  # seconds in which a held run must do nothing
TICKS, LIMIT = 60, 5.5  # 3 seconds of work and twice STILL are beyond the limit, had time not stood still


@pytest.fixture
def able(executor: Executor) -> Executor:
    if not isinstance(executor, Suspends):
        pytest.skip("this executor cannot suspend")
    return executor


def ticking(able: Executor, file: Path, ticks: int, **more: object):
    base = python(TICK, **more)
    run = run_of(*base.command, str(file), str(ticks), **more)
    able.start(run)
    return run


def settled(files: list[Path]) -> list[int]:
    """Return how much was written to each once nothing more is."""
    limit, before = time.monotonic() + 10, list[int]()
    while (sizes := [file.stat().st_size for file in files]) != before:
        assert time.monotonic() < limit, "they go on"
        before = sizes
        time.sleep(STILL)
    return sizes


def test_held_runs_stand_still_and_have_their_whole_time_or_end_when_stopped(able: Executor, tmp_path: Path) -> None:
    """Two at once; and what is not running is neither held nor resumed."""
    able.suspend(("nobody", 1))
    able.resume(("nobody", 1))
    runs = [ticking(able, tmp_path / name, TICKS, task=name, duration=LIMIT) for name in ("resumed", "stopped")]
    begun = [tmp_path / run.id[0] for run in runs]
    until(lambda: able.poll() == [] and all(file.exists() and file.stat().st_size > 1 for file in begun), 30)
    for run in [*runs, runs[0]]:
        able.suspend(run.id)
    sizes = settled(begun)
    time.sleep(STILL)
    assert able.poll() == []
    assert [file.stat().st_size for file in begun] == sizes
    assert max(sizes) < TICKS
    able.stop(runs[1].id)
    able.resume(runs[0].id)
    result = ends(able, 2)
    assert result[runs[1].id].result is Result.STOPPED
    end = result[runs[0].id]
    assert (end.result, end.exit_code, (tmp_path / "resumed").stat().st_size) == (Result.EXITED, 0, TICKS)


class Plain:
    """An executor that can do neither."""


class Faulty:
    def suspend(self, run: object) -> None:
        raise OSError("no")

    resume = suspend


@pytest.mark.parametrize(
    ("of", "detail"),
    [(Plain(), "executor Plain does not support suspend"), (Faulty(), "the executor could not suspend it: no")],
)
def test_executor_that_cannot_says_so(of, detail) -> None:
    answer = {"task": "t", "attempt": 2, "event": "unable", "detail": detail}
    assert hold(of, ("t", 2), "suspend") == answer
