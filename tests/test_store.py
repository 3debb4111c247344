"""What is stored is whole, durable, and refused as a whole when something goes wrong."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow.errors import ConfigError, Unavailable
from rainbow.jobs import JobState
from rainbow.store import Store, clusters, jobs, open_store, states
from rainbow.store.clusters import ClusterRecord
from rainbow.store.jobs import JobRecord
from rainbow.store.schema import metadata


@pytest.fixture
def store(database: str) -> Any:
    opened = open_store(database)
    yield opened
    opened.close()


def add_cluster(store: Store, key: str = "c1", name: str = "oak") -> None:
    with store.write() as connection:
        clusters.add(connection, ClusterRecord(key, name, "any", "node", 1.0, "load_based"), {"graph": {}})


def job(key: str, nodes: int = 1, **more: Any) -> JobRecord:
    return JobRecord(key, "", "me", "c1", "oak", nodes, 1.0, **more)


def test_migrations_on_an_empty_database_give_the_schema(store: Store) -> None:
    with store.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_open_store_a_second_time_keeps_what_is_there(store: Store) -> None:
    add_cluster(store)
    again = open_store(store.engine.url.render_as_string(hide_password=False))
    with again.read() as connection:
        assert clusters.find(connection, "oak") is not None
    again.close()


def test_every_connection_waits_for_the_disk_and_holds_foreign_keys(store: Store) -> None:
    if store.many_processes:
        with store.read() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        return
    with store.read() as connection:
        told = {p: connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("journal_mode", "synchronous")}
        assert told == {"journal_mode": "wal", "synchronous": 2}
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_write_that_raises_leaves_nothing(store: Store) -> None:
    oak = ClusterRecord("c1", "oak", "any", "node", 1.0, "load_based")

    def add_twice() -> None:
        with store.write() as connection:
            clusters.add(connection, oak, {})
            clusters.add(connection, oak, {})

    with pytest.raises(sa.exc.IntegrityError):
        add_twice()
    with store.read() as connection:
        assert clusters.every(connection) == []


def test_clock_counted_by_64_threads_loses_nothing(store: Store) -> None:
    add_cluster(store)

    def count() -> None:
        for _ in range(5):
            with store.write() as connection:
                clusters.tick(connection, "c1")

    threads = [threading.Thread(target=count) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as connection:
        assert next(iter(clusters.every(connection))).clock == 320


def test_open_store_of_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database " * 1000)
    with pytest.raises(ConfigError, match="not a database"):
        open_store(str(tmp_path / "x.db"))


def test_write_on_a_store_locked_by_another_process_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rainbow.store.sqlite.BUSY_SECONDS", 0.1)
    store = open_store(str(tmp_path / "x.db"))
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable), store.write():
        pass
    other.close()
    with store.write() as connection:
        clusters.add(connection, ClusterRecord("c1", "oak", "any", "node", 1.0, "load_based"), {})
    store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "://", "nonsense://x", "mysql://x"])
def test_open_store_of_what_does_not_last_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        open_store(url)


def test_cluster_removed_takes_everything_of_it_but_its_jobs(store: Store) -> None:
    add_cluster(store)
    with store.write() as connection:
        states.put(connection, "c1", {"nodes_free": 1}, 1.0)
        clusters.put_subsystem(connection, "c1", "io", {})
        jobs.add(connection, job("j1"), "text", {})
        clusters.remove(connection, "c1")
    with store.read() as connection:
        assert states.get(connection, ["c1"]) == {}
        assert clusters.graphs_of(connection, "c1") == {}
        assert jobs.get(connection, "j1") is not None


# ── booking ──

EVENTS = st.lists(st.tuples(st.sampled_from(["submit", "accept", "end", "report"]), st.integers(0, 7)), max_size=40)


@given(EVENTS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_booked_after_any_history_equals_counting_by_hand(tmp_path_factory: Any, events: list[Any]) -> None:
    """Two sums over clocks say the same as going through the history event by event."""
    store = open_store(str(tmp_path_factory.mktemp("booking") / "x.db"))
    add_cluster(store)
    known: dict[int, dict[str, Any]] = {}
    with store.write() as connection:
        states.put(connection, "c1", {"nodes_free": 0}, 0.0)
        for what, k in events:
            _happen(connection, known, what, k)
        expected = sum(_booking(seen) for seen in known.values())
        assert states.booked(connection, ["c1"]) == {"c1": expected}
    store.close()


def _happen(connection: sa.Connection, known: dict[int, dict[str, Any]], what: str, k: int) -> None:
    seen = known.get(k)
    if what == "submit" and seen is None:
        known[k] = {"nodes": k + 1, "accepted": False, "ended": False, "reported": None}
        jobs.add(connection, job(f"j{k}", k + 1), "", {})
    elif what == "accept" and seen and not (seen["accepted"] or seen["ended"]):
        seen["accepted"] = True
        jobs.change(connection, f"j{k}", accepted_clock=clusters.tick(connection, "c1"))
    elif what == "end" and seen and not seen["ended"]:
        seen["ended"] = True
        clock = clusters.tick(connection, "c1")
        jobs.change(connection, f"j{k}", state=JobState.COMPLETED, ended_clock=clock)
    elif what == "report":
        states.put(connection, "c1", {"nodes_free": 0}, 0.0)
        for each in known.values():
            each["reported"] = (each["accepted"], each["ended"])


def _booking(seen: dict[str, Any]) -> int:
    """What the cluster's last report does not say of one job: its nodes taken since, or given back since."""
    was_accepted, had_ended = seen["reported"] or (False, False)
    if seen["ended"]:
        return seen["nodes"] if was_accepted and not had_ended else 0
    return 0 if was_accepted else -seen["nodes"]
