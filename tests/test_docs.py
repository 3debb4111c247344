"""The documentation's links lead somewhere, its examples run, and it names what there is."""

import doctest
import re
from pathlib import Path

import click
import pytest

from rainbow.api import create_app
from rainbow.cli import main
from rainbow.cli.exits import Exit
from rainbow.matching import backends
from rainbow.scheduling import policies
from rainbow.selection import selectors

ROOT = Path(__file__).parents[1]
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


@pytest.mark.parametrize("page", ["README.md", "docs/load-based.md"])
def test_examples_run(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = doctest.testfile(str(ROOT / page), module_relative=False)
    assert result.attempted > 5
    assert result.failed == 0


@pytest.mark.parametrize("name", [*backends.names(), *policies.names(), *selectors.names()])
def test_every_plug_in_is_named_in_the_documentation(name):
    assert any(f"`{name}`" in page.read_text() for page in PAGES)


def test_every_command_of_the_readme_exists():
    used = set(
        re.findall(
            r"rainbow ([a-z]+)",
            "\n".join(re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.S)),
        )
    )
    assert used
    assert used <= set(main.commands)


def commands(command, path):
    """Yield the full name of every command."""
    if not isinstance(command, click.Group):
        yield path
        return
    for name, inner in command.commands.items():
        yield from commands(inner, f"{path} {name}")


def test_every_command_and_exit_code_is_documented():
    page = (ROOT / "docs" / "reference-cli.md").read_text()
    assert [name for name in commands(main, "rainbow") if f"| `{name}` |" not in page] == []
    assert [code for code in Exit if f"| {int(code)} |" not in page] == []


def test_every_route_is_documented(service):
    page = (ROOT / "docs" / "reference-http.md").read_text()
    routes = [
        f"{method} {rule.rule.replace('<', '{').replace('>', '}')}"
        for rule in create_app(service).url_map.iter_rules()
        for method in sorted(rule.methods - {"HEAD", "OPTIONS"})
    ]
    assert routes
    assert [route for route in routes if f"| `{route}` |" not in page] == []
