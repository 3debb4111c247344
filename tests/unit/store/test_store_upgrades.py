"""A store of any version that holds rows is brought up to date, by one process or by several at the same time."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

from rainbow.errors import ConfigError, Unavailable
from rainbow.store import open_store, sqlite
from rainbow.store.engine import open_engine
from rainbow.store.migrations.upgrade import COMPATIBLE_FROM, MIGRATIONS, configuration, leave_newer, newest
from rainbow.store.schema import metadata
from tests.support.stores import add_cluster, schema_differences

REVISIONS = sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))
KINDS = ["sqlite", "postgresql"]
WORDS = {"policy": "load_based", "worker_type": "node", "levels": "any"}
LISTS = {"delta", "tasks", "attempts", "usage_log"}  # columns whose text is a list, where others hold an object


@pytest.fixture(params=KINDS)
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Yield what makes a database without tables."""
    made, files = list[str](), count()

    def new() -> str:
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path / f'{next(files)}.db'}"
        made.append(request.getfixturevalue("postgres_server").new_empty_database())
        return made[-1]

    yield new
    for url in made:
        request.getfixturevalue("postgres_server").drop(url)


def value_of(column: sa.Column[Any], parents: dict[str, Any]) -> Any:
    """Return a value that a column may hold, of the row that it refers to where it refers to one."""
    for key in column.foreign_keys:
        return parents[key.target_fullname]
    if column.name in WORDS:
        return WORDS[column.name]
    if isinstance(column.type, sa.LargeBinary):
        return b""
    if isinstance(column.type, sa.Boolean):
        return False
    if isinstance(column.type, (sa.Integer, sa.Float)):
        return 1
    if column.primary_key or "id" in column.name or column.name in ("name", "hash", "kind", "state"):
        return f"a {column.name}"
    return "[]" if column.name in LISTS else "{}"


def fill(engine: sa.Engine) -> dict[str, int]:
    """Add a row to each table; return how many each holds."""
    tables = sa.MetaData()
    tables.reflect(engine)
    parents: dict[str, Any] = {}
    counts = {}
    with engine.begin() as connection:
        for table in tables.sorted_tables:
            if table.name == "alembic_version":
                continue
            row = {column.name: value_of(column, parents) for column in table.columns}
            connection.execute(table.insert(), row)
            parents |= {f"{table.name}.{name}": value for name, value in row.items()}
            counts[table.name] = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    return counts


def store_of(revision: str, url: str) -> dict[str, int]:
    """Make the tables of a version and a row in each."""
    engine = open_engine(url)
    keys = sqlite.without_keys(engine) if engine.dialect.name == "sqlite" else nullcontext()
    with keys, engine.begin() as connection:
        command.upgrade(configuration(connection), revision)
    counts = fill(engine)
    engine.dispose()
    return counts


@pytest.mark.parametrize("revision", [each for each in REVISIONS if each >= "0008"])
def test_store_with_a_row_in_each_table_is_upgraded(revision: str, new_database: Callable[[], str]) -> None:
    url = new_database()
    counts = store_of(revision, url)
    store = open_store(url)
    with store.read() as connection:
        assert schema_differences(store, connection) == []
        for name in counts.keys() & metadata.tables.keys():
            table = metadata.tables[name]
            assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() >= counts[name]
    store.close()


def test_migration_that_fails_is_named_and_leaves_the_store(new_database: Callable[[], str]) -> None:
    url = new_database()
    before = store_of("0025", url)
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE forecasts RENAME TO removed")
    with pytest.raises(ConfigError, match=r"^migration 0026 failed on table forecasts: .*; the store is unchanged$"):
        open_store(url)
    with engine.begin() as connection:
        assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == "0025"
        assert connection.scalar(sa.text("SELECT count(*) FROM removed")) == before["forecasts"]
    engine.dispose()


