"""The command line: every command and every exit code is explained."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence

import click
import pytest

from rainbow.cli import main
from rainbow.cli.exit_codes import Exit
from rainbow.cli.main import COMMANDS, ELSEWHERE
from tests.support.shell import ROOT, Shell, server, shell

__all__ = ["server", "shell"]  # fixtures


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", [path for path, _ in commands(main)], ids=" ".join)
def test_every_command_says_what_it_does(shell: Shell, path: Sequence[str]) -> None:
    result = shell(*path, "--help")
    assert result.exit_code == 0
    assert dict(commands(main))[tuple(path)].help


def test_help_names_every_exit_code(shell: Shell) -> None:
    text = shell("--help").stdout
    assert all(re.search(rf"\b{int(code)} ", text) for code in Exit)


def test_version_is_the_packages(shell: Shell) -> None:
    from rainbow import __version__

    assert shell("version").stdout.startswith(f"rainbow {__version__}, server {__version__}, API v1, schema 00")
    nowhere = shell("version", RAINBOW_URL="http://127.0.0.1:9")
    assert (nowhere.stdout, nowhere.exit_code) == (f"rainbow {__version__}\n", 0)
    assert __version__ in shell("--version").stdout


def test_a_group_that_is_imported_alone_has_all_its_commands() -> None:
    groups = {name: group for name in COMMANDS if isinstance(group := main.commands[name], click.Group)}
    assert {"job", "policy", "cluster"} <= groups.keys()
    for name, group in groups.items():
        alone = f"rainbow.cli.{COMMANDS[name].partition(':')[0]}"
        source = inspect.getsource(sys.modules[alone])
        for inner in group.commands.values():
            assert inner.callback
            there = inspect.unwrap(inner.callback).__module__
            assert there == alone or f"from {there} import" in source, (name, inner.name)


def test_a_command_is_found_by_its_name_elsewhere(shell: Shell) -> None:
    page = (ROOT / "docs" / "coming-from-slurm.md").read_text()
    of_slurm = set(re.findall(r"^\| `(s\w+)", page, re.MULTILINE)) - {"sbatch"}
    assert of_slurm <= set(ELSEWHERE)
    for name, here in ELSEWHERE.items():
        result = shell(*name.split())
        assert (result.exit_code, f"; here it is `rainbow {here}`." in result.stderr) == (Exit.USAGE, True), name
        assert shell("help", *re.sub(" [A-Z]+$", "", here).split()).exit_code == Exit.OK, here
