"""Turns to write: how long a commit takes parts, who comes next, and what trouble does to whom."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.write_queue import MOST_PARTS, WRITER, Commit, Part, WriteQueue, Writer
from tests.conftest import examples


class Clock:
    """Time that passes where the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Disk:
    """What parts write to: each commit, and what each of its parts took."""

    def __init__(self, commit_seconds: float = 0.0) -> None:
        self.clock = Clock()
        self.queue = WriteQueue(self.clock)
        self.commits: list[list[Any]] = []
        self.commit_seconds = commit_seconds
        self.begin: Callable[[], None] = lambda: None

    def write(self, commit: Commit) -> None:
        self.begin()
        written = []
        while (part := commit.take()) is not None:
            part.result = part.do(self)
            written.append(part.result)
        self.clock.now += self.commit_seconds
        self.commits.append(written)

    def share(self, parts: list[Part[Any]], kind: object = "any") -> list[Part[Any]]:
        self.queue.share(kind, parts, self.write)
        return parts


def taking(name: str, seconds: float = 0.0) -> Part[str]:
    """A part that takes so long and is called so."""

    def do(disk: Disk) -> str:
        disk.clock.now += seconds
        return name

    return Part(do)


def run(caller: str, act: Callable[[], object], weight: float = 1.0) -> None:
    """Act as this caller."""
    WRITER.set(Writer(caller, weight))
    act()


@contextmanager
def waiting(disk: Disk, *calls: tuple[str, Callable[[], object]]) -> Iterator[None]:
    """Let callers come one after the other while somebody has the turn; end when all of them are done."""
    threads = []

    with disk.queue.turn():
        for caller, act in calls:
            before = len(disk.queue)
            threads.append(threading.Thread(target=run, args=(caller, act)))
            threads[-1].start()
            while len(disk.queue) == before:
                threading.Event().wait(0.001)
        yield
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_empty_call_queues_nothing_and_returns() -> None:
    disk = Disk()
    with disk.queue.turn():  # nobody would be there to lead it
        thread = threading.Thread(target=disk.share, args=([],))
        thread.start()
        thread.join(5)
        assert not thread.is_alive()
    assert disk.commits == []


def test_commit_takes_parts_for_twenty_milliseconds_where_others_wait() -> None:
    disk = Disk()
    names = [f"a{k}" for k in range(8)]
    calls = [
        ("a", lambda: disk.share([taking(name, 0.009) for name in names])),
        ("b", lambda: disk.share([taking("b")])),
    ]
    with waiting(disk, *calls):
        pass
    assert disk.commits[0] == ["a0", "b", "a1", "a2"]  # 27 ms: the part that ends it was begun before 20 ms
    assert [name for commit in disk.commits for name in commit if name != "b"] == names


@pytest.mark.parametrize(("commit", "parts"), [(0.001, 2), (0.05, 5), (3.0, 10)])
def test_commit_takes_parts_for_as_long_as_the_last_one_took_to_end(commit: float, parts: int) -> None:
    disk = Disk(commit)
    disk.share([taking("first")])
    first = [taking(f"a{k}", 0.011) for k in range(12)]
    with waiting(disk, ("a", lambda: disk.share(first)), ("b", lambda: disk.share([taking("b")]))):
        pass
    assert len([name for name in disk.commits[1] if name != "b"]) == parts


def test_caller_alone_fills_a_commit_for_longer_but_never_beyond_its_parts() -> None:
    disk = Disk()
    disk.share([taking("a", 0.03) for _ in range(5)])
    assert list(map(len, disk.commits)) == [4, 1]  # 120 ms: begun before 100 ms
    disk.commits.clear()
    disk.share([taking("a") for _ in range(2 * MOST_PARTS + 1)])
    assert list(map(len, disk.commits)) == [MOST_PARTS, MOST_PARTS, 1]


def test_only_parts_of_one_kind_share_a_commit_and_a_turn_is_nobody_elses() -> None:
    disk = Disk()

    def own() -> None:
        with disk.queue.turn():
            disk.commits.append(["own"])

    with waiting(
        disk,
        ("a", lambda: disk.share([taking("a1"), taking("a2")], "beside")),
        ("b", own),
        ("c", lambda: disk.share([taking("c")], "alone")),
        ("d", lambda: disk.share([taking("d")], "beside")),
    ):
        pass
    assert disk.commits == [["a1", "a2", "d"], ["own"], ["c"]]


