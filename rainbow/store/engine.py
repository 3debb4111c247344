"""The database: opened, read and written.

There is one writer at a time, on both databases. What a submit reads (free nodes, its Idempotency-Key) must still be
true when it writes; one writer makes that so without a retry anywhere. SQLite is made that way; on PostgreSQL a
transaction that writes takes an advisory lock first, so that it holds for all processes. Writers of one process wait
in a queue of ours (write_queue.py): the databases' own waiting has no order, and on SQLite an end ("database is
locked").

On PostgreSQL processes may also write `beside` each other, which excludes all others who write. They write of single
clusters whose rows they have locked, and look again at what they have read; what finds that it must not raises
NeedsExclusiveWrite.

A burst of writers costs one wait for the disk, not one each: see `together`.

`Store.observe` is called with how long each transaction took: a read, a write from its turn to its end, and of that
the commit, which is the wait for the disk. `Store.for_agents` is called, after the commit, with what is for agents.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import sqlalchemy as sa

from rainbow.errors import UNKNOWN, ConfigError, Unavailable
from rainbow.outcome import ENTRY, AuditEntry, after_commit, note_stored
from rainbow.store import postgresql, sqlite
from rainbow.store.accounts.tables import audit
from rainbow.store.migrations.upgrade import is_current, upgrade
from rainbow.store.postgresql import EventHorizon
from rainbow.store.schema import Plain, Row, answers, clusters, events
from rainbow.write_queue import Commit, Part, WriteQueue

if TYPE_CHECKING:
    from rainbow.state_machine import ForAgents

PROBE = "0" * 64  # of a row that is written to see whether anything can be stored
TRIES = 5  # beside other processes: who writes alone waits for all of them, and they for it
# of the database, not of what was asked of it; a PostgreSQL that stands by says NotSupported to who would write
TROUBLE = (
    *(sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError),
    *(sa.exc.InternalError, sa.exc.NotSupportedError),
)
NO_ROOM = frozenset({"SQLITE_FULL", "53100"})  # of SQLite and of PostgreSQL
CLOSED = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")  # to this user
T = TypeVar("T")


class NeedsExclusiveWrite(Exception):
    """What was begun beside other writers must be done again as the only one."""


class Contended(NeedsExclusiveWrite):
    """Another server writes of the same cluster: what is done again may find another one, or this one free."""


class Store:
    """One database. `read()` and `write()` give a connection inside a transaction.

    A write is durable when its block is left; an exception inside the block leaves nothing of it.
    Unavailable is raised when the database cannot be reached, is full or does not answer in time.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.many_processes = engine.dialect.name == "postgresql"
        self.writers = WriteQueue()
        self.rights = 0  # how often this process has changed what somebody may do
        self.observe: Callable[[str, float], None] = lambda kind, seconds: None
        self.for_agents: Callable[[Collection[ForAgents]], None] = lambda concerned: None

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Tell how long a block takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            with after_commit("observe"):
                self.observe(kind, time.perf_counter() - start)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Give a connection that sees one snapshot."""
        with _trouble_as_unavailable(), self.timed("read"), self.engine.connect() as connection:
            if self.many_processes:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def look(self) -> Iterator[sa.Connection]:
        """Give a connection without a transaction: each statement sees what is there when it is carried out."""
        with _trouble_as_unavailable(), self.timed("read"), self.engine.connect() as connection:
            if self.many_processes:
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            else:
                connection = connection.execution_options(**{sqlite.LOOKING: True})
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Give the one writing connection; commit at the end."""
        with _trouble_as_unavailable(), self.writers.turn(), self._writing() as connection:
            yield connection
            _record(ENTRY.get(), connection)
        note_stored()

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Give a connection in a transaction of its own that writes nothing yet: see step_lock.py."""
        with _trouble_as_unavailable(), self.engine.connect() as connection:
            connection.begin()
            yield connection

    def together(self, do: Callable[[sa.Connection], T]) -> T:
        """Write with those who wait to write at this moment: one commit for all of them.

        Each sees what those before it wrote. What one raises undoes its own part only. It returns, durable, when
        the common commit is done; if that fails, it fails for all.
        """
        [work] = self.all_together([do])
        if work.fault is not None:
            raise work.fault
        return work.result  # type: ignore[return-value]  # there is one where there is no fault

    def all_together(self, parts: Sequence[Callable[[sa.Connection], T]], *, beside: bool = False) -> list[Part[T]]:
        """Write several parts as `together` does; each has a result or a fault of its own."""
        works = [Part(_recorded(do)) for do in parts]
        self.writers.share(beside, works, partial(self._write_parts, beside))
        if any(work.fault is None for work in works):
            note_stored()
        return works

    def all_in_order(self, parts: Sequence[Callable[[sa.Connection], T]], *, beside: bool) -> list[Part[T]]:
        """Write parts `beside` other processes, and as the only writer from the first one that may not be."""
        done: list[Part[T]] = []
        for _ in range(TRIES if beside and self.many_processes else 0):
            alone: list[Exception] = []
            works = self.all_together([partial(_beside, alone, do) for do in parts[len(done) :]], beside=True)
            done += takewhile(lambda work: not isinstance(work.fault, NeedsExclusiveWrite), works)
            if not any(isinstance(each, Contended) for each in alone):
                break
        return done + self.all_together(parts[len(done) :])

    def _write_parts(self, beside: bool, commit: Commit) -> None:
        with _trouble_as_unavailable(), self._writing(beside) as connection:
            while (part := commit.take()) is not None:
                _attempt(part, connection, alone=commit.is_single)

    @contextmanager
    def _writing(self, beside: bool = False) -> Iterator[sa.Connection]:
        with self.engine.connect() as connection:
            connection = connection.execution_options(**{sqlite.WRITING: True})
            with connection.begin(), self.turn(connection, beside=beside):
                yield connection

    @contextmanager
    def turn(self, connection: sa.Connection, *, beside: bool = False) -> Iterator[None]:
        """Write in a transaction that has begun, when it is its turn; commit at the end."""
        if self.many_processes:
            postgresql.take_turn(connection, beside=beside)
        info = connection.info  # of a connection that is lost it cannot be asked
        pending = info[PENDING] = _OF_THREAD.pending = Pending(beside)
        try:
            with self.timed("write"):
                yield
                if pending.events:
                    if beside:
                        postgresql.announce_events(connection)
                    ADD_EVENT(connection, *pending.events)
                with self.timed("commit"):
                    _commit(connection)
        except BaseException:
            pending.undo(Mark())
            raise
        finally:
            _OF_THREAD.pending = None
            del info[PENDING]
        self.rights += pending.changes_rights  # what is read from now on is new
        if pending.changes_clusters:
            with after_commit("remember clusters"):
                self.remember_clusters()
        for do in pending.once_stored:
            with after_commit("remember"):
                do()
        if pending.for_agents:
            with after_commit("agents"):
                self.for_agents(dict.fromkeys(pending.for_agents))

    def event_horizon(self) -> EventHorizon:
        """Return how far events may be read by a transaction that begins after this."""
        if not self.many_processes:
            return EventHorizon(None, True)
        with self.look() as connection:
            return postgresql.event_horizon(connection)

    def day(self) -> float:
        """Return the database's time of day, in seconds since 1970."""
        with self.look() as connection:
            return float(connection.execute(postgresql.DAY if self.many_processes else sqlite.DAY).scalar_one())

    def shrink(self) -> None:
        """Give some of the space of what was deleted back, where the database does not by itself."""
        if not self.many_processes:
            with self.writers.turn(), self.look() as connection:
                sqlite.shrink(connection)

    def remember_clusters(self) -> None:
        """Say beside a file how many clusters it holds, so that an emptied one is not taken for a new one."""
        if not self.many_processes:
            with self.look() as connection:
                count = connection.execute(sa.select(sa.func.count()).select_from(clusters)).scalar_one()
            sqlite.remember_clusters(Path(str(self.engine.url.database)), count)

    def check(self) -> None:
        """Look at the whole store, however long that takes. ConfigError: it is damaged."""
        if not self.many_processes:
            sqlite.check_file(Path(str(self.engine.url.database)))

    def probe(self) -> None:
        """Write a row and take it away again; Unavailable with the cause where nothing can be stored."""
        with self.write() as connection:
            connection.execute(answers.insert().values(id=PROBE, digest="", answer={}, secrets={}, at=0.0))
            connection.execute(answers.delete().where(answers.c.id == PROBE))

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


