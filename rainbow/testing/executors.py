"""The contract of an executor: starts, ends, limits, stops. Needs psutil."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from rainbow.agent import Ended, Executor, Explains, Pending, Result, Run, RunId, open_executor
from rainbow.agent.executors.interface import Warns
from rainbow.agent.executors.local import GRACE, allowed
from rainbow.agent.executors.run import TAIL

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
    result: dict[RunId, Ended] = {}
    limit = time.monotonic() + seconds
    while len(result) < count and time.monotonic() < limit:
        for end in executor.poll():
            assert end.id not in result, "told twice"
            result[end.id] = end
        time.sleep(0.01)
    assert len(result) == count
    return result


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


BY_RANK = """
import os, sys, time
rank = int(os.environ["RAINBOW_TASK_RANK"])
time.sleep(0.2 * (3 - rank))
sys.exit([0, 5, 7, 0][rank])
"""


MUCH = "import sys; sys.stdout.write('x' * 200_000); sys.stdout.flush(); sys.stderr.write('the end')"
SEEN = "import os; print(os.environ.get('A'), os.environ.get('LC_ALL'), 'PATH' in os.environ)"
ARGUMENTS = "import sys; sys.stdout.buffer.write(repr(sys.argv[1:]).encode())"
WORDS = ["naïve ☂ 雪", "a  b", 'it\'s "quoted"', "$HOME", "`id`", "*", "", "-n", "\\n", "\n"]


def plain(folder: Path) -> dict[str, tuple[Run, dict[str, object]]]:
    """Return runs by what they are about, each with what its end says."""
    here = {"cwd": str(folder)}
    return {
        "success": (run_of("echo", "hello"), {"exit_code": 0, "output": "hello\n", "detail": ""}),
        "failure": (python("import sys; sys.exit(17)"), {"exit_code": 17}),
        "signal": (python("import os; os.kill(os.getpid(), 9)"), {"exit_code": 137, "detail": "killed by SIGKILL"}),
        "last-bytes-of-both-streams": (python(MUCH), {"output": "x" * (TAIL - 7) + "the end"}),
        "as-much-as-it-says": (python(MUCH, output=100_000), {"output": "x" * (100_000 - 7) + "the end"}),
        "no-text": (python(r"import sys; sys.stdout.buffer.write(b'\xff\x00ok')"), {"output": "\ufffd\ufffdok"}),
        "arguments": (run_of(PYTHON, "-c", ARGUMENTS, *WORDS), {"output": repr(WORDS)}),
        "no-shell": (
            run_of("echo", "; touch x", "&& touch y", "> z", **here),
            {"output": "; touch x && touch y > z\n"},
        ),
        "directory": (python("import os; print(os.getcwd())", **here), {"output": f"{folder.resolve()}\n"}),
        "environment": (python(SEEN, environment={"A": "ö", "LC_ALL": None}), {"output": "ö None True\n"}),
        "first-code-by-rank": (python(BY_RANK, processes=4), {"exit_code": 5}),
        "empty-input": (run_of("cat"), {"exit_code": 0, "output": ""}),
        "within-its-limit": (run_of("sleep", "0.1", duration=20.0), {"exit_code": 0}),
    }


IMPOSSIBLE: list[tuple[Run, str | tuple[str, ...]]] = [
    (run_of("no-such-program-anywhere"), "cannot start 'no-such-program-anywhere': No such file or directory"),
    (
        run_of("echo", cwd="/no/such/place"),
        ("cannot be started in '/no/such/place': No such file or", "not handed over to Slurm: /no/such/place is not"),
    ),
    (run_of("/"), "cannot start '/': Permission denied"),
    (run_of("echo", "nul\0"), "failed to start: embedded null byte"),
    (run_of("echo", "\ud800"), "failed to start: "),
    (run_of("echo", environment={"A=B": "1"}), "failed to start: illegal environment variable name"),
    (run_of(), "failed to start: no command given"),
]


MIND_TERM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("tidied", flush=True), sys.exit(3)))
open(sys.argv[1], "w")
time.sleep(60)
"""


MIND_USR1 = """
import signal, sys, time
def told(number, _):
    with open(sys.argv[2], "a") as file:
        file.write(signal.Signals(number).name[3:] + " ")
    if number == signal.SIGTERM:
        sys.exit(0)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, told)
open(sys.argv[1], "w")
while True:
    time.sleep(0.05)
"""


