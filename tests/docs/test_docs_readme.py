"""The README's first job, pasted as it is written into a shell of an empty folder, and the README's length."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def commands() -> list[str]:
    """Every command of the section, with the lines it goes on in."""
    blocks = re.findall(r"```console\n(.*?)```", README.split("## Submit a job")[1].split("\n## ")[0], re.S)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    command = tmp_path / "bin" / "rainbow"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rainbow "$@"\n')
    command.chmod(0o755)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    port = str(free_port())
    ours = {"RAINBOW_PORT": port, "RAINBOW_URL": f"http://127.0.0.1:{port}", "PYTHONPATH": str(ROOT)}
    ours["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RAINBOW_")}
    return {**kept, **ours, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "110"}


def in_a_shell(folder: Path, script: str, seconds: float = 120) -> str:
    """Run it and return what it printed; whatever it left running is ended."""
    with (folder / "printed").open("w+") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment(folder),
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


def test_first_job_of_the_readme_runs_as_it_is_written(folder: Path) -> None:
    failed = "trap 'echo \"FAILED: $BASH_COMMAND\"' ERR"
    printed = in_a_shell(folder, "\n".join([failed, *commands(), "wait"]))
    assert "FAILED" not in printed, printed
    assert "willow   yes      fits 2 times, using nodes 2, cores 16 each time" in printed
    assert printed.count("saved in credentials.json") == 2
    assert len(re.findall(r"^task-\d +COMPLETED +0 ", printed, re.M)) == 2, printed


def test_readme_has_a_picture_and_120_lines_at_most() -> None:
    assert len(README.splitlines()) <= 120
    assert "](docs/rainbow.svg)" in README


def test_picture_shows_what_match_and_select_answer() -> None:
    made = subprocess.run(
        [sys.executable, "-c", "import picture; print(picture.picture(), end='')"],
        cwd=ROOT / "docs",
        capture_output=True,
        check=True,
    )
    assert made.stdout.decode() == (ROOT / "docs" / "rainbow.svg").read_text(), "run: python docs/picture.py"
