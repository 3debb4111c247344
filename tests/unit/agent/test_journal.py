"""The agent's journal: what was known before a kill is known after it, and told or ended."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from rainbow.agent import Ended, Result, Run, open_executor
from rainbow.agent.journal import Journal, faults_named, take_folder
from rainbow.agent.messages import ended
from rainbow.client.responses import Event
from rainbow.errors import ConfigError, Unavailable
from tests.support.agent_sites import PATH, Watched
from tests.support.told import ClusterForecast, offer, run_for, said


def test_two_agents_of_one_cluster_and_machine_have_each_its_own_folder(tmp_path: Path) -> None:
    one, lock = take_folder(tmp_path, "oak")
    two, other = take_folder(tmp_path, "oak")
    assert (one.name, two.name) == ("oak", "oak-2")
    os.close(lock)
    assert take_folder(tmp_path, "oak")[0] == one
    os.close(other)


def test_a_journal_opened_again_says_the_same_and_counts_on(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.keep([offer("a"), offer("b"), offer("c")])
    first.start(("b", 1))
    first.start(("c", 1))
    first.tell({"task": "b", "attempt": 1, "event": "started"})
    first.tell(ended(Ended(("c", 1), Result.EXITED, 0)))
    number = first.next_number()
    again = Journal(tmp_path)
    assert (again.id, list(again.offers), again.starting) == (first.id, [("a", 1)], {("b", 1)})
    assert again.outbox == first.outbox
    assert [event["event"] for event in again.outbox] == ["started", "ended"]
    assert again.next_number() > number
    again.drop_first(1)
    assert [event["event"] for event in Journal(tmp_path).outbox] == ["ended"]


def test_a_journal_is_whole_after_every_change(tmp_path: Path) -> None:
    Journal(tmp_path).tell(ended(Ended(("c", 1), Result.EXITED, 0, "\N{SNOWMAN}")))
    read = sqlite3.connect(tmp_path / "agent.db").execute("SELECT event FROM outbox").fetchall()
    assert len(read) == 1


def test_events_not_told_before_the_kill_are_told_after_it(tmp_path: Path) -> None:
    Journal(tmp_path).tell(ended(Ended(("t", 1), Result.EXITED, 0)))
    forecast = ClusterForecast()
    run_for(forecast, 0.7, Watched(), Journal(tmp_path))
    assert said(forecast) == [("t", "exited")]


def test_a_journal_that_cannot_be_written_or_read_says_what_to_do(tmp_path: Path) -> None:
    full = Journal(tmp_path)
    full._db.execute("PRAGMA max_page_count = 1")  # what a full disk is to SQLite
    event: Event = {"task": "a", "attempt": 1, "event": "started", "detail": "x" * 10_000}
    with pytest.raises(Unavailable, match=r"database or disk is full; mend that, and start"), faults_named(tmp_path):
        full.tell(event)
    full.close()
    (tmp_path / "agent.db").write_bytes(b"no database" * 1000)
    with pytest.raises(ConfigError, match=r"is damaged: file is not a database; move"), faults_named(tmp_path):
        Journal(tmp_path)


def test_an_offer_not_accepted_before_the_kill_is_accepted_and_started_after_it(tmp_path: Path) -> None:
    Journal(tmp_path).keep([offer("a"), offer("b")])
    forecast, watched = (
        ClusterForecast(accept={"accepted": ["a"], "refused": [{"id": "b", "reason": "gone"}]}),
        Watched(),
    )
    run_for(forecast, 0.7, watched, Journal(tmp_path))
    assert watched.started == [("a", 1)]
    assert Journal(tmp_path).offers == {}


def test_what_was_about_to_start_and_is_not_known_is_told_as_lost(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.keep([offer("a")])
    first.start(("a", 1))
    forecast, watched = ClusterForecast(), Watched()
    run_for(forecast, 0.7, watched, Journal(tmp_path))
    assert (said(forecast), watched.started) == ([("a", "lost")], [])


def test_what_runs_and_is_in_no_journal_is_stopped(tmp_path: Path) -> None:
    executor = open_executor("local", PATH)
    executor.start(Run(("x", 1), "j", ("sleep", "63")))
    forecast = ClusterForecast()
    run_for(forecast, 0.7, executor, Journal(tmp_path))
    assert said(forecast) == []
