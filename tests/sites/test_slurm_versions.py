"""What other releases of Slurm print is read row by row, and no odd row blinds the executor (contract 12)."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.agent.executors.interface import Final, Phase
from rainbow.agent.executors.slurm import status
from rainbow.agent.executors.slurm.site import Slurm

CASES = yaml.load(
    (Path(__file__).parents[1] / "cases" / "sites" / "slurm-versions.yaml").read_text(), yaml.CSafeLoader
)
RUN = ("t", 1)


@pytest.fixture(params=CASES, ids=lambda case: str(case["version"]))
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


def told(finals: dict[str, Final]) -> dict[str, list[Any]]:
    ends = {job: status.ended(RUN, job, final, ours=False) for job, final in finals.items()}
    return {job: [str(end.result), end.exit_code] for job, end in ends.items()}


def test_rows_of_squeue_are_read_and_odd_ones_are_named(case: dict[str, Any]) -> None:
    rows, odd = Slurm().jobs(()).read(case["jobs"]["text"])
    assert {job: str(row.phase) for job, row in rows.items()} == case["jobs"]["phases"]
    assert odd == case["jobs"]["odd"]
    kinds = {job: status.class_of(rows[job].reason)[0] for job in case["jobs"]["classes"]}
    assert kinds == case["jobs"]["classes"]
    waits = [status.waiting(row, {}, "") for row in rows.values() if row.phase is Phase.WAITING]
    assert [why for why in waits if not why.text or len(why.code) > 100] == []


def test_ends_are_read_whatever_names_comments_and_command_lines_hold(case: dict[str, Any]) -> None:
    assert told(Slurm().over().read(case["records"]["text"])) == case["records"]["ends"]
    assert told(status.read_accounted(case["accounted"]["text"])) == case["accounted"]["ends"]


def test_what_selection_reads_is_read_or_unknown(case: dict[str, Any]) -> None:
    assert list(Slurm().cores().read(case["cores"]["text"])) == case["cores"]["counts"]
    assert status.backlog(case["backlog"]["text"]) == (case["backlog"]["jobs"], case["backlog"]["seconds"])
    said, seconds = case["planned"]["text"], case["planned"]["seconds"]
    result = status.PLANNED.search(said)
    now = datetime.fromisoformat(result[1]) - timedelta(seconds=seconds) if result else datetime(2024, 1, 1)
    answer = status.planned(said, now)  # cores, and seconds until then
    assert (answer and answer[1]) == seconds
