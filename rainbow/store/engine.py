"""Opening the database, reading from it and writing to it.

SQLite has one writer at a time. Its own way of saying so is "database is locked" after a wait; with 64 threads
that wait has no order and no end. So writers of this process queue at one lock, and every write begins with
BEGIN IMMEDIATE, which makes another process's writer wait at the door instead of failing half way.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rainbow.errors import ConfigError, Unavailable
from rainbow.store.migrate import upgrade

BUSY_SECONDS = 30
# a writer and every reader of the server's threads at once, without waiting for a connection
POOL_SIZE = 80
_WRITING = "rainbow_writing"


class Store:
    """One database. `read()` and `write()` give a connection inside a transaction.

    A write is durable when its block is left; an exception inside the block leaves nothing of it.
    Unavailable is raised when the database cannot be reached, is full or does not answer in time.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self._one_writer = threading.RLock() if engine.dialect.name == "sqlite" else nullcontext()

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Give a connection that sees one snapshot."""
        with _trouble_as_unavailable(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Give the one writing connection; commit at the end."""
        with _trouble_as_unavailable(), self._one_writer, self.engine.connect() as connection:
            connection = connection.execution_options(**{_WRITING: True})
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def open_store(url: str) -> Store:
    """Open the database at `url` (a path means SQLite), bring its tables up to date and return it."""
    engine = _engine(url if "://" in url else f"sqlite:///{url}")
    with _trouble_as_unavailable():
        try:
            upgrade(engine)
        except sa.exc.OperationalError:
            raise
        except sa.exc.DatabaseError as error:  # it answers, and not as a database
            raise ConfigError(f"{engine.url.database} is not a database") from error
    return Store(engine)


def _engine(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise ConfigError("the database must be given as a path or a URL, like sqlite:///rainbow.db") from error
    if parsed.get_backend_name() != "sqlite":
        return _other_engine(parsed)
    if not parsed.database or parsed.database == ":memory:":
        raise ConfigError("the database must be a file: what is only in memory does not survive a restart")
    Path(parsed.database).absolute().parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        parsed, poolclass=sa.QueuePool, pool_size=POOL_SIZE, connect_args={"timeout": BUSY_SECONDS}
    )
    sa.event.listen(engine, "connect", _set_up_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _other_engine(url: sa.URL) -> sa.Engine:
    try:
        return sa.create_engine(url, pool_size=POOL_SIZE, pool_pre_ping=True)
    except (sa.exc.NoSuchModuleError, ImportError) as error:
        raise ConfigError(f"no driver for {url.drivername} is installed") from error


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself: _begin_sqlite does
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    writing = connection.get_execution_options().get(_WRITING)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


@contextmanager
def _trouble_as_unavailable() -> Iterator[None]:
    """Turn trouble with the database (not faults of ours, such as a bad statement) into Unavailable."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError) as error:
        raise Unavailable("the store does not answer; try again", retry_after=2) from error
