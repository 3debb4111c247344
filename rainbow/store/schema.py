"""The tables: all that must survive a restart.

    clusters ─┬─ documents, deltas     graphs as they were given; changes of them since
              ├─ subsystems      those of subsystems
              ├─ summaries       what clusters are in short, so that a start need not read their graphs
              ├─ states          the flat state of selection, and when it was reported
              ├─ workers         the workers' states
              ├─ changes         who changed the scheduling settings, when, from what, to what
              ├─ agents          their last heartbeats, and the load they measured
              ├─ reservations    space kept in advance, and maintenance
              └─ grants ──────── credentials     which clusters a token or secret (its SHA-256) is good for
    jobs ─┬─── unplaced ─────── reaches          wait for a cluster; the clusters they may go to
          ├─── promises          starts promised to waiting gangs, and the space kept
          ├─── tasks             kept when their cluster is deleted: they are history
          └─── record_uses ─── records     long parts of decisions, each kept once for all jobs that share it
    sessions                     browsers that are signed in to the page, and with which credentials
    answers                      what was answered under an Idempotency-Key, without its secrets
    symbols, tags, numbers       names of what jobs bring about (RFC 26); versions of a basis; see names/
    durations                    how long tasks ran, by the names of job and task
    lengths                      how long the last runs took, by who ran what where; see forecast/lengths.py
    forecasts                    what a cluster's last forecast leaves free, how its forecasts and lengths turned out
    job_etas                     the first and last forecast of each job that waited
    accounts ─── members         who may use how much; the row "" has the rules of all and counts changes
    qos                          named qualities of service
    usages, usage_days           what accounts and users have used: decayed, and by day and cluster
    former_clusters              the names of removed clusters
    budgets ──── holds           what is held and charged of budgets by period; of it by job
    events                       what happened, in order

A cluster is known by `id`, made at registration: a name registered again is a new one. Times are seconds since 1970.
`clock` counts what changes its free nodes (a report, a job's acceptance or end): "before" does not depend on times.

`epoch` of a cluster and `stamp` of what it has let a scheduler read what changed, and no more: every change of a job,
task or worker is stamped with the cluster's epoch of that moment; a step that writes begins a new epoch. Whoever has
read everything at epoch e reads later what is stamped e or more. Tasks are stamped when they change: new ones come
with their job. `moves` counts jobs that came from or went to another cluster.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

Row = dict[str, Any]
Convert = Callable[[Any], Any] | None


def together(rows: list[Any]) -> Any:
    """Return the parameters of one statement for all rows: one row by itself costs PostgreSQL fewer round trips."""
    return rows[0] if len(rows) == 1 else rows


class Plain:
    """A statement that goes to the driver as it was compiled once: a third of the time, where every submit needs it.

    `columns`: of an insert, those that are given (None: all). SQLite is asked without SQLAlchemy, which costs more.
    """

    def __init__(self, statement: Any, columns: Sequence[str] | None = None) -> None:
        self.statement, self._columns = statement, columns
        self._compiled: dict[str, tuple[str, list[tuple[str, Convert]], Sequence[Convert]]] = {}

    def __call__(self, connection: sa.Connection, *rows: Row) -> Any:
        """Execute it with the values of each row; what it returns comes as the driver has it."""
        text, binds, _ = self._compiled.get(connection.dialect.name) or self._compile(connection.dialect)
        pairs = [[(name, write(row[name]) if write else row[name]) for name, write in binds] for row in rows]
        if connection.dialect.name != "sqlite":
            return connection.exec_driver_sql(text, together([dict(each) for each in pairs]))
        values = [tuple([value for _, value in each]) for each in pairs]
        driver: Any = connection.connection.driver_connection
        try:
            return driver.execute(text, values[0]) if len(values) == 1 else driver.executemany(text, values)
        except sqlite3.Error as fault:
            dialect = connection.dialect
            raise sa.exc.DBAPIError.instance(text, values, fault, sqlite3.Error, dialect=dialect) from fault

    def found(self, connection: sa.Connection, row: Row) -> Iterator[Sequence[Any]]:
        """Yield what a select finds, as its columns say."""
        if connection.dialect.name != "sqlite":
            yield from connection.execute(self.statement, row)
            return
        rows, reads = self(connection, row), self._compiled["sqlite"][2]
        for one in rows:
            yield [read(value) if read else value for read, value in zip(reads, one, strict=True)]

    def _compile(self, dialect: Any) -> tuple[str, list[tuple[str, Convert]], Sequence[Convert]]:
        made = self.statement.compile(dialect=dialect, column_keys=self._columns)
        write = {name: one.type.dialect_impl(dialect).bind_processor(dialect) for name, one in made.binds.items()}
        columns = getattr(self.statement, "selected_columns", ()) if dialect.name == "sqlite" else ()
        read = [one.type.dialect_impl(dialect).result_processor(dialect, None) for one in columns]
        binds = [(name, write[name]) for name in made.positiontup or write]
        return self._compiled.setdefault(dialect.name, (str(made), binds, read))


class Words(sa.TypeDecorator[str]):
    """Text that any database can hold: NUL and halves of surrogate pairs become the replacement character.

    PostgreSQL refuses them. A lookup by such a name finds nothing.
    """

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Any) -> str | None:
        """Return the text as it is stored."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class LongWords(Words):
    """The same without a bound."""

    impl = sa.Text
    cache_ok = True


