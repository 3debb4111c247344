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


def test_typed_are_the_commands_up_to_one() -> None:
    page = "```sh\nrainbow a \\\n    b\n```\nwords\n```sh\nrainbow c\nrainbow d\n```\n"
    assert newcomer.typed(page) == "rainbow a \\\n    b\nrainbow c\nrainbow d"
    assert newcomer.typed(page, until="rainbow d").endswith("rainbow c")
