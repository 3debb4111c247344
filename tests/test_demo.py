"""The demo does what it promises, says when something differs, and leaves nothing behind."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from demo import examples
from demo.judging import Outcome, differences
from demo.showing import BY_HAND
from rainbow.cli import main

ROOT = Path(__file__).parents[1]
DEMO = [sys.executable, "-m", "demo"]


def job(cluster: str = "willow", state: str = "COMPLETED", codes: Sequence[int | None] = (0,)) -> Mapping[str, Any]:
    return {"cluster": cluster, "state": state, "tasks": [{"exit_code": code} for code in codes]}


def test_demo_runs_every_jobspec_as_expected_and_ends_all_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    done = subprocess.run(DEMO, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert all(file in done.stdout for file in examples.jobspecs())
    assert all(one.name in done.stdout for one in examples.clusters())
    assert time.monotonic() - began < 120
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_interrupted_ends_all_it_started(tmp_path: Path, number: int) -> None:
    with subprocess.Popen(DEMO, cwd=ROOT, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        lines = iter(running.stdout.readline, "")
        assert any("and its agent" in line for line in lines)
        assert psutil.Process(running.pid).children(recursive=True)
        running.send_signal(number)
        assert running.wait(30) == 128 + number
    assert_nothing_is_left(tmp_path)


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": str(folder), "HOME": str(folder)}


def assert_nothing_is_left(folder: Path) -> None:
    assert list(folder.glob("rainbow-demo-*")) == []
    assert [one for one in psutil.process_iter() if runs_in(one, folder)] == []


def runs_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.environ().get("TMPDIR") == str(folder) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.mark.parametrize(
    ("outcome", "wanted", "said"),
    [
        (Outcome("a", ["willow"], job()), ["willow"], []),
        (Outcome("a", [], refusals=[{"cluster": "willow"}]), [], []),
        (Outcome("a", ["willow"], job()), ["heron", "willow"], ["a: matches willow, expected heron, willow"]),
        (Outcome("a", ["willow"], job("heron")), ["willow"], ["a: went to heron"]),
        (Outcome("a", ["willow"], job(codes=[0, 3])), ["willow"], ["a: is COMPLETED, exit codes [0, 3]"]),
        (
            Outcome("a", ["willow"], job(state="WAITING", codes=[None])),
            ["willow"],
            ["a: is WAITING, exit codes [None]"],
        ),
        (Outcome("a", []), ["willow"], ["a: matches nothing, expected willow", "a: no job came of it"]),
        (Outcome("a", [], fault="line 3"), [], ["a: line 3"]),
        (Outcome("a", ["willow"], job()), [], ["a: matches willow, expected nothing", "a: went to willow"]),
    ],
)
def test_every_difference_is_said(outcome: Outcome, wanted: list[str], said: list[str]) -> None:
    assert differences([outcome], {"a": wanted}) == said


def test_a_jobspec_without_an_expectation_and_the_reverse_are_differences() -> None:
    assert len(differences([Outcome("new", [])], {"gone": []})) == 2


def test_every_command_told_by_hand_is_one() -> None:
    text = re.sub(r"\\\n", " ", BY_HAND)
    lines = [shlex.split(line, comments=True) for line in text.splitlines() if line.strip().startswith("rainbow ")]
    assert len(lines) >= 8
    for _, *words in lines:
        with main.make_context("rainbow", list(words)) as context:
            assert_parses(context, list(context._protected_args) + context.args)


def assert_parses(context: Any, words: list[str]) -> None:
    """Follow groups down to the command and let it read its words, without running it."""
    name, command, rest = context.command.resolve_command(context, words)
    if hasattr(command, "resolve_command"):
        with command.make_context(name, rest, parent=context) as below:
            assert_parses(below, list(below._protected_args) + below.args)
        return
    command.make_context(name, without_files_to_come(rest), parent=context).close()


def without_files_to_come(words: list[str]) -> list[str]:
    """Name files that the commands before would have made by one that is there."""
    return [str(ROOT / "pyproject.toml") if word == "rainbow-registration.secret" else word for word in words]


def test_files_named_by_hand_are_there() -> None:
    named = re.findall(r"(?:graphs|jobspecs)/[\w./-]+", BY_HAND)
    assert len(named) >= 5
    assert [path for path in named if not (ROOT / path).is_file()] == []