class Mark(NamedTuple):
    """How much a transaction had pending at some point; at its beginning nothing."""

    events: int = 0
    for_agents: int = 0
    once_stored: int = 0
    undos: int = 0


@dataclass(slots=True)
class Pending:
    """What follows from a transaction that writes, once it commits; and what is undone in memory if it does not.

    A part that is undone takes what it added with it.
    """

    beside: bool  # other processes may write at the same time
    events: list[Row] = field(default_factory=list)
    for_agents: list[ForAgents] = field(default_factory=list)
    once_stored: list[Callable[[], None]] = field(default_factory=list)
    undos: list[Callable[[], None]] = field(default_factory=list)
    seen: dict[tuple[Any, Any], Any] = field(default_factory=dict)  # what tables of memory hold once it commits
    changes_rights: bool = False
    changes_clusters: bool = False  # which there are

    def mark(self) -> Mark:
        """Return the point to which a part is undone that begins now."""
        return Mark(len(self.events), len(self.for_agents), len(self.once_stored), len(self.undos))

    def undo(self, mark: Mark) -> None:
        """Undo in memory what was done since a mark, the last first; none of it follows any more."""
        while len(self.undos) > mark.undos:
            with after_commit("undo"):
                self.undos.pop()()
        del self.events[mark.events :], self.for_agents[mark.for_agents :], self.once_stored[mark.once_stored :]
        self.seen.clear()


