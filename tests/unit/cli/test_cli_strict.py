"""Keys that are not read, at the command line: shown for every jobspec, refused under --strict."""

from __future__ import annotations

from pathlib import Path

import pytest

from rainbow.cli.exit_codes import Exit
from rainbow.jobspec.dialects.common import FOR_POLICIES
from rainbow.scheduling import JobView
from rainbow.scheduling.priority.model import read_asks
from tests.conftest import grid, jobspec
from tests.support.shell import Shell, server, shell  # noqa: F401 - fixtures

SAID = "unknown key /attributes/system/duraton ignored; did you mean duration?"


@pytest.fixture
def good(shell: Shell) -> Path:  # noqa: F811
    return shell.file("good.json", jobspec())


@pytest.fixture
def misspelt(shell: Shell) -> Path:  # noqa: F811
    options = jobspec()
    options["attributes"] = {"system": {"duraton": 60}}
    return shell.file("misspelt.json", options)


def test_warnings_of_each_of_several_jobspecs_are_shown(shell: Shell, good: Path, misspelt: Path) -> None:  # noqa: F811
    result = shell("submit", good, misspelt, COLUMNS="300")
    assert result.exit_code == Exit.OK
    assert f"{misspelt}: warning: {SAID}" in result.stdout.replace("\n", "")
    assert result.stdout.count("warning: ") == 1
    assert f"warning: {SAID}" in shell("match", misspelt).stdout


def test_strict_refuses_a_jobspec_with_a_key_that_is_not_read(shell: Shell, good: Path, misspelt: Path) -> None:  # noqa: F811
    before = {job["id"] for job in shell.json("jobs", "--all")}
    for words in (("submit",), ("match",), ("submit", good)):
        result = shell(*words, "--strict", misspelt)
        assert result.exit_code == Exit.ERROR
        assert SAID in result.output.replace("\n", " ")
    assert {job["id"] for job in shell.json("jobs", "--all")} == before
    assert shell.code("submit", "--strict", good) is Exit.OK
    assert shell.code("submit", "--strict", good, good) is Exit.OK
    assert shell.code("match", "--strict", good) is Exit.OK
    assert shell.code("submit", "--strict", "-n", "1", "--", "true") is Exit.OK


def test_strict_needs_no_server_with_graphs(shell: Shell, good: Path, misspelt: Path) -> None:  # noqa: F811
    graph = shell.file("graph.json", grid(2, 2))
    assert shell.code("match", "--graph", graph, good, misspelt) is Exit.OK
    assert shell.code("match", "--strict", "--graph", graph, good, misspelt) is Exit.ERROR
    assert shell.code("match", "--strict", "--graph", graph, good) is Exit.OK


def test_strict_lets_pass_what_a_policy_reads(shell: Shell) -> None:  # noqa: F811
    options = jobspec()
    options["attributes"] = {"system": {"priority": -5}}
    assert shell.code("match", "--strict", shell.file("asking.json", options)) is Exit.OK
    options["attributes"] = {"system": {"queue": "batch"}}  # a word that is read; no cluster here has this queue
    assert shell.code("match", "--strict", shell.file("queued.json", options)) is Exit.NO_MATCH


@pytest.mark.parametrize("entry", sorted(FOR_POLICIES))
def test_entries_of_a_policy_are_those_it_reads(entry: str) -> None:
    job = JobView("j", "user", 0.0, (), attributes={entry: object()})
    assert read_asks(job).fault
