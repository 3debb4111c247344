"""The how-to of docs/slurm.md works as it is written: its blocks are run one after the other on a real Slurm."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.conftest import REGISTRATION
from tests.docs.test_docs_readme import in_a_shell
from tests.support.live import rainbow_at
from tests.support.slurm import Slurm

PAGE = (Path(__file__).parents[2] / "docs" / "slurm.md").read_text()
# what is another every time: ids, times, numbers that Slurm gives, and how wide a column is for them
CHANGING = [
    (r"\b[0-9a-f]{24}\b", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"planned for \d\d:\d\d", "planned for TIME"),
    (r"Slurm job \d+", "Slurm job N"),
    (r"oak:\d+", "oak:N"),
    (r"priority \d+", "priority N"),
    (r"agent \S+ started", "agent NAME started"),
    (r" saved in \S*credentials.json", " saved in credentials.json"),
    (r"requestor +\S+", "requestor NAME"),
    (r"all jobs run as \S+:", "all jobs run as NAME:"),
    (r"[ \t]+", " "),
]
FILES = re.compile(r"^\$ cat (\S+)\n((?:(?!\$ ).*\n)*)", re.M)


def blocks() -> str:
    return "".join(re.findall(r"```console\n(.*?)```", PAGE, re.S))


def plain(text: str) -> list[str]:
    for pattern, instead in CHANGING:
        text = re.sub(pattern, instead, text)
    return [line.strip() for line in text.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    command = tmp_path / "bin" / "rainbow"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rainbow "$@"\n')
    command.chmod(0o755)
    for name, text in FILES.findall(blocks()):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_joining_a_slurm_cluster_works_as_it_is_written(folder: Path, on_slurm: Slurm) -> None:
    assert on_slurm.run("squeue", "-h", "-t", "PD,R") == ""
    with rainbow_at(folder) as url:
        given = f"RAINBOW_URL={url} RAINBOW_REGISTRATION_SECRET={REGISTRATION} RAINBOW_CREDENTIALS=credentials.json"
        script = f'export {given} PATH="{folder}/bin:$PATH" COLUMNS=200\n'
        for line in [line for line in blocks().splitlines() if line.startswith("$ ")]:
            command = line.removeprefix("$ ")
            script += f"echo '$ '{_quoted(command)}; {command}\n"
            if command.endswith("&"):
                script += "until grep -q 'started for' printed; do sleep 0.2; done\n"
        printed = in_a_shell(folder, script)
    told = re.sub(r"^rainbow agent: task .*\n", "", printed, flags=re.M)  # when it is told is the agent's affair
    assert plain(told) == plain(blocks()), printed
    on_slurm.run("scancel", "-n", "whole")


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "'\\''") + "'"