class Packed(sa.TypeDecorator[Row]):
    """A mapping as JSON; a long one compressed to a third (the best level takes six times as long, to save 6 %)."""

    impl = sa.JSON
    cache_ok = True
    LONG = 1_000  # characters
    KEY = "packed"

    def process_bind_param(self, value: Row | None, _dialect: Any) -> Row | None:
        """Return the mapping as it is stored."""
        text = json.dumps(value).encode()
        return value if len(text) < self.LONG else {self.KEY: b64encode(zlib.compress(text, 1)).decode()}

    def process_result_value(self, value: Row | None, _dialect: Any) -> Row | None:
        """Return the mapping as it was given; those of former versions were not compressed."""
        if value is None or self.KEY not in value:
            return value
        result: Row = json.loads(zlib.decompress(b64decode(value[self.KEY])))
        return result


NAME = Words(100)
ID = Words(64)
WORD = Words(16)
TEXT = LongWords()
JSON = sa.JSON(none_as_null=True)
TIME = sa.Double
# counts for ever: no event has a number that another had
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

NAMES = {kind: f"{kind}_%(table_name)s_%(column_0_N_name)s" for kind in ("uq", "fk")}
NAMES |= {"ix": "ix_%(column_0_N_label)s", "pk": "pk_%(table_name)s"}
metadata = sa.MetaData(naming_convention=NAMES)


def _stamp(table: str) -> sa.Column[int]:
    of_now = f"(SELECT epoch FROM clusters WHERE clusters.id = {table}.cluster_id)"  # noqa: S608 - ours
    epoch = sa.text(f"COALESCE({of_now}, 0)")  # a job without a cluster has none
    return sa.Column("stamp", sa.BigInteger, nullable=False, server_default="0", onupdate=epoch)


def _index_where(name: str, condition: str, *columns: str) -> sa.Index:
    """Index the rows that meet a condition; a statement must say the same to be answered from it."""
    where = sa.text(condition)
    return sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


def _columns(kind: Any, *names: str, null: bool = False) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind, nullable=null) for name in names)


def _cluster_id(*, primary_key: bool = False, index: bool = False) -> sa.Column[str]:
    cluster = sa.ForeignKey("clusters.id", ondelete="CASCADE")
    return sa.Column("cluster_id", ID, cluster, nullable=False, primary_key=primary_key, index=index)


def _by_cluster(name: str, *columns: Any) -> sa.Table:
    """Return a table whose rows are of a cluster, and go with it."""
    return sa.Table(name, metadata, _cluster_id(primary_key=True), *columns)


