"""Histories are recorded of real processes, and every rule holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.history import patroni
from tests.history.record import judged, main, record
from tests.support import services

SECONDS = float(os.environ.get("RAINBOW_HISTORY_SECONDS", "60"))


def test_short_history_of_sqlite_every_rule_holds(tmp_path: Path) -> None:
    file = record("sqlite", 3, 7, ["kill", "pause", "cut"], tmp_path / "history.jsonl", acts=2)
    code, text = judged(file)
    assert code == 0, text


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("topology", ["sqlite", "postgresql", "patroni", "router"])
def test_a_minute_with_every_nemesis_every_rule_holds(topology: str, tmp_path: Path) -> None:
    if topology == "postgresql":
        services.require("PostgreSQL")
    kinds = ["kill", "pause", "cut", "clock", "neighbors"]
    if topology == "patroni":
        patroni.require()
        kinds = ["kill", "pause", "cut", "clock", "full", "failover"]
    code, text = judged(record(topology, SECONDS, 1, kinds, tmp_path / "history.jsonl"))
    assert code == 0, text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nemesis", "failover"], "failover needs STORE=patroni; the topology is sqlite"),
        (["--nemesis", "pg", "--store", "sqlite"], "pg needs STORE=postgresql; the topology is sqlite"),
        (["--nemesis", "quake"], "nemesis quake not found; there are kill, "),
        (["--store", "oracle"], "store oracle not found; there are sqlite, postgresql, patroni, router, all"),
    ],
)
def test_nemesis_or_store_that_there_is_not_is_refused_in_words(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
