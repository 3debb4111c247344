"""The documentation's links lead somewhere, its examples run, and it names what there is."""

import doctest
import re
from pathlib import Path

import pytest

from rainbow.cli import main
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


def test_readme_examples_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
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
