"""Blocks of a page as a reader pastes them: `sh` is typed, the `text` after it is what it prints."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:[^\n]*<<'EOF'[^\n]*\n.*?^EOF\n|(?:[^\n]*\\\n)*[^\n]*\n)", re.DOTALL | re.MULTILINE)
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
FAILED = "COMMAND FAILED"


class Block(NamedTuple):
    """What a reader types, and what the page says it prints."""

    typed: str
    printed: str

    @property
    def commands(self) -> list[str]:
        """Return each command with the lines and the here-document it continues in."""
        return [command.rstrip("\n") for command in COMMAND.findall(self.typed) if command.strip()]


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page that are typed."""
    return [Block(*result) for result in BLOCK.findall(text)]


def commands(text: str) -> list[tuple[str, str]]:
    """Return each command of a page with what is shown below its block, which only the last command prints."""
    return [
        (command, block.printed if k == len(block.commands) - 1 else "")
        for block in blocks(text)
        for k, command in enumerate(block.commands)
    ]


def steady(text: str, more: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the lines without what is another in every run, blanks between columns as one."""
    for pattern, instead in [*more, *CHANGING]:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return [re.sub(r"[ \t]+", " ", line).strip() for line in text.strip().splitlines()]


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which `rainbow` is this checkout's, with a port and a home of its own."""
    command = folder / "bin" / "rainbow"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rainbow "$@"\n')
    command.chmod(0o755)
    port = str(free_port())
    ours = {"RAINBOW_PORT": port, "RAINBOW_URL": f"http://127.0.0.1:{port}", "PYTHONPATH": str(ROOT)}
    ours["PATH"] = f"{command.parent}:{os.environ['PATH']}"
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("RAINBOW_")}
    return {
        **inherited,
        **ours,
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "COLUMNS": "110",
        "TZ": "UTC",
        "LOGNAME": "ann",
        "USER": "ann",
    }


def in_a_shell(
    folder: Path,
    script: str,
    seconds: float = 120,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a script and return what it prints; processes that it leaves running are killed."""
    with (folder / "printed").open("w+") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=cwd or folder,
            env={**environment(folder), **(variables or {})},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            shell.wait(seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    return (folder / "printed").read_text()


def paste(
    folder: Path, typed: Sequence[str], seconds: float = 120, variables: Mapping[str, str] | None = None
) -> list[str]:
    """Paste blocks one after the other into one shell in an empty folder; return what each prints."""
    trap = f"trap 'echo \"{FAILED}: $BASH_COMMAND\"' ERR\n"
    script = trap + "".join(f"echo '── block {k}'\n{block}\n" for k, block in enumerate(typed))
    (folder / "empty").mkdir()
    printed = in_a_shell(folder, script, seconds, variables, folder / "empty")
    printed = re.sub(r"^bash: line .* (Killed|Terminated) .*\n", "", printed, flags=re.MULTILINE)
    return re.split(r"^── block \d+\n", printed, flags=re.MULTILINE)[1:]