class _OfThread(threading.local):
    pending: Pending | None = None


_OF_THREAD = _OfThread()
PENDING = "pending"  # of a connection
ADD_EVENT = Plain(events.insert().inline(), ["at", "cluster_id", "kind", "facts"])  # nobody asks for its number


ADD_AUDIT = Plain(audit.insert().inline(), [column.name for column in audit.c if column.name != "id"])
SAVEPOINT, RELEASE = Plain(sa.text("SAVEPOINT part")), Plain(sa.text("RELEASE SAVEPOINT part"))


def pending_of(connection: sa.Connection) -> Pending | None:
    """Return what a connection has pending until its transaction commits; None: it does not write in its turn."""
    pending: Pending | None = connection.info.get(PENDING)
    return pending


def pending_here() -> Pending | None:
    """Return what the transaction has pending that this thread writes; None: it writes none."""
    return _OF_THREAD.pending


def on_undo(do: Callable[[], None]) -> None:
    """Do something if what this thread writes is undone, its part or all of it, before the answer."""
    if (pending := pending_here()) is not None:
        pending.undos.append(do)


def once_stored(do: Callable[[], None]) -> None:
    """Do something when what this thread writes is stored, not at all if it is undone; now if it writes nothing."""
    if (pending := pending_here()) is not None:
        pending.once_stored.append(do)
    else:
        do()


def note_for_agents(connection: sa.Connection, concerned: Iterable[ForAgents]) -> None:
    """Note for whom this transaction has something: they hear of it when it has committed."""
    if (pending := pending_of(connection)) is not None:
        pending.for_agents += concerned


def is_beside(connection: sa.Connection) -> bool:
    """Return whether other processes may write at the same time."""
    pending = pending_of(connection)
    return pending is not None and pending.beside


def _beside(alone: list[Exception], do: Callable[[sa.Connection], T], connection: sa.Connection) -> T:
    """Do a part unless one before it must be `alone`; what another process has just stored makes it so too."""
    if alone:
        raise NeedsExclusiveWrite
    try:
        return do(connection)
    except (NeedsExclusiveWrite, sa.exc.IntegrityError) as fault:
        alone.append(fault)
        raise NeedsExclusiveWrite from fault


def _recorded(do: Callable[[sa.Connection], T]) -> Callable[[sa.Connection], T]:
    """Return a part that stores who asked for it, whichever thread carries it out."""
    entry = ENTRY.get()
    if entry is None:
        return do
    own = copy_context()  # what a part notes is of the request that brought it
    return lambda connection: own.run(_do_and_record, entry, do, connection)


def _do_and_record(entry: AuditEntry, do: Callable[[sa.Connection], T], connection: sa.Connection) -> T:
    try:
        result = do(connection)
    except BaseException:
        entry.objects.clear()
        raise
    _record(entry, connection)
    return result


def _record(entry: AuditEntry | None, connection: sa.Connection) -> None:
    """Store who asked for a change, in its transaction."""
    if entry is not None and (rows := entry.rows()):
        ADD_AUDIT(connection, *rows)


def _attempt(part: Part[Any], connection: sa.Connection, alone: bool) -> None:
    """Do one writer's part; only what undoes everything is raised: trouble with the database, or a part `alone`."""
    if alone:  # without the two statements of a savepoint
        part.result = part.do(connection)
        return
    pending = pending_of(connection)
    mark = pending.mark() if pending else Mark()
    SAVEPOINT(connection, {})
    try:
        part.result = part.do(connection)
    except TROUBLE:
        raise
    except Exception as fault:
        part.fault = fault
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT part")
        if pending:
            pending.undo(mark)
    RELEASE(connection, {})


