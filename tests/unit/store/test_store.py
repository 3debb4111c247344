"""What is stored is whole, durable, and refused as a whole when something goes wrong."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from rainbow.errors import ConfigError, Unavailable
from rainbow.state_machine import JobState, Task
from rainbow.store import Store, cluster_states, clusters, credentials, jobs, open_store, tasks, workers
from rainbow.store.backup import backup, restore
from rainbow.store.clusters import ClusterRecord
from rainbow.store.engine import cause_of, open_engine
from rainbow.store.migrations.upgrade import configuration, newest
from rainbow.store.schema import metadata
from rainbow.store.step_lock import StepLocks
from tests.support.stores import add_cluster, job, schema_differences, store

__all__ = ["store"]  # fixtures


def test_migrations_on_an_empty_database_give_the_schema(store: Store) -> None:
    with store.read() as connection:
        assert schema_differences(store, connection) == []


def test_open_store_a_second_time_keeps_what_is_there(store: Store) -> None:
    add_cluster(store)
    again = open_store(store.engine.url.render_as_string(hide_password=False))
    with again.read() as connection:
        assert clusters.find(connection, "oak") is not None
    again.close()


def test_a_large_job_is_stored_by_a_few_statements_and_as_task_by_task(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 tasks stored one by one kept every other writer waiting for 5 s."""
    add_cluster(store)

    def new(key: str) -> list[Task]:
        free = [Task(f"{key}-{k}", key, k, k, f"free-{k}", retries_left=2, expected=1.5) for k in range(700)]
        gang = [Task(f"{key}-{k}", key, k, 700, f"gang-{k - 700}") for k in range(700, 1_400)]
        odd = [Task(f"{key}-{k}", key, k, 701 + k % 2, f"odd-{k}") for k in range(1_400, 1_500)]
        return [*free, *gang, *odd, Task(f"{key}-1500", key, 1_500, 900, "last")]

    statements, add = list[str](), tasks._ADD
    sa.event.listen(store.engine, "before_cursor_execute", lambda *answer: statements.append(answer[2]))
    monkeypatch.setattr(tasks, "_ADD", lambda *answer: statements.append("firsts") or add(*answer))
    for key, replicas in (("whole", tasks.REPLICAS), ("single", 10_000)):
        monkeypatch.setattr(tasks, "REPLICAS", replicas)
        with store.write() as connection:
            jobs.add(connection, job(key), "", {})
            statements.clear()
            tasks.add(connection, "c1", new(key))
            if key == "whole":
                copied = [each for each in statements if " SELECT " in " ".join(each.split())]
                assert statements.count("firsts") == 1, "with those that are not alike"
                assert len(copied) == 2, "each kind"
    with store.read() as connection:
        assert tasks.of_job(connection, "whole") == new("whole")
        assert tasks.of_job(connection, "single") == new("single")
        table = tasks.tasks
        rows = [
            connection.execute(sa.select(table).where(table.c.job == key).order_by(table.c.index)).all()
            for key in ("whole", "single")
        ]
    assert [row[4:] for row in rows[0]] == [row[4:] for row in rows[1]]


def test_files_of_a_store_are_for_their_owner_alone_and_those_there_keep_their_mode(tmp_path: Path) -> None:
    def modes(folder: Path) -> dict[str, int]:
        return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}

    before = os.umask(0o022)
    try:
        new, old = tmp_path / "new", tmp_path / "old"
        old.mkdir()
        (old / "r.db").touch(0o640)
        for folder in (new, old):
            opened = open_store(str(folder / "r.db"))
            turns = StepLocks(opened)
            assert turns.scheduling()
            add_cluster(opened)
            if folder is new:
                assert modes(new) == dict.fromkeys(
                    ("r.db", "r.db-wal", "r.db-shm", "r.db.scheduler", "r.db.id"), 0o600
                )
                backup(opened, tmp_path / "b.db")
            turns.close()
            opened.close()
        assert modes(old)["r.db"] == 0o640
        restore(tmp_path / "b.db", str(tmp_path / "again" / "r.db"))
        assert modes(tmp_path / "again") == {"r.db": 0o600}
    finally:
        os.umask(before)


