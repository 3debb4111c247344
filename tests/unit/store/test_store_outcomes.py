"""What a COMMIT that is not answered means, and what fails after one that is."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from rainbow import outcome
from rainbow.errors import Unavailable
from rainbow.state_machine import ForAgents
from rainbow.store import Store, jobs, open_store
from rainbow.store.engine import note_for_agents
from tests.support.postgres import Postgres
from tests.support.stores import add_cluster, job, store
from tests.support.unruly import CommitCutter

__all__ = ["store"]  # fixtures
IN_DOUBT = (
    "the connection to the database was lost while it stored this: it may be done; look, or send it again with the "
    "same Idempotency-Key"
)


def add(connection: sa.Connection, key: str = "j1") -> None:
    jobs.add(connection, job(key), "text", {})


def stored(store: Store) -> set[str]:
    with store.read() as connection:
        return {record.id for record in jobs.live(connection, "c1")}


@pytest.fixture
def line(postgres_server: Postgres) -> Iterator[tuple[Store, CommitCutter]]:
    """A store behind a line that can be cut at its COMMIT."""
    url = postgres_server.new_database()
    with CommitCutter(postgres_server.port) as cutter:
        opened = open_store(url.replace(f":{postgres_server.port}/", f":{cutter.port}/"))
        add_cluster(opened)
        yield opened, cutter
        opened.close()
    postgres_server.drop(url)


def write(store: Store) -> None:
    with store.write() as connection:
        add(connection)


WAYS = {"write": write, "together": lambda store: store.together(add)}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("cut", ["before it arrives", "before its answer"])
def test_line_cut_at_commit_is_unknown_whatever_became_of_it(
    line: tuple[Store, CommitCutter], cut: str, how: str
) -> None:
    store, cutter = line
    cutter.at_commit = cut
    with pytest.raises(Unavailable) as raised:
        WAYS[how](store)
    assert (raised.value.message, raised.value.outcome) == (IN_DOUBT, "unknown")
    cutter.at_commit = ""
    assert stored(store) == ({"j1"} if cut == "before its answer" else set())
    store.together(lambda connection: add(connection, "j2"))
    assert "j2" in stored(store)


def test_backend_killed_between_statement_and_commit_is_none(postgres_server: Postgres) -> None:
    url = postgres_server.new_database()
    opened, other = open_store(url), open_store(url)
    add_cluster(opened)

    def add_and_be_killed(connection: sa.Connection) -> None:
        add(connection)
        pid = {"pid": connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()}
        with other.look() as killer:
            killer.execute(sa.text("SELECT pg_terminate_backend(:pid)"), pid)
            while killer.execute(sa.text("SELECT 1 FROM pg_stat_activity WHERE pid = :pid"), pid).scalar():
                pass

    with pytest.raises(Unavailable) as raised:
        opened.together(add_and_be_killed)
    assert raised.value.outcome == "none"
    assert stored(opened) == set()
    opened.close()
    other.close()
    postgres_server.drop(url)


def test_commit_that_the_database_refuses_is_none(postgres_server: Postgres) -> None:
    url = postgres_server.new_database()
    opened = open_store(url)
    with opened.write() as connection:
        connection.exec_driver_sql("CREATE TABLE one (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(sa.exc.IntegrityError), opened.write() as connection:
        connection.exec_driver_sql("INSERT INTO one VALUES (1), (1)")
    with opened.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM one").scalar_one() == 0
    opened.close()
    postgres_server.drop(url)


def test_disk_that_fails_during_a_commit_of_sqlite_is_unknown(tmp_path: Path) -> None:
    """Its write-ahead log may hold the whole of it; in a process of its own, for the limit is a process's."""
    script = """
        import resource, signal, sys
        from rainbow.errors import Unavailable
        from rainbow.store import events, open_store

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = open_store(sys.argv[1])
        unlimited = resource.RLIM_INFINITY
        try:
            with store.write() as connection:
                events.add(connection, 1.0, "c1", "job", text="x" * 15_000)
                resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, unlimited))
        except Unavailable as fault:
            resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
            print(fault.outcome)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "rainbow.db")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "unknown\n"


def test_trouble_before_the_commit_is_none(store: Store) -> None:
    def broken(_: sa.Connection) -> None:
        raise sa.exc.OperationalError("SELECT", None, Exception("away"))

    with pytest.raises(Unavailable) as raised:
        store.together(broken)
    assert raised.value.outcome == "none"


def test_what_fails_after_the_commit_is_logged_and_the_change_is_there(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a listener")

    add_cluster(store)
    store.for_agents = store.observe = broken

    def part(connection: sa.Connection) -> str:
        add(connection)
        note_for_agents(connection, [ForAgents("c1", None, None)])
        return "done"

    assert store.together(part) == "done"
    assert stored(store) == {"j1"}
    assert "after-commit-failed" in capsys.readouterr().out


def test_work_that_has_stored_something_knows_it_and_begins_again(store: Store) -> None:
    outcome.begin_request()
    assert not outcome.has_stored()
    add_cluster(store)
    assert outcome.has_stored()
    outcome.begin_request()
    with store.read() as connection:
        assert jobs.live(connection, "c1") == []
    assert not outcome.has_stored()
    store.together(add)
    assert outcome.has_stored()
    outcome.begin_request()
    with pytest.raises(KeyError):
        store.together(lambda _: {}["no"])
    assert not outcome.has_stored()
