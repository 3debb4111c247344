"""A store that was emptied, deleted, cut or overwritten is named, and nothing is begun in its place."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from rainbow.cli.main import main
from rainbow.errors import ConfigError
from rainbow.service import Settings
from rainbow.service.core.readiness import Readiness
from rainbow.service.core.service import check_service, open_service
from rainbow.store import open_store, sqlite
from rainbow.store.backup import backup, restore
from tests.support.stores import add_cluster


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store of some clusters, closed."""
    file = tmp_path / "s.db"
    store = open_store(str(file))
    for number in range(12):
        add_cluster(store, f"c{number}", f"oak{number}")
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    return file


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 8192 * 4096)


def zeroed(file: Path, first: int = 20) -> None:
    with file.open("r+b") as pages:
        pages.seek(first * 4096)
        pages.write(bytes(40 * 4096))


def zeroed_from_the_start(file: Path) -> None:
    zeroed(file, 0)


def cleared(file: Path) -> None:
    with closing(sqlite3.connect(file)) as store, store:
        store.execute("DELETE FROM clusters")


def dropped(file: Path) -> None:
    """Lose the tables with FILE-wal, before any of it was written into FILE."""
    with closing(sqlite3.connect(file)) as store, store:
        store.execute("DROP TABLE clusters")


DAMAGES = [
    (cleared, "store {} holds no clusters; it held 12 clusters: restore it, or delete s.db.id to begin with a new"),
    (dropped, "store {} holds no clusters; it held 12 clusters"),
    (emptied, "store {} is empty; it held 12 clusters: restore it, or delete s.db.id to begin with a new store"),
    (Path.unlink, "store {} is gone; it held 12 clusters: restore it, or delete s.db.id to begin with a new store"),
    (cut, "store {} is damaged: "),
    (zeroed, "store {} is damaged: "),
    (zeroed_from_the_start, "store {} is damaged: file is not a database; restore a backup"),
]


@pytest.mark.parametrize(("harm", "words"), DAMAGES)
def test_damage_is_named_by_the_server_and_by_doctor(file: Path, harm: Callable[[Path], None], words: str) -> None:
    harm(file)
    with pytest.raises(ConfigError) as raised:
        check_service(str(file), Settings())
    assert str(raised.value).startswith(words.format(file))
    shell = CliRunner().invoke(main, ["doctor", "--database", str(file), "-o", "json"])
    assert shell.exit_code == 1
    assert words.format(file).split("; ")[0] in shell.output.replace("\n", " ")
    assert "Traceback" not in shell.output


def test_whole_store_is_opened_and_a_new_one_begun(file: Path, tmp_path: Path) -> None:
    open_service(str(file), Settings()).close()
    open_service(str(tmp_path / "new.db"), Settings()).close()
    assert not (tmp_path / "new.db.id").exists(), "it holds nothing that could be lost"


def test_an_emptied_store_can_be_restored_or_begun_anew(file: Path, tmp_path: Path) -> None:
    store = open_store(str(file))
    backup(store, tmp_path / "backup.db")
    store.close()
    for path in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        path.unlink(missing_ok=True)
    restore(tmp_path / "backup.db", str(file))
    open_service(str(file), Settings()).close()
    file.unlink()
    Path(f"{file}.id").unlink()
    open_service(str(file), Settings()).close()


def test_a_look_that_takes_too_long_is_cut_off_and_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "STEPS", 1)
    assert sqlite.check_file(file, -1.0) is False
    assert sqlite.check_file(file) is True


def test_what_was_looked_at_before_serving_is_not_looked_at_again(file: Path) -> None:
    assert check_service(str(file), Settings()) is True
    with closing(sqlite3.connect(file)) as store:
        [(page,)] = store.execute("SELECT rootpage FROM sqlite_master WHERE name = 'audit'")
    with file.open("r+b") as pages:  # a page that no start reads
        pages.seek((page - 1) * 4096)
        pages.write(bytes(4096))
    with pytest.raises(ConfigError):
        open_service(str(file), Settings())
    open_service(str(file), Settings(), is_sound=True).close()
    service = open_service(str(file), Settings(), is_sound=False)  # a large one: the rest is looked at meanwhile
    readiness = service.state(Readiness)
    for _ in range(600):
        if readiness.damage:
            break
        time.sleep(0.05)
    service.close()
    assert readiness.damage.startswith(f"store {file} is damaged: ")