def start_at_once(url: str, processes: int) -> list[tuple[int, str]]:
    """Open a store in several processes at the same time; return how each ended and what it printed."""
    program = (
        "import sys, rainbow.store\nfrom alembic import command\n"
        "print('ready', flush=True)\nsys.stdin.readline()\nrainbow.store.open_store(sys.argv[1]).close()\n"
    )
    each = [
        subprocess.Popen(
            [sys.executable, "-c", program, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    for process in each:
        assert process.stdout is not None
        process.stdout.readline()
    for process in each:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=120) for process in each]
    return [(process.returncode, errors) for process, (_, errors) in zip(each, outputs, strict=True)]


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_processes_that_start_at_once_on_an_empty_database_all_open_it(
    times: int, new_database: Callable[[], str]
) -> None:
    for _ in range(times):
        url = new_database()
        assert start_at_once(url, 4) == [(0, "")] * 4
        engine = open_engine(url)
        with engine.begin() as connection:
            assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == newest()
        engine.dispose()


def test_stored_jobs_are_numbered_the_oldest_first(new_database: Callable[[], str]) -> None:
    url = new_database()
    engine = open_engine(url)
    keys = sqlite.without_keys(engine) if engine.dialect.name == "sqlite" else nullcontext()
    with keys, engine.begin() as connection:
        command.upgrade(configuration(connection), "0028")
    array = {
        "version": 9999,
        "resources": [{"type": "slot", "label": "s", "count": 1, "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["true"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"array": "0-3"}},
    }
    stored = {
        "0003": "no jobspec",
        "0001": {**array, "attributes": {}},
        "0002": array,
        "0004": {"array": "of nothing"},
    }
    tables = sa.MetaData()
    tables.reflect(engine)
    parents = {"clusters.id": "a"}
    with engine.begin() as connection:
        for job, jobspec in stored.items():
            row = {column.name: value_of(column, parents) for column in tables.tables["jobs"].columns}
            row |= {"id": job, "jobspec": json.dumps(jobspec), "idempotency": None, "state": "WAITING"}
            connection.execute(tables.tables["jobs"].insert(), row)
    engine.dispose()
    store = open_store(url)
    with store.read() as connection:
        columns = metadata.tables["jobs"].c
        query = sa.select(columns.id, columns.number, columns.elements).order_by(columns.id)
        assert list(map(tuple, connection.execute(query))) == [
            ("0001", 1, 0),
            ("0002", 2, 4),
            ("0003", 6, 0),
            ("0004", 7, 0),
        ]
        assert connection.execute(sa.select(metadata.tables["numbers"].c.next)).scalar() == 8
    store.close()


def make_newer(url: str, compatible_from: str) -> None:
    """Let the tables be those of a version to come."""
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE jobs ADD COLUMN to_come INTEGER DEFAULT 7 NOT NULL")
        statement = "UPDATE alembic_version SET version_num = '9999', compatible_from = :compatible_from"
        connection.execute(sa.text(statement), {"compatible_from": compatible_from})
    engine.dispose()


def test_newer_tables_that_bear_this_version_are_used_and_left_as_they_are(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    running = open_store(url)
    make_newer(url, newest())
    for store in (running, open_store(url)):
        leave_newer(store.engine)
        add_cluster(store, f"c{id(store)}", f"oak{id(store)}")
        with store.read() as connection:
            assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == "9999"
        store.close()


def test_newer_tables_that_do_not_are_used_no_more_and_words_say_why(new_database: Callable[[], str]) -> None:
    url = new_database()
    running = open_store(url)
    make_newer(url, "9998")
    leave_newer(running.engine)
    words = f"newer version of rainbow .its tables are 9999, known here are {newest()}.*restart this server"
    for use in (running.read, running.look, running.write):
        with pytest.raises(Unavailable, match=words), use():
            pass
    running.close()
    with pytest.raises(ConfigError, match="newer version of rainbow"):
        open_store(url)


ADDS = {"create_table", "create_index", "add_column", "execute", "f", "get_bind"}


@pytest.mark.parametrize("revision", [each for each in REVISIONS if each > COMPATIBLE_FROM])
def test_what_servers_of_before_must_bear_only_adds(revision: str) -> None:
    """A migration that takes something away raises COMPATIBLE_FROM to its own revision."""
    [file] = (MIGRATIONS / "versions").glob(f"{revision}_*.py")
    calls = [node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    named = {call.attr for call in calls if isinstance(call, ast.Attribute) and ast.unparse(call.value) == "op"}
    assert named <= ADDS, f"COMPATIBLE_FROM in upgrade.py must be {revision}"
    assert not re.search(r"\b(DROP|RENAME)\b|ALTER COLUMN", file.read_text())
