"""The documentation's links lead somewhere, its examples run, and it names what there is."""

import dataclasses
import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import rainbow
from rainbow.cli import main
from rainbow.graph.sources import graph_sources
from rainbow.matching import Why, backends
from rainbow.matching.explain.edits import Kind
from rainbow.scheduling import policies
from rainbow.selection import selectors
from rainbow.service import Limits, Settings, settings_of
from rainbow.service.core.settings import ADMISSION, NUMBERS, SCHEDULER, Server
from rainbow.state_machine import JobState, TaskState, WorkerState
from tests.support.pages import commands

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "graphs" / "README.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


MAPS = [ROOT / "docs/design.md", ROOT / "docs/design/where-to-change-what.md"]


@pytest.mark.parametrize("page", MAPS, ids=lambda p: p.name)
def test_every_file_that_the_design_names_exists(page):
    """Rooms and files, by their full path or the end of it."""
    there = [
        f"/{path.relative_to(ROOT)}" for folder in ("rainbow", "tests", "docs") for path in (ROOT / folder).rglob("*")
    ]
    named = re.findall(r"`([a-z_/]+(?:\.py|/))`", page.read_text())
    named += [name.partition("::")[0] for name in re.findall(r"`(\w+\.py::\w+)", page.read_text())]
    assert len(named) > 20
    assert not [name for name in named if not any(path.endswith(f"/{name.rstrip('/')}") for path in there)]


@pytest.mark.parametrize("page", MAPS, ids=lambda p: p.name)
def test_every_function_that_the_design_names_is_in_its_file(page):
    """As `folder/file.py::Class.method`, or `folder/file.py` (`function`)."""
    text = page.read_text()
    named = re.findall(r"`([\w/]+\.py)::([\w.]+)`", text) + re.findall(r"`([\w/]+\.py)` \(`([\w.]+)`\)", text)
    assert len(named) > 5
    for file, name in named:
        [path] = [path for path in (ROOT / "rainbow").rglob(Path(file).name) if str(path).endswith(f"/{file}")]
        for part in name.split("."):
            assert re.search(rf"^ *((async )?def {part}\(|class {part}\b|{part}\b.*=)", path.read_text(), re.M), (
                file,
                name,
            )


def test_walks_run_through_no_more_files_than_the_design_says():
    """In a process of their own: here much is remembered already."""
    design = (ROOT / "docs/design.md").read_text()
    most = re.search(r"\((\d+); the same again (\d+), a cycle \d+ to (\d+)\)", design)
    command = [sys.executable, ROOT / "docs/design/walks.py"]
    environment = {name: value for name, value in os.environ.items() if name != "RAINBOW_CHECK"}  # it walks further
    rows = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    results = {name: int(files) for name, files in re.findall(r"^\| ([a-z_:, ]+) \| (\d+) \|", rows, re.M)}
    cycle = max(files for name, files in results.items() if name.startswith("step, "))
    counts = (results["submit, fresh"], results["submit, the same again"], cycle)
    assert all(count <= int(named) for count, named in zip(counts, most.groups(), strict=True)), results


def file_of_tests(name: str) -> Path:
    """Return the file of the tests that has this name; pages name it without its room."""
    [path] = (ROOT / "tests").rglob(name)
    return path


