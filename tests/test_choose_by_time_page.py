"""docs/choose-by-time.md: its commands, run in order against a server and an agent, print what is shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.agent_sites import until
from tests.shell import Shell, server, shell
from tests.test_slurm_day import BLOCK, COMMAND, ID, _now

__all__ = ["server", "shell"]  # fixtures

PAGE = (Path(__file__).parents[1] / "docs" / "choose-by-time.md").read_text()


def steady(text: str) -> list[str]:
    """Return the lines without what is another in every run: ids, times of day and how old a forecast is."""
    text = ID.sub("ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"(?:\b[A-Z][a-z]{2} \d\d )?\b\d\d:\d\d(?::\d\d)?\b", "HH:MM", text)
    text = re.sub(r"as of \d+ s ago", "as of N s ago", text)
    return [re.sub(r" +", " ", line).strip() for line in text.strip().splitlines()]


def test_the_page_is_as_a_user_sees_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.folder)
    named: dict[str, str] = {}  # ids of the page: those of this run
    for block in BLOCK.findall(PAGE):
        for command, shown in COMMAND.findall(block):
            now = _now(command, named)
            _wait_for_a_forecast(shell, now)
            said = shell(*shlex.split(now)[1:], LOGNAME="ann")
            named |= dict(zip(ID.findall(shown), ID.findall(said.stdout), strict=False))
            assert steady(said.stdout + said.stderr) == steady(shown), command


def _wait_for_a_forecast(shell: Shell, command: str) -> None:
    words = shlex.split(command)
    if "--eta" in words:
        until(lambda: shell.json(*words[1:])["candidates"][0]["wait"])
    if words[1:3] == ["job", "eta"]:
        until(lambda: shell.json("job", "eta", words[3])["how"] == "ahead")
