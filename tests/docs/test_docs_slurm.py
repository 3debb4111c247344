"""The how-to of docs/slurm.md works as it is written: its blocks are run one after the other on a real Slurm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import REGISTRATION
from tests.support.live import rainbow_at
from tests.support.pages import ROOT, commands, in_a_shell
from tests.support.slurm import Slurm

PAGE = (ROOT / "docs" / "slurm.md").read_text()
# what is another every time: ids, times, numbers that Slurm gives, and how wide a column is for them
CHANGING = [
    (r"\b[0-9a-f]{24}\b", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"after \d+s", "after SECONDS"),
    (r"ended \d\d:\d\d:\d\d", "ended TIME"),
    (r"planned for \d\d:\d\d", "planned for TIME"),
    (r"Slurm job \d+", "Slurm job N"),
    (r"oak:\d+", "oak:N"),
    (r"priority \d+, \d+\w\w of \d+", "priority N, its place"),  # Slurm may not have started the first one yet
    (r"agent \S+ started", "agent NAME started"),
    (r" saved in \S*credentials.json", " saved in credentials.json"),
    (r"requestor +\S+", "requestor NAME"),
    (r"all jobs run as \S+:", "all jobs run as NAME:"),
    (r"[ \t]+", " "),
]


def plain(text: str) -> list[str]:
    for pattern, instead in CHANGING:
        text = re.sub(pattern, instead, text)
    return [line.strip() for line in text.splitlines()]


@pytest.mark.docs  # as every page that is typed; it waits for what Slurm plans
def test_joining_a_slurm_cluster_works_as_it_is_written(tmp_path: Path, on_slurm: Slurm) -> None:
    assert on_slurm.run("squeue", "-h", "-t", "PD,R") == ""
    shown = "".join(f"$ {command}\n{text}" for command, text in commands(PAGE))
    with rainbow_at(tmp_path) as url:
        value = f"RAINBOW_URL={url} RAINBOW_REGISTRATION_SECRET={REGISTRATION} RAINBOW_CREDENTIALS=credentials.json"
        script = f"export {value} COLUMNS=200\n"
        for command, _ in commands(PAGE):
            script += f"echo '$ '{_quoted(command)}\n{command}\n"
            if command.endswith("&"):
                script += "until grep -q 'started for' printed; do sleep 0.2; done\n"
        printed = in_a_shell(tmp_path, script)
    answer = re.sub(r"^rainbow agent: task .*\n", "", printed, flags=re.M)  # when it is told is the agent's affair
    assert plain(answer) == plain(shown), printed
    on_slurm.run("scancel", "-n", "whole")


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "'\\''") + "'"