class ExecutorContract:
    """Tests of the executor called `name`, "executor" or "executor:argument", on this machine."""

    name: ClassVar[str]

    @pytest.fixture
    def executor(self, tmp_path: Path) -> Iterator[Executor]:
        """Open the executor on a folder of its own, and close it after the test."""
        result = open_executor(self.name, {**allowed(os.environ), "LC_ALL": "C.UTF-8"}, tmp_path / "executor")
        yield result
        result.close()

    def test_codes_signals_output_arguments_and_place_are_those_of_the_run(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        """All start together: where a resource manager queues them, each would wait for its turn."""
        requirements = plain(tmp_path)
        for task, (run, _) in requirements.items():
            executor.start(replace(run, id=(task, 1)))
        results = ends(executor, len(requirements), 120)
        answer = {
            task: {field: getattr(results[task, 1], field) for field in fields}
            for task, (_, fields) in requirements.items()
        }
        assert answer == {task: fields for task, (_, fields) in requirements.items()}
        assert {end.result for end in results.values()} == {Result.EXITED}
        assert list(tmp_path.glob("[xyz]")) == []

    def test_what_has_not_begun_is_explained_where_the_executor_can(self, executor: Executor) -> None:
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

    def test_what_cannot_be_started_fails_and_says_why(self, executor: Executor) -> None:
        for number, (run, _) in enumerate(IMPOSSIBLE):
            executor.start(replace(run, id=(f"t{number}", 1)))
        results = ends(executor, len(IMPOSSIBLE))
        for number, (_, said) in enumerate(IMPOSSIBLE):
            end = results[(f"t{number}", 1)]
            assert (end.result, end.exit_code, end.output) == (Result.FAILED, None, "")
            assert end.detail.startswith(said)
        assert executor.running() == []

    def test_a_run_is_running_until_its_end_is_told(self, executor: Executor) -> None:
        executor.start(run_of("true"))
        assert executor.running() == [("t1", 1)]
        time.sleep(1)
        assert executor.running() == [("t1", 1)]
        ends(executor)
        assert executor.running() == []
        assert executor.poll() == []

    def test_what_has_begun_is_told_once_and_before_it_has_ended(self, executor: Executor) -> None:
        executor.start(run_of("true"))
        executor.start(run_of("no-such-program-anywhere", task="t2"))
        begun: list[RunId] = []
        results: dict[RunId, Ended] = {}
        while len(results) < 2:
            for end in executor.poll():
                results[end.id] = end
            begun += executor.begun()
            assert ("t1", 1) in begun or ("t1", 1) not in results
            time.sleep(0.01)
        time.sleep(0.3)
        executor.poll()
        assert [*begun, *executor.begun()].count(("t1", 1)) == 1

    def test_two_attempts_at_one_task_are_two_runs(self, executor: Executor) -> None:
        executor.start(run_of("sleep", "60"))
        executor.start(replace(run_of("echo", "again"), id=("t1", 2)))
        assert ends(executor)[("t1", 2)].output == "again\n"
        executor.stop(("t1", 1))
        assert ends(executor)[("t1", 1)].result is Result.STOPPED

    def test_a_run_over_its_limit_is_ended_with_all_it_started(self, executor: Executor) -> None:
        begun = time.monotonic()
        end = end_of(executor, python(f"{LEAVE_A_CHILD}; import time; time.sleep(60)", duration=1.0))
        assert end.result is Result.TIMED_OUT
        assert end.exit_code not in (0, None)
        assert end.detail == "killed: exceeded its time limit of 1 seconds"
        assert time.monotonic() - begun < 30
        grandchild = int(end.output)
        until(
            lambda: not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE
        )

    def test_stop_ends_a_run_and_says_stopped(self, executor: Executor) -> None:
        executor.start(run_of("sleep", "60"))
        executor.stop(("t1", 1))
        assert ends(executor)[("t1", 1)].result is Result.STOPPED

    def test_a_run_is_warned_and_has_its_grace_before_it_is_stopped(self, executor: Executor, tmp_path: Path) -> None:
        if not isinstance(executor, Warns):
            pytest.skip("this executor ends runs without a warning")
        executor.start(run_of(PYTHON, "-c", MIND_USR1, str(tmp_path / "ready"), str(tmp_path / "warned")))
        until((tmp_path / "ready").exists)
        for _ in range(2):
            executor.warn(("t1", 1), "USR1", 1.0)
        began = time.monotonic()
        end = ends(executor)[("t1", 1)]
        assert (end.result, (tmp_path / "warned").read_text()) == (Result.STOPPED, "USR1 TERM ")
        assert time.monotonic() - began >= 0.9

    def test_stop_of_an_unknown_run_or_attempt_does_nothing(self, executor: Executor) -> None:
        executor.start(run_of("sleep", "0.3"))
        executor.stop(("t1", 2))
        executor.stop(("nobody", 1))
        assert ends(executor)[("t1", 1)].result is Result.EXITED

    def test_stop_of_what_has_ended_keeps_its_end(self, executor: Executor, tmp_path: Path) -> None:
        executor.start(run_of("touch", str(tmp_path / "done")))
        until((tmp_path / "done").exists)
        time.sleep(0.2)
        executor.stop(("t1", 1))
        assert ends(executor)[("t1", 1)].result is Result.EXITED

    def test_term_is_minded_if_the_program_minds_it(self, executor: Executor, tmp_path: Path) -> None:
        for attempt in (1, 2, 3):
            up, run = tmp_path / f"up{attempt}", ("t1", attempt)
            executor.start(replace(run_of(PYTHON, "-c", MIND_TERM, str(up)), id=run))
            until(up.exists)
            request = time.monotonic()
            executor.stop(run)
            end = ends(executor)[run]
            # a machine so busy that the program had no turn in all of its grace says nothing of us
            if end.exit_code != 137 or time.monotonic() < request + GRACE:
                break
        assert end == Ended(run, Result.STOPPED, 3, "tidied\n")

    def test_output_held_open_by_an_escaped_process_does_not_hold_up_the_end(self, executor: Executor) -> None:
        escape = "import subprocess; print(subprocess.Popen(['sleep', '90'], start_new_session=True).pid, flush=True)"
        begun = time.monotonic()
        end = end_of(executor, python(escape))
        psutil.Process(int(end.output)).kill()
        assert time.monotonic() - begun < 30

    def test_what_a_run_leaves_in_its_group_ends_with_it(self, executor: Executor) -> None:
        end = end_of(executor, python(LEAVE_A_CHILD))
        remaining = int(end.output)
        until(lambda: not psutil.pid_exists(remaining) or psutil.Process(remaining).status() == psutil.STATUS_ZOMBIE)

    def test_close_leaves_no_process(self, executor: Executor) -> None:
        seconds = f"61.{os.getpid()}"
        executor.start(run_of("sleep", seconds, processes=3))
        until(lambda: len(sleepers(seconds)) == 3, 20)
        executor.close()
        until(lambda: sleepers(seconds) == [])
        assert executor.running() == []
