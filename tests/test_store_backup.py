"""A backup is one moment, and is restored into either kind of store."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import Conflict
from rainbow.store import Store, cluster_states, events, jobs, open_store
from rainbow.store.backup import backup, restore
from rainbow.store.schema import metadata
from tests.stores import add_cluster, job, store

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
        found = [connection.execute(t.select().order_by(*t.primary_key)).all() for t in metadata.sorted_tables]
    return [[tuple(row) for row in each] for each in found]


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
