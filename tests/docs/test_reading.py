"""The pages read as they should, or better than they did: tests/cases/reading.yaml holds the figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.docs.test_words import ROOT, reading

LIMITS = yaml.safe_load((ROOT / "tests" / "cases" / "reading.yaml").read_text())
QUESTIONS = yaml.safe_load((ROOT / "tests" / "reading" / "questions.yaml").read_text())
LOW = {"you", "prose"}  # more of these is better


@pytest.fixture(scope="module")
def whole() -> dict[str, float]:
    return reading.whole()


@pytest.mark.parametrize("key", LIMITS)
def test_all_pages_read_no_worse_than_before(key: str, whole: dict[str, float]) -> None:
    limit = LIMITS[key]["all"]
    assert whole[key] >= limit if key in LOW else whole[key] <= limit


@pytest.mark.parametrize("key", [key for key in LIMITS if "pages" in LIMITS[key]])
def test_no_further_page_is_worse_than_twice_the_aim(key: str) -> None:
    texts, aim = reading.pages(), LIMITS[key]["aim"]
    guides = reading.guides(texts["index.md"])
    figures = {name: reading.measure([text]).figures()[key] for name, text in texts.items()}
    worse = {name for name, is_ in figures.items() if (is_ < aim / 2 if key in LOW else is_ > 2 * aim)}
    assert len(worse & guides if key == "prose" else worse) <= LIMITS[key]["pages"], sorted(worse)


def test_limits_are_no_stricter_than_the_aims() -> None:
    """Then the aim is reached, and its figure is the limit."""
    for key, limit in LIMITS.items():
        assert limit["all"] <= limit["aim"] if key in LOW else limit["all"] >= limit["aim"], key


def test_measures_are_those_of_a_text_counted_by_hand() -> None:
    page = """# A title; not counted

You write a job; the server keeps it. What it keeps is safe.

```sh
nothing; here; counts
```

- One thing: two things: three things.
"""
    result = reading.measure([page])
    assert (result.sentences, result.words, result.semicolons, result.you) == (3, 19, 1, 1)
    assert result.abstract == ["What it keeps is safe."]
    assert result.crammed == ["One thing: two things: three things."]


@pytest.mark.parametrize("name", [name for name in reading.pages() if name != "README.md"])
def test_page_begins_with_who_it_is_for_and_what_they_will_have(name: str) -> None:
    _, first = reading.pages()[name].split("\n\n")[:2]
    assert re.match(r"(This (guide|page|tutorial) is|These pages are) for ", first), first
    assert re.search(r"\b(you|your)\b|At the end", first, re.I), first
    assert len(list(reading.sentences(first))) >= 2, first


def places(text: str) -> Iterator[str]:
    """Yield each paragraph, list, row of a table, and block with the paragraph before it."""
    before = ""
    for part in re.split(r"(?ms)(^```.*?^```\s*$)", text):
        if part.startswith("```"):
            yield f"{before}\n{part}"
            continue
        for block in re.split(r"\n\s*\n", part):
            yield from block.splitlines() if block.lstrip().startswith("|") else [block]
            before = block or before


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked["question"])
def test_question_is_answered_in_one_place_of_its_page(asked: dict[str, Any]) -> None:
    text = reading.pages()[asked["page"]]
    results = [" ".join(place.split()) for place in places(text)]
    assert any(all(re.search(fact, place, re.I) for fact in asked["facts"]) for place in results), asked["answer"]


def test_there_are_thirty_questions() -> None:
    assert len({request["question"] for request in QUESTIONS}) == len(QUESTIONS) == 30
