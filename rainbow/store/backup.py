"""Backup while the server works, and restore.

A backup is a SQLite file with the same tables, whichever database it was taken from; it shows one moment of the
store. It can be restored into either kind, which is also the way from SQLite to PostgreSQL.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import sqlalchemy as sa

from rainbow.errors import ConfigError, Conflict
from rainbow.store import workers  # noqa: F401 - its table is among those of `metadata`
from rainbow.store.accounts import tables  # noqa: F401 - so are these
from rainbow.store.engine import Store, file_of, open_store
from rainbow.store.migrations.upgrade import is_as_here
from rainbow.store.names import numbers
from rainbow.store.schema import metadata

ROWS = 500  # in one insert


def backup(store: Store, file: Path) -> None:
    """Write the store's present moment to a file for its owner alone; there is no half a file at any time."""
    draft = file.with_name(f"{file.name}.part")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        if store.engine.dialect.name == "sqlite":
            _copy_file(str(store.engine.url.database), draft)
        elif is_as_here(store.engine):
            _copy_rows(store, draft)
        else:
            raise Conflict("the tables are of another version of rainbow: back up with that, or upgrade them first")
        _to_disk(draft)
        draft.replace(file)
    finally:
        for remaining in (draft, *(Path(f"{draft}-{kind}") for kind in ("wal", "shm"))):
            remaining.unlink(missing_ok=True)


def restore(file: Path, url: str) -> None:
    """Fill an empty database from a backup; numbers of jobs continue above those given since it was made."""
    if not file.is_file():
        raise ConfigError(f"file {file} not found")
    target, into = open_store(url, replaces=True), file_of(url)
    try:
        with TemporaryDirectory(dir=into and into.absolute().parent) as folder:
            source = _upgraded(file, Path(folder) / file.name)
            try:
                _copy(source, target)
                with target.write() as connection:
                    numbers.after_restore(connection)
            finally:
                source.close()
    finally:
        target.close()


def _upgraded(file: Path, copy: Path) -> Store:
    """Open a copy of a backup: the backup itself stays of its version, and may be one that this user only reads."""
    try:
        _copy_file(str(file), copy)
    except sqlite3.DatabaseError as fault:
        raise ConfigError(f"{file} is not a database") from fault
    return open_store(str(copy))


def _copy_file(database: str, draft: Path) -> None:
    with (
        closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as here,
        closing(sqlite3.connect(draft)) as there,
    ):
        here.backup(there)
        there.execute("PRAGMA journal_mode=DELETE")


def _copy_rows(store: Store, draft: Path) -> None:
    target = open_store(str(draft))
    try:
        _copy(store, target)
        with target.engine.connect() as connection:
            connection.connection.driver_connection.execute("PRAGMA journal_mode=DELETE")  # type: ignore[union-attr]
    finally:
        target.close()


def _copy(source: Store, target: Store) -> None:
    with source.read() as reading, target.write() as writing:
        if any(writing.execute(sa.select(table).limit(1)).first() for table in metadata.sorted_tables):
            raise Conflict("cannot restore: the database is not empty")
        for table in metadata.sorted_tables:
            rows = reading.execute(sa.select(table), execution_options={"yield_per": ROWS})
            for some in rows.partitions(ROWS):
                writing.execute(table.insert(), [dict(row._mapping) for row in some])
        if target.engine.dialect.name == "postgresql":
            _go_on_counting(writing)


def _go_on_counting(connection: sa.Connection) -> None:
    """Let new rows be numbered after those that were copied."""
    for table in metadata.sorted_tables:
        column = table.autoincrement_column
        last = None if column is None else connection.execute(sa.select(sa.func.max(column))).scalar()
        if column is not None and last:
            named = {"of": table.name, "column": column.name, "last": last}
            connection.execute(sa.text("SELECT setval(pg_get_serial_sequence(:of, :column), :last)"), named)


def _to_disk(path: Path) -> None:
    for each in (path, path.absolute().parent):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
