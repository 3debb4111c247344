"""Exit codes and JSON of each command, which the site shows, are what the command really has."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml

from rainbow.api.schemas import SUBSYSTEM
from rainbow.cli import main
from rainbow.cli.exit_codes import Exit
from tests.conftest import ADMIN, REGISTRATION, grid, jobspec
from tests.support.shell import ROOT, Shell, server, shell  # noqa: F401 - fixtures

CASES: dict[str, Any] = yaml.load((ROOT / "tests" / "cases" / "cli" / "commands.yaml").read_text(), yaml.CSafeLoader)


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that can be run, by its name without `rainbow`."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield " ".join(path), command
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield from commands(inner, (*path, name))


def test_every_command_says_its_exit_codes() -> None:
    assert set(CASES) == {name for name, _ in commands(main)}


def test_every_command_with_json_says_what_it_prints() -> None:
    with_json = {name for name, command in commands(main) if _has_json(command)}
    assert with_json == {name for name, case in CASES.items() if {"json", "json_list"} & set(case)}


def _has_json(command: click.Command) -> bool:
    return any(isinstance(p, click.Option) and p.name == "output" for p in command.params)


def test_exit_codes_are_those_there_are() -> None:
    assert {code for case in CASES.values() for code in case["exits"]} == {int(code) for code in Exit}
    for name, case in CASES.items():
        assert Exit.OK in case["exits"], name


@pytest.fixture
def named(shell: Shell) -> dict[str, Any]:  # noqa: F811
    """What the commands of the table are given."""
    shell.json("scheduler", "set", "oak", "--max-retries", "2", "--policy", "priority")
    files = {"graph": grid(1, 1), "jobspec": jobspec(), "state": {"price": 1}, "subsystem": SUBSYSTEM, "config": {}}
    return {
        **{name: shell.file(f"{name}.json", content) for name, content in files.items()},
        "job": shell.json("submit", "--wait", "-n", "1", "--", "true")["id"],
        "waiting": shell.json("submit", "-n", "2", "-c", "4", "-t", "90", "--", "sleep", "60")["id"],
        "held": shell.json("submit", "-n", "2", "-c", "4", "-t", "90", "--", "sleep", "60")["id"],
        "reservation": shell.json(
            *("reserve", "create", "--cluster", "oak", "-n", "1", "-t", "60", "--start", "2100-01-01T00:00:00Z")
        )["id"],
        "token": shell.json("token", "mint", "--cluster", "oak")["id"],
        "new": "elm",
        "folder": shell.folder,
    }


def test_json_has_the_keys_that_are_documented(
    shell: Shell,  # noqa: F811
    named: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    for name, case in CASES.items():
        if "run" not in case:
            continue
        words = shlex.split(case["run"].format(**named))
        admin = ADMIN if words[0] in ("account", "qos", "config") else ""
        result = shell(*words, "-o", "json", RAINBOW_REGISTRATION_SECRET=REGISTRATION, RAINBOW_TOKEN=admin)
        assert result.exit_code in case["exits"], (name, result.output)
        text = result.stdout.splitlines()[0] if name == "events" else result.stdout
        assert text, (name, result.output)
        results = json.loads(text)
        results = results[0] if "json_list" in case else results
        assert list(results) == case.get("json_list", case.get("json")), name
