"""The tutorials typed into a shell as they are written, server, agents and all; `make docs` runs them."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.docs.test_docs_readme import in_a_shell
from tests.support.ports import free_ports
from tests.support.postgres import postgres
from tests.support.typed_pages import BLOCK, COMMAND, DOCS, steady

PATIENCE = 300.0  # seconds
pytestmark = [pytest.mark.docs, pytest.mark.timeout(2 * PATIENCE)]
FILE = re.compile(r"^\$ cat (\S+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
MACHINE = [
    (r"\b\d+( +nodes 1, cores 1 )", r"N\1"),
    (r"\S+ core \d+$", "MACHINE"),
    (r"the cluster has \d+", "the cluster has N"),
]


def commands(page: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a page with what is shown below it."""
    for block in BLOCK.findall((DOCS / page).read_text()):
        yield from COMMAND.findall(block)


def typed(folder: Path, page: str, instead: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Type a page; return what it shows and what was printed, without what is another every time."""
    (folder / "bin").mkdir()
    rainbow = folder / "bin" / "rainbow"
    rainbow.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rainbow "$@"\n')
    rainbow.chmod(0o755)
    script, shown = "", ""
    for command, text in commands(page):
        if file := re.fullmatch(r"cat (\S+)", command):
            (folder / file[1]).write_text(text)
            continue
        shown += f"$ {command}\n{text}"
        for written, ours in instead.items():
            command = command.replace(written, ours)
        script += f"echo {shlex.quote(f'$ {command}')}\n{command}\n"
    printed = re.sub(r"^bash: line .* Killed .*\n", "", in_a_shell(folder, script, PATIENCE), flags=re.MULTILINE)
    return lines(shown, instead), lines(printed, {})


def lines(text: str, instead: Mapping[str, str]) -> list[str]:
    for written, ours in instead.items():
        text = text.replace(written, ours)
    found = [re.sub(r"^(requestor|user) +\S+|^in /\S+", r"\1 NAME", line) for line in steady(text)]
    for pattern, word in MACHINE:
        found = [re.sub(pattern, word, line) for line in found]
    return found


def test_first_job_goes_as_the_page_says(tmp_path: Path) -> None:
    shown, printed = typed(tmp_path, "first-job.md", {})
    assert printed == shown


def test_first_department_survives_as_the_page_says(tmp_path: Path) -> None:
    with postgres() as server:
        database = server.new_database()
        ports = dict(zip(("8443", "8444"), map(str, free_ports(2)), strict=True))
        instead = {"postgresql+psycopg://rainbow@localhost/rainbow": database, "pip install -q": "true", **ports}
        shown, printed = typed(tmp_path, "first-department.md", instead)
    assert printed == shown
