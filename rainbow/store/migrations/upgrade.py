"""The tables of a database, brought up to date by Alembic's migrations.

All migrations that a database lacks are one transaction: they are all done or, after an error, none is. Processes
that start at the same time on one database upgrade it in turn: a process that waited looks again.

Servers of two versions work beside each other while an operator upgrades them one by one. Tables say in
`alembic_version.compatible_from` which servers they are compatible with; a server of before that bears newer tables
leaves them as they are.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from rainbow.errors import ConfigError
from rainbow.store import postgresql, sqlite

if TYPE_CHECKING:
    from alembic.config import Config

COMPATIBLE_FROM = "0035"  # the last migration of the oldest server that works with the tables as they are made here
MIGRATIONS = Path(__file__).parent
STATEMENT_FAULTS = (sa.exc.IntegrityError, sa.exc.ProgrammingError, sa.exc.DataError, sa.exc.NoSuchTableError)
TABLE = re.compile(r"\b(?:INTO|TABLE|UPDATE|FROM)\s+\"?(?:_alembic_tmp_)?(\w+)", re.IGNORECASE)


def upgrade(engine: sa.Engine) -> None:
    """Run every migration the database has not had; ConfigError if one fails, with the database as it was."""
    if is_current(engine):
        return
    from alembic import command  # a server of a store that is up to date starts without it

    on_sqlite = engine.dialect.name == "sqlite"
    with sqlite.without_keys(engine) if on_sqlite else nullcontext(), engine.connect() as connection:
        connection = connection.execution_options(**{sqlite.WRITING: True})  # on SQLite the turn begins here
        with connection.begin():
            if not on_sqlite:
                postgresql.take_upgrade_turn(connection)
            before = _revision(connection)
            if _is_usable(connection, before):  # another process has done it meanwhile
                return
            config = configuration(connection)
            try:
                command.upgrade(config, "head")
            except (sa.exc.DatabaseError, sa.exc.NoSuchTableError) as error:
                if _is_fault_of_statement(error):
                    last = [before or "", *config.attributes["applied"]][-1]
                    raise ConfigError(_failure(error, last)) from error
                raise
            connection.execute(sa.text("UPDATE alembic_version SET compatible_from = :it"), {"it": COMPATIBLE_FROM})


def is_current(engine: sa.Engine) -> bool:
    """Return whether the database needs no migration; ConfigError if its tables are too new to be used."""
    with engine.begin() as connection:
        return _is_usable(connection, _revision(connection))


def is_as_here(engine: sa.Engine) -> bool:
    """Return whether the tables are those of this version, neither older nor newer."""
    with engine.begin() as connection:
        return _revision(connection) == newest()


def leave_newer(engine: sa.Engine) -> None:
    """Use the database no more, with words to each who asks, if another process has made tables that are too new."""
    try:
        is_current(engine)
    except ConfigError as fault:
        postgresql.refuse_all(engine, f"{fault}; restart this server with that version")


def newest() -> str:
    """Return the last migration's revision, the number that its file's name begins with."""
    return _revisions()[-1]


def configuration(connection: sa.Connection) -> Config:
    """Return Alembic's configuration for this connection, without a file; `applied` lists what has been run."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["applied"] = []
    return config


def _revisions() -> list[str]:
    return sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def _revision(connection: sa.Connection) -> str | None:
    """Return the last migration that the database had, as Alembic notes it."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return revision


def _is_usable(connection: sa.Connection, revision: str | None) -> bool:
    last = newest()
    if revision is None or revision <= last:
        return revision == last
    compatible_from = connection.scalar(sa.text("SELECT compatible_from FROM alembic_version"))
    if compatible_from is None or compatible_from > last:
        reason = f"the database is of a newer version of rainbow (its tables are {revision}, known here are {last})"
        raise ConfigError(f"{reason}; install that version, or restore a backup from before into an empty database")
    return True


def _is_fault_of_statement(error: sa.exc.SQLAlchemyError) -> bool:
    """Return whether the database refused a statement, and neither lacks room nor is away."""
    if isinstance(error, sa.exc.OperationalError):
        return getattr(error.orig, "sqlite_errorname", "") == "SQLITE_ERROR"  # no such column, for example
    return isinstance(
        error, (sa.exc.IntegrityError, sa.exc.ProgrammingError, sa.exc.DataError, sa.exc.NoSuchTableError)
    )


def _failure(error: sa.exc.DatabaseError | sa.exc.NoSuchTableError, last: str) -> str:
    """Say which migration failed, the one after the `last` that was run, and on which table."""
    number = next((each for each in _revisions() if each > last), newest())
    if isinstance(error, sa.exc.NoSuchTableError):
        return f"migration {number} failed on table {error}: there is no such table; the store is unchanged"
    table = TABLE.search(error.statement or "")
    on = f" on table {table[1]}" if table else ""
    reason = str(error.orig).strip().splitlines()[0].replace("_alembic_tmp_", "")
    return f"migration {number} failed{on}: {reason}; the store is unchanged"
