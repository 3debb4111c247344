"""docs/day-of-a-slurm-user.md: its commands, run in order against a server and an agent, print what is shown."""

from __future__ import annotations

import pytest

from tests.support.agent_sites import until
from tests.support.shell import Shell, server, shell
from tests.support.typed_pages import type_page

__all__ = ["server", "shell"]  # fixtures

MOMENT = ["COMPLETED", "COMPLETED", "FAILED", "RUNNING"]


def test_the_day_of_a_slurm_user_is_as_the_page_shows(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.folder)

    def before(command: str, named: dict[str, str]) -> None:
        """Let the moment come at which the page looks: the element that fails has failed, the last one runs."""
        if command == "rainbow jobs":
            until(lambda: [task["state"] for task in shell.json("job", "show", "1")["tasks"]] == MOMENT)
            until(lambda: "dependency" in str([one["wait"] for one in shell.json("jobs")]))
        if command.startswith("rainbow history"):
            until(lambda: shell.json("jobs") == [])

    type_page(shell, "day-of-a-slurm-user.md", before, "alice")
