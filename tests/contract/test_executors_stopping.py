"""Limits and stops at every executor: nothing outlives its run, and what outlives an agent is adopted."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from rainbow.agent import Ended, Executor, Result
from rainbow.agent.executors.local import GRACE, LocalExecutor, allowed
from tests.contract.executing import (
    LEAVE_A_CHILD,
    NAMES,
    PYTHON,
    end_of,
    ends,
    opened,
    python,
    run_of,
    there_of,
    until,
)

MIND_TERM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("tidied", flush=True), sys.exit(3)))
open(sys.argv[1], "w")
time.sleep(60)
"""


def test_a_run_over_its_limit_is_ended_with_all_it_started(executor: Executor) -> None:
    begun = time.monotonic()
    end = end_of(executor, python(f"{LEAVE_A_CHILD}; import time; time.sleep(60)", duration=1.0))
    assert end.result is Result.TIMED_OUT
    assert end.exit_code not in (0, None)
    assert end.detail == "killed: exceeded its time limit of 1 seconds"
    assert time.monotonic() - begun < 30
    grandchild = int(end.output)
    until(lambda: not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE)


def test_a_run_within_its_limit_is_left_alone(executor: Executor) -> None:
    end = end_of(executor, run_of("sleep", "0.1", duration=20.0))
    assert (end.result, end.exit_code) == (Result.EXITED, 0)


def test_stop_ends_a_run_and_says_stopped(executor: Executor) -> None:
    executor.start(run_of("sleep", "60"))
    executor.stop(("t1", 1))
    assert ends(executor)[("t1", 1)].result is Result.STOPPED


def test_stop_of_an_unknown_run_or_attempt_does_nothing(executor: Executor) -> None:
    executor.start(run_of("sleep", "0.3"))
    executor.stop(("t1", 2))
    executor.stop(("nobody", 1))
    assert ends(executor)[("t1", 1)].result is Result.EXITED


def test_stop_of_what_has_ended_keeps_its_end(executor: Executor, tmp_path: Path) -> None:
    executor.start(run_of("touch", str(tmp_path / "done")))
    until((tmp_path / "done").exists)
    time.sleep(0.2)
    executor.stop(("t1", 1))
    assert ends(executor)[("t1", 1)].result is Result.EXITED


def test_term_is_minded_if_the_program_minds_it(executor: Executor, tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        up, run = tmp_path / f"up{attempt}", ("t1", attempt)
        executor.start(replace(run_of(PYTHON, "-c", MIND_TERM, str(up)), id=run))
        until(up.exists)
        asked = time.monotonic()
        executor.stop(run)
        end = ends(executor)[run]
        # a machine so busy that the program had no turn in all of its grace says nothing of us
        if end.exit_code != 137 or time.monotonic() < asked + GRACE:
            break
    assert end == Ended(run, Result.STOPPED, 3, "tidied\n")


def test_output_held_open_by_an_escaped_process_does_not_hold_up_the_end(executor: Executor) -> None:
    escape = "import subprocess; print(subprocess.Popen(['sleep', '90'], start_new_session=True).pid, flush=True)"
    begun = time.monotonic()
    end = end_of(executor, python(escape))
    psutil.Process(int(end.output)).kill()
    assert time.monotonic() - begun < 30


def test_what_a_run_leaves_in_its_group_ends_with_it(executor: Executor) -> None:
    end = end_of(executor, python(LEAVE_A_CHILD))
    left = int(end.output)
    until(lambda: not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE)


LEFT_BEHIND = """
import os, signal, sys, time
from pathlib import Path
from rainbow.agent import Run, open_executor
from rainbow.agent.executors.local import allowed
name, folder, *marks = sys.argv[1:]
executor = open_executor(name, allowed(os.environ), Path(folder))
for mark, seconds in zip(marks, ("4", "0")):
    command = ("sh", "-c", 'echo >> "$1"; sleep "$2"; echo done', "sh", mark, seconds)
    executor.start(Run((seconds, 1), "job1", command))
    while not os.path.exists(mark):  # nothing is polled: an end that was polled twice is forgotten
        time.sleep(0.05)
time.sleep(1)  # Dask publishes in the background
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("executor", [name for name in NAMES if name != "local"], indirect=True)
def test_what_an_agent_that_was_killed_left_behind_is_adopted(
    executor: Executor, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    called = there_of(request.node.callspec.params["executor"], request)
    marks = [tmp_path / "of what runs", tmp_path / "of what has ended"]
    script = [PYTHON, "-c", LEFT_BEHIND, called.partition(",")[0], str(tmp_path), *map(str, marks)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run(script, env=environment, timeout=120, check=False).returncode == -9
    again = opened(f"{called.partition(',')[0]}, kept", tmp_path)
    try:
        assert sorted(again.running()) == [("0", 1), ("4", 1)]
        for task in ("0", "4"):
            again.start(run_of("sh", "-c", "exit 9", task=task))  # it is known: nothing is started
        found = ends(again, 2)
        assert {(end.result, end.exit_code, end.output) for end in found.values()} == {(Result.EXITED, 0, "done\n")}
        assert [len(mark.read_text()) for mark in marks] == [1, 1]
        again.poll()
        assert again.running() == []
    finally:
        again.close()


def sleepers(seconds: str) -> list[psutil.Process]:
    return [one for one in psutil.process_iter() if words_of(one) == ["sleep", seconds]]


def words_of(process: psutil.Process) -> list[str]:
    try:
        return [] if process.status() == psutil.STATUS_ZOMBIE else process.cmdline()
    except psutil.Error:
        return []


def test_close_leaves_no_process(executor: Executor) -> None:
    seconds = f"61.{os.getpid()}"
    executor.start(run_of("sleep", seconds, processes=3))
    until(lambda: len(sleepers(seconds)) == 3, 20)
    executor.close()
    until(lambda: sleepers(seconds) == [])
    assert executor.running() == []


def test_local_kills_what_does_not_mind_term() -> None:
    local = LocalExecutor(allowed(os.environ), grace=0.3)
    local.start(
        python("import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)")
    )
    time.sleep(0.5)
    local.stop(("t1", 1))
    end = ends(local)[("t1", 1)]
    assert (end.result, end.exit_code, end.output) == (Result.STOPPED, 137, "up\n")


def test_a_command_does_not_run_again_because_dask_lost_its_worker(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    mark, seconds = tmp_path / "mark", f"66.{os.getpid()}"
    with distributed.LocalCluster(n_workers=1, threads_per_worker=4, dashboard_address=None) as cluster:
        dask = opened(f"dask:{cluster.scheduler_address}, kept", tmp_path)
        dask.start(run_of("sh", "-c", 'echo >> "$1"; sleep "$2"', "sh", str(mark), seconds))
        until(lambda: len(sleepers(seconds)) == 1)
        [worker] = [one for one in psutil.process_iter() if one.pid == cluster.workers[0].pid]
        worker.kill()
        assert ends(dask)[("t1", 1)].result is Result.STOPPED
        assert len(mark.read_text()) == 1
        until(lambda: sleepers(seconds) == [])
        dask.close()
