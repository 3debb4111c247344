"""The lock by which one scheduler at a time steps a cluster, whatever becomes of the others.

On PostgreSQL a turn is a transaction that holds the cluster's advisory lock, and the step writes in that same
transaction. A scheduler that dies loses its turn at once; one that is paused loses it after PAUSED seconds,
and can then write nothing of its plan.
On SQLite the schedulers of one process take turns at a lock; `scheduling` keeps a second process away.
"""

from __future__ import annotations

import fcntl
import hashlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import sqlalchemy as sa

from rainbow.outcome import note_stored
from rainbow.store import postgresql
from rainbow.store.sqlite import make_private

if TYPE_CHECKING:
    from rainbow.store.engine import Store


TURN_TIMEOUT = 30.0  # seconds that a thread waits for the turn of another
PAUSED = 30  # seconds


class Turn:
    """The right to write one step of one cluster."""

    def __init__(self, store: Store, connection: sa.Connection | None = None) -> None:
        self._store = store
        self._connection = connection

    def write(self, *, beside: bool = False) -> AbstractContextManager[sa.Connection]:
        """Give the writing connection; what is written is durable when the turn is over."""
        return self._store.write() if self._connection is None else self._same(self._connection, beside)

    @contextmanager
    def _same(self, connection: sa.Connection, beside: bool) -> Iterator[sa.Connection]:
        with self._store.writers.turn():
            connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{postgresql.IDLE}s'")
            with self._store.turn(connection, beside=beside):
                yield connection
            note_stored()


class StepLocks:
    """Gives turns, cluster by cluster."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks: dict[str, threading.Lock] = {}
        self._file: IO[str] | None = None

    @contextmanager
    def of(self, cluster_id: str) -> Iterator[Turn | None]:
        """Give the turn of a cluster, None while another process has it, or another thread for long."""
        lock = self._locks.setdefault(cluster_id, threading.Lock())
        if not lock.acquire(timeout=TURN_TIMEOUT):
            yield None
            return
        try:
            if not self._store.many_processes:
                yield Turn(self._store)
                return
            with self._store.transaction() as connection:
                connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{PAUSED}s'")
                query = sa.text("SELECT pg_try_advisory_xact_lock(:key)")
                mine = connection.execute(query, {"key": _key(cluster_id)}).scalar()
                yield Turn(self._store, connection) if mine else None
        finally:
            lock.release()

    def scheduling(self) -> bool:
        """Return whether this process may step clusters at all: of those on one SQLite file, one may."""
        if self._store.many_processes or self._file is not None:
            return True
        beside = Path(f"{self._store.engine.url.database}.scheduler")
        make_private(beside)
        file = beside.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._file = file
        return True

    @property
    def alone(self) -> bool:
        """Whether no other process steps clusters while this one lives."""
        return self._file is not None

    def close(self) -> None:
        """Let another process step."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _key(cluster_id: str) -> int:
    return int.from_bytes(hashlib.sha256(cluster_id.encode()).digest()[:8], "big", signed=True)
