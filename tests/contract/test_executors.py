"""What every executor must do, run over all: those of extras, and Slurm, where they are there."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rainbow.agent import Ended, Executor, Explains, Pending, Result, RunId, executors
from rainbow.agent.executors.local import LocalExecutor, Tail, allowed
from rainbow.agent.executors.run import TAIL
from tests.contract.executing import NAMES, PYTHON, end_of, ends, python, run_of

BY_RANK = """
import os, sys, time
rank = int(os.environ["RAINBOW_TASK_RANK"])
time.sleep(0.2 * (3 - rank))
sys.exit([0, 5, 7, 0][rank])
"""


def test_executors_are_all_covered_here() -> None:
    assert {re.split("[,:]", name)[0] for name in NAMES} == set(executors.names())


def test_success_is_exit_code_0(executor: Executor) -> None:
    assert end_of(executor, run_of("echo", "hello")) == Ended(("t1", 1), Result.EXITED, 0, "hello\n")


def test_failure_keeps_its_code(executor: Executor) -> None:
    end = end_of(executor, python("import sys; sys.exit(17)"))
    assert (end.result, end.exit_code) == (Result.EXITED, 17)


def test_a_signal_is_128_and_its_number_and_named(executor: Executor) -> None:
    end = end_of(executor, python("import os; os.kill(os.getpid(), 9)"))
    assert (end.result, end.exit_code, end.detail) == (Result.EXITED, 137, "killed by SIGKILL")


def test_output_keeps_its_last_bytes_of_both_streams(executor: Executor) -> None:
    much = "import sys; sys.stdout.write('x' * 200_000); sys.stdout.flush(); sys.stderr.write('the end')"
    end = end_of(executor, python(much))
    assert len(end.output) == TAIL
    assert end.output == "x" * (TAIL - 7) + "the end"


def test_as_much_output_is_kept_as_the_run_says(executor: Executor) -> None:
    end = end_of(executor, python("import sys; sys.stdout.write('x' * 200_000 + 'the end')", output=100_000))
    assert end.output == "x" * (100_000 - 7) + "the end"


def test_output_that_is_no_text_is_replaced(executor: Executor) -> None:
    end = end_of(executor, python(r"import sys; sys.stdout.buffer.write(b'\xff\x00ok')"))
    assert end.output == "\ufffd\ufffdok"


def test_argv_reaches_the_program_as_it_is(executor: Executor) -> None:
    words = ["naïve ☂ 雪", "a  b", 'it\'s "quoted"', "$HOME", "`id`", "*", "", "-n", "\\n", "\n"]
    show = "import sys; sys.stdout.buffer.write(repr(sys.argv[1:]).encode())"
    end = end_of(executor, run_of(PYTHON, "-c", show, *words))
    assert end.output == repr(words)


def test_a_semicolon_is_an_argument_and_no_command(executor: Executor, tmp_path: Path) -> None:
    end = end_of(executor, run_of("echo", "; touch x", "&& touch y", "> z", cwd=str(tmp_path)))
    assert end.output == "; touch x && touch y > z\n"
    assert list(tmp_path.iterdir()) == []


def test_what_has_not_begun_is_explained_where_the_executor_can(executor: Executor) -> None:
    if not isinstance(executor, Explains):
        pytest.skip("it does not know why its runs wait")
    run = run_of("sleep", "0.5")
    executor.start(run)
    said: list[Pending] = []
    until = time.monotonic() + 60
    while executor.running() and time.monotonic() < until:
        executor.poll()
        said += executor.pending().values()
        time.sleep(0.01)
    assert said, "it was submitted, and then queued"
    assert all(why.code and 0 < len(why.text) <= 300 for why in said)
    assert executor.pending() == {}


IMPOSSIBLE = [
    (run_of("no-such-program-anywhere"), "cannot start 'no-such-program-anywhere': No such file or directory"),
    (run_of("echo", cwd="/no/such/place"), "cannot be started in '/no/such/place': No such file or directory"),
    (run_of("/"), "cannot start '/': Permission denied"),
    (run_of("echo", "nul\0"), "failed to start: embedded null byte"),
    (run_of("echo", "\ud800"), "failed to start: "),
    (run_of("echo", environment={"A=B": "1"}), "failed to start: illegal environment variable name"),
    (run_of(), "failed to start: no command given"),
]


def test_what_cannot_be_started_fails_and_says_why(executor: Executor) -> None:
    for number, (run, _) in enumerate(IMPOSSIBLE):
        executor.start(replace(run, id=(f"t{number}", 1)))
    found = ends(executor, len(IMPOSSIBLE))
    for number, (_, said) in enumerate(IMPOSSIBLE):
        end = found[(f"t{number}", 1)]
        assert (end.result, end.exit_code, end.output) == (Result.FAILED, None, "")
        assert end.detail.startswith(said)
    assert executor.running() == []


def test_a_run_works_in_its_directory(executor: Executor, tmp_path: Path) -> None:
    end = end_of(executor, python("import os; print(os.getcwd())", cwd=str(tmp_path)))
    assert end.output == f"{tmp_path.resolve()}\n"


def test_the_runs_environment_comes_over_the_agents(executor: Executor) -> None:
    show = "import os; print(os.environ.get('A'), os.environ.get('LC_ALL'), 'PATH' in os.environ)"
    end = end_of(executor, python(show, environment={"A": "ö", "LC_ALL": None}))
    assert end.output == "ö None True\n"


def test_every_process_knows_its_rank_and_worker(executor: Executor, request: pytest.FixtureRequest) -> None:
    show = "import os; print(*(os.environ['RAINBOW_' + k] for k in 'JOB TASK TASK_RANK TASK_COUNT WORKER'.split()))"
    here = request.node.callspec.params["executor"]
    one, two = ("n0001", "n0003") if "slurm" in here else ("node2", "node10")  # Slurm's must exist
    placement = {two: {"core": 1}, one: {"core": 2}}
    end = end_of(executor, python(show, processes=3, placement=placement))
    told = sorted(end.output.splitlines())
    assert told == [f"job1 t1 0 3 {one}", f"job1 t1 1 3 {two}", f"job1 t1 2 3 {one}"]


def test_the_first_code_by_rank_is_the_runs(executor: Executor) -> None:
    assert end_of(executor, python(BY_RANK, processes=4)).exit_code == 5


def test_a_run_is_running_until_its_end_is_told(executor: Executor) -> None:
    executor.start(run_of("true"))
    assert executor.running() == [("t1", 1)]
    time.sleep(1)
    assert executor.running() == [("t1", 1)]
    ends(executor)
    assert executor.running() == []
    assert executor.poll() == []


def test_what_has_begun_is_told_once_and_before_it_has_ended(executor: Executor) -> None:
    executor.start(run_of("true"))
    executor.start(run_of("no-such-program-anywhere", task="t2"))
    begun: list[RunId] = []
    found: dict[RunId, Ended] = {}
    while len(found) < 2:
        for end in executor.poll():
            found[end.id] = end
        begun += executor.begun()
        assert ("t1", 1) in begun or ("t1", 1) not in found
        time.sleep(0.01)
    time.sleep(0.3)
    executor.poll()
    assert [*begun, *executor.begun()].count(("t1", 1)) == 1


def test_two_attempts_at_one_task_are_two_runs(executor: Executor) -> None:
    executor.start(run_of("sleep", "60"))
    executor.start(replace(run_of("echo", "again"), id=("t1", 2)))
    assert ends(executor)[("t1", 2)].output == "again\n"
    executor.stop(("t1", 1))
    assert ends(executor)[("t1", 1)].result is Result.STOPPED


def test_standard_input_is_empty(executor: Executor) -> None:
    assert end_of(executor, run_of("cat")).exit_code == 0


def test_many_runs_at_once_all_end_with_their_own_output(executor: Executor, request: pytest.FixtureRequest) -> None:
    quick = request.node.callspec.params["executor"].startswith("local")  # the others' thousand is soaked
    many_at_once(executor, 1_000 if quick else 50, 120)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("executor", ["psij:local", "psij:slurm", "dask"], indirect=True)
def test_1000_runs_at_once_all_end_with_their_own_output(executor: Executor) -> None:
    many_at_once(executor, 1_000, 550)


def many_at_once(executor: Executor, count: int, seconds: float) -> None:
    for number in range(count):
        executor.start(run_of("sh", "-c", 'sleep 0.5; echo "$1"', "sh", str(number), task=f"t{number}"))
    assert len(executor.running()) == count
    found = ends(executor, count, seconds)
    assert [end for end in found.values() if end.result is not Result.EXITED] == []
    assert {end.output for end in found.values()} == {f"{number}\n" for number in range(count)}
    assert {end.exit_code for end in found.values()} == {0}


def test_output_is_whole_though_its_reader_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Tail._read
    monkeypatch.setattr(Tail, "_read", lambda tail: (time.sleep(1.5), late(tail)))
    assert end_of(LocalExecutor(allowed(os.environ)), run_of("echo", "late")).output == "late\n"


def test_tasks_do_not_see_the_agents_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAINBOW_SECRET", "rbs_1")
    local = LocalExecutor(allowed(os.environ))
    end = end_of(local, python("import os; print('RAINBOW_SECRET' in os.environ)"))
    assert end.output == "False\n"
