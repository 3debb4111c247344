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

import pytest
import yaml

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


def test_every_module_has_one_line_of_purpose() -> None:
    for path in sorted((ROOT / "rainbow").rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        first, _, rest = text.partition("\n")
        assert len(first.split()) >= 2, path
        assert not rest or rest.startswith("\n"), f"{path}: the purpose is one line"
