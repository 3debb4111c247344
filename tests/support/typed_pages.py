"""A page of docs/ typed command by command into a shell, and what it prints compared with what the page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import reduce
from pathlib import Path

from tests.support.shell import Shell

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
ID = re.compile(r"\b[0-9a-f]{24}(?![0-9a-f])")
CHANGING = [  # what is another in every run
    (r"\b[0-9a-f]{64}\b", "DIGEST"),
    (ID.pattern, "ID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d", "TIME"),
    (r"\b00:00:\d\d\b", "ELAPSED"),
    (r"(?:\b[A-Z][a-z]{2} \d\d )?\b\d\d:\d\d(?::\d\d)?\b", "HH:MM"),
    (r"\bplan \d+ of", "plan N of"),
    (r"as of \d+ s ago", "as of N s ago"),
    (r"\bn(\d|\[0-1\])", "NODE"),
]


def steady(text: str) -> list[str]:
    """Return the lines without what is another in every run, blanks between columns as one."""
    for pattern, instead in CHANGING:
        text = re.sub(pattern, instead, text)
    return [re.sub(r" +", " ", line).strip() for line in text.strip().splitlines()]


def type_page(shell: Shell, name: str, before: Callable[[str, dict[str, str]], None], user: str) -> None:
    """Type every command of a page; `before` waits for the moment at which the page looks.

    Files that the page shows by `cat` are written; ids of the page become those of this run.
    """
    named: dict[str, str] = {}
    for block in BLOCK.findall((DOCS / name).read_text()):
        for command, shown in COMMAND.findall(block):
            if command.startswith("cat "):
                shell.file(command.removeprefix("cat "), shown)
                continue
            now = reduce(lambda text, pair: text.replace(*pair), named.items(), command)
            before(now, named)
            said = shell(*shlex.split(now)[1:], LOGNAME=user)
            named |= dict(zip(ID.findall(shown), ID.findall(said.stdout), strict=False))
            assert steady(said.stdout + said.stderr) == steady(shown), f"{command}: {said.output}"
