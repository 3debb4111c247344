"""Many jobspecs at once, bars on a terminal, help by topic."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from rainbow.cli import main
from rainbow.cli.exit_codes import Exit
from rainbow.cli.main import topics
from rainbow.client.transport import PART, UploadProgress
from tests.conftest import REGISTRATION, grid, jobspec
from tests.support.shell import ROOT, Shell, server, shell  # noqa: F401 - fixtures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "specs"
    (made / "deep").mkdir(parents=True)
    for k in range(120):
        (made / f"{k:03}.json").write_text(json.dumps(jobspec()))
    (made / "deep" / "x.yaml").write_text("tasks: [")
    return made


def test_folder_of_jobspecs_is_submitted_and_each_has_its_answer(shell: Shell, folder: Path) -> None:  # noqa: F811
    result = shell("submit", folder, "-o", "json")
    rows = json.loads(result.stdout)
    assert result.exit_code == Exit.ERROR
    assert [row["jobspec"] for row in rows] == [str(path) for path in sorted(folder.rglob("*.*"))]
    assert [row["status"] for row in rows] == [201] * 120 + [422]
    assert rows[-1]["line"] > 0
    assert {row["id"] for row in rows[:-1]} == {job["id"] for job in shell.json("jobs", "--all", "--limit", "500")}
    (folder / "deep" / "x.yaml").write_text(json.dumps(jobspec(99)))
    assert shell.code("submit", *sorted(folder.rglob("*.yaml")), folder / "000.json") is Exit.NO_MATCH
    assert shell.code("submit", folder / "000.json", folder / "001.json") is Exit.OK
    assert "oak 2" in shell("submit", folder / "000.json", folder / "001.json").stdout


def test_many_under_one_key_are_submitted_once(shell: Shell, folder: Path) -> None:  # noqa: F811
    (folder / "deep" / "x.yaml").unlink()
    first = shell.json("submit", folder, "--key", "nightly")
    again = shell.json("submit", folder, "--key", "nightly")
    assert [row["id"] for row in again] == [row["id"] for row in first]
    assert {row["status"] for row in again} == {200}


def test_what_is_for_one_jobspec_is_refused_for_many(shell: Shell, folder: Path) -> None:  # noqa: F811
    assert shell.code("submit", folder, "--wait") is Exit.USAGE
    assert shell.code("submit", folder, "nowhere.yaml") is Exit.USAGE


# ── bars ──


def on_a_terminal(command: list[str], written: Path, **variables: str) -> str:
    """Run a command whose stderr is a terminal and whose stdout is a file; return what the terminal saw."""
    reading, writing = pty.openpty()
    options = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **variables}
    with (
        written.open("w") as out,
        subprocess.Popen(command, stdout=out, stderr=writing, env=options, cwd=ROOT) as process,
    ):
        os.close(writing)
        seen = b"".join(_read(reading))
    os.close(reading)
    assert process.returncode == 0, seen.decode()
    return seen.decode()


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            return
        if not part:
            return
        yield part


def large() -> dict[str, Any]:
    document = grid(2, 2)
    document["graph"]["metadata"] = {"text": "x" * (2 << 20)}
    return document


@pytest.mark.parametrize("what", ["submit", "register", "import"])
def test_bar_is_drawn_on_a_terminal_and_nowhere_else(shell: Shell, folder: Path, what: str) -> None:  # noqa: F811
    (folder / "deep" / "x.yaml").unlink()
    graph = shell.file("large.json", large())
    source = shell.file("r.json", RESOURCES)
    command, bar = {
        "submit": (["submit", str(folder), "-o", "json"], "submitting"),
        "register": (["cluster", "register", str(graph), "--name", "big", "-o", "json"], "sending"),
        "import": (["cluster", "import", "flux-r", str(source)], "reading"),
    }[what]
    variables = {**shell.variables, "RAINBOW_REGISTRATION_SECRET": REGISTRATION}
    program = [sys.executable, "-m", "rainbow", *command]
    written = folder / "written"
    assert bar in on_a_terminal(program, written, **variables)
    json.loads(written.read_text())
    if what != "register":
        done = subprocess.run(
            program,
            env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert bar not in done.stderr


RESOURCES = {
    "version": 1,
    "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}], "nodelist": ["n[0-1]"]},
}


def test_body_that_is_told_of_is_sent_whole_each_time() -> None:
    content, heard = os.urandom(3 * PART + 5), []
    body = UploadProgress(content, lambda sent, total: heard.append((sent, total)))
    assert b"".join(body) == b"".join(body) == content
    assert heard == [(min(k * PART, len(content)), len(content)) for k in (1, 2, 3, 4)] * 2


# ── help ──


def every(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield from every(inner, (*path, name))


def test_help_explains_every_command_and_every_topic(shell: Shell) -> None:  # noqa: F811
    listed = shell("help").stdout
    for topic, page in topics().items():
        assert topic in listed
        assert shell("help", topic).stdout.rstrip() == page.rstrip()
        assert max(map(len, page.splitlines())) <= 118
    for path, command in list(every(main))[1:]:
        answer = shell("help", *path).stdout
        assert answer.startswith("Usage:")
        assert (command.help or "").split("\n")[0][:40] in " ".join(answer.split())
    assert shell.code("help", "nothing") is Exit.NOT_FOUND


def test_topics_name_every_variable_and_exit_code() -> None:
    named = set()
    for _, command in every(main):
        for parameter in command.params:
            answer = parameter.envvar or []
            named |= {answer} if isinstance(answer, str) else set(answer)
    page = topics()["environment"]
    assert named
    assert [name for name in sorted(named) if not re.search(rf"\b{name}\b", page)] == []
    assert [code for code in Exit if not re.search(rf"^ +{int(code)}  ", topics()["exit-codes"], re.M)] == []
