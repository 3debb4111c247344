"""docs/accounts.md: its commands, run in order against a server and an agent, print what is shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.conftest import ADMIN
from tests.support.shell import Shell, server, shell
from tests.support.typed_pages import BLOCK, COMMAND, ID

__all__ = ["server", "shell"]  # fixtures

PAGE = (Path(__file__).parents[2] / "docs" / "accounts.md").read_text()


def steady(text: str) -> list[str]:
    """Return the lines without what is another in every run: ids, months and the fractions of what ran."""
    text = re.sub(r"^[0-9-]+ [0-9:]+ \[info +\] refused .*\n", "", text, flags=re.M)  # its log
    text = re.sub(r"\b20\d\d-\d\d\b", "MONTH", ID.sub("ID", text))
    text = re.sub(r"\b[01]\.\d{2,}\b|\b0\.\d%|\b100\.0%", "N", text)
    return [re.sub(r" +", " ", line).strip() for line in text.strip().splitlines()]


def test_the_page_is_as_operator_and_researcher_see_it(shell: Shell) -> None:
    for command, shown in [one for block in BLOCK.findall(PAGE) for one in COMMAND.findall(block)]:
        words = shlex.split(command)[1:]
        if words[0] == "submit":
            said = shell(*words)
            for job in ID.findall(said.stdout):
                shell("job", "wait", job)
        else:
            said = shell(*words, RAINBOW_TOKEN=ADMIN)
        assert steady(said.stdout + said.stderr) == steady(shown), (command, said.output)
