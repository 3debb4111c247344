"""The command line: whatever is wrong is one line that says where, and never a traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from rainbow.cli.exit_codes import Exit
from rainbow.client import Client
from tests.conftest import REGISTRATION
from tests.support.shell import HOSTILE, ROOT, Shell, server, shell

__all__ = ["server", "shell"]  # fixtures


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_file_anywhere_gives_one_line_and_no_traceback(shell: Shell, content: bytes) -> None:
    path = shell.file("hostile", content)
    for words in (
        ["submit", path],
        ["match", path],
        ["cluster", "register", path, "--name", "odd", "--secret", REGISTRATION],
        ["subsystem", "register", path, "--cluster", "oak", "--name", "odd"],
        ["submit", "-N", "1", "--selector", "constraint", "--selector-options", path, "--", "true"],
    ):
        result = shell(*words)
        assert result.exit_code == Exit.ERROR, (words, result.output)
        assert result.stderr.startswith("rainbow: ")
        assert len(result.stderr.splitlines()) == 1
        assert "\x1b" not in result.output
        assert "set RAINBOW_DEBUG=1 for a traceback and please report it" not in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        "submit -- echo a\udcffb",
        "submit --job-name a\udcffb -- true",
        "jobs -u a\udcffb",
        "job show a\udcffb",
        "agent --cluster a\udcffb",
    ],
)
def test_a_byte_that_is_no_text_is_named_in_a_line(shell: Shell, words: str) -> None:
    result = shell(*words.split(), XDG_STATE_HOME=str(shell.folder))
    assert result.exit_code == Exit.ERROR
    last = result.stderr.splitlines()[-1]
    assert last.startswith("rainbow: text must be UTF-8, got a byte or half of a character that is not: ")
    assert r"a\xffb" in last


def test_json_faults_say_line_and_column(shell: Shell) -> None:
    result = shell("cluster", "register", shell.file("s.json", '{\n "a": }'), "--name", "elm")
    assert "s.json is not JSON: Expecting value (line 2, column 7)" in result.stderr


def test_yaml_faults_say_line_and_column(shell: Shell) -> None:
    result = shell("state", "set", "--cluster", "oak", shell.file("s.yaml", "a: 1\nb: ]\n"))
    assert re.search(r"s\.yaml: .* \(line 2, column 4", result.stderr)


def test_a_fault_of_our_own_is_one_line_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "clusters", lambda self: 1 // 0)
    result = shell("cluster", "list")
    assert result.exit_code == Exit.ERROR
    assert result.stderr.startswith("rainbow: internal error: ZeroDivisionError")


def test_readers_that_leave_early_see_no_traceback(shell: Shell) -> None:
    shell("submit", "-n", "1", "--", "true")
    variables = {
        **os.environ,
        **{key: value for key, value in shell.variables.items() if value},
        "PYTHONPATH": str(ROOT),
    }
    line = f"{sys.executable} -m rainbow jobs -o json | head -c 1"
    done = subprocess.run(["sh", "-c", line], env=variables, capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
