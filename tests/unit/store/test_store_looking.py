"""Looking without a transaction, and connections that have died while nobody used them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from alembic.config import Config

from rainbow.errors import Unavailable
from rainbow.store import Store, events, open_store, postgresql
from rainbow.store.engine import open_engine
from rainbow.store.migrations import upgrade
from tests.support.ports import free_port
from tests.support.postgres import Postgres


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    opened = open_store(database)
    yield opened
    opened.close()


def happen(store: Store) -> None:
    with store.write() as connection:
        events.add(connection, 1.0, "c1", "job")


def test_look_sees_what_comes_meanwhile_and_read_does_not(store: Store) -> None:
    with store.look() as looking, store.read() as reading:
        assert [events.last(looking), events.last(reading)] == [0, 0]
        happen(store)
        assert events.last(looking) == 1
        assert events.last(reading) == 0
    with store.read() as reading:
        assert events.last(reading) == 1


def test_look_leaves_nothing_behind_on_its_connection(store: Store) -> None:
    for _ in range(3):
        with store.look() as connection:
            events.last(connection)
        happen(store)  # on the same connection of the pool: it begins, and commits, as ever
    with store.look() as connection:
        assert events.last(connection) == 3


def test_connection_that_died_while_idle_is_replaced(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres_server.new_database())
    monkeypatch.setattr(postgresql, "TRUSTED", 60.0)
    happen(store)
    _end_the_idle(store)
    with pytest.raises(Unavailable), store.read() as connection:  # used a moment ago: nobody asked whether it lives
        events.last(connection)
    happen(store)
    _end_the_idle(store)
    monkeypatch.setattr(postgresql, "TRUSTED", 0.0)
    happen(store)
    with store.read() as connection:
        assert events.last(connection) == 3
    store.close()


def test_connection_that_only_the_driver_knows_lost_is_thrown_away_in_silence(
    postgres_server: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(postgres_server.new_database())
    with pytest.raises(Unavailable), store.write() as connection:
        events.last(_hung_up(connection))
    happen(store)
    with store.read() as connection:
        assert events.last(connection) == 1
    assert not caplog.records
    store.close()


def _hung_up(connection: sa.Connection) -> sa.Connection:
    """Put a pipe without a reader where the socket was: the driver sees an error before libpq reads an end."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, connection.connection.driver_connection.fileno())  # type: ignore[union-attr]
    os.close(writer)
    return connection


def _end_the_idle(store: Store) -> None:
    """End the server's side of every connection in the pool."""
    with store.look() as connection:
        mine = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
    other = sa.create_engine(store.engine.url.set(drivername="postgresql+psycopg"))
    with other.connect() as connection:
        ending = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid = :pid"
        assert connection.execute(sa.text(ending), {"pid": mine}).scalar_one()
    other.dispose()


def test_a_migration_may_compute_longer_than_a_writer_may_be_idle(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow machine took longer to import Alembic, and was told that this is not a database."""
    ready = upgrade.configuration

    def slowly(connection: sa.Connection) -> Config:
        time.sleep(0.3)
        return ready(connection)

    monkeypatch.setattr(postgresql, "IDLE", 0.1)
    monkeypatch.setattr(upgrade, "configuration", slowly)
    store = open_store(postgres_server.new_empty_database())
    happen(store)
    store.close()


@pytest.mark.parametrize(
    ("servers", "hosts", "ports"),
    [("db1", "db1", "None"), ("db1,db2", "db1,db2", ","), ("127.0.0.1:1,127.0.0.1:2", "127.0.0.1,127.0.0.1", "1,2")],
)
def test_a_url_names_every_server_that_may_take_writes(servers: str, hosts: str, ports: str) -> None:
    engine = open_engine(f"postgresql://ann:x@{servers}/rainbow?target_session_attrs=read-write")
    _, connect = engine.dialect.create_connect_args(engine.url)
    assert (connect["host"], str(connect.get("port")), connect["dbname"]) == (hosts, ports, "rainbow")
    assert (connect["user"], connect["password"], connect["target_session_attrs"]) == ("ann", "x", "read-write")


def test_a_database_without_pool_and_standby_has_no_trouble(store: Store) -> None:
    if not store.many_processes:
        pytest.skip("a file has neither")
    with store.look() as connection:
        assert postgresql.trouble_of(connection, 12) == []


def test_a_database_that_goes_away_while_it_is_looked_at_is_unavailable(store: Store) -> None:
    if not store.many_processes:
        pytest.skip("a file does not go away")
    away = open_engine(f"postgresql://ann:x@127.0.0.1:{free_port()}/rainbow")

    def look() -> None:
        with store.look() as connection:
            connection.engine = away
            postgresql.trouble_of(connection, 60)

    with pytest.raises(Unavailable):
        look()
