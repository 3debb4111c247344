"""Each of the 196 statements of the founding texts holds for somebody who has only the doors.

Each scenario of a text (tests/support/founding/) is lived through once, at a server under a moved clock.
What a row expects of the answers is data: tests/cases/founding/.
"""

from __future__ import annotations

import copy
import re
from functools import cache, partial

import pytest

from tests.support.founding.door import NOW, Door
from tests.support.founding.rows import (
    BEGIN,
    END,
    PAGE,
    ROOT,
    TEXTS,
    config_of,
    page,
    rows_of,
    scenarios_of,
    unexpected,
)
from tests.support.moved_server import moved_server

ROWS = [pytest.param(text, row, id=f"{row['row']:03}") for text in TEXTS for row in rows_of(text)]


@cache
def lived_through(text, name):
    """Return what a scenario's user has seen; rows that speak of one scenario share it, in whatever order."""
    with moved_server(config_of(text), NOW, alone=False) as server:
        return scenarios_of(text)[name](Door(server.port))


@pytest.mark.parametrize(("text", "row"), ROWS)
def test_row(text, row):
    assert list(unexpected(row, partial(lived_through, text))) == []


def test_the_rows_are_those_of_the_texts():
    assert [row["row"] for text in TEXTS for row in rows_of(text)] == list(range(1, 197))


@pytest.mark.parametrize("text", TEXTS)
def test_a_row_whose_expectation_is_false_fails(text):
    """Every expected value of every row of a text, falsified, is noticed."""
    for row in rows_of(text):
        for path, requirement in row["expect"].items():
            wrong = copy.deepcopy(row)
            wrong["expect"] = {path: _falsified(requirement)}
            assert list(unexpected(wrong, partial(lived_through, text))), f"row {row['row']}: {path} fits anything"


def _falsified(requirement):
    if isinstance(requirement, str):
        return f"{requirement}!"
    if isinstance(requirement, bool) or requirement is None:
        return not requirement
    if isinstance(requirement, (int, float)):
        return requirement + 1
    if isinstance(requirement, list):
        return [*requirement[:-1], _falsified(requirement[-1])] if requirement else ["something"]
    *others, last = requirement
    return {**{key: requirement[key] for key in others}, last: _falsified(requirement[last])}


def test_mapping_is_made_from_the_rows():
    text = PAGE.read_text()
    assert text[text.index(BEGIN) : text.index(END) + len(END)] == page(), "run python -m tests.support.founding.rows"


def _anchors(path):
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("text", TEXTS)
def test_links_of_the_rows_lead_somewhere(text):
    for row in rows_of(text):
        assert (ROOT / row["here"]).is_file(), row
        for link in filter(None, (row["docs"], row.get("record"))):
            file, _, anchor = link.partition("#")
            assert (ROOT / file).is_file(), row
            assert not anchor or anchor in _anchors(ROOT / file), row
