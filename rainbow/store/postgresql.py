"""PostgreSQL: several processes on one database, one of them writing at a time.

The lock of the writer belongs to its transaction: it ends with it, however that ends. A process that was stopped in
the middle (SIGSTOP, a frozen machine) is cut off after IDLE seconds, so that the others go on; what it wants to write
after that fails, because its transaction is gone.
"""

from __future__ import annotations

import sqlalchemy as sa

from rainbow.errors import ConfigError

POOL_SIZE = 20
OVERFLOW = 60
WRITERS = 0x7261696E  # "rain": the key of the writers' lock
IDLE = 10  # seconds in a transaction without a statement
LOCK = 30  # seconds to wait for a lock
CONNECT = 5  # seconds to connect


def engine(url: sa.URL) -> sa.Engine:
    """Return what connects to the database at `url`."""
    options = f"-c idle_in_transaction_session_timeout={IDLE}s -c lock_timeout={LOCK}s"
    try:
        return sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=POOL_SIZE,
            max_overflow=OVERFLOW,
            pool_pre_ping=True,
            connect_args={"options": options, "connect_timeout": CONNECT},
        )
    except (sa.exc.NoSuchModuleError, ImportError) as error:
        raise ConfigError("PostgreSQL needs its driver: pip install 'rainbow-scheduler[postgres]'") from error


def take_turn(connection: sa.Connection) -> None:
    """Wait until no other transaction writes; the turn ends with the transaction."""
    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": WRITERS})