clusters = sa.Table(
    "clusters",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("name", NAME, nullable=False, unique=True),
    sa.Column("levels", WORD, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("clock", sa.BigInteger, nullable=False),
    *_columns(NAME, "worker_type", "policy"),
    *_columns(JSON, "settings", "memory"),
    sa.Column("created_at", TIME, nullable=False),
    sa.Column("limits", JSON, nullable=False, server_default="{}"),
    *_columns(TIME, "draining_at", "drained_at", null=True),  # drained: takes nothing new until it is reinstated
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("moves", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("visibility", NAME, nullable=False, server_default="all"),  # whose jobs a requestor's token sees
    sa.Column("noted", sa.BigInteger, nullable=False, server_default="0", index=True),  # see clusters.note
)

# in rows of their own: SQLite writes a row as a whole, and reads past what is long in it
documents = _by_cluster("documents", sa.Column("document", JSON, nullable=False))
deltas = _by_cluster(
    "deltas",
    sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),  # of the graphs after them
    sa.Column("changes", JSON, nullable=False),
)
subsystems = _by_cluster(
    "subsystems", sa.Column("name", NAME, primary_key=True), sa.Column("document", JSON, nullable=False)
)
summaries = _by_cluster(
    "summaries",
    # of the graphs it was made from, and FORMATS of matching/equivalence/subtree_classes.py
    *_columns(sa.Integer, "revision", "layout"),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

states = _by_cluster(
    "states",
    sa.Column("values", JSON, nullable=False),
    sa.Column("reported_at", TIME, nullable=False),
    sa.Column("reported_clock", sa.BigInteger, nullable=False),
)

workers = _by_cluster(
    "workers",
    sa.Column("name", TEXT, primary_key=True),
    sa.Column("state", WORD, nullable=False),
    sa.Column("since", TIME, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),  # to start a task, one after the other
    sa.Column("losses", sa.Integer, nullable=False, server_default="0"),  # of tasks, no other end between them
    _stamp("workers"),
    sa.Index("ix_workers_stamp", "cluster_id", "stamp"),
    _index_where("ix_workers_there", "state NOT IN ('NEW', 'LOST')", "cluster_id"),
)

changes = sa.Table(
    "changes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    _cluster_id(index=True),
    sa.Column("at", TIME, nullable=False),
    sa.Column("who", NAME, nullable=False),
    sa.Column("what", TEXT, nullable=False),
    *_columns(JSON, "before", "after", null=True),
)

agents = _by_cluster(
    "agents",
    sa.Column("name", TEXT, primary_key=True),
    sa.Column("seen_at", TIME, nullable=False),
    sa.Column("workers", JSON),  # those it speaks for; NULL: all of the cluster
    sa.Column("seq", sa.BigInteger, nullable=False, server_default="0"),  # the highest number of a message of its
    sa.Column("load", JSON),  # of its workers, by name of the value
    *(sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false()) for name in ("keeps", "checks")),
)

credentials = sa.Table(
    "credentials",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("kind", WORD, nullable=False),
    sa.Column("hash", ID, nullable=False, unique=True),
    sa.Column("name", NAME),
    *_columns(JSON, "requestors", "accounts", null=True),  # NULL: any; of accounts, any of the user's
    sa.Column("created_at", TIME, nullable=False),
    *_columns(TIME, "expires_at", "revoked_at", null=True),
    sa.Column("changes", sa.Integer, nullable=False, server_default="0"),  # of what it is good for
)

grants = sa.Table(
    "grants",
    metadata,
    sa.Column(
        "credential_id", ID, sa.ForeignKey("credentials.id", ondelete="CASCADE"), nullable=False, primary_key=True
    ),
    _cluster_id(primary_key=True, index=True),
)

STAGED = "STAGED"  # the state of a row that is no job yet: see jobs.py

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", ID, primary_key=True),
    *_columns(TEXT, "name", "requestor"),
    sa.Column("cluster_id", ID, nullable=False),
    sa.Column("cluster", NAME, nullable=False),
    sa.Column("jobspec", JSON, nullable=False),  # as given: text or mapping
    sa.Column("state", WORD, nullable=False),
    *_columns(sa.Integer, "priority", "nodes"),
    sa.Column("submitted_at", TIME, nullable=False),
    *_columns(TIME, "canceled_at", "ended_at", null=True),
    *_columns(sa.BigInteger, "accepted_clock", "ended_clock", null=True),
    sa.Column("decision", Packed, nullable=False),
    *_columns(JSON, "wait", "awaits", "overrides", null=True),  # awaits: found at its submit, by name
    sa.Column("idempotency", ID, unique=True),  # digest of who asked and their key
    sa.Column("request_digest", ID),
    sa.Column("basis", TEXT, nullable=False, server_default=""),
    sa.Column("tag", TEXT, nullable=False, server_default=""),
    _stamp("jobs"),
    sa.Index("ix_jobs_stamp", "cluster_id", "stamp"),
    # its owner wants it so: what runs is stopped in place, what waits does not start; what waits does not start
    *_columns(TIME, "suspended_at", "held_at", null=True),
    sa.Index("ix_jobs_live", "cluster_id", "state", "accepted_clock", "nodes"),  # for sums of cluster_states.py
    sa.Index("ix_jobs_ended_at", "ended_at"),
    # lists of jobs by each of their filters, see pages.py; the last column DESC NULLS LAST in PostgreSQL
    *(sa.Index(f"ix_pages_{column}", column, "id") for column in ("state", "name")),
    sa.Index("ix_pages_cluster", "cluster_id", "id"),
    sa.Index("ix_pages_cluster_state", "cluster_id", "state", "id"),
    sa.Index("ix_pages_requestor_state", "requestor", "state", "id"),
    sa.Index("ix_pages_cluster_requestor", "cluster_id", "requestor", "state", "id"),
    sa.Index("ix_jobs_ended", "cluster_id", "ended_clock", "accepted_clock", "nodes"),  # the same
    *(sa.Column(name, NAME, nullable=False, server_default="") for name in ("account", "qos")),
    sa.Column("rate", sa.Double, nullable=False, server_default="0"),  # money for a core second, at its submit
    _index_where("ix_jobs_account", "account <> ''", "account", "state"),
    sa.Column("number", sa.BigInteger, nullable=False, server_default="0", index=True),  # see names/numbers.py
    sa.Column("elements", sa.Integer, nullable=False, server_default="0"),
)

