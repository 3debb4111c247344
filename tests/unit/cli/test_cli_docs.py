"""`rainbow docs` shows the pages, under their former names too, and finds them by their words."""

from __future__ import annotations

import json

import pytest

from rainbow.cli.main import DOCS
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures
MOVED = json.loads((DOCS / "moved.json").read_text())


def test_docs_lists_every_page(shell: Shell) -> None:
    listed = {line.split()[0] for line in shell("docs").stdout.splitlines() if line.startswith("  ")}
    assert listed == {path.stem for path in DOCS.glob("*.md")} - {"index"}


@pytest.mark.parametrize("page", ["why", "why.md", "WHY"])
def test_docs_shows_a_page(shell: Shell, page: str) -> None:
    text = (DOCS / "why.md").read_text()
    assert shell("docs", page).stdout.strip() == text.strip()


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_docs_shows_a_page_by_its_former_name(shell: Shell, old: str, new: str) -> None:
    assert not (DOCS / f"{old}.md").exists()
    title = (DOCS / f"{new}.md").read_text().partition("\n")[0]
    assert shell("docs", old).stdout.startswith(title)


def test_docs_searches_pages_for_words(shell: Shell) -> None:
    result = shell("docs", "gpu", "memory")
    names = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")]
    assert names
    for name in names:
        text = (DOCS / f"{name}.md").read_text().lower()
        assert "gpu" in text
        assert "memory" in text


@pytest.mark.parametrize("topic", ["xyzzy", "../docs/why", "/etc/passwd", "\0", "moved.json"])
def test_docs_of_an_unknown_topic_is_not_found(shell: Shell, topic: str) -> None:
    result = shell("docs", topic)
    assert result.exit_code == 4
    assert "run `rainbow docs` for a list" in result.stderr
