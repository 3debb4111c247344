"""Words that readers stumble over, in pages and docstrings: their counts only fall.

tests/cases/words.yaml has for each pattern what to write instead and how many there may be; write a smaller number
there when you have replaced some.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from rainbow.cli import main

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))

import reading  # noqa: E402 - after the path is set

WORDS = yaml.load((ROOT / "tests" / "cases" / "words.yaml").read_text(), yaml.CSafeLoader)


def pages() -> Iterator[tuple[str, str]]:
    """Yield every page that people read, without its blocks of code and what is made from a list."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        generated = r"^<!-- rows: begin -->.*?^<!-- rows: end -->"
        yield path.name, re.sub(rf"^```.*?^```|{generated}", "", path.read_text(), flags=re.S | re.M)


@pytest.fixture(scope="module")
def texts() -> dict[str, list[tuple[str, str]]]:
    return {"pages": list(pages()), "docstrings": list(reading.docstrings())}


@pytest.mark.parametrize("where", ["pages", "docstrings"])
@pytest.mark.parametrize("pattern", WORDS)
def test_word_is_not_used_again(pattern: str, where: str, texts: dict[str, list[tuple[str, str]]]) -> None:
    results = [place for place, text in texts[where] for _ in re.finditer(rf"\b(?:{pattern})\b", text, re.I)]
    allowed = WORDS[pattern][where]
    assert len(results) <= allowed, (
        f"{pattern}: write {WORDS[pattern]['instead']}; found in {', '.join(results[:20])}"
    )


OLD = yaml.load((ROOT / "tests" / "cases" / "old_words.yaml").read_text(), yaml.CSafeLoader)
SHOWN = {  # what people read: what code names, as keys of API v1 and settings, keeps its name
    "pages": r"^```(?!text).*?^```|`[^`\n]*`|\]\([^)]*\)",
    "helps": r"--[\w-]+|`[^`\n]*`",
    "templates": r"\{[{%#].*?[}%#]\}|<[^>]*>",
}


def helps(group: click.Group, path: str = "rainbow") -> Iterator[tuple[str, str]]:
    """Yield the help of every command and option with where it is."""
    for name, command in group.commands.items():
        options = [one.help or "" for one in command.params if isinstance(one, click.Option)]
        yield f"{path} {name}", "\n".join([command.help or "", *options])
        if isinstance(command, click.Group):
            yield from helps(command, f"{path} {name}")


@pytest.fixture(scope="module")
def shown() -> dict[str, list[tuple[str, str]]]:
    templates = sorted((ROOT / "rainbow" / "page" / "templates").glob("*.html"))
    everything = {
        "pages": [
            (name, text) for name, text in reading.pages().items() if name != "mapping.md"
        ],  # names of ancestors
        "helps": list(helps(main)),
        "templates": [(path.name, path.read_text()) for path in templates],
    }
    return {
        kind: [(place, re.sub(SHOWN[kind], "", text, flags=re.S | re.M)) for place, text in texts]
        for kind, texts in everything.items()
    }


@pytest.mark.parametrize("kind", SHOWN)
@pytest.mark.parametrize("pattern", OLD)
def test_one_word_for_one_thing(pattern: str, kind: str, shown: dict[str, list[tuple[str, str]]]) -> None:
    places = [place for place, text in shown[kind] if re.search(rf"\b(?:{pattern})", text, re.I)]
    assert not places, f"write {OLD[pattern]}"


def test_every_module_has_one_line_of_purpose() -> None:
    for path in sorted((ROOT / "rainbow").rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        first, _, rest = text.partition("\n")
        assert len(first.split()) >= 2, path
        assert not rest or rest.startswith("\n"), f"{path}: the purpose is one line"