unplaced = sa.Table(
    "unplaced",
    metadata,
    sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, primary_key=True),
    sa.Column("reach", ID, index=True),  # NULL: any cluster
    sa.Column("turn", TIME, nullable=False),
    sa.Column("home", ID, nullable=False, server_default=""),  # whose readers are told of it
    *_columns(NAME, "selector", "backend", null=True),
    sa.Column("options", JSON),
)

reaches = sa.Table(
    "reaches",
    metadata,
    sa.Column("reach", ID, nullable=False, primary_key=True),
    _cluster_id(primary_key=True, index=True),
)

records = sa.Table(
    "records",
    metadata,
    sa.Column("digest", ID, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),  # the text, compressed by zlib
)

record_uses = sa.Table(
    "record_uses",
    metadata,
    sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, primary_key=True),
    sa.Column("digest", ID, nullable=False, primary_key=True, index=True),
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("cluster_id", ID, nullable=False),
    *_columns(sa.Integer, "index", "gang", "attempt", "retries_left", "slots"),
    *_columns(TEXT, "name", "agent", "output", "detail"),
    sa.Column("state", WORD, nullable=False),
    sa.Column("placement", JSON, nullable=False),
    sa.Column("exit_code", sa.Integer),
    sa.Column("errors", TEXT, nullable=False, server_default=""),
    *_columns(TIME, "assigned_at", "started_at", "ended_at", "suspended_at", "not_before", null=True),
    sa.Column("expected", TIME, nullable=False, server_default="0"),  # seconds, as those before it ran
    _stamp("tasks"),
    _index_where("ix_tasks_stamp", "stamp > 0", "cluster_id", "stamp"),
    sa.Column("hold", WORD, nullable=False, server_default=""),
    sa.Column("paused", TIME, nullable=False, server_default="0"),
    sa.Column("losses", JSON, nullable=False, server_default="[]"),
    sa.Column("cause", TEXT, nullable=False, server_default=""),
    sa.Column("certificate", sa.LargeBinary),  # of a gang, with its first task
    *_columns(JSON, "pending", "held", null=True),  # why it does not start; paths of what it holds, or amounts alone
    sa.Column("account", NAME, nullable=False, server_default=""),  # of its job
    *_columns(JSON, "preempted", "site", null=True),  # by whom and how it ends; how its site calls it
    sa.Index("ix_tasks_cluster_id_state", "cluster_id", "state"),
    # the order in which a job's tasks wait
    sa.Index("ix_tasks_queue", "job", "state", "expected", "index"),
)

