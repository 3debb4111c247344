"""Crash-safe state of an agent: its id, accepted tasks and unsent reports.

A file of SQLite in the agent's folder, or memory alone. Every change is stored before the action it allows:
an offer before it is accepted, a start before it is made, an end before the executor may forget it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sqlite3
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rainbow.agent.executors.run import RunId
from rainbow.agent.messages import run_id
from rainbow.client import responses
from rainbow.errors import ConfigError, Conflict, Unavailable

BLOCK = 2**20  # numbers of messages are reserved in blocks, so that not every message is a write

SCHEMA = """
CREATE TABLE IF NOT EXISTS agent (id TEXT NOT NULL, starts INTEGER NOT NULL); -- the last block of numbers
CREATE TABLE IF NOT EXISTS runs (task TEXT, attempt INTEGER, starting INTEGER NOT NULL, offer TEXT NOT NULL,
                                 PRIMARY KEY (task, attempt));
CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL);
"""


class Journal:
    """Written through: `offers`, `starting` and `outbox` are what the file says.

    `offers` are runs that may be accepted, `starting` those that were given to the executor, or were about to be.
    """

    def __init__(self, folder: Path | None = None) -> None:
        path = ":memory:" if folder is None else str(folder / "agent.db")
        # one thread at a time uses it, but not the one that makes it
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")  # an agent that is killed loses nothing, see recovery in docs
        self._db.executescript(SCHEMA)
        self.id, block = self._begin()
        self._number = block * BLOCK
        self.offers: dict[RunId, responses.Offer] = {}
        self.starting: set[RunId] = set()
        for starting, offer in self._db.execute("SELECT starting, offer FROM runs ORDER BY rowid"):
            read: responses.Offer = json.loads(offer)
            if starting:
                self.starting.add(run_id(read))
            else:
                self.offers[run_id(read)] = read
        answer = self._db.execute("SELECT number, event FROM outbox ORDER BY number")
        self._outbox: deque[tuple[int, responses.Event]] = deque(
            (number, json.loads(event)) for number, event in answer
        )

    def _begin(self) -> tuple[str, int]:
        result = self._db.execute("SELECT id, starts FROM agent").fetchone()
        called = result[0] if result else f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        block = result[1] + 1 if result else 1
        with self._together():
            self._db.execute("DELETE FROM agent")
            self._db.execute("INSERT INTO agent VALUES (?, ?)", (called, block))
        return called, block

    def next_number(self) -> int:
        """Return a number greater than that of every message before, those before a restart too."""
        self._number += 1
        if self._number % BLOCK == 0:
            self._db.execute("UPDATE agent SET starts = ?", (self._number // BLOCK,))
        return self._number

    @property
    def outbox(self) -> list[responses.Event]:
        """What has happened and is to be told, in order."""
        return [event for _, event in self._outbox]

    @property
    def has_news(self) -> bool:
        """Return whether something is to be told."""
        return bool(self._outbox)

    def keep(self, offers: Iterable[responses.Offer]) -> None:
        """Remember offers, to be accepted."""
        with self._together():
            for offer in offers:
                self.offers[run_id(offer)] = offer
                row = (*run_id(offer), json.dumps(offer))
                self._db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, 0, ?)", row)

    def start(self, run: RunId) -> None:
        """Remember that a run is about to be given to the executor."""
        self.offers.pop(run, None)
        self.starting.add(run)
        self._db.execute("UPDATE runs SET starting = 1 WHERE task = ? AND attempt = ?", run)

    def drop(self, run: RunId) -> None:
        """Delete a run that needs no further reports."""
        self.offers.pop(run, None)
        self.starting.discard(run)
        self._db.execute("DELETE FROM runs WHERE task = ? AND attempt = ?", run)

    def tell(self, event: responses.Event) -> None:
        """Remember an event, to be told; a run that has ended is forgotten in the same breath."""
        with self._together():
            if event["event"] == "ended":
                self.drop((event["task"], event["attempt"]))
            made = self._db.execute("INSERT INTO outbox (event) VALUES (?)", (json.dumps(event),))
            self._outbox.append((made.lastrowid or 0, event))

    def drop_first(self, count: int) -> None:
        """Forget the first events: the server knows them."""
        last = 0
        for _ in range(count):
            last, _ = self._outbox.popleft()
        self._db.execute("DELETE FROM outbox WHERE number <= ?", (last,))

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def _together(self) -> _Together:
        return _Together(self._db)


class _Together:
    """One transaction, within another if there is one."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._ours = not db.in_transaction

    def __enter__(self) -> None:
        if self._ours:
            self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, fault: object, at: object) -> None:
        if self._ours and self._db.in_transaction:  # SQLite itself rolls back where the disk is full
            self._db.execute("COMMIT" if kind is None else "ROLLBACK")


@contextmanager
def faults_named(folder: Path) -> Iterator[None]:
    """Say of a journal that cannot be written, or read, what helps; what it holds is whole, and tasks continue."""
    path = folder / "agent.db"
    try:
        yield
    except sqlite3.OperationalError as fault:
        again = "start the agent again within its lease, and it finds its tasks"
        raise Unavailable(f"cannot use {path}: {fault}; mend that, and {again}") from fault
    except sqlite3.DatabaseError as fault:
        lost = "move it away; tasks that the agent had are stopped and requeued"
        raise ConfigError(f"{path} is damaged: {fault}; {lost}") from fault


def take_folder(base: Path, called: str) -> tuple[Path, int]:
    """Take the first folder `called`, `called-2`, ... that no living agent has; the lock ends with this process."""
    for number in range(1, 1_000):
        folder = base / (called if number == 1 else f"{called}-{number}")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return folder, lock
    raise Conflict(f"a thousand agents work in {base} already")
