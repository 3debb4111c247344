"""Identifiers are nouns and verbs of the field: what tests/cases/names.yaml lists only gets rarer."""

from __future__ import annotations

import tokenize
from collections import Counter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
NAMES = yaml.safe_load((ROOT / "tests" / "cases" / "names.yaml").read_text())


@pytest.fixture(scope="module")
def identifiers() -> Counter[str]:
    count: Counter[str] = Counter()
    for path in (ROOT / "rainbow").rglob("*.py"):
        with path.open("rb") as file:
            tokens = tokenize.tokenize(file.readline)
            count.update(token.string for token in tokens if token.type == tokenize.NAME)
    assert count["Service"]  # the count looks at something
    return count


@pytest.mark.parametrize("name", NAMES)
def test_identifier_is_not_used_more(name: str, identifiers: Counter[str]) -> None:
    assert identifiers[name] <= NAMES[name]["left"], f"{name}: write {NAMES[name]['instead']}"