def test_weight_counts() -> None:
    disk = Disk()
    reports = [taking("report", 0.01) for _ in range(8)]

    def report() -> None:
        run("agent", lambda: disk.share(reports), weight=4.0)

    with waiting(disk, ("agent", report), ("user", lambda: disk.share([taking("submit", 0.01) for _ in range(8)]))):
        pass
    first_ten = [name for commit in disk.commits for name in commit][:10]
    assert first_ten.count("report") == 8


def test_trouble_fails_the_parts_in_the_commit_and_the_others_go_into_the_next() -> None:
    disk, trouble = Disk(), OSError("away")

    def broken(_disk: Disk) -> None:
        raise trouble

    parts = disk.share([taking("a"), Part(broken), taking("c")])
    assert [part.fault for part in parts] == [trouble, trouble, None]
    assert disk.commits == [["c"]]


def test_trouble_before_a_part_was_taken_fails_one_part() -> None:
    disk, begun = Disk(), []

    def begin() -> None:
        begun.append(1)
        if len(begun) == 1:
            raise OSError("away")

    disk.begin = begin
    parts = disk.share([taking("a"), taking("b"), taking("c")])
    assert [type(part.fault) for part in parts] == [OSError, type(None), type(None)]
    assert disk.commits == [["b", "c"]]


def test_trouble_is_not_met_once_for_each_part_of_a_call() -> None:
    disk, begun = Disk(), []

    def begin() -> None:
        begun.append(1)
        raise OSError("away")

    disk.begin = begin
    parts = disk.share([taking("a") for _ in range(1_000)])
    assert {type(part.fault) for part in parts} == {OSError}
    assert len(begun) == 2
    disk.begin = lambda: None
    assert [part.result for part in disk.share([taking("later")])] == ["later"]


def test_fault_of_a_commit_is_every_parts_and_nobody_waits_for_ever() -> None:
    disk, results = Disk(), []

    def call(name: str) -> Callable[[], object]:
        return lambda: results.extend(disk.share([taking(name)]))

    def begin() -> None:
        raise OSError("away")

    disk.begin = begin
    with waiting(disk, *((name, call(name)) for name in "abcdef")):
        pass
    assert [type(part.fault) for part in results] == [OSError] * 6


def test_second_turn_inside_a_turn_is_refused_instead_of_waited_for() -> None:
    disk = Disk()
    with disk.queue.turn(), pytest.raises(RuntimeError, match="cannot wait for another turn"), disk.queue.turn():
        pass
    with disk.queue.turn(), pytest.raises(RuntimeError, match="cannot wait for another turn"):
        disk.share([taking("a")])
    assert disk.share([taking("b")])[0].result == "b"


def test_fault_inside_a_turn_passes_it_on() -> None:
    disk = Disk()
    with pytest.raises(KeyError), disk.queue.turn():
        raise KeyError
    with disk.queue.turn():
        pass


work = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["alone", "beside", "own"]),
        st.lists(st.sampled_from([0.0, 0.004, 0.03, -1.0]), max_size=5),  # -1: it raises
    ),
    max_size=7,
)


@settings(max_examples=examples(40), deadline=None)
@given(work, st.sampled_from([0.0, 0.04]))
def test_each_part_is_written_once_or_has_a_fault_whatever_comes(calls: Any, commit: float) -> None:
    disk = Disk(commit)
    everything: list[Part[Any]] = []
    owned: list[int] = []

    def broken(_disk: Disk) -> None:
        raise OSError

    def bring(kind: str, parts: list[Part[Any]]) -> Callable[[], object]:
        def own() -> None:
            with disk.queue.turn():
                owned.append(1)

        return own if kind == "own" else lambda: disk.share(parts, kind)

    threads = []
    with disk.queue.turn():
        for k, (caller, kind, lengths) in enumerate(calls):
            parts = [Part(broken) if s < 0 else taking(f"{k}.{n}", s) for n, s in enumerate(lengths)]
            everything += parts if kind != "own" else []

            threads.append(threading.Thread(target=run, args=(caller, bring(kind, parts))))
            threads[-1].start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    written = [name for commit in disk.commits for name in commit]
    assert len(set(written)) == len(written)
    assert all(part.done for part in everything)
    assert sorted(written) == sorted(str(part.result) for part in everything if part.fault is None)
    assert len(owned) == sum(kind == "own" for _, kind, _ in calls)
    assert len(disk.queue) == 0
