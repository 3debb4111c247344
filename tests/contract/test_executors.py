"""What every executor must do, run over all: those of extras, and Slurm, where they are there."""

from __future__ import annotations

import os
import re
import time

import pytest

from rainbow.agent import Executor, Result, executors
from rainbow.agent.executors.local import LocalExecutor, Tail, allowed
from rainbow.testing import ExecutorContract
from rainbow.testing.executors import end_of, ends, python, run_of
from tests.contract.executing import NAMES


class TestExecutors(ExecutorContract):
    @pytest.fixture
    def executor(self, executor: Executor) -> Executor:
        return executor


def test_executors_are_all_covered_here() -> None:
    # Grid Engine is started by its own tests alone (tests/sites/test_gridengine.py): its daemons take half a minute
    assert {re.split("[,:]", name)[0] for name in NAMES} | {"gridengine"} == set(executors.names())


def test_every_process_knows_its_rank_and_worker(executor: Executor, request: pytest.FixtureRequest) -> None:
    show = "import os; print(*(os.environ['RAINBOW_' + k] for k in 'JOB TASK TASK_RANK TASK_COUNT WORKER'.split()))"
    here = request.node.callspec.params["executor"]
    one, two = ("n0001", "n0003") if "slurm" in here else ("node2", "node10")  # Slurm's must exist
    placement = {two: {"core": 1}, one: {"core": 2}}
    end = end_of(executor, python(show, processes=3, placement=placement))
    answers = sorted(end.output.splitlines())
    assert answers == [f"job1 t1 0 3 {one}", f"job1 t1 1 3 {two}", f"job1 t1 2 3 {one}"]


def test_many_runs_at_once_all_end_with_their_own_output(executor: Executor, request: pytest.FixtureRequest) -> None:
    quick = request.node.callspec.params["executor"].startswith("local")  # a thousand are soaked
    many_at_once(executor, 100 if quick else 12, 120)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("executor", ["local", "psij:local", "psij:slurm", "dask"], indirect=True)
def test_1000_runs_at_once_all_end_with_their_own_output(executor: Executor) -> None:
    many_at_once(executor, 1_000, 550)


def many_at_once(executor: Executor, count: int, seconds: float) -> None:
    for number in range(count):
        executor.start(run_of("sh", "-c", 'sleep 0.5; echo "$1"', "sh", str(number), task=f"t{number}"))
    assert len(executor.running()) == count
    result = ends(executor, count, seconds)
    assert [end for end in result.values() if end.result is not Result.EXITED] == []
    assert {end.output for end in result.values()} == {f"{number}\n" for number in range(count)}
    assert {end.exit_code for end in result.values()} == {0}


def test_output_is_whole_though_its_reader_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Tail._read
    monkeypatch.setattr(Tail, "_read", lambda tail: (time.sleep(1.5), late(tail)))
    assert end_of(LocalExecutor(allowed(os.environ)), run_of("echo", "late")).output == "late\n"


def test_tasks_do_not_see_the_agents_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAINBOW_SECRET", "rbs_1")
    local = LocalExecutor(allowed(os.environ))
    end = end_of(local, python("import os; print('RAINBOW_SECRET' in os.environ)"))
    assert end.output == "False\n"
