"""Writers at once share a commit, and each fault undoes its own part."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from rainbow.errors import Unavailable
from rainbow.state_machine import ForAgents
from rainbow.store import Store, jobs
from rainbow.store.engine import note_for_agents, on_undo, once_stored
from rainbow.write_queue import WriteQueue
from tests.support.stores import job, store

__all__ = ["store"]  # fixtures


def test_writers_at_once_share_commits_and_each_fault_undoes_its_own_part(store: Store) -> None:
    store.writers = WriteQueue(lambda: 0.0)  # no time passes, so that none of it ends a commit
    commits: list[int] = []
    sa.event.listen(store.engine, "commit", lambda _: commits.append(1))
    outcomes: dict[int, str] = {}
    begun = threading.Barrier(40)

    def add(k: int) -> None:
        def part(connection: sa.Connection) -> str:
            jobs.add(connection, job(f"j{k:02}"), "text", {})
            if k % 4 == 0:
                raise KeyError(k)
            return f"done {k}"

        begun.wait()
        try:
            outcomes[k] = store.together(part)
        except KeyError:
            outcomes[k] = "undone"

    threads = [threading.Thread(target=add, args=(k,)) for k in range(40)]
    with store.writers.turn():  # so that all of them wait together
        for thread in threads:
            thread.start()
        while len(store.writers) < 40:
            threading.Event().wait(0.01)
    for thread in threads:
        thread.join()
    assert outcomes == {k: "undone" if k % 4 == 0 else f"done {k}" for k in range(40)}
    with store.read() as connection:
        stored = {record.id for record in jobs.live(connection, "c1")}
    assert stored == {f"j{k:02}" for k in range(40) if k % 4}
    assert len(commits) == 2  # that of the turn which kept them waiting, and theirs


def test_part_behind_more_than_a_commit_takes_has_its_own_result(store: Store) -> None:
    """Another caller's batch is in front of it: the commit that its caller leads may not hold it."""
    results: dict[str, Any] = {}

    def of_batch(k: int) -> Any:
        return lambda _connection: k

    def first(_connection: sa.Connection) -> str:
        return "first"

    def batch() -> None:
        results["batch"] = [work.result for work in store.all_together([of_batch(k) for k in range(1_600)])]

    def single() -> None:
        results["single"] = store.together(first)

    threads = [threading.Thread(target=batch), threading.Thread(target=single)]
    with store.writers.turn():
        threads[0].start()
        while len(store.writers) < 1_600:
            threading.Event().wait(0.01)
        threads[1].start()
        while len(store.writers) < 1_601:
            threading.Event().wait(0.01)
    for thread in threads:
        thread.join()
    assert results == {"batch": list(range(1_600)), "single": "first"}


def test_trouble_fails_the_parts_of_its_commit_and_those_not_yet_taken_go_into_the_next(store: Store) -> None:
    def part(key: str) -> Any:
        return lambda connection: jobs.add(connection, job(key), "text", {})

    def broken(connection: sa.Connection) -> None:
        raise sa.exc.OperationalError("disk full", None, Exception())

    works = store.all_together([part("j1"), broken, part("j2")])
    assert [type(work.fault) for work in works] == [Unavailable, Unavailable, type(None)]
    with store.read() as connection:
        assert [record.id for record in jobs.live(connection, "c1")] == ["j2"]


def test_what_a_part_has_changed_in_memory_is_undone_with_it_before_it_is_answered(store: Store) -> None:
    memory: list[str] = []

    def part(name: str, fault: Exception | None = None) -> Any:
        def do(connection: sa.Connection) -> None:
            memory.append(name)
            on_undo(lambda: memory.remove(name))
            once_stored(lambda: memory.append(f"{name} stored"))
            note_for_agents(connection, [ForAgents(name, None, None)])
            if fault is not None:
                raise fault

        return do

    concerned: list[str] = []
    store.for_agents = lambda some: concerned.extend(one.cluster_id for one in some)
    works = store.all_together([part("a"), part("b", KeyError("b")), part("c")])
    assert [work.fault is None for work in works] == [True, False, True]
    assert memory == ["a", "c", "a stored", "c stored"]
    assert concerned == ["a", "c"]


def test_what_a_commit_that_fails_has_changed_in_memory_is_undone_before_anybody_is_answered(store: Store) -> None:
    memory: list[str] = []
    states: list[list[str]] = []

    def part(connection: sa.Connection) -> None:
        memory.append("told")
        on_undo(memory.clear)
        once_stored(lambda: memory.append("stored"))

    def broken(connection: sa.Connection) -> None:
        raise sa.exc.OperationalError("COMMIT", {}, Exception("away"))

    sa.event.listen(store.engine, "commit", broken)
    for write in (lambda: store.together(part), lambda: _alone(store, part)):
        with pytest.raises(Unavailable):
            write()
        states.append([*memory])
    sa.event.remove(store.engine, "commit", broken)
    assert states == [[], []]
    store.together(part)
    assert memory == ["told", "stored"]


def _alone(store: Store, part: Any) -> None:
    with store.write() as connection:
        part(connection)
