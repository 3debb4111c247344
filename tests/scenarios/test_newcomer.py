"""A newcomer arrives by each page alone, in the time it may take."""

from __future__ import annotations

import contextlib

import pytest

from tests.support import newcomer
from tests.support.slurm import slurm


@pytest.mark.soak
@pytest.mark.timeout(2 * newcomer.PATIENCE)
@pytest.mark.parametrize("name", newcomer.JOURNEYS)
def test_newcomer_arrives_by_the_page_alone(name: str) -> None:
    journey = newcomer.JOURNEYS[name]
    with slurm() if "Slurm" in name else contextlib.nullcontext() as site:
        seconds, printed = newcomer.walk(journey, site)
    assert seconds <= journey.limit, printed


def test_typed_are_the_commands_with_their_files_and_continued_lines() -> None:
    page = "```console\n$ cat a.yaml\nx: 1\n$ rainbow a \\\n    b\nshown\n```\nwords\n```console\n$ rainbow c\n```\n"
    assert newcomer.typed(page) == "cat > a.yaml <<'SHOWN'\nx: 1\nSHOWN\nrainbow a \\\n    b\nrainbow c"
    assert newcomer.typed(page, until="$ rainbow c").endswith("    b")
