"""Executors that hold runs in place: no process goes on, time stands still, and a held run can be ended."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rainbow.agent import Executor, Result
from rainbow.agent.executors.interface import Suspends
from rainbow.agent.work_loop import hold
from rainbow.testing.runs import end_of, ends, python, run_of, until

TICK = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as file:
    for _ in range(int(sys.argv[2])):
        file.write(b"x")
        time.sleep(0.05)
"""
STILL = 1.5  # seconds in which a held run must do nothing


@pytest.fixture
def able(executor: Executor) -> Executor:
    if not isinstance(executor, Suspends):
        pytest.skip("this executor cannot suspend")
    return executor


def ticking(able: Executor, file: Path, ticks: int, **more: object):
    base = python(TICK, **more)
    run = run_of(*base.command, str(file), str(ticks), **more)
    able.start(run)
    until(lambda: able.poll() == [] and file.exists() and file.stat().st_size > 1, 30)
    return run


def settled(file: Path) -> int:
    """Return how much was written once nothing more is."""
    limit = time.monotonic() + 10
    while (size := file.stat().st_size) is not None and time.monotonic() < limit:
        time.sleep(STILL)
        if file.stat().st_size == size:
            return size
    raise AssertionError("it goes on")


def test_held_run_stands_still_goes_on_and_has_its_whole_time(able: Executor, tmp_path: Path) -> None:
    run = ticking(able, tmp_path / "ticks", 40, duration=4.0)
    able.suspend(run.id)
    able.suspend(run.id)
    size = settled(tmp_path / "ticks")
    time.sleep(2.5)  # beyond its limit, had its time not stood still
    assert able.poll() == []
    assert (tmp_path / "ticks").stat().st_size == size < 40
    able.resume(run.id)
    end = ends(able)[run.id]
    assert (end.result, end.exit_code, (tmp_path / "ticks").stat().st_size) == (Result.EXITED, 0, 40)


def test_held_run_ends_when_it_is_stopped(able: Executor, tmp_path: Path) -> None:
    run = ticking(able, tmp_path / "ticks", 600)
    able.suspend(run.id)
    settled(tmp_path / "ticks")
    able.stop(run.id)
    assert ends(able)[run.id].result is Result.STOPPED


def test_what_is_not_running_is_neither_held_nor_resumed(able: Executor) -> None:
    able.suspend(("nobody", 1))
    able.resume(("nobody", 1))
    assert end_of(able, run_of("true")).exit_code == 0


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
    told = {"task": "t", "attempt": 2, "event": "unable", "detail": detail}
    assert hold(of, ("t", 2), "suspend") == told
