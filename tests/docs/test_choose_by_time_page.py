"""docs/choose-by-time.md: its commands, run in order against a server and an agent, print what is shown."""

from __future__ import annotations

import shlex

import pytest

from tests.support.agent_sites import until
from tests.support.shell import Shell, server, shell
from tests.support.typed_pages import type_page

__all__ = ["server", "shell"]  # fixtures


def test_the_page_is_as_a_user_sees_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.folder)

    def before(command: str, named: dict[str, str]) -> None:
        """Wait for a forecast that has seen the job."""
        words = shlex.split(command)
        if "--eta" in words:
            until(lambda: shell.json(*words[1:])["candidates"][0]["wait"])
        if words[1:3] == ["job", "eta"]:
            until(lambda: shell.json("job", "eta", words[3])["ahead"])

    type_page(shell, "choose-by-time.md", before, "ann")