def open_store(url: str, *, existing: bool = False, migrate: bool = True, replaces: bool = False) -> Store:
    """Open the database at `url` (a path means SQLite), bring its tables up to date and return it.

    `existing`: NotFound if there is none, instead of a new one. `migrate`: False leaves them to an older server.
    `replaces`: also a file that has lost its content will do. ConfigError if a file is damaged or has lost it.
    """
    if not replaces and (file := file_of(url)) is not None:
        sqlite.refuse_emptied(file)
    engine = open_engine(url, existing=existing)
    with _trouble_as_unavailable():
        try:
            (upgrade if migrate else is_current)(engine)
        except sa.exc.OperationalError as error:
            if str(getattr(error.orig, "sqlite_errorname", "")).startswith(CLOSED):
                reason = (
                    f"cannot open database file {engine.url.database} and write it and its directory: {error.orig}"
                )
                raise ConfigError(f"{reason}; check who owns them") from error
            raise
        except TROUBLE:
            raise
        except sa.exc.DatabaseError as error:
            raise ConfigError(_unusable(engine.url.database or "", error)) from error
    return Store(engine)


def _unusable(name: str, error: sa.exc.DatabaseError) -> str:
    """Say why a database that answers cannot be used."""
    match getattr(error.orig, "sqlite_errorname", ""):
        case "SQLITE_NOTADB":
            return f"{name} is not a database"
        case "SQLITE_CORRUPT":
            return sqlite.described(name, str(error.orig))
    return f"database {name} cannot be used: {str(error.orig).strip().splitlines()[0]}"


def open_engine(url: str, *, existing: bool = False) -> sa.Engine:
    """Return what connects to the database at `url`; its tables stay as they are."""
    parsed = _parsed(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return sqlite.engine(parsed, existing=existing)
    if backend in ("postgresql", "postgres"):
        return postgresql.engine(parsed)
    raise ConfigError(f"{backend} is not supported: the database is SQLite or PostgreSQL")


def file_of(url: str) -> Path | None:
    """Return the file that `url` names, there or not; None for another database than SQLite."""
    with suppress(ConfigError):
        parsed = _parsed(url)
        return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
    return None


# a URL that names several servers, as libpq reads it: the one that takes writes is used
SEVERAL = re.compile(r"(postgres\w*(?:\+\w+)?://(?:[^@/?]*@)?)([^@/?,]+(?:,[^@/?,]+)+)(?=[/?]|$)")


def _parsed(url: str) -> sa.URL:
    servers: tuple[str, ...] = ()
    if several := SEVERAL.match(url):
        servers = tuple(several[2].split(","))
        url = several[1] + url[several.end() :]
    try:
        parsed = sa.make_url(url if "://" in url else f"sqlite:///{url}")
        return parsed.update_query_dict({"host": servers}) if servers else parsed
    except (sa.exc.ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        raise ConfigError("the database must be given as a path or a URL, like sqlite:///rainbow.db") from error


IN_DOUBT = (
    "the connection to the database was lost while it stored this: it may be done; look, or send it again with the "
    "same Idempotency-Key"
)


def _commit(connection: sa.Connection) -> None:
    """Commit; Unavailable with an unknown outcome if the database did not say what became of it."""
    database = postgresql if connection.dialect.name == "postgresql" else sqlite
    database.check_before_commit(connection)
    try:
        connection.commit()
    except TROUBLE as error:
        connection.invalidate()  # it may still be inside the transaction, and keep all who write out
        if database.is_in_doubt(error):
            raise Unavailable(IN_DOUBT, retry_after=2, outcome=UNKNOWN) from error
        raise


@contextmanager
def _trouble_as_unavailable() -> Iterator[None]:
    """Turn trouble with the database (not faults of ours, such as a bad statement) into Unavailable."""
    try:
        yield
    except TROUBLE as error:
        raise Unavailable(_trouble(error), retry_after=2) from error
    except sa.exc.DatabaseError as error:
        if not str(getattr(error.orig, "sqlite_errorname", "")).startswith(sqlite.DAMAGED):
            raise
        raise Unavailable(sqlite.described("of this server", str(error.orig)), retry_after=60) from error


def _trouble(error: Exception) -> str:
    """Say what of the trouble is no secret, and helps who runs the server."""
    said = getattr(error, "orig", None)
    if NO_ROOM & {getattr(said, "sqlite_errorname", None), getattr(said, "sqlstate", None)}:
        return "the disk of the database is full: who runs the server must make room"
    return "the database is not responding; try again"


def cause_of(fault: BaseException) -> str:
    """Return what the database said of its trouble, without the statement: "database or disk is full"."""
    return str(getattr(fault.__cause__, "orig", None) or "")
