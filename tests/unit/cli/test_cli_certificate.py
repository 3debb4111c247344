"""`rainbow job certificate` of jobs as people submit them: what is drawn names each request."""

from __future__ import annotations

import pytest

from tests.support.agent_sites import until
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures


@pytest.mark.parametrize("words", ["", "-n 3", "-N 2 -c 2", "-n 2 -c 2", "-N 1 -n 4"])
def test_certificate_of_a_plain_command_is_drawn(shell: Shell, words: str) -> None:
    number = shell("submit", "--parsable", *words.split(), "--", "true").stdout.split()[-1]
    until(lambda: shell.json("job", "show", number)["state"] == "COMPLETED")
    drawn = shell("job", "certificate", number)
    assert drawn.exit_code == 0, drawn.output
    assert "core" in drawn.stdout
