"""A command imports what it needs: what asks a server draws no graph, matches nothing and opens no store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

import rainbow
from rainbow.cli.main import COMMANDS, main
from tests.conftest import grid, jobspec

HEAVY = ("networkx", "numpy", "scipy", "jsonschema", "sqlalchemy", "flask", "rainbow.matching", "rainbow.service")
STARTED = """
import sys
from rainbow.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(*(name for name in HEAVY if name in sys.modules), file=sys.stderr)
""".replace("HEAVY", repr(HEAVY))


@pytest.mark.parametrize("words", ["--version", "--help", "jobs --help", "job why --help", "submit --help"])
def test_command_that_asks_a_server_imports_nothing_heavy(words: str) -> None:
    done = subprocess.run([sys.executable, "-c", STARTED, *words.split()], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_what_starts_a_server_does_not_import_the_client_of_one() -> None:
    started = STARTED.replace(repr(HEAVY), repr(("httpx", "rainbow.client")))
    done = subprocess.run(
        [sys.executable, "-c", started, "serve", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stderr.split() == []


def test_a_match_on_files_imports_no_client_of_a_server_and_counts_no_arrays(tmp_path: Path) -> None:
    started = STARTED.replace(repr(HEAVY), repr(("httpx", "rainbow.client", "networkx", "numpy", "sqlalchemy")))
    graph, query = tmp_path / "oak.json", tmp_path / "job.json"
    graph.write_text(json.dumps(grid(2, 2)))
    query.write_text(json.dumps(jobspec(1)))
    command = [sys.executable, "-c", started, "match", "--graph", str(graph), str(query)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "yes" in done.stdout
    assert done.stderr.split() == []


def test_completion_of_a_command_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_RAINBOW_COMPLETE": "bash_complete", "COMP_WORDS": "rainbow j", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    started = STARTED.replace("main(sys.argv[1:])", "main(sys.argv[1:], 'rainbow')").replace(
        repr(HEAVY), repr(("httpx", "rainbow.cli.commands.jobs"))
    )
    done = subprocess.run([sys.executable, "-c", started], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["plain,jobs", "plain,job", "plain,jobspec"]
    assert done.stderr.split() == []


def test_what_asks_nobody_imports_neither_client_nor_jobspecs() -> None:
    started = STARTED.replace(repr(HEAVY), repr(("httpx", "yaml", "rainbow.client", "rainbow.jobspec")))
    done = subprocess.run([sys.executable, "-c", started, "--version"], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name


INSIDE = """
from rainbow.cli.main import COMMANDS, LazyCommands
import click, sys
of = LazyCommands()[sys.argv[1]]
print(*sorted(of.commands) if isinstance(of, click.Group) else ())
"""


@pytest.mark.parametrize("name", ["policy", "cluster"])
def test_a_group_has_all_its_commands_in_a_process_that_runs_nothing_else(name: str) -> None:
    """Some are made in another file than their group."""
    done = subprocess.run([sys.executable, "-c", INSIDE, name], capture_output=True, text=True, check=True)
    everything = [main.get_command(click.Context(main), every) for every in COMMANDS]
    group = next(one for one in everything if isinstance(one, click.Group) and one.name == name)
    assert done.stdout.split() == sorted(group.commands)


def test_every_public_name_is_there_when_it_is_asked_for() -> None:
    assert set(rainbow.PLACES) < set(rainbow.__all__)
    assert all(getattr(rainbow, name) for name in rainbow.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = rainbow.nothing
