"""What every executor must do, run over all: those of extras, and Slurm, where they are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from rainbow.agent import Ended, Executor, Result, Run, RunId, executors, open_executor
from rainbow.agent.environment import allowed
from rainbow.agent.executor import TAIL
from rainbow.agent.local import GRACE, LocalExecutor, Tail
from tests import services

NAMES = ["local", "local, kept", "psij:local", "psij:slurm", "dask"]
PYTHON = sys.executable
LEAVE_A_CHILD = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
MIND_TERM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("tidied", flush=True), sys.exit(3)))
open(sys.argv[1], "w")
time.sleep(60)
"""
BY_RANK = """
import os, sys, time
rank = int(os.environ["RAINBOW_TASK_RANK"])
time.sleep(0.2 * (3 - rank))
sys.exit([0, 5, 7, 0][rank])
"""


def there(request: pytest.FixtureRequest) -> str:
    """Return the executor to open; the test is skipped where its library or its cluster is not there."""
    return there_of(request.param, request)


def there_of(called: str, request: pytest.FixtureRequest) -> str:
    """Return the executor of this name, with its address."""
    if called.startswith("psij"):
        services.without("" if find_spec("psij") else "psij-python is not installed")
    if called == "psij:slurm":
        request.getfixturevalue("on_slurm")
    if called == "dask":
        services.without("" if find_spec("distributed") else "distributed is not installed")
        return f"dask:{request.getfixturevalue('dask_scheduler')}, kept"
    return called


@pytest.fixture(scope="session")
def dask_scheduler() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=128, processes=True, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


def opened(called: str, folder: Path) -> Executor:
    name, _, kept = called.partition(", ")
    return open_executor(name, {**allowed(os.environ), "LC_ALL": "C.UTF-8"}, folder if kept else None)


@pytest.fixture(params=NAMES)
def executor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    found = opened(there(request), tmp_path_factory.mktemp("state"))
    yield found
    found.close()


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


def test_executors_are_all_covered_here() -> None:
    assert {re.split("[,:]", name)[0] for name in NAMES} == set(executors.names())


def test_success_is_exit_code_0(executor: Executor) -> None:
    assert end_of(executor, run_of("echo", "hello")) == Ended(("t1", 1), Result.EXITED, 0, "hello\n")


def test_failure_keeps_its_code(executor: Executor) -> None:
    end = end_of(executor, python("import sys; sys.exit(17)"))
    assert (end.result, end.exit_code) == (Result.EXITED, 17)


def test_a_signal_is_128_and_its_number_and_named(executor: Executor) -> None:
    end = end_of(executor, python("import os; os.kill(os.getpid(), 9)"))
    assert (end.result, end.exit_code, end.detail) == (Result.EXITED, 137, "ended by SIGKILL")


def test_a_run_over_its_limit_is_ended_with_all_it_started(executor: Executor) -> None:
    begun = time.monotonic()
    end = end_of(executor, python(f"{LEAVE_A_CHILD}; import time; time.sleep(60)", duration=1.0))
    assert end.result is Result.TIMED_OUT
    assert end.exit_code not in (0, None)
    assert end.detail == "ran longer than its 1 seconds"
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


def test_output_keeps_its_last_bytes_of_both_streams(executor: Executor) -> None:
    much = "import sys; sys.stdout.write('x' * 200_000); sys.stdout.flush(); sys.stderr.write('the end')"
    end = end_of(executor, python(much))
    assert len(end.output) == TAIL
    assert end.output == "x" * (TAIL - 7) + "the end"


def test_output_that_is_no_text_is_replaced(executor: Executor) -> None:
    end = end_of(executor, python(r"import sys; sys.stdout.buffer.write(b'\xff\x00ok')"))
    assert end.output == "\ufffd\ufffdok"


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


def test_argv_reaches_the_program_as_it_is(executor: Executor) -> None:
    words = ["naïve ☂ 雪", "a  b", 'it\'s "quoted"', "$HOME", "`id`", "*", "", "-n", "\\n", "\n"]
    show = "import sys; sys.stdout.buffer.write(repr(sys.argv[1:]).encode())"
    end = end_of(executor, run_of(PYTHON, "-c", show, *words))
    assert end.output == repr(words)


def test_a_semicolon_is_an_argument_and_no_command(executor: Executor, tmp_path: Path) -> None:
    end = end_of(executor, run_of("echo", "; touch x", "&& touch y", "> z", cwd=str(tmp_path)))
    assert end.output == "; touch x && touch y > z\n"
    assert list(tmp_path.iterdir()) == []


IMPOSSIBLE = [
    (run_of("no-such-program-anywhere"), "cannot start 'no-such-program-anywhere': No such file or directory"),
    (run_of("echo", cwd="/no/such/place"), "cannot be started in '/no/such/place': No such file or directory"),
    (run_of("/"), "cannot start '/': Permission denied"),
    (run_of("echo", "nul\0"), "cannot be started: embedded null byte"),
    (run_of("echo", "\ud800"), "cannot be started: "),
    (run_of("echo", environment={"A=B": "1"}), "cannot be started: illegal environment variable name"),
    (run_of(), "cannot be started: there is no command"),
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
    one, two = ("n0001", "n0003") if here == "psij:slurm" else ("node2", "node10")  # Slurm's must exist
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


LEFT_BEHIND = """
import os, signal, sys, time
from pathlib import Path
from rainbow.agent import Run, open_executor
from rainbow.agent.environment import allowed
name, folder, *marks = sys.argv[1:]
executor = open_executor(name, allowed(os.environ), Path(folder))
for mark, seconds in zip(marks, ("4", "0")):
    command = ("sh", "-c", 'echo >> "$1"; sleep "$2"; echo done', "sh", mark, seconds)
    executor.start(Run((seconds, 1), "job1", command))
while not all(map(os.path.exists, marks)):
    executor.poll()
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


def test_output_is_whole_though_its_reader_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Tail._read
    monkeypatch.setattr(Tail, "_read", lambda tail: (time.sleep(1.5), late(tail)))
    assert end_of(LocalExecutor(allowed(os.environ)), run_of("echo", "late")).output == "late\n"


def test_local_kills_what_does_not_mind_term() -> None:
    local = LocalExecutor(allowed(os.environ), grace=0.3)
    local.start(
        python("import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)")
    )
    time.sleep(0.5)
    local.stop(("t1", 1))
    end = ends(local)[("t1", 1)]
    assert (end.result, end.exit_code, end.output) == (Result.STOPPED, 137, "up\n")


def test_tasks_do_not_see_the_agents_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAINBOW_SECRET", "rbs_1")
    local = LocalExecutor(allowed(os.environ))
    end = end_of(local, python("import os; print('RAINBOW_SECRET' in os.environ)"))
    assert end.output == "False\n"


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