durations = sa.Table(
    "durations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job", ID, nullable=False),  # digest of cluster, requestor and job name
    sa.Column("task", TEXT, nullable=False),
    sa.Column("runs", sa.Integer, nullable=False),
    *_columns(TIME, "mean", "at"),
    sa.UniqueConstraint("job", "task"),
    sa.Index("ix_durations_at", "at"),
)

lengths = sa.Table(
    "lengths",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", ID, nullable=False),  # digest of requestor, job name, task and slots, or of what of it counts
    _cluster_id(index=True),
    sa.Column("recent", sa.LargeBinary, nullable=False),  # seconds of the last runs, the newest last, as float32
    sa.Column("at", TIME, nullable=False, index=True),
    sa.UniqueConstraint("key", "cluster_id"),
)

forecasts = _by_cluster(
    "forecasts",
    sa.Column("at", TIME, nullable=False, server_default="0"),
    sa.Column("content", JSON),  # the room, and what else other processes are to know
    # the last 300 scores, which of them missed their bands, log(actual / predicted) of the last 500 runs: float32
    *_columns(sa.LargeBinary, "scores", "missed", "ratios"),
)

job_etas = sa.Table(
    "job_etas",
    metadata,
    sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, primary_key=True),
    sa.Column("cluster_id", ID, nullable=False),
    *_columns(JSON, "first", "last"),
    sa.Column("score", TIME),  # how the first one turned out; NULL: it has not started
    sa.Index("ix_job_etas_open", "cluster_id", "score"),
)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", ID, primary_key=True),  # SHA-256 of what the browser's cookie holds
    sa.Column("credentials", JSON, nullable=False),  # SHA-256 of the tokens it was opened with
    sa.Column("begun_at", TIME, nullable=False),
    sa.Column("used_at", TIME, nullable=False, index=True),
    sa.Column("acts_until", TIME),  # NULL: it looks only
)

answers = sa.Table(
    "answers",
    metadata,
    sa.Column("id", ID, primary_key=True),  # SHA-256 of an Idempotency-Key and of who asked
    sa.Column("digest", ID, nullable=False),  # of what was asked
    *_columns(JSON, "answer", "secrets"),  # of its secrets the SHA-256
    sa.Column("at", TIME, nullable=False, index=True),
)

symbols = sa.Table(
    "symbols",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("name", TEXT, nullable=False, index=True),
    sa.Column("scope", WORD, nullable=False),
)

tags = sa.Table(
    "tags",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),  # newer ones have larger ids
    _cluster_id(index=True),
    *_columns(TEXT, "requestor", "basis", "tag"),
    sa.Index("ix_tags_requestor_basis", "requestor", "basis"),
)

reservations = sa.Table(
    "reservations",
    metadata,
    sa.Column("id", ID, primary_key=True),
    _cluster_id(index=True),
    sa.Column("requestor", TEXT, nullable=False),  # whose it is
    sa.Column("requestors", JSON),  # whose jobs may run in it; NULL: anybody's
    sa.Column("name", TEXT, nullable=False, server_default=""),
    *_columns(TIME, "start", "end", "created_at"),
    sa.Column("placement", JSON, nullable=False),
    sa.Column("maintenance", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("at_begin", WORD, nullable=False, server_default=""),  # requeue, cancel: what still runs then
)

promises = sa.Table(
    "promises",
    metadata,
    sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, primary_key=True),
    sa.Column("gang", sa.Integer, primary_key=True, autoincrement=False),
    _cluster_id(index=True),
    # space is kept over [at, until)
    *_columns(TIME, "start", "made", "at", "until"),
    sa.Column("booking", JSON, nullable=False),
    sa.Column("basis", WORD, nullable=False),  # the settings it was made under, in short
    sa.Column("broken", JSON),  # what became of the promise before
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("number", NUMBER, primary_key=True),
    sa.Column("at", TIME, nullable=False, index=True),
    sa.Column("cluster_id", ID, nullable=False),
    sa.Column("kind", WORD, nullable=False),
    sa.Column("facts", JSON, nullable=False),
    sa.Index("ix_pages_events", "cluster_id", "number"),
    sqlite_autoincrement=True,
)
