"""docs/day-of-a-slurm-user.md: its commands, run in order against a server and an agent, print what is shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.agent_sites import until
from tests.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures

PAGE = (Path(__file__).parents[1] / "docs" / "day-of-a-slurm-user.md").read_text()
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
ID = re.compile(r"\b[0-9a-f]{24}(?![0-9a-f])")


def steady(text: str) -> list[str]:
    """Return the lines without what is another in every run, blanks between columns as one."""
    text = ID.sub("ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\b00:00:\d\d\b", "ELAPSED", text)
    text = re.sub(r"\bn(\d|\[0-1\])", "NODE", text)
    return [re.sub(r" +", " ", line).strip() for line in text.strip().splitlines()]


def test_the_day_of_a_slurm_user_is_as_the_page_shows(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.folder)
    named: dict[str, str] = {}  # ids of the page: those of this run
    for block in BLOCK.findall(PAGE):
        for command, shown in COMMAND.findall(block):
            if command.startswith("cat "):
                shell.file(command.removeprefix("cat "), shown)
                continue
            _wait_for_the_moment(shell, command, named)
            said = shell(*shlex.split(_now(command, named))[1:], LOGNAME="alice")
            named |= dict(zip(ID.findall(shown), ID.findall(said.stdout), strict=False))
            assert steady(said.stdout + said.stderr) == steady(shown), command


def _now(command: str, named: dict[str, str]) -> str:
    """Return a command of the page with the ids of this run."""
    return ID.sub(lambda found: named[found[0]], command)


def _wait_for_the_moment(shell: Shell, command: str, named: dict[str, str]) -> None:
    """Let the moment come at which the page looks: the element that fails has failed, the last one runs."""
    if command == "rainbow jobs" and named:
        sweep = next(iter(named.values()))
        until(lambda: [task["state"] for task in shell.json("job", "show", sweep)["tasks"]] == MOMENT)
        until(lambda: "dependency" in str([one["wait"] for one in shell.json("jobs")]))
    if command.startswith("rainbow history"):
        until(lambda: shell.json("jobs") == [])


MOMENT = ["COMPLETED", "COMPLETED", "FAILED", "RUNNING"]
