"""PostgreSQL: several processes on one database, one of them writing at a time unless they write beside each other.

The lock of the writer belongs to its transaction: it ends with it, however that ends. A process that was stopped in
the middle (SIGSTOP, a frozen machine) is cut off after IDLE seconds, so that the others continue; what it
wants to write after that fails, because its transaction is gone. Stopped between the statements of a pipeline, its
transaction does not count as idle: those who look out for that end it (`end_frozen`).

Events are numbered in the order of the commits, so that no reader passes one that is stored later: a transaction
beside others keeps its events, and stores them between ORDER and its commit.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import sqlalchemy as sa

from rainbow.errors import ConfigError

POOL_SIZE = 20
OVERFLOW = 60
WRITERS = 0x7261696E  # "rain": the key of the writers' lock
ORDER = WRITERS + 1  # of those who write beside others: held by the one that commits
EVENTS = "rainbow_events"  # option of a connection that writes beside others: the events it will store
IDLE = 10  # seconds in a transaction without a statement
LOCK = 30  # seconds to wait for a lock
CONNECT = 5  # seconds to connect
TRUSTED = 1.0  # seconds that a connection was just used: it is not asked whether it still answers


def engine(url: sa.URL) -> sa.Engine:
    """Return what connects to the database at `url`."""
    options = f"-c idle_in_transaction_session_timeout={IDLE}s -c lock_timeout={LOCK}s"
    try:
        made = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=POOL_SIZE,
            max_overflow=OVERFLOW,
            connect_args={"options": options, "connect_timeout": CONNECT},
        )
    except (sa.exc.NoSuchModuleError, ImportError) as error:
        raise ConfigError(
            "the PostgreSQL driver is not installed; run: pip install 'rainbow-scheduler[postgres]'"
        ) from error
    sa.event.listen(made, "checkin", _put_back)
    sa.event.listen(made, "checkout", partial(_ask, made))
    return made


def _put_back(_connection: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()


def _ask(engine: sa.Engine, connection: Any, record: Any, _proxy: Any) -> None:
    """Let the pool replace a connection that was idle and does not answer any more."""
    if time.monotonic() - record.info.get("used", 0.0) > TRUSTED:
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise sa.exc.DisconnectionError from error


def take_turn(connection: sa.Connection, *, beside: bool = False) -> None:
    """Wait until no other transaction writes, `beside`: but such as this; the turn ends with the transaction."""
    connection.execute(_BESIDE if beside else _ALONE, {"key": WRITERS})


def take_order(connection: sa.Connection) -> None:
    """Wait until no other transaction beside this one is about to commit."""
    connection.execute(_ALONE, {"key": ORDER})


_ALONE = sa.text("SELECT pg_advisory_xact_lock(:key)")
_BESIDE = sa.text("SELECT pg_advisory_xact_lock_shared(:key)")


_END_FROZEN = sa.text("""
    SELECT pg_terminate_backend(pid) FROM pg_locks AS held JOIN pg_stat_activity AS doing USING (pid)
    WHERE held.locktype = 'advisory' AND held.granted AND CAST(held.objid AS bigint) = :writers
      AND doing.datname = current_database() AND doing.state = 'active' AND doing.wait_event = 'ClientRead'
      AND doing.query NOT ILIKE 'copy%' AND doing.state_change < clock_timestamp() - make_interval(secs => :idle)
""")


def end_frozen(connection: sa.Connection) -> None:
    """Cut off the writer whose process has stopped in the middle of a pipeline."""
    connection.execute(_END_FROZEN, {"writers": WRITERS, "idle": IDLE})
