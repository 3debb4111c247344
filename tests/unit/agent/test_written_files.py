"""Files that a job names for what it reads and writes, and what is told of it while it runs, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Executor, Result, Run, open_executor
from rainbow.testing.executors import ends, until


@pytest.fixture(params=["", "state"])
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Executor]:
    """The executor `local` in this process, and with its keeper."""
    folder = tmp_path / request.param
    folder.mkdir(exist_ok=True)
    made = open_executor("local", {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, folder if request.param else None)
    yield made
    made.close()


def script(text: str, cwd: Path, files: dict[str, str], **more: Any) -> Run:
    return Run(("j-0", 1), "j", ("sh", "-c", text), str(cwd), files=files, **more)


def test_what_a_job_writes_goes_to_the_files_it_names(executor: Executor, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("read\n")
    (tmp_path / "err").write_text("of the last time")
    files = {"output": "%x-%A_%a.out", "error": f"{tmp_path}/err", "input": "in"}
    run = script("cat; echo gone wrong >&2; exit 3", tmp_path, files, environment={"RAINBOW_ARRAY_INDEX": "7"})
    executor.start(run)
    end = ends(executor)[run.id]
    assert (end.result, end.exit_code, end.output, end.errors) == (Result.EXITED, 3, "read\n", "gone wrong\n")
    assert (tmp_path / "job-j_7.out").read_text() == "read\n"
    assert (tmp_path / "err").read_text() == "gone wrong\n"


def test_both_streams_share_the_file_of_the_output(executor: Executor, tmp_path: Path) -> None:
    executor.start(script("echo a; echo b >&2", tmp_path, {"output": "both"}))
    end = ends(executor)[("j-0", 1)]
    assert (end.output, end.errors, (tmp_path / "both").read_text()) == ("a\nb\n", "", "a\nb\n")


def test_file_that_cannot_be_opened_is_the_end_of_the_run(executor: Executor, tmp_path: Path) -> None:
    executor.start(script("true", tmp_path, {"output": "no/such/folder"}))
    end = ends(executor)[("j-0", 1)]
    assert (end.result, end.detail) == (
        Result.FAILED,
        f"failed to start: cannot open '{tmp_path}/no/such/folder': No such file or directory",
    )


@pytest.mark.parametrize("files", [{}, {"output": "out", "error": "err"}])
def test_what_a_run_writes_is_told_while_it_runs(files: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    executor = open_executor("local", {"PATH": "/usr/bin:/bin"}, folder)
    try:
        executor.start(script("echo first; echo wrong >&2; sleep 60", tmp_path, files))
        answer: dict[Any, Any] = {}
        until(lambda: executor.poll() == [] and bool(answer.update(executor.written()) or answer), 10)  # type: ignore[attr-defined]
        assert answer == {("j-0", 1): ("first\n", "wrong\n") if files else ("first\nwrong\n", "")}
        assert executor.written() == {}  # type: ignore[attr-defined]
    finally:
        executor.close()


def test_job_without_a_folder_works_at_home(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    executor = open_executor("local", {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, folder)
    try:
        executor.start(Run(("j-0", 1), "j", ("pwd",)))
        assert ends(executor)[("j-0", 1)].output == f"{tmp_path}\n"
    finally:
        executor.close()
