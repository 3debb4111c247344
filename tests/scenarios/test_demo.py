"""The demo says when something differs, and leaves nothing behind; test_wheel.py runs it from end to end."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from rainbow.cli import main
from rainbow.cli.demo.run import NEXT, DemoOutcome, differences

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "rainbow", "demo"]


def job(cluster: str = "willow", state: str = "COMPLETED", codes: Sequence[int | None] = (0,)) -> Mapping[str, Any]:
    return {"cluster": cluster, "state": state, "tasks": [{"exit_code": code} for code in codes]}


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
        (DemoOutcome("a", ["willow"], job()), ["willow"], []),
        (DemoOutcome("a", [], refusals=[{"cluster": "willow"}]), [], []),
        (DemoOutcome("a", ["willow"], job()), ["heron", "willow"], ["a: matches willow, expected heron, willow"]),
        (DemoOutcome("a", ["willow"], job("heron")), ["willow"], ["a: went to heron"]),
        (DemoOutcome("a", ["willow"], job(codes=[0, 3])), ["willow"], ["a: is COMPLETED, exit codes [0, 3]"]),
        (
            DemoOutcome("a", ["willow"], job(state="WAITING", codes=[None])),
            ["willow"],
            ["a: is WAITING, exit codes [None]"],
        ),
        (DemoOutcome("a", []), ["willow"], ["a: matches nothing, expected willow", "a: no job came of it"]),
        (DemoOutcome("a", [], fault="line 3"), [], ["a: line 3"]),
        (DemoOutcome("a", ["willow"], job()), [], ["a: matches willow, expected nothing", "a: went to willow"]),
    ],
)
def test_every_difference_is_said(outcome: DemoOutcome, wanted: list[str], said: list[str]) -> None:
    assert differences([outcome], {"a": wanted}) == said


def test_a_jobspec_without_an_expectation_and_the_reverse_are_differences() -> None:
    assert len(differences([DemoOutcome("new", [])], {"gone": []})) == 2


def test_demos_clusters_and_jobspecs_are_written_as_files_and_never_over_others(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["demo", "--files", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "graphs/willow/cluster.json").is_file()
    assert (tmp_path / "jobspecs/needs-version.yaml").is_file()
    again = CliRunner().invoke(main, ["demo", "--files", str(tmp_path)])
    assert (again.exit_code, again.stderr) == (
        1,
        f"rainbow: {tmp_path}/graphs: already exists; name another folder\n",
    )


def test_every_command_told_by_hand_is_one() -> None:
    text = re.sub(r"\\\n|&", " ", NEXT).replace("$(rainbow job last)", "JOB")
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
    named = re.findall(r"(?:graphs|jobspecs)/[\w./-]+", NEXT)
    assert len(named) >= 5
    assert [path for path in named if not (ROOT / path).is_file()] == []
