"""A backup is one moment, and is restored into either kind of store."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rainbow.cli.main import main
from rainbow.errors import ConfigError, Conflict
from rainbow.store import Store, cluster_states, events, jobs, open_store
from rainbow.store.backup import backup, restore
from rainbow.store.schema import metadata
from tests.support.stores import add_cluster, job, store

__all__ = ["store"]  # fixtures


def filled(store: Store) -> list[Any]:
    add_cluster(store)
    with store.write() as connection:
        cluster_states.put(connection, "c1", {"nodes_free": 1}, 1.0)
        jobs.add(connection, job("j1"), "text ü \U0001f600", {"why": [1, None]})
        events.add(connection, 2.0, "c1", "job", job="j1")
    return rows(store)


def rows(store: Store) -> list[Any]:
    with store.read() as connection:
        results = [connection.execute(t.select().order_by(*t.primary_key)).all() for t in metadata.sorted_tables]
    return [[tuple(row) for row in each] for each in results]


def test_backup_is_restored_into_either_kind_of_store(
    store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    before = filled(store)
    file = tmp_path / "backup.db"
    backup(store, file)
    assert file.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.glob("backup*")] == ["backup.db"]
    urls = [f"sqlite:///{tmp_path}/restored.db"]
    if store.many_processes:
        urls.append(request.getfixturevalue("postgres_server").new_database())
    for url in urls:
        restore(file, url)
        again = open_store(url)
        assert rows(again) == before
        with again.write() as connection:
            events.add(connection, 3.0, "c1", "job", job="j1")
        assert events_of(again) == [1, 2]
        again.close()
        with pytest.raises(Conflict):
            restore(file, url)


def events_of(store: Store) -> list[int]:
    with store.read() as connection:
        return [event.number for event in events.after(connection, 0, None)]


def test_backup_while_others_write_is_one_moment(store: Store, tmp_path: Path) -> None:
    add_cluster(store)
    stop = threading.Event()

    def write() -> None:
        k = 0
        while not stop.is_set():
            with store.write() as connection:
                jobs.add(connection, job(f"j{k:05}"), "", {})
                events.add(connection, 1.0, "c1", "job", job=f"j{k:05}")
            k += 1

    writer = threading.Thread(target=write)
    writer.start()
    threading.Event().wait(0.3)
    backup(store, tmp_path / "b.db")
    stop.set()
    writer.join()
    copy = open_store(str(tmp_path / "b.db"))
    with copy.read() as connection:
        assert len(jobs.live(connection, "c1")) == len(events.after(connection, 0, None, 100_000)) > 0
    copy.close()


CASES = Path(__file__).parents[2] / "cases" / "former"


def former(folder: Path) -> Path:
    """Return a database that an older version wrote, and whose server may be at work."""
    with closing(sqlite3.connect(folder / "former.db")) as database:
        database.executescript((CASES / "store.sql").read_text())
    return folder / "former.db"


def revision(file: Path) -> str:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        return str(database.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def test_what_copies_or_checks_a_store_of_before_leaves_its_tables(tmp_path: Path) -> None:
    url, copy = f"sqlite:///{former(tmp_path)}", tmp_path / "copy.db"
    before = revision(tmp_path / "former.db")
    for words in (["doctor"], ["db", "backup", str(copy)]):
        assert CliRunner().invoke(main, [*words, "--database", url]).exit_code == 0
    assert {revision(tmp_path / "former.db"), revision(copy)} == {before}
    written = copy.read_bytes()
    restore(copy, str(tmp_path / "again.db"))
    assert copy.read_bytes() == written
    assert revision(tmp_path / "again.db") > before
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_store_of_a_newer_version_is_named_so(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    open_store(str(file)).close()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999', compatible_from = '9999'")
    for opening in (lambda: open_store(str(file)), lambda: restore(file, str(tmp_path / "other.db"))):
        with pytest.raises(ConfigError, match="is of a newer version of rainbow"):
            opening()
