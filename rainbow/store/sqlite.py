"""SQLite: a file, every write waits for the disk, BEGIN IMMEDIATE keeps another process's writer at the door.

Jobspecs, environments and outputs are in it, so it is made for its owner alone. What SQLite lays beside it (-wal,
-shm) gets the mode of the file. A file that is there keeps its mode; `rainbow doctor` warns if others may read it.

Beside a FILE that holds clusters there is FILE.id, which says how many. A file that is empty or not there beside it
is not a new store: its content is lost.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rainbow.errors import ConfigError, NotFound
from rainbow.text import some

BUSY_SECONDS = 30
# a writer and every reader of the server's threads at once, without waiting for a connection
POOL_SIZE = 80
CUT = 500  # pages cut off the file at once, a few milliseconds
DAY = sa.text("SELECT (julianday('now') - 2440587.5) * 86400.0")  # the machine's
WRITING = "rainbow_writing"
LOOKING = "rainbow_looking"
DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
STEPS = 10_000  # of SQLite's machine between two looks at the time
RESTORE = "restore a backup with rainbow db restore"


def engine(url: sa.URL, *, existing: bool = False) -> sa.Engine:
    """Return what connects to the file `url` names; NotFound if it must be there and is not."""
    if not url.database or url.database == ":memory:":
        raise ConfigError("in-memory databases are not supported: use a file, so that data survives a restart")
    file = Path(url.database)
    if existing and not file.exists():
        raise NotFound(f"database file {file} not found; check --database, RAINBOW_DATABASE or --config")
    try:
        file.absolute().parent.mkdir(parents=True, exist_ok=True)
        make_private(file)
    except OSError as fault:
        raise ConfigError(
            f"cannot make database file {file}: {fault.strerror}; choose another with --database"
        ) from fault
    made = sa.create_engine(url, poolclass=sa.QueuePool, pool_size=POOL_SIZE, connect_args={"timeout": BUSY_SECONDS})
    sa.event.listen(made, "connect", _set_up)
    sa.event.listen(made, "begin", _begin)
    return made


def make_private(file: Path) -> None:
    """Make an empty file for its owner alone, if there is none."""
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _set_up(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself: _begin does
    for pragma in ("auto_vacuum=INCREMENTAL", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


@contextmanager
def without_keys(engine: sa.Engine) -> Iterator[None]:
    """Let tables be made again: where foreign keys hold, a table that goes takes with it all that refers to it."""

    def switch(connection: Any, *_: Any) -> None:
        connection.execute("PRAGMA foreign_keys=OFF")

    sa.event.listen(engine, "checkout", switch)
    try:
        yield
    finally:
        sa.event.remove(engine, "checkout", switch)
        engine.dispose()


def check_before_commit(_connection: sa.Connection) -> None:
    """Let every COMMIT be tried: there is no line to a file that could be lost."""


def is_in_doubt(error: Exception) -> bool:
    """Return whether a COMMIT that failed so may still come true.

    Where the disk fails in the middle, the whole transaction may stand in the write-ahead log, and is found there
    after a crash.
    """
    return str(getattr(getattr(error, "orig", None), "sqlite_errorname", "")).startswith("SQLITE_IOERR")


def shrink(connection: sa.Connection) -> None:
    """Cut some pages off the file, in a transaction of its own, when an eighth of it is free."""
    free, pages = (connection.exec_driver_sql(f"PRAGMA {what}_count").scalar_one() for what in ("freelist", "page"))
    if free * 8 > pages:
        driver: Any = connection.connection.driver_connection
        driver.executescript(f"PRAGMA incremental_vacuum({CUT})")  # `execute` would cut one page


def _begin(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    if not options.get(LOOKING):
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(WRITING) else "BEGIN")


def refuse_emptied(file: Path) -> None:
    """Raise ConfigError if a store has lost all of its content, or all its clusters as with a damaged FILE-wal.

    A server that is killed may have deleted the last cluster without noting it: one that is missing is no loss.
    """
    if not has_held_clusters(file):
        return
    if not (file.exists() and file.stat().st_size):
        raise _lost(file, "is empty" if file.exists() else "is gone")
    if _held(file) > 1 and not _has_clusters(file):
        raise _lost(file, "holds no clusters")


def _has_clusters(file: Path) -> bool:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute("SELECT 1 FROM clusters LIMIT 1").fetchone() is not None
        except sqlite3.DatabaseError as error:  # what else is wrong with it others say
            return not str(error).startswith("no such table")


def _held(file: Path) -> int:
    """Return how many clusters a store held when it was last noted; 0 where nothing can be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads(_mark(file).read_text())["clusters"])
    return 0


def _lost(file: Path, how: str) -> ConfigError:
    count = _held(file)
    held = some(count, "cluster") if count else "clusters"
    text = f"it held {held}: restore it, or delete {_mark(file).name} to begin with a new store"
    return ConfigError(f"store {file} {how}; {text}")


def has_held_clusters(file: Path) -> bool:
    """Return whether a store of this name has held clusters, there or not."""
    return _mark(file).exists()


def remember_clusters(file: Path, count: int) -> None:
    """Say beside a store how many clusters it holds."""
    mark = _mark(file)
    if count == 0:
        mark.unlink(missing_ok=True)
        return
    draft = mark.with_name(f"{mark.name}.part")
    draft.unlink(missing_ok=True)
    make_private(draft)
    draft.write_text(json.dumps({"clusters": count}))
    os.replace(draft, mark)


def check_file(file: Path, seconds: float | None = None) -> bool:
    """Look at the whole store; return whether `seconds` were enough. ConfigError: it is damaged."""
    end = None if seconds is None else time.monotonic() + seconds
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        connection.set_progress_handler(lambda: end is not None and time.monotonic() > end, STEPS)
        try:
            result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname == "SQLITE_INTERRUPT":
                return False
            raise ConfigError(described(str(file), str(error))) from error
        except sqlite3.DatabaseError as error:
            if not error.sqlite_errorname.startswith(DAMAGED):
                raise
            was_store = _mark(file).exists() or error.sqlite_errorname != "SQLITE_NOTADB"
            words = described(str(file), str(error)) if was_store else f"{file} is not a database"
            raise ConfigError(words) from error
    if result != "ok":
        raise ConfigError(described(str(file), result.splitlines()[-1]))
    return True


def described(name: str, reason: str) -> str:
    """Say that a store is damaged, and what helps."""
    return f"store {name} is damaged: {reason}; {RESTORE}"


def _mark(file: Path) -> Path:
    return file.with_name(f"{file.name}.id")
