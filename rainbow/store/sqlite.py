"""SQLite: a file, every write waits for the disk, BEGIN IMMEDIATE keeps another process's writer at the door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rainbow.errors import ConfigError

BUSY_SECONDS = 30
# a writer and every reader of the server's threads at once, without waiting for a connection
POOL_SIZE = 80
WRITING = "rainbow_writing"
LOOKING = "rainbow_looking"


def engine(url: sa.URL) -> sa.Engine:
    """Return what connects to the file `url` names."""
    if not url.database or url.database == ":memory:":
        raise ConfigError("the database must be a file: what is only in memory does not survive a restart")
    Path(url.database).absolute().parent.mkdir(parents=True, exist_ok=True)
    made = sa.create_engine(url, poolclass=sa.QueuePool, pool_size=POOL_SIZE, connect_args={"timeout": BUSY_SECONDS})
    sa.event.listen(made, "connect", _set_up)
    sa.event.listen(made, "begin", _begin)
    return made


def _set_up(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself: _begin does
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    if not options.get(LOOKING):
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(WRITING) else "BEGIN")