def test_every_line_of_the_threat_model_names_tests_that_there_are():
    rows = [line for line in (ROOT / "docs/threat-model.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    for row in rows:
        tests = row.rstrip("| ").rpartition("| ")[2]
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", tests)
        assert named, row
        assert tests == "<br>".join(f"`{file}::{name}`" for file, name in named), tests
        for file, name in named:
            assert re.search(rf"^(async )?def {name}\(", file_of_tests(file).read_text(), re.M), (file, name)


def test_every_line_of_reliability_names_tests_that_there_are():
    tables = re.findall(r"^\|.*\| test \|\n\|[-|]+\n((?:\|.*\n)+)", (ROOT / "docs/reliability.md").read_text(), re.M)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 25
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)`", row.rstrip("| ").rpartition("| ")[2])
        assert named, row
        assert all(file_of_tests(file).exists() for file in named), row


def test_every_decision_is_a_record_in_the_index():
    index = (ROOT / "docs/design/README.md").read_text()
    for record in sorted((ROOT / "docs/design").glob("*.md")):
        if record not in (*MAPS, ROOT / "docs/design/README.md"):
            assert f"({record.name})" in index, record.name
            assert re.findall(r"^## (.*)", record.read_text(), re.M) == ["Context", "Decision", "Consequences"], (
                record.name
            )


@pytest.mark.parametrize("page", ["README.md", "docs/load-based-explained.md"])
def test_examples_run(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = doctest.testfile(str(ROOT / page), module_relative=False)
    assert result.attempted > 5
    assert result.failed == 0


@pytest.mark.parametrize("name", [*backends.names(), *graph_sources.names(), *policies.names(), *selectors.names()])
def test_every_plug_in_is_named_in_the_documentation(name):
    assert any(f"`{name}`" in page.read_text() for page in PAGES)


def test_every_command_of_the_readme_exists():
    used = {
        words.split()[1] for words, _ in commands((ROOT / "README.md").read_text()) if words.startswith("rainbow ")
    }
    assert used
    assert used <= set(main.commands)


def test_every_kind_of_event_is_documented():
    page = (ROOT / "docs" / "reference-http.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "rainbow").rglob("*.py"))
    kinds = set(re.findall(r'events\.add(?:_all)?\(connection, [^"]*?(?<!\[)"(\w+)"', code))
    assert kinds == set(re.findall(r"^\| `(\w+)` \|", page.split("## Events")[1].split("##")[0], re.M))


def offline(page, *begins):
    """Return the commands of a page that begin so and ask no server, with what they print."""
    results = [(command.removeprefix("rainbow "), output) for command, output in commands(page.read_text())]
    return [
        (command.split(), output)
        for command, output in results
        if command.startswith(begins) and ("--graph graphs" in command or not command.startswith("match"))
    ]


def test_commands_of_the_how_to_print_what_it_shows(monkeypatch):
    monkeypatch.chdir(ROOT)
    # on a busy machine the time for explaining may end first: let it not pass
    monkeypatch.setattr("rainbow.cli.commands.match.time", SimpleNamespace(thread_time=lambda: 0.0))
    shown = offline(ROOT / "docs" / "why.md", "match")
    assert len(shown) == 4
    for command, output in shown:
        result = CliRunner().invoke(main, command, env={"COLUMNS": "110", "NO_COLOR": "1"})
        assert [line.rstrip() for line in result.stdout.splitlines()] == output.rstrip().splitlines(), command


def test_commands_of_selection_print_what_it_shows(monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = offline(ROOT / "docs" / "selection.md", "policy", "config check")
    assert len(shown) == 5
    for command, output in shown:
        result = CliRunner().invoke(main, command, env={"COLUMNS": "110", "NO_COLOR": "1"})
        assert [line.rstrip() for line in result.output.rstrip().splitlines()] == output.rstrip().splitlines(), (
            command
        )


def test_every_kind_of_change_and_reason_is_explained():
    page = (ROOT / "docs" / "why.md").read_text()
    assert [kind for kind in Kind if f"| `{kind.name.lower()}` |" not in page] == []
    assert [why for why in Why if f"| `{why}` |" not in page] == []


def settings_keys():
    limits = {f"limits.{each.name}" for each in dataclasses.fields(Limits)}
    server = {f"server.{each.name}" for each in dataclasses.fields(Server)}
    admission = {f"admission.{key}" for key in ADMISSION}
    numbers = {f"numbers.{key}" for key in NUMBERS}
    return {f"scheduler.{key}" for key in SCHEDULER} | limits | numbers | admission | server


def test_example_configuration_has_every_key_and_is_the_default():
    text = (ROOT / "rainbow" / "service" / "rainbow.yaml").read_text()
    assert settings_of(text) == Settings()
    section, named = "", set()
    for line in text.splitlines():
        section = line.removesuffix(":") if re.fullmatch(r"[a-z]+:", line) else section
        named |= {f"{section}.{key}" for key in re.findall(r"^  (?:# )?([a-z_]+): ", line)}
    assert named == settings_keys()


def test_glossary_is_in_order_and_has_every_state():
    page = (ROOT / "docs" / "glossary.md").read_text()
    words, *states = [
        [row.strip("` ").lower() for row in re.findall(r"^\| (.*?) \|", table, re.M)[1:]]
        for table in re.split(r"^(?:## States|Of a \w+.*):?$", page, flags=re.M)
        if "|---|" in table
    ]
    assert words == sorted(words)
    assert {"unit", "default_duration", "replicas", "count", "idempotency-key"} <= set(words)
    kinds = [[state.lower() for state in kind] for kind in (JobState, TaskState, WorkerState)]
    assert states == [*kinds, ["drained_at", "draining"]]


def test_graphs_of_the_format_page_are_read_and_every_key_that_is_read_is_on_it():
    page = (ROOT / "docs" / "graph-format.md").read_text()
    blocks = re.findall(r"```json\n(.*?)```", page, re.S) + re.findall(r"<<'EOF'\n(.*?)^EOF", page, re.S | re.M)
    software, cluster = map(json.loads, blocks)
    read = rainbow.read_cluster(cluster).with_subsystem("spack", software)
    assert repr(read) == "<Cluster finch: 32 core, 128 memory, 4 node; subsystems spack>"
    job = "{resources: {a: {type: node, replicas: 4, requires: [{name: spack, field: name, match: gcc}]}}}"
    assert rainbow.match(rainbow.parse_jobspec(job), [read])[0].matched
    code = "".join((ROOT / "rainbow" / "graph" / f"{name}.py").read_text() for name in ("validation", "conversion"))
    keys = set(re.findall(r'(?:fields\.get\(|given\(fields, |fields\[|metadata\[)"(\w+)"', code))
    assert {"type", "size", "unit", "rank", "properties", "count", "basename"} <= keys
    assert [key for key in keys if f"`{key}`" not in page] == []
