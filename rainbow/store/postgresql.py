"""PostgreSQL: several processes on one database, one of them writing at a time unless they write beside each other.

The lock of the writer belongs to its transaction: it ends with it, however that ends. A process that was stopped in
the middle (SIGSTOP, a frozen machine) is cut off after IDLE seconds, so that the others continue; what it
wants to write after that fails, because its transaction is gone. Stopped between the statements of a pipeline, its
transaction does not count as idle: those who look out for that end it (`end_frozen`).

Transactions beside each other number their events as they store them, just before they commit, and each says by a
lock that nobody waits for above which number its own will be. Readers go no further than the lowest of these, so that
none passes an event that is stored later.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from rainbow.errors import ConfigError, Unavailable

POOL_SIZE = 20
OVERFLOW = 60
WRITERS = 0x7261696E  # "rain": the key of the writers' lock
NUMBERS = WRITERS + 1  # the first key of the locks of those who store events, the second is a number below theirs
UPGRADE = WRITERS + 2  # the key of the lock of who changes the tables
IDLE = 10  # seconds in a transaction without a statement
LOCK = 30  # seconds to wait for a lock
CONNECT = 5  # seconds to connect
TIMED_OUT = ("25P03", "25P04")  # of a transaction that was idle, or open, for too long
TTL = 20  # seconds after which Patroni replaces a leader, as docs/high-availability.md sets it
PAST_TTL = 20  # seconds more until agents are heard again, in the worst of the failovers that were measured
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
            "the PostgreSQL driver is not installed; run: pip install 'rainbow-hpc[postgres]'"
        ) from error
    sa.event.listen(made, "checkin", _put_back)
    sa.event.listen(made, "checkout", partial(_ask, made))
    sa.event.listen(made, "handle_error", _give_up)
    return made


def refuse_all(engine: sa.Engine, reason: str) -> None:
    """Give no connection any more, and the reason to each who wants one."""

    def refuse(*_: object) -> None:
        raise Unavailable(reason, retry_after=10)

    sa.event.listen(engine, "checkout", refuse)


def _give_up(context: sa.engine.ExceptionContext) -> None:
    """Throw a connection away whose driver found the trouble, not its server: it may not know yet that it is lost."""
    fault = context.original_exception
    if fault.__class__.__name__ == "OperationalError" and getattr(fault, "sqlstate", "") is None:
        context.is_disconnect = True


def _put_back(_connection: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()


def _ask(engine: sa.Engine, connection: Any, record: Any, _proxy: Any) -> None:
    """Let the pool replace a connection that was idle and does not answer any more."""
    if time.monotonic() - record.info.get("used", 0.0) > TRUSTED:
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise sa.exc.DisconnectionError from error


def standby_warnings(rows: Iterable[tuple[str, str | None]]) -> list[str]:
    """Name the standbys, of rows of pg_stat_replication, to which a failover may lose what was answered.

    >>> for line in standby_warnings([("db2", "async"), ("db3", "sync"), ("db4", "quorum"), ("db5", None)]):
    ...     print(line)
    standby db2 is not synchronous: a failover may lose what was answered
    whether standby db5 is synchronous is not shown to this role: grant it pg_monitor
    """
    said = {
        "async": "standby {} is not synchronous: a failover may lose what was answered",
        None: "whether standby {} is synchronous is not shown to this role: grant it pg_monitor",
    }
    return [said[state].format(name) for name, state in rows if state in said]


def lease_warnings(lease: float) -> list[str]:
    """Name a lease that may end during a failover: tasks that ended well would run again.

    >>> lease_warnings(60.0)
    []
    >>> lease_warnings(12.0)
    ['scheduler.lease is 12 s: tasks may run twice after a failover; set ttl of Patroni + 20 s, 40 s with ttl 20']
    """
    advised = TTL + PAST_TTL
    advice = f"tasks may run twice after a failover; set ttl of Patroni + {PAST_TTL} s, {advised} s with ttl {TTL}"
    return [f"scheduler.lease is {lease:g} s: {advice}"] if lease < advised else []


def trouble_of(one: sa.Connection, lease: float) -> list[str]:
    """Return what an operator should know of the standbys; ConfigError behind a pool of transactions.

    A pool of transactions gives a connection another server process from one transaction to the next, and so forgets
    LISTEN and what was set. Two connections show it: while another is in a transaction, `one`, which has none, is
    moved.
    """
    with one.engine.connect() as other:
        pids = [one.execute(_PID).scalar_one()]
        other.execute(_PID)
        pids.append(one.execute(_PID).scalar_one())
        other.rollback()
        if len(set(pids)) > 1:
            raise ConfigError(
                "the database is behind a pool in transaction mode, as of PgBouncer: LISTEN does not work there; "
                "connect to PostgreSQL itself, or use pool_mode = session"
            )
        rows = one.exec_driver_sql("SELECT application_name, sync_state FROM pg_stat_replication ORDER BY 1")
        standbys = [(name, state) for name, state in rows]
        return [*standby_warnings(standbys), *(lease_warnings(lease) if standbys else [])]


_PID = sa.text("SELECT pg_backend_pid()")


def take_turn(connection: sa.Connection, *, beside: bool = False) -> None:
    """Wait until no other transaction writes, `beside`: but such as this; the turn ends with the transaction."""
    connection.execute(_BESIDE if beside else _ALONE, {"key": WRITERS})


def take_upgrade_turn(connection: sa.Connection) -> None:
    """Wait without a limit until no other process changes the tables; the turn ends with the transaction."""
    connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")  # a slow migration is not hung
    connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
    connection.execute(_ALONE, {"key": UPGRADE})
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK}s'")


def check_before_commit(connection: sa.Connection) -> None:
    """Raise if the server has ended this connection: what is lost before COMMIT is sent is certainly not done.

    The server says so unasked, and nothing else is unread between two statements but a notice, which a statement
    takes in.
    """
    driver: Any = connection.connection.driver_connection
    line = select.poll()  # not select(), which knows no descriptor above 1,023
    if not driver.closed:
        line.register(driver, select.POLLIN)
    if driver.closed or line.poll(0):
        connection.exec_driver_sql("SELECT 1")


def is_in_doubt(error: sa.exc.DBAPIError | sa.exc.TimeoutError) -> bool:
    """Return whether a COMMIT that failed so may have been carried out.

    An ERROR aborts the transaction. A connection that ends without an answer, or by a FATAL fault that may come after
    the commit (a shutdown, a crash), leaves it open; only the end of an idle transaction comes before.
    """
    driver: Any = getattr(error, "orig", None)
    if not getattr(driver, "sqlstate", None):
        return True
    return driver.diag.severity_nonlocalized in ("FATAL", "PANIC") and driver.sqlstate not in TIMED_OUT


class EventHorizon(NamedTuple):
    """The number up to which no event is stored any more (None: of any), and whether none is being stored."""

    number: int | None
    is_final: bool


def announce_events(connection: sa.Connection) -> None:
    """Let readers wait, until this transaction ends, for the events that it stores from now on."""
    connection.execute(_ANNOUNCE, {"key": NUMBERS})


def event_horizon(connection: sa.Connection) -> EventHorizon:
    """Return how far events may be read; each statement must see what is there when it is carried out.

    The last number is read first: who announces events later takes higher ones.
    """
    last = connection.execute(_LAST).scalar_one()
    behind = connection.execute(_BEHIND, {"key": NUMBERS, "last": last}).scalar()
    return EventHorizon(last, True) if behind is None else EventHorizon(last - behind, False)


_NUMBER = "(last_value - CASE WHEN is_called THEN 0 ELSE 1 END)"
_LAST = sa.text(f"SELECT {_NUMBER} FROM events_number_seq")  # noqa: S608 - ours
_ANNOUNCE = sa.text(  # keys are of 31 bits: numbers are compared by how far they are behind the last
    f"SELECT pg_advisory_xact_lock_shared(:key, CAST({_NUMBER} & 2147483647 AS integer)) FROM events_number_seq"  # noqa: S608
)
_BEHIND = sa.text("""
    SELECT max(behind) FROM (
        SELECT (CAST(:last AS bigint) - CAST(objid AS bigint)) & 2147483647 AS behind FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 2 AND CAST(classid AS bigint) = :key AND granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) AS storing WHERE behind < 1073741824
""")


DAY = sa.text("SELECT extract(epoch FROM clock_timestamp())")  # not of when the transaction began
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
