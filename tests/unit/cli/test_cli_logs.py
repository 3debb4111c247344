"""What tasks write: `rainbow job logs`, and `rainbow run`, which ends as its job does."""

from __future__ import annotations

import pytest

from rainbow.cli.commands.logs import CUT, newer
from rainbow.cli.exit_codes import Exit
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures


def test_run_prints_what_the_job_writes_and_exits_with_its_code(shell: Shell) -> None:
    """As srun: submit, follow, the task's exit code."""
    said = shell("run", "-n", "2", "--", "sh", "-c", "echo out; exit 5")
    assert (said.stdout, said.exit_code) == ("out\nout\n", 5)
    assert "to cluster oak" in said.stderr
    assert shell("run", "--", "true").exit_code == Exit.OK
    script = shell.file("job.sh", "#!/bin/sh\n#SBATCH -n 2\necho $1\nexit 3\n")
    said = shell("run", script, "word")
    assert (said.stdout, said.exit_code) == ("word\n", 3)
    assert shell("run", "-N", "9", "--", "true").exit_code == Exit.NO_MATCH
    assert shell("run", "-t", "300ms", "--", "sleep", "60").exit_code != Exit.OK


def test_run_says_why_it_waits(shell: Shell) -> None:
    held = shell.json("submit", "-N", "2", "--exclusive", "-c", "4", "--", "sleep", "1")["id"]
    said = shell("run", "-d", f"afterany:{held}", "--", "true")
    assert said.exit_code == Exit.OK
    assert f"waits for job {held} to end" in said.stderr


def test_logs_are_those_of_the_job_or_of_one_task(shell: Shell) -> None:
    job = shell.json("submit", "-a", "3,5", "--", "echo", "element {index}")["id"]
    followed = shell("job", "logs", "-f", job[:16]).stdout
    assert sorted(line for line in followed.splitlines() if not line.startswith("──")) == ["element 3", "element 5"]
    assert shell("job", "logs", job).stdout == "── task-0-0\nelement 3\n── task-0-1\nelement 5\n"
    assert shell("job", "logs", "--task", "5", job).stdout == "element 5\n"
    assert shell("job", "logs", "--task", "task-0-0", job).stdout == "element 3\n"
    assert "the job has no task 7; there are 2: 3,5" in shell("job", "logs", "--task", "7", job).stderr
    assert "no standard error apart" in shell("job", "logs", "--err", job).stderr
    apart = shell.json("submit", "-e", str(shell.folder / "err"), "--", "sh", "-c", "echo out; echo err >&2")["id"]
    shell("job", "wait", apart)
    assert [shell("job", "logs", *which, apart).stdout for which in ([], ["--err"])] == ["out\n", "err\n"]


@pytest.mark.parametrize(
    ("before", "now", "more"),
    [("", "a", "a"), ("a", "ab", "b"), ("a\nb\nc", "b\ncd", "d"), ("a\n", "x\n", f"{CUT}\nx\n"), ("ab", "ab", "")],
)
def test_only_what_is_new_is_written(before: str, now: str, more: str) -> None:
    assert newer(before, now) == more