def test_full_disk_is_called_by_its_name(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/r.db")

    def fill() -> None:
        with store.write() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
            connection.exec_driver_sql("CREATE TABLE more AS SELECT randomblob(1000000)")

    with pytest.raises(Unavailable, match="the disk of the database is full"):
        fill()
    store.close()


def test_trouble_keeps_what_the_database_said_without_the_statement(store: Store) -> None:
    full = sa.exc.OperationalError("UPDATE tasks", {"secret": 1}, Exception("database or disk is full"))
    with pytest.raises(Unavailable) as caught, store.write():
        raise full
    assert cause_of(caught.value) == "database or disk is full"
    assert cause_of(Unavailable("away")) == ""


def test_every_connection_waits_for_the_disk_and_holds_foreign_keys(store: Store) -> None:
    if store.many_processes:
        with store.read() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        return
    with store.read() as connection:
        answer = {p: connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("journal_mode", "synchronous")}
        assert answer == {"journal_mode": "wal", "synchronous": 2}
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
        cluster_states.put(connection, "c1", {"nodes_free": 1}, 1.0)
        clusters.put_subsystem(connection, "c1", "io", {})
        jobs.add(connection, job("j1"), "text", {})
        clusters.remove(connection, "c1")
    with store.read() as connection:
        assert cluster_states.get(connection, ["c1"]) == {}
        assert clusters.graphs_of(connection, "c1") == {}
        assert jobs.get(connection, "j1") is not None


def test_text_no_database_can_hold_is_stored_without_it(store: Store) -> None:
    with store.write() as connection:
        jobs.add(connection, job("j1", name="a\0b\ud800"), "text\0", {"why": "\0"})
    with store.read() as connection:
        result = jobs.get(connection, "j1")
        assert result is not None
        assert result.name == "a\ufffdb?"
        assert jobs.get(connection, "j1\0") is None


def test_history_forgets_what_ended_long_ago_and_nothing_that_is_needed(store: Store) -> None:
    add_cluster(store)
    with store.write() as connection:
        for key, ended in (("old", 10.0), ("new", 90.0), ("live", None)):
            state = JobState.COMPLETED if ended else JobState.RUNNING
            jobs.add(connection, job(key, state=state, ended_at=ended), "", {})
        assert jobs.has_older(connection, 50.0)
        assert jobs.forget(connection, 50.0, 10) == 1
        assert jobs.get(connection, "old") is None
        assert jobs.get(connection, "new") is not None
        assert jobs.get(connection, "live") is not None
        assert not jobs.has_older(connection, 50.0)


FIRST_VERSION = [
    "INSERT INTO clusters (id, name, document, levels, worker_type, revision, clock, policy, settings, memory,"
    " created_at) VALUES ('c1', 'oak', '{}', 'any', 'node', 1, 0, 'load_based', '{}', '{}', 1.0)",
    "INSERT INTO credentials (id, kind, hash, cluster_id, created_at) VALUES ('k', 'token', 'h', 'c1', 1)",
]


def test_store_of_the_first_version_keeps_its_credentials(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "old.db"))
    with engine.begin() as connection:
        command.upgrade(configuration(connection), "0001")
        for statement in FIRST_VERSION:
            connection.execute(sa.text(statement))
    engine.dispose()
    store = open_store(str(tmp_path / "old.db"))
    with store.read() as connection:
        [result] = credentials.some(connection, credentials.valid(connection, ["h"], 2.0))
        assert (result.clusters, result.kind) == (("c1",), "token")
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    store.close()


OF_0024 = [
    *FIRST_VERSION[:1],
    "INSERT INTO clusters (id, name, document, delta, levels, worker_type, revision, clock, policy, settings, memory,"
    """ created_at) VALUES ('c2', 'elm', '{"graph": {"nodes": {"c": {}}, "edges": []}}',"""
    """ '[{"op": "resize", "vertex": "c", "size": 2}]', 'any', 'node', 7, 0, 'load_based', '{}', '{}', 1.0)""",
    "INSERT INTO subsystems VALUES ('c2', 'io', '{}')",
    "INSERT INTO workers (cluster_id, name, state, since) VALUES ('c2', 'n0', 'READY', 1.0)",
]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_store_of_before_keeps_graphs_changes_and_all_that_refers_to_clusters(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        database = f"sqlite:///{tmp_path / 'old.db'}"
    else:
        database = request.getfixturevalue("postgres_server").new_empty_database()
    engine = open_engine(database)
    with engine.begin() as connection:
        command.upgrade(configuration(connection), "0024")
        for statement in OF_0024:
            connection.exec_driver_sql(statement)
    engine.dispose()
    store = open_store(database)
    with store.write() as connection:
        assert clusters.document(connection, "c1") == {}
        graph = {"nodes": {"c": {"metadata": {"size": 2}}}, "edges": []}
        assert clusters.document(connection, "c2") == {"graph": graph}
        clusters.add_delta(connection, "c2", [{"op": "resize", "vertex": "c", "size": 3}])
        assert clusters.document(connection, "c2")["graph"]["nodes"]["c"]["metadata"]["size"] == 3
        assert clusters.graphs_of(connection, "c2") == {"io": {}}
        assert [*workers.of_cluster(connection, "c2")] == ["n0"]
        assert schema_differences(store, connection) == []
        clusters.remove(connection, "c2")
        assert workers.of_cluster(connection, "c2") == {}  # keys hold again
    store.close()


def test_newest_migration_is_the_one_that_alembic_calls_head(tmp_path: Path) -> None:
    with open_engine(str(tmp_path / "any.db")).connect() as connection:
        assert ScriptDirectory.from_config(configuration(connection)).get_current_head() == newest()
