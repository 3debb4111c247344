"""Runs that an agent left behind are adopted; and stops that are an executor's own."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from rainbow.agent import Executor, Result
from rainbow.agent.executors.local import LocalExecutor, allowed
from rainbow.testing.executors import PYTHON, ends, python, run_of, sleepers, until
from tests.contract.executing import NAMES, opened, there_of
from tests.support.services import package

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
        result = ends(again, 2)
        assert {(end.result, end.exit_code, end.output) for end in result.values()} == {(Result.EXITED, 0, "done\n")}
        assert [len(mark.read_text()) for mark in marks] == [1, 1]
        again.poll()
        assert again.running() == []
    finally:
        again.close()


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
    distributed = package("distributed")
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
